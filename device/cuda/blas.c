//go:build gpu

// cuBLAS is opened while the program runs, and its few functions that are used
// here are declared here: their interface has been the same from CUDA 11 to 13,
// and building does not need cuBLAS, which is half a gigabyte.
#include "driver.h"

#include <dlfcn.h>
#include <string.h>

// Values of cublas_api.h and library_types.h.
enum { OP_N = 0, OP_T = 1 };
enum { COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69, COMPUTE_64F = 70, COMPUTE_32F_FAST_TF32 = 77 };
enum { REAL_64F = 1, REAL_32F = 0 };
enum { NOT_INITIALIZED = 1, GEMM_DEFAULT = -1 };

typedef struct cublasContext *handle_t;

static struct {
	int (*create)(handle_t *);
	int (*destroy)(handle_t);
	int (*set_stream)(handle_t, CUstream);
	int (*set_workspace)(handle_t, void *, size_t);
	int (*get_version)(handle_t, int *);
	int (*gemm)(handle_t, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,
	            const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute,
	            int algorithm);
	int (*gemm_batched)(handle_t, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a,
	                    int lda, long long sa, const void *b, int type_b, int ldb, long long sb, const void *beta,
	                    void *c, int type_c, int ldc, long long sc, int batch, int compute, int algorithm);
} blas;

char *tidemark_load_blas(const char *path) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *m = dlerror();
		return strdup(m ? m : "unknown error of the loader");
	}
	struct {
		const char *name;
		void **to;
	} functions[] = {
		{"cublasCreate_v2", (void **)&blas.create},
		{"cublasDestroy_v2", (void **)&blas.destroy},
		{"cublasSetStream_v2", (void **)&blas.set_stream},
		{"cublasSetWorkspace_v2", (void **)&blas.set_workspace},
		{"cublasGetVersion_v2", (void **)&blas.get_version},
		{"cublasGemmEx", (void **)&blas.gemm},
		{"cublasGemmStridedBatchedEx", (void **)&blas.gemm_batched},
	};
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		*functions[i].to = dlsym(library, functions[i].name);
		if (!*functions[i].to) {
			const char *m = dlerror();
			return strdup(m ? m : functions[i].name);
		}
	}
	tidemark_load_blaslt(library);
	return NULL;
}

#define BIND \
	do { \
		if (!blas.gemm || tidemark_bind(context) != CUDA_SUCCESS) return NOT_INITIALIZED; \
	} while (0)

int tidemark_blas_create(CUcontext context, void **handle, CUstream stream) {
	BIND;
	int r = blas.create((handle_t *)handle);
	if (r) return r;
	return blas.set_stream(*handle, stream);
}

int tidemark_blas_destroy(CUcontext context, void *handle) {
	BIND;
	return blas.destroy(handle);
}

int tidemark_blas_workspace(CUcontext context, void *handle, uint64_t memory, size_t bytes) {
	BIND;
	return blas.set_workspace(handle, (void *)(uintptr_t)memory, bytes);
}

int tidemark_blas_version(void *handle, int *version) { return blas.get_version(handle, version); }

int tidemark_blas_gemm(CUcontext context, void *handle, int precision, int ta, int tb, int m, int n, int k, double alpha,
                       uint64_t a, int type_a, int64_t lda, int64_t sa, uint64_t b, int type_b, int64_t ldb,
                       int64_t sb, double beta, uint64_t c, int type_c, int64_t ldc, int64_t sc, int batch) {
	BIND;
	float alpha32 = (float)alpha, beta32 = (float)beta;
	const void *pa = &alpha32, *pb = &beta32;
	int compute = precision == 1 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F;
	if (type_a == REAL_64F) {
		compute = COMPUTE_64F;
		pa = &alpha;
		pb = &beta;
	} else if (type_a != REAL_32F) {
		compute = COMPUTE_32F; // bf16 products are exact in float32
	}
	// cuBLAS is column-major: it computes cᵀ = op(b)ᵀ · op(a)ᵀ.
	const void *first = (const void *)(uintptr_t)b, *second = (const void *)(uintptr_t)a;
	void *to = (void *)(uintptr_t)c;
	if (batch == 1)
		return blas.gemm(handle, tb ? OP_T : OP_N, ta ? OP_T : OP_N, n, m, k, pa, first, type_b, (int)ldb, second, type_a,
		                 (int)lda, pb, to, type_c, (int)ldc, compute, GEMM_DEFAULT);
	return blas.gemm_batched(handle, tb ? OP_T : OP_N, ta ? OP_T : OP_N, n, m, k, pa, first, type_b, (int)ldb, sb, second,
	                         type_a, (int)lda, sa, pb, to, type_c, (int)ldc, sc, batch, compute, GEMM_DEFAULT);
}
