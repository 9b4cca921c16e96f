// CUDA's words in C++, put before a kernel file when it is compiled for the
// emulated driver.
#include "threads.h"

#include <cmath>
#include <cstring>
#include <utility>

static emulate_state *emulate;
extern "C" void emulate_attach(emulate_state *s) { emulate = s; }

#define __device__
#define __global__ __attribute__((used, visibility("default")))
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define DYNAMIC_SHARED(T, name) T *name = reinterpret_cast<T *>(emulate->shared)

#define threadIdx (emulate->thread)
#define blockIdx (emulate->block)
#define blockDim (emulate->block_size)
#define gridDim (emulate->grid)

using std::erf;
using std::exp;
using std::exp2;
using std::log;
using std::log2;
using std::sqrt;
using std::tanh;

static inline void sincospi(double x, double *s, double *c) { sincos(x * 3.14159265358979323846, s, c); }
static inline void sincospi(float x, float *s, float *c) { sincosf(x * 3.14159265f, s, c); }

template <class To, class From> static inline To emulate_bits(From x) {
    To y;
    static_assert(sizeof x == sizeof y, "sizes differ");
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x) { return emulate_bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return emulate_bits<float>(x); }
static inline float __int_as_float(int x) { return emulate_bits<float>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }

static inline void __syncthreads() { emulate->barrier(-1); }
static inline void __syncwarp() { emulate->barrier(threadIdx.x / 32); }

static inline int __syncthreads_or(int x) {
    emulate->slots[threadIdx.x] = x != 0;
    emulate->barrier(-1);
    int any = 0;
    for (unsigned i = 0; i < blockDim.x; i++) any |= (int)emulate->slots[i];
    emulate->barrier(-1);
    return any;
}

template <class T> static inline T emulate_exchange(T x, int from, int lane) {
    int warp = threadIdx.x / 32;
    memcpy(&emulate->slots[threadIdx.x], &x, sizeof x);
    emulate->barrier(warp);
    T y = x;
    if (from >= 0 && from < 32 && warp * 32 + from < (int)blockDim.x)
        memcpy(&y, &emulate->slots[warp * 32 + from], sizeof y);
    emulate->barrier(warp);
    return y;
}
template <class T> static inline T __shfl_xor_sync(unsigned, T x, int mask) {
    int lane = threadIdx.x & 31;
    return emulate_exchange(x, lane ^ mask, lane);
}
template <class T> static inline T __shfl_up_sync(unsigned, T x, int by) {
    int lane = threadIdx.x & 31;
    return emulate_exchange(x, lane - by, lane);
}

#include "tensor.h"

// Calls a kernel with the parameters that lie in p as in a structure.
template <class T> static inline T emulate_take(const char *p, size_t &at) {
    at = (at + alignof(T) - 1) / alignof(T) * alignof(T);
    T x;
    memcpy(&x, p + at, sizeof x);
    at += sizeof x;
    return x;
}
template <class... A> static inline void emulate_invoke(void (*f)(A...), const char *p) {
    size_t at = 0;
    // Braces keep the order of evaluation.
    struct call {
        call(void (*f)(A...), A... a) { f(a...); }
    };
    call{f, emulate_take<A>(p, at)...};
}
