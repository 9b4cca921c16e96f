// This header stands before the toolkit's cuda.h so that gorgonia.org/cu
// v0.9.6 compiles with CUDA 11.8 to 13.
//
// CUDA 13 gave five names another meaning, and points a sixth at a function that
// drivers before 12.8 lack. The driver still exports the old functions, so the
// names are pointed back at them. cgo resolves object-like macros only, hence the
// #define lines without parameters.
#ifndef TIDEMARK_CUDA_H
#define TIDEMARK_CUDA_H

#include_next <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

#if CUDA_VERSION >= 13000
#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#undef cuEventElapsedTime

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult CUDAAPI cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device);
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice to, CUstream stream);
CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count);
CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count);
CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
#define cuCtxCreate cuCtxCreate_v2
#endif

// gorgonia.org/cu initialises the driver when the program starts and ends the
// program where there is none. Programs built with the tag gpu must run on
// such machines too, so its call does nothing and package device/cuda calls
// the driver's function when a device is opened.
static inline CUresult tidemarkInitLater(unsigned int flags) {
	(void)flags;
	return CUDA_SUCCESS;
}
#ifndef TIDEMARK_REAL_CUINIT
#define cuInit tidemarkInitLater
#endif

#ifdef __cplusplus
}
#endif
#endif
