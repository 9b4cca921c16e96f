// A sum over the bits of n elements that tells their places apart. It is taken
// modulo 2⁶⁴, so its order does not matter.
extern "C" __global__ void checksum(const elem *x, u64 *sum, i64 n) {
    u64 mine = 0;
    const u32 *bits = (const u32 *)x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x)
        mine += ((u64)bits[i] + 1) * ((u64)i * 0x9E3779B97F4A7C15ull + 0x632BE59BD9B4E019ull);
    for (int o = 16; o > 0; o >>= 1) mine += __shfl_xor_sync(0xffffffffu, mine, o);
    if ((threadIdx.x & 31) == 0) atomicAdd(sum, mine);
}
