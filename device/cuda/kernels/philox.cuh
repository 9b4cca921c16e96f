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
