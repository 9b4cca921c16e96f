// Random numbers by position: element i of stream s is a function of the seed,
// s and i alone, so any device and any launch shape give the same numbers.
// The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011), with the key
// (seed low, seed high) and the counter (i/4 low, i/4 high, stream low,
// stream high); word i mod 4 of the block belongs to element i.

__device__ __forceinline__ void philox(u64 seed, u64 stream, u64 block, u32 out[4]) {
    u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = (u32)stream, c3 = (u32)(stream >> 32);
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int r = 0; r < 10; r++) {
        u64 a = (u64)0xD2511F53u * c0, b = (u64)0xCD9E8D57u * c2;
        u32 n0 = (u32)(b >> 32) ^ c1 ^ k0, n2 = (u32)(a >> 32) ^ c3 ^ k1;
        c1 = (u32)b;
        c3 = (u32)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

// unit is in [0, 1), a multiple of 2⁻²⁴.
__device__ __forceinline__ float unit(u32 x) { return (float)(x >> 8) * 5.9604644775390625e-8f; }

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
// The mask is drawn again in the backward pass instead of being kept.
extern "C" __global__ void dropout(const elem *x, elem *y, i64 n, int vec, u64 seed, u64 stream, float p, real keep,
                                   int accumulate) {
    i64 i = FLAT_INDEX;
    if (i >= n) return;
    u32 w[4];
    philox(seed, stream, (u64)i / 4, w);
    if (vec && i + 4 <= n && !accumulate) {
        Vec<elem, 4> a = load4(x + i), r;
#pragma unroll
        for (int j = 0; j < 4; j++) set(r.v[j], unit(w[j]) >= p ? to_real(a.v[j]) * keep : (real)0);
        store4(y + i, r);
        return;
    }
    for (int j = 0; j < 4 && i + j < n; j++) {
        real r = unit(w[j]) >= p ? to_real(x[i + j]) * keep : (real)0;
        set(y[i + j], accumulate ? to_real(y[i + j]) + r : r);
    }
}
