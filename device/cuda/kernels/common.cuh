// What every kernel file begins with. It is put before the file's text; nothing
// is included, so the run-time compiler needs no headers.
//
// REAL is the type of arithmetic (float or double). ELEM is the type that
// activations are stored in: REAL, or bf16 with REAL float. Parameters,
// statistics and their gradients are always REAL.
//
// All sums are taken in an order that depends on the shapes alone, without
// atomic additions, so that two runs give the same bits.
#ifndef ELEM
#define ELEM REAL
#endif

typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

// bf16 is the upper half of a float32.
struct bf16 {
    unsigned short bits;
};

typedef REAL real;
typedef ELEM elem;

__device__ __forceinline__ float to_real(float x) { return x; }
__device__ __forceinline__ double to_real(double x) { return x; }
__device__ __forceinline__ float to_real(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

__device__ __forceinline__ void set(float &to, real x) { to = (float)x; }
__device__ __forceinline__ void set(double &to, real x) { to = (double)x; }
// Rounds to nearest, ties to even; a NaN stays one.
__device__ __forceinline__ void set(bf16 &to, real x) {
    u32 u = __float_as_uint((float)x);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        to.bits = (unsigned short)(u >> 16 | 64);
        return;
    }
    to.bits = (unsigned short)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

// Vec is N consecutive elements, moved by one instruction where they are 16
// bytes or fewer.
template <class T, int N> struct __align__(sizeof(T) * N) Vec {
    T v[N];
};

template <class T> __device__ __forceinline__ Vec<T, 4> load4(const T *p) {
    return *reinterpret_cast<const Vec<T, 4> *>(p);
}
template <class T> __device__ __forceinline__ void store4(T *p, const Vec<T, 4> &x) {
    *reinterpret_cast<Vec<T, 4> *>(p) = x;
}

template <class T> __device__ __forceinline__ T largest(T a, T b) { return a > b ? a : b; }

// warp_sum and warp_max leave the result in all 32 lanes.
__device__ __forceinline__ real warp_sum(real x) {
    for (int o = 16; o > 0; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
    return x;
}
__device__ __forceinline__ real warp_max(real x) {
    for (int o = 16; o > 0; o >>= 1) x = largest(x, (real)__shfl_xor_sync(0xffffffffu, x, o));
    return x;
}

// block_sum leaves the sum over the block in all its threads. blockDim.x is a
// multiple of 32; every thread calls it.
__device__ __forceinline__ real block_sum(real x) {
    __shared__ real part[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    x = warp_sum(x);
    __syncthreads(); // part may still be read by the last call
    if (lane == 0) part[warp] = x;
    __syncthreads();
    return warp_sum(lane < warps ? part[lane] : (real)0);
}
__device__ __forceinline__ real block_max(real x) {
    __shared__ real part[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    x = warp_max(x);
    __syncthreads();
    if (lane == 0) part[warp] = x;
    __syncthreads();
    return warp_max(part[lane < warps ? lane : 0]);
}

// DYNAMIC_SHARED names the memory that the launch gives to each block.
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(T, name) extern __shared__ __align__(16) T name[]
#endif

#define NOT_A_NUMBER ((real)__int_as_float(0x7fc00000))
#define INFINITE ((real)__int_as_float(0x7f800000))

// The i-th group of four elements is this thread's in flat kernels.
#define FLAT_INDEX (((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4)
