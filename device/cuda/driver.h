// What package cuda calls of CUDA beside gorgonia.org/cu: the loading of the
// libraries, launches without garbage, copies, virtual memory and cuBLAS.
#ifndef TIDEMARK_DRIVER_H
#define TIDEMARK_DRIVER_H

#include <cuda.h>
#include <nvrtc.h>
#include <stdint.h>
#include <stdlib.h>

// tidemark_load_* open a library and bind its functions. They return NULL, or
// the loader's message, which the caller frees.
char *tidemark_load_driver(const char *path);
char *tidemark_load_nvrtc(const char *path);
char *tidemark_load_blas(const char *path);

// tidemark_init is cuInit.
CUresult tidemark_init(void);

// tidemark_bind makes the context current in this thread; the functions below
// do so themselves. tidemark_unbind must be called after a context was
// destroyed, since its address may be used again.
CUresult tidemark_bind(CUcontext context);
void tidemark_unbind(void);

// tidemark_launch queues a kernel whose parameters lie in `arguments` as in a C
// structure.
CUresult tidemark_launch(CUcontext context, CUstream stream, CUfunction function, unsigned gx, unsigned gy,
                         unsigned gz, unsigned threads, unsigned shared_bytes, void *arguments, size_t bytes);
CUresult tidemark_allow_shared(CUcontext context, CUfunction function, int bytes);

// tidemark_capture begins to collect what is queued on the stream instead of
// doing it, and tidemark_captured ends that and makes a graph of it.
CUresult tidemark_capture(CUcontext context, CUstream stream);
CUresult tidemark_captured(CUcontext context, CUstream stream, CUgraphExec *graph);
CUresult tidemark_graph_launch(CUcontext context, CUstream stream, CUgraphExec graph);
CUresult tidemark_graph_destroy(CUcontext context, CUgraphExec graph);

CUresult tidemark_zero(CUcontext context, CUstream stream, uint64_t to, size_t bytes);
CUresult tidemark_copy(CUcontext context, CUstream stream, uint64_t to, uint64_t from, size_t bytes);
CUresult tidemark_upload(CUcontext context, CUstream stream, uint64_t to, const void *from, size_t bytes);
CUresult tidemark_download(CUcontext context, CUstream stream, void *to, uint64_t from, size_t bytes);
CUresult tidemark_pinned(CUcontext context, void **memory, size_t bytes);

// Virtual memory: ranges of addresses, and physical memory mapped into them.
CUresult tidemark_granularity(CUcontext context, int device, size_t *bytes);
CUresult tidemark_reserve(CUcontext context, uint64_t *address, size_t bytes);
CUresult tidemark_release(CUcontext context, uint64_t address, size_t bytes);
CUresult tidemark_map(CUcontext context, int device, uint64_t address, size_t bytes);
CUresult tidemark_unmap(CUcontext context, uint64_t address, size_t bytes);

CUresult tidemark_uuid(int device, unsigned char uuid[16]);

// The driver's version as text, and what this process has of a card's memory as
// the driver counts. They return 0, or another number where that is not known.
int tidemark_driver_version(char *text, unsigned bytes);
int tidemark_own_memory(const char *uuid, uint64_t *bytes);

nvrtcResult tidemark_cubin_size(void *program, size_t *bytes);
nvrtcResult tidemark_cubin(void *program, char *to);
nvrtcResult tidemark_architectures(int *count, int *list, int capacity);

// cuBLAS. Matrices are row-major: c (m, n) = alpha · op(a) (m, k) · op(b) (k, n)
// + beta · c, where op is the transpose when ta or tb is set and lda, ldb, ldc are
// the elements from row to row as stored. batch products lie sa, sb, sc
// elements apart. Types are cudaDataType_t's: 0 float, 1 double, 14 bf16.
// precision says what float operands are rounded to: 0 not at all, 1 TF32.
int tidemark_blas_create(CUcontext context, void **handle, CUstream stream);
int tidemark_blas_destroy(CUcontext context, void *handle);
int tidemark_blas_workspace(CUcontext context, void *handle, uint64_t memory, size_t bytes);
int tidemark_blas_version(void *handle, int *version);
int tidemark_blas_gemm(CUcontext context, void *handle, int precision, int ta, int tb, int m, int n, int k, double alpha,
                       uint64_t a, int type_a, int64_t lda, int64_t sa, uint64_t b, int type_b, int64_t ldb,
                       int64_t sb, double beta, uint64_t c, int type_c, int64_t ldc, int64_t sc, int batch);

// cuBLASLt, for sums in float, which tidemark_load_blas also looks for. A product
// of matrices of one type into one of type_c is prepared for its shape and for
// operands that start at multiples of `alignment` bytes, with up to eight
// algorithms to choose from; bias says that a vector of n elements of
// type_c is added to every row.
struct tidemark_product;
void tidemark_load_blaslt(void *library);
int tidemark_product_create(CUcontext context, void *handle, int precision, int type, int type_c, int ta, int tb, int m,
                            int n, int k, int64_t lda, int64_t ldb, int64_t ldc, int bias, size_t workspace_bytes,
                            unsigned alignment, struct tidemark_product **product, int *algorithms);
int tidemark_product_run(CUcontext context, void *handle, CUstream stream, struct tidemark_product *product,
                         int algorithm, uint64_t a, uint64_t b, float beta, uint64_t c, uint64_t bias,
                         uint64_t workspace);
void tidemark_product_destroy(struct tidemark_product *product);

#endif
