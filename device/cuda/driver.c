//go:build gpu

#define TIDEMARK_REAL_CUINIT
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

extern void *tidemark_cuda_table[];
extern const char *tidemark_cuda_names[];
extern void *tidemark_nvrtc_table[];
extern const char *tidemark_nvrtc_names[];

static char *message(void) {
	const char *m = dlerror();
	return strdup(m ? m : "unknown error of the loader");
}

static char *bind_table(const char *path, void **table, const char **names) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) return message();
	for (int i = 0; names[i]; i++) {
		void *f = dlsym(library, names[i]);
		if (f) table[i] = f;
	}
	return NULL;
}

char *tidemark_load_driver(const char *path) { return bind_table(path, tidemark_cuda_table, tidemark_cuda_names); }
char *tidemark_load_nvrtc(const char *path) { return bind_table(path, tidemark_nvrtc_table, tidemark_nvrtc_names); }

CUresult tidemark_init(void) { return cuInit(0); }

static unsigned generation;
static __thread CUcontext bound;
static __thread unsigned bound_generation;

CUresult tidemark_bind(CUcontext context) {
	unsigned now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
	if (bound == context && bound_generation == now) return CUDA_SUCCESS;
	CUresult r = cuCtxSetCurrent(context);
	if (r == CUDA_SUCCESS) {
		bound = context;
		bound_generation = now;
	}
	return r;
}

void tidemark_unbind(void) { __atomic_add_fetch(&generation, 1, __ATOMIC_RELEASE); }

#define BIND \
	do { \
		CUresult r = tidemark_bind(context); \
		if (r != CUDA_SUCCESS) return r; \
	} while (0)

CUresult tidemark_launch(CUcontext context, CUstream stream, CUfunction function, unsigned gx, unsigned gy,
                         unsigned gz, unsigned threads, unsigned shared_bytes, void *arguments, size_t bytes) {
	BIND;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
	                 CU_LAUNCH_PARAM_END};
	return cuLaunchKernel(function, gx, gy, gz, threads, 1, 1, shared_bytes, stream, NULL, extra);
}

CUresult tidemark_allow_shared(CUcontext context, CUfunction function, int bytes) {
	BIND;
	return cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

CUresult tidemark_capture(CUcontext context, CUstream stream) {
	BIND;
	return cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

CUresult tidemark_captured(CUcontext context, CUstream stream, CUgraphExec *graph) {
	BIND;
	CUgraph g = NULL;
	CUresult r = cuStreamEndCapture(stream, &g);
	if (r == CUDA_SUCCESS && !g) r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (r != CUDA_SUCCESS) return r;
	r = cuGraphInstantiateWithFlags(graph, g, 0);
	CUresult destroyed = cuGraphDestroy(g);
	return r == CUDA_SUCCESS ? destroyed : r;
}

CUresult tidemark_graph_launch(CUcontext context, CUstream stream, CUgraphExec graph) {
	BIND;
	return cuGraphLaunch(graph, stream);
}

CUresult tidemark_graph_destroy(CUcontext context, CUgraphExec graph) {
	BIND;
	return cuGraphExecDestroy(graph);
}

CUresult tidemark_zero(CUcontext context, CUstream stream, uint64_t to, size_t bytes) {
	BIND;
	return cuMemsetD8Async(to, 0, bytes, stream);
}

CUresult tidemark_copy(CUcontext context, CUstream stream, uint64_t to, uint64_t from, size_t bytes) {
	BIND;
	return cuMemcpyDtoDAsync(to, from, bytes, stream);
}

CUresult tidemark_upload(CUcontext context, CUstream stream, uint64_t to, const void *from, size_t bytes) {
	BIND;
	return cuMemcpyHtoDAsync(to, from, bytes, stream);
}

CUresult tidemark_download(CUcontext context, CUstream stream, void *to, uint64_t from, size_t bytes) {
	BIND;
	return cuMemcpyDtoHAsync(to, from, bytes, stream);
}

CUresult tidemark_pinned(CUcontext context, void **memory, size_t bytes) {
	BIND;
	return cuMemHostAlloc(memory, bytes, 0);
}

static CUmemAllocationProp physical(int device) {
	CUmemAllocationProp p;
	memset(&p, 0, sizeof p);
	p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	p.location.id = device;
	return p;
}

CUresult tidemark_granularity(CUcontext context, int device, size_t *bytes) {
	BIND;
	CUmemAllocationProp p = physical(device);
	return cuMemGetAllocationGranularity(bytes, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

CUresult tidemark_reserve(CUcontext context, uint64_t *address, size_t bytes) {
	BIND;
	CUdeviceptr p = 0;
	CUresult r = cuMemAddressReserve(&p, bytes, 0, 0, 0);
	*address = p;
	return r;
}

CUresult tidemark_release(CUcontext context, uint64_t address, size_t bytes) {
	BIND;
	return cuMemAddressFree(address, bytes);
}

CUresult tidemark_map(CUcontext context, int device, uint64_t address, size_t bytes) {
	BIND;
	CUmemAllocationProp p = physical(device);
	CUmemGenericAllocationHandle memory;
	CUresult r = cuMemCreate(&memory, bytes, &p, 0);
	if (r != CUDA_SUCCESS) return r;
	r = cuMemMap(address, bytes, 0, memory, 0);
	// The mapping keeps the memory alive, so the handle is not needed again.
	CUresult released = cuMemRelease(memory);
	if (r != CUDA_SUCCESS) return r;
	CUmemAccessDesc access;
	memset(&access, 0, sizeof access);
	access.location = p.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	r = cuMemSetAccess(address, bytes, &access, 1);
	if (r == CUDA_SUCCESS) r = released;
	if (r != CUDA_SUCCESS) cuMemUnmap(address, bytes);
	return r;
}

CUresult tidemark_unmap(CUcontext context, uint64_t address, size_t bytes) {
	BIND;
	return cuMemUnmap(address, bytes);
}

CUresult tidemark_uuid(int device, unsigned char uuid[16]) {
	CUuuid u;
	CUresult r = cuDeviceGetUuid_v2(&u, device); // knows parts of cards too; of CUDA 11.4
	if (r == CUDA_SUCCESS) memcpy(uuid, u.bytes, 16);
	return r;
}

nvrtcResult tidemark_cubin_size(void *program, size_t *bytes) { return nvrtcGetCUBINSize(program, bytes); }
nvrtcResult tidemark_cubin(void *program, char *to) { return nvrtcGetCUBIN(program, to); }

nvrtcResult tidemark_architectures(int *count, int *list, int capacity) {
	nvrtcResult r = nvrtcGetNumSupportedArchs(count);
	if (r != NVRTC_SUCCESS) return r;
	if (*count > capacity) return NVRTC_ERROR_INVALID_INPUT;
	return nvrtcGetSupportedArchs(list);
}
