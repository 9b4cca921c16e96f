//go:build gpu

// cuBLASLt, which comes with cuBLAS: products that add a bias, by an algorithm
// that the caller chooses. As in blas.c, what is used is declared here.
#include "driver.h"

#include <dlfcn.h>
#include <string.h>

// Values of cublasLt.h, cublas_api.h and library_types.h.
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS_POINTER = 8 };
enum { EPILOGUE_BIAS = 4 };
enum { PREFERENCE_WORKSPACE = 1, PREFERENCE_ALIGNMENT_A = 5 };
enum { COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77, REAL_32F = 0 };
enum { NOT_INITIALIZED = 1, MOST = 8 };

// cublasLtMatmulHeuristicResult_t.
struct found {
	uint64_t algorithm[8];
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
};

struct tidemark_product {
	void *desc, *a, *b, *c;
	struct found found[MOST];
	int bias;
};

static struct {
	int (*desc_create)(void **, int compute, int scale);
	int (*desc_set)(void *, int attribute, const void *, size_t);
	int (*desc_destroy)(void *);
	int (*layout_create)(void **, int type, uint64_t rows, uint64_t columns, int64_t ld);
	int (*layout_destroy)(void *);
	int (*preference_create)(void **);
	int (*preference_set)(void *, int attribute, const void *, size_t);
	int (*preference_destroy)(void *);
	int (*heuristic)(void *, void *, void *, void *, void *, void *, void *, int, struct found *, int *);
	int (*matmul)(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *,
	              void *, void *, void *, const uint64_t *, void *, size_t, CUstream);
} lt;

void tidemark_load_blaslt(void *library) {
	struct {
		const char *name;
		void **to;
	} functions[] = {
		{"cublasLtMatmulDescCreate", (void **)&lt.desc_create},
		{"cublasLtMatmulDescSetAttribute", (void **)&lt.desc_set},
		{"cublasLtMatmulDescDestroy", (void **)&lt.desc_destroy},
		{"cublasLtMatrixLayoutCreate", (void **)&lt.layout_create},
		{"cublasLtMatrixLayoutDestroy", (void **)&lt.layout_destroy},
		{"cublasLtMatmulPreferenceCreate", (void **)&lt.preference_create},
		{"cublasLtMatmulPreferenceSetAttribute", (void **)&lt.preference_set},
		{"cublasLtMatmulPreferenceDestroy", (void **)&lt.preference_destroy},
		{"cublasLtMatmulAlgoGetHeuristic", (void **)&lt.heuristic},
		{"cublasLtMatmul", (void **)&lt.matmul},
	};
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		// A library finds the functions of those that it depends on.
		*functions[i].to = dlsym(library, functions[i].name);
		if (!*functions[i].to) {
			memset(&lt, 0, sizeof lt);
			return;
		}
	}
}

int tidemark_product_create(CUcontext context, void *handle, int precision, int type, int type_c, int ta, int tb, int m,
                            int n, int k, int64_t lda, int64_t ldb, int64_t ldc, int bias, size_t workspace_bytes,
                            unsigned alignment, struct tidemark_product **product, int *algorithms) {
	if (!lt.matmul || tidemark_bind(context) != CUDA_SUCCESS) return NOT_INITIALIZED;
	struct tidemark_product *p = calloc(1, sizeof *p);
	if (!p) return NOT_INITIALIZED;
	void *preference = NULL;
	// cuBLAS is column-major: it computes cᵀ = op(b)ᵀ · op(a)ᵀ.
	int32_t first = tb, second = ta, epilogue = EPILOGUE_BIAS;
	int r = lt.desc_create(&p->desc, precision == 1 && type == REAL_32F ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F, REAL_32F);
	if (!r) r = lt.desc_set(p->desc, DESC_TRANSA, &first, sizeof first);
	if (!r) r = lt.desc_set(p->desc, DESC_TRANSB, &second, sizeof second);
	if (!r && bias) r = lt.desc_set(p->desc, DESC_EPILOGUE, &epilogue, sizeof epilogue);
	if (!r) r = lt.layout_create(&p->b, type, tb ? k : n, tb ? n : k, ldb);
	if (!r) r = lt.layout_create(&p->a, type, ta ? m : k, ta ? k : m, lda);
	if (!r) r = lt.layout_create(&p->c, type_c, n, m, ldc);
	if (!r) r = lt.preference_create(&preference);
	if (!r) r = lt.preference_set(preference, PREFERENCE_WORKSPACE, &workspace_bytes, sizeof workspace_bytes);
	uint32_t bytes = alignment;
	for (int i = 0; i < 4 && !r; i++) r = lt.preference_set(preference, PREFERENCE_ALIGNMENT_A + i, &bytes, sizeof bytes);
	int count = 0, good = 0;
	if (!r) r = lt.heuristic(handle, p->desc, p->b, p->a, p->c, p->c, preference, MOST, p->found, &count);
	for (int i = 0; i < count && !r; i++)
		if (p->found[i].state == 0 && p->found[i].workspace <= workspace_bytes) p->found[good++] = p->found[i];
	if (preference) lt.preference_destroy(preference);
	p->bias = bias;
	*algorithms = good;
	if (r || !good) {
		tidemark_product_destroy(p);
		return r ? r : NOT_INITIALIZED;
	}
	*product = p;
	return 0;
}

int tidemark_product_run(CUcontext context, void *handle, CUstream stream, struct tidemark_product *p, int algorithm,
                         uint64_t a, uint64_t b, float beta, uint64_t c, uint64_t bias, uint64_t workspace) {
	if (tidemark_bind(context) != CUDA_SUCCESS) return NOT_INITIALIZED;
	if (p->bias) {
		const void *at = (const void *)(uintptr_t)bias;
		int r = lt.desc_set(p->desc, DESC_BIAS_POINTER, &at, sizeof at);
		if (r) return r;
	}
	const float one = 1;
	void *to = (void *)(uintptr_t)c;
	struct found *f = &p->found[algorithm];
	return lt.matmul(handle, p->desc, &one, (const void *)(uintptr_t)b, p->b, (const void *)(uintptr_t)a, p->a, &beta, to,
	                 p->c, to, p->c, f->algorithm, (void *)(uintptr_t)workspace, f->workspace, stream);
}

void tidemark_product_destroy(struct tidemark_product *p) {
	if (p->desc) lt.desc_destroy(p->desc);
	if (p->a) lt.layout_destroy(p->a);
	if (p->b) lt.layout_destroy(p->b);
	if (p->c) lt.layout_destroy(p->c);
	free(p);
}
