// cuBLAS's functions for the emulated driver: plain loops in double precision.
#include <cstdint>
#include <cstring>

enum { REAL_32F = 0, REAL_64F = 1, REAL_16BF = 14 };

static double load(const void *p, int type, long long i) {
    if (type == REAL_64F) return ((const double *)p)[i];
    if (type == REAL_32F) return ((const float *)p)[i];
    uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static void store(void *p, int type, long long i, double x) {
    if (type == REAL_64F) {
        ((double *)p)[i] = x;
        return;
    }
    float f = (float)x;
    if (type == REAL_32F) {
        ((float *)p)[i] = f;
        return;
    }
    uint32_t u;
    memcpy(&u, &f, 4);
    ((uint16_t *)p)[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

extern "C" {

int cublasCreate_v2(void **handle) {
    *handle = new int(0);
    return 0;
}

int cublasDestroy_v2(void *handle) {
    delete (int *)handle;
    return 0;
}

int cublasSetStream_v2(void *, void *) { return 0; }
int cublasSetWorkspace_v2(void *, void *, size_t) { return 0; }

int cublasGetVersion_v2(void *, int *version) {
    *version = 1;
    return 0;
}

// c (m, n) = alpha · op(a) · op(b) + beta · c, column-major.
int cublasGemmStridedBatchedEx(void *, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a,
                               int lda, long long sa, const void *b, int type_b, int ldb, long long sb,
                               const void *beta, void *c, int type_c, int ldc, long long sc, int batch, int, int) {
    int scalar = type_a == REAL_64F ? REAL_64F : REAL_32F;
    double al = load(alpha, scalar, 0), be = load(beta, scalar, 0);
    if (lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m) return 7; // invalid value
    for (long long q = 0; q < batch; q++)
        for (long long j = 0; j < n; j++)
            for (long long i = 0; i < m; i++) {
                double sum = 0;
                for (long long l = 0; l < k; l++)
                    sum += load(a, type_a, q * sa + (ta ? l + i * lda : i + l * lda)) *
                           load(b, type_b, q * sb + (tb ? j + l * ldb : l + j * ldb));
                long long at = q * sc + i + j * ldc;
                store(c, type_c, at, al * sum + (be != 0 ? be * load(c, type_c, at) : 0));
            }
    return 0;
}

int cublasGemmEx(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,
                 const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute,
                 int algorithm) {
    return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c, type_c,
                                      ldc, 0, 1, compute, algorithm);
}
}
