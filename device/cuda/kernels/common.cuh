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
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"((float)x));
#else
    u32 u = __float_as_uint((float)x);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        to.bits = (unsigned short)(u >> 16 | 64);
        return;
    }
    to.bits = (unsigned short)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
#endif
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

// Pack is what one instruction moves: 16 bytes, WIDTH elements.
#define WIDTH ((int)(16 / sizeof(elem)))
template <class T> struct Pack {
    Vec<T, 16 / sizeof(T)> x;
};
template <> struct Pack<bf16> {
    Vec<u32, 4> x; // the first of two elements in the lower half
};
template <class T> __device__ __forceinline__ Pack<T> read_pack(const T *p) {
    return *reinterpret_cast<const Pack<T> *>(p);
}
template <class T> __device__ __forceinline__ void write_pack(T *p, const Pack<T> &x) {
    *reinterpret_cast<Pack<T> *>(p) = x;
}
template <class T> __device__ __forceinline__ void widen(const Pack<T> &p, real (&x)[16 / sizeof(T)]) {
#pragma unroll
    for (int j = 0; j < (int)(16 / sizeof(T)); j++) x[j] = p.x.v[j];
}
__device__ __forceinline__ void widen(const Pack<bf16> &p, real (&x)[8]) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        x[2 * j] = __uint_as_float(p.x.v[j] << 16);
        x[2 * j + 1] = __uint_as_float(p.x.v[j] & 0xffff0000u);
    }
}
template <class T> __device__ __forceinline__ void narrow(const real (&x)[16 / sizeof(T)], Pack<T> &p) {
#pragma unroll
    for (int j = 0; j < (int)(16 / sizeof(T)); j++) set(p.x.v[j], x[j]);
}
__device__ __forceinline__ void narrow(const real (&x)[8], Pack<bf16> &p) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p.x.v[j]) : "f"((float)x[2 * j + 1]), "f"((float)x[2 * j]));
#else
        bf16 low, high;
        set(low, x[2 * j]);
        set(high, x[2 * j + 1]);
        p.x.v[j] = low.bits | (u32)high.bits << 16;
#endif
    }
}
// The parameters that belong to a pack of elements.
__device__ __forceinline__ void read_reals(const real *p, real (&x)[WIDTH]) {
    const int n = 16 / sizeof(real);
#pragma unroll
    for (int k = 0; k < WIDTH; k += n) {
        Pack<real> a = read_pack(p + k);
#pragma unroll
        for (int j = 0; j < n; j++) x[k + j] = a.x.v[j];
    }
}

// ROUNDED says that elements have fewer digits than real. What is rounded to them
// may be computed with the card's approximations, whose relative errors are near
// 2⁻²² and whose results below the normal numbers are zero.
#define ROUNDED (sizeof(elem) < sizeof(real))
__device__ __forceinline__ float fast_exp2(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2(x);
#endif
}
__device__ __forceinline__ float fast_reciprocal(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1 / x;
#endif
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
// block_sums is the same for two sums at once.
__device__ __forceinline__ void block_sums(real &x, real &y) {
    __shared__ real part[2][32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    x = warp_sum(x);
    y = warp_sum(y);
    __syncthreads();
    if (lane == 0) {
        part[0][warp] = x;
        part[1][warp] = y;
    }
    __syncthreads();
    x = warp_sum(lane < warps ? part[0][lane] : (real)0);
    y = warp_sum(lane < warps ? part[1][lane] : (real)0);
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

// Sums over rows in two stages. First, a block sums some columns of one chunk of
// rows into partial (chunks, C); with one chunk it writes the result itself. Then
// column_finish of linear.cu sums the chunks.
//
// A block is 256 threads: 256/X rows at a time of X·N columns, N of them a
// thread's. f(first, last, step, column, sums) adds up the thread's rows: those
// from first to before last, in steps.
template <int X, int N, class F>
__device__ __forceinline__ void sum_columns(real *out, i64 rows, int C, i64 chunk, int accumulate, F f) {
    const int Y = 256 / X;
    __shared__ real part[Y][X * N + 1];
    int tx = threadIdx.x % X, ty = threadIdx.x / X, c = (blockIdx.x * X + tx) * N;
    i64 first = blockIdx.y * chunk, last = first + chunk < rows ? first + chunk : rows;
    real sum[N] = {};
    if (c < C) f(first + ty, last, Y, c, sum);
#pragma unroll
    for (int j = 0; j < N; j++) part[ty][tx * N + j] = sum[j];
    __syncthreads();
    c = blockIdx.x * X * N + threadIdx.x;
    if ((int)threadIdx.x >= X * N || c >= C) return;
    real total = 0;
#pragma unroll
    for (int k = 0; k < Y; k++) total += part[k][threadIdx.x];
    out += (i64)blockIdx.y * C + c;
    *out = accumulate ? *out + total : total;
}
