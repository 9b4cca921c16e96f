// Conversion between element types. FROM and TO are float, double or bf16.
// y = x, or y += x with accumulate. Eight elements a thread.
#define EACH 8
extern "C" __global__ void cast(const FROM *x, TO *y, i64 n, int accumulate) {
    i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * EACH;
    if (i + EACH <= n && !((u64)x % (4 * sizeof(FROM))) && !((u64)y % (4 * sizeof(TO)))) {
        Vec<FROM, 4> a[EACH / 4];
        Vec<TO, 4> b[EACH / 4];
#pragma unroll
        for (int g = 0; g < EACH / 4; g++) a[g] = load4(x + i + 4 * g);
#pragma unroll
        for (int g = 0; g < EACH / 4; g++) {
            if (accumulate) b[g] = load4(y + i + 4 * g);
#pragma unroll
            for (int j = 0; j < 4; j++)
                set(b[g].v[j], (real)to_real(a[g].v[j]) + (accumulate ? (real)to_real(b[g].v[j]) : (real)0));
        }
        // A whole word of 16 bytes where the elements are small.
        if (sizeof(TO) == 2 && (u64)y % 16 == 0) {
            *reinterpret_cast<Vec<TO, EACH> *>(y + i) = *reinterpret_cast<Vec<TO, EACH> *>(b);
            return;
        }
#pragma unroll
        for (int g = 0; g < EACH / 4; g++) store4(y + i + 4 * g, b[g]);
        return;
    }
    for (int j = 0; j < EACH && i + j < n; j++)
        set(y[i + j], (real)to_real(x[i + j]) + (accumulate ? (real)to_real(y[i + j]) : (real)0));
}
