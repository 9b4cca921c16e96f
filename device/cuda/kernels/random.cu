// Random initial values and dropout; see philox.cuh.

// y is uniform within ±scale.
extern "C" __global__ void uniform(elem *y, i64 n, u64 seed, u64 stream, double scale) {
    i64 i = FLAT_INDEX;
    if (i >= n) return;
    u32 x[4];
    philox(seed, stream, (u64)i / 4, x);
    for (int j = 0; j < 4 && i + j < n; j++) set(y[i + j], (real)((double)(2 * unit(x[j]) - 1) * scale));
}

// y is normal with the deviation `scale`, by Box and Muller's transform of the
// pairs of words (0, 1) and (2, 3): with u = 1 − unit(first) in (0, 1] and
// v = unit(second), the pair is √(−2 ln u) · (cos 2πv, sin 2πv), computed in double
// and rounded to float, as the cpu device does.
extern "C" __global__ void normal(elem *y, i64 n, u64 seed, u64 stream, double scale) {
    i64 i = FLAT_INDEX;
    if (i >= n) return;
    u32 x[4];
    philox(seed, stream, (u64)i / 4, x);
    float z[4];
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
        double r = sqrt(-2 * log(1 - (double)unit(x[j]))), s, c;
        sincospi(2 * (double)unit(x[j + 1]), &s, &c);
        z[j] = (float)(r * c);
        z[j + 1] = (float)(r * s);
    }
    for (int j = 0; j < 4 && i + j < n; j++) set(y[i + j], (real)((double)z[j] * scale));
}

// Dropout, forward and backward alike: y = x/(1−p) where unit ≥ p, else 0.
// The mask is drawn again in the backward pass instead of being kept. vec says
// that x and y are aligned to packs. A thread does DRAWN elements: a pack or, if
// that is more, what the generator gives at once.
#define DRAWN (WIDTH > 4 ? WIDTH : 4)
extern "C" __global__ void dropout(const elem *x, elem *y, i64 n, int vec, u64 seed, u64 stream, float p, real keep,
                                   int accumulate) {
    const int packs = DRAWN / WIDTH;
    i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * DRAWN;
    if (i >= n) return;
    bool whole = vec && i + DRAWN <= n;
    Pack<elem> a[packs], b[packs];
    if (whole) {
#pragma unroll
        for (int k = 0; k < packs; k++) {
            a[k] = read_pack(x + i + k * WIDTH);
            if (accumulate) b[k] = read_pack(y + i + k * WIDTH);
        }
    }
    u32 w[DRAWN];
#pragma unroll
    for (int k = 0; k < DRAWN; k += 4) {
        u32 four[4];
        philox(seed, stream, (u64)(i + k) / 4, four);
#pragma unroll
        for (int j = 0; j < 4; j++) w[k + j] = four[j];
    }
    if (whole) {
#pragma unroll
        for (int k = 0; k < packs; k++) {
            real v[WIDTH], old[WIDTH] = {};
            widen(a[k], v);
            if (accumulate) widen(b[k], old);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) v[j] = (unit(w[k * WIDTH + j]) >= p ? v[j] * keep : (real)0) + old[j];
            narrow(v, a[k]);
            write_pack(y + i + k * WIDTH, a[k]);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < DRAWN; j++) {
        if (i + j >= n) break;
        real r = unit(w[j]) >= p ? to_real(x[i + j]) * keep : (real)0;
        set(y[i + j], accumulate ? to_real(y[i + j]) + r : r);
    }
}
