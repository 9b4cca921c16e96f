// Kernels that treat tensors as flat: n elements, four for each thread.
// vec says that every pointer is aligned to four elements.

template <class F> __device__ __forceinline__ void map1(const elem *x, elem *y, i64 n, int vec, F f) {
    i64 i = FLAT_INDEX;
    if (vec && i + 4 <= n) {
        Vec<elem, 4> a = load4(x + i), r;
#pragma unroll
        for (int j = 0; j < 4; j++) set(r.v[j], f(to_real(a.v[j])));
        store4(y + i, r);
        return;
    }
    for (int j = 0; j < 4 && i + j < n; j++) set(y[i + j], f(to_real(x[i + j])));
}

template <class F> __device__ __forceinline__ void map2(const elem *x, const elem *y, elem *z, i64 n, int vec, F f) {
    i64 i = FLAT_INDEX;
    if (vec && i + 4 <= n) {
        Vec<elem, 4> a = load4(x + i), b = load4(y + i), r;
#pragma unroll
        for (int j = 0; j < 4; j++) set(r.v[j], f(to_real(a.v[j]), to_real(b.v[j])));
        store4(z + i, r);
        return;
    }
    for (int j = 0; j < 4 && i + j < n; j++) set(z[i + j], f(to_real(x[i + j]), to_real(y[i + j])));
}

// y = value
extern "C" __global__ void fill(elem *y, i64 n, int vec, real value) {
    map1(y, y, n, vec, [=](real) { return value; });
}
// y = x
extern "C" __global__ void copy(const elem *x, elem *y, i64 n, int vec) {
    map1(x, y, n, vec, [](real a) { return a; });
}
// y = factor · x
extern "C" __global__ void scale(const elem *x, elem *y, i64 n, int vec, real factor) {
    map1(x, y, n, vec, [=](real a) { return factor * a; });
}
// out = a + b; out may be a or b.
extern "C" __global__ void add(const elem *a, const elem *b, elem *out, i64 n, int vec) {
    map2(a, b, out, n, vec, [](real a, real b) { return a + b; });
}
// out = a · b; out may be a or b.
extern "C" __global__ void mul(const elem *a, const elem *b, elem *out, i64 n, int vec) {
    map2(a, b, out, n, vec, [](real a, real b) { return a * b; });
}
// y += factor · x
extern "C" __global__ void axpy(const elem *x, elem *y, i64 n, int vec, real factor) {
    map2(x, y, y, n, vec, [=](real a, real b) { return b + factor * a; });
}
// y = x[0], or y += x[0]: the gradient of a sum. factor is 1/n for a mean.
extern "C" __global__ void spread(const real *x, elem *y, i64 n, int vec, real factor, int accumulate) {
    real g = factor * x[0];
    if (accumulate) map1(y, y, n, vec, [=](real a) { return a + g; });
    else map1(y, y, n, vec, [=](real) { return g; });
}

// Activations. Each backward kernel takes what the forward pass kept: the
// result y where the derivative is a function of it, else the operand x.
// dx = dy · f'(x), added to dx when accumulate is set.

__device__ __forceinline__ real sigmoid_of(real x) { return (real)1 / ((real)1 + exp(-x)); }

// gelu_tanh(x) = x/2 · (1 + tanh u), u = √(2/π) · (x + 0.044715 x³), Hendrycks and
// Gimpel 2016. (1 + tanh u)/2 is sigmoid(2u), which does not cancel for negative u.
#define GELU_K ((real)0.79788456080286535588)
#define GELU_C ((real)0.044715)
__device__ __forceinline__ real gelu_tanh_of(real x) {
    return x * sigmoid_of(2 * GELU_K * (x + GELU_C * x * x * x));
}
__device__ __forceinline__ real gelu_tanh_derivative(real x) {
    real s = sigmoid_of(2 * GELU_K * (x + GELU_C * x * x * x));
    return s + x * s * ((real)1 - s) * 2 * GELU_K * ((real)1 + 3 * GELU_C * x * x);
}
// gelu_erf(x) = x · Φ(x), Φ the normal distribution function.
__device__ __forceinline__ real gelu_erf_of(real x) {
    return (real)0.5 * x * ((real)1 + erf(x * (real)0.70710678118654752440));
}
__device__ __forceinline__ real gelu_erf_derivative(real x) {
    real cdf = (real)0.5 * ((real)1 + erf(x * (real)0.70710678118654752440));
    return cdf + x * (real)0.39894228040143267794 * exp((real)-0.5 * x * x);
}
// silu(x) = x · sigmoid(x)
__device__ __forceinline__ real silu_of(real x) { return x * sigmoid_of(x); }
__device__ __forceinline__ real silu_derivative(real x) {
    real s = sigmoid_of(x);
    return s * ((real)1 + x * ((real)1 - s));
}

#define ACTIVATION(name, forward, kept, derivative)                                                            \
    extern "C" __global__ void name##_forward(const elem *x, elem *y, i64 n, int vec) {                        \
        map1(x, y, n, vec, [](real x) { return forward; });                                                    \
    }                                                                                                          \
    extern "C" __global__ void name##_backward(const elem *kept, const elem *dy, elem *dx, i64 n, int vec,     \
                                               int accumulate) {                                               \
        if (accumulate) {                                                                                      \
            i64 i = FLAT_INDEX;                                                                                \
            for (int j = 0; j < 4 && i + j < n; j++) {                                                         \
                real x = to_real(kept[i + j]);                                                                 \
                set(dx[i + j], to_real(dx[i + j]) + to_real(dy[i + j]) * (derivative));                        \
            }                                                                                                  \
            return;                                                                                            \
        }                                                                                                      \
        map2(kept, dy, dx, n, vec, [](real x, real g) { return g * (derivative); });                           \
    }

ACTIVATION(relu, x < 0 ? (real)0 : x, y, x > 0 ? (real)1 : (real)0) // a NaN stays one
ACTIVATION(gelu_tanh, gelu_tanh_of(x), x_, gelu_tanh_derivative(x))
ACTIVATION(gelu_erf, gelu_erf_of(x), x_, gelu_erf_derivative(x))
ACTIVATION(silu, silu_of(x), x_, silu_derivative(x))
ACTIVATION(tanh, tanh(x), y, (real)1 - x * x)
ACTIVATION(sigmoid, sigmoid_of(x), y, x *((real)1 - x))

// swiglu: y = silu(gate) · up
extern "C" __global__ void swiglu_forward(const elem *gate, const elem *up, elem *y, i64 n, int vec) {
    map2(gate, up, y, n, vec, [](real g, real u) { return silu_of(g) * u; });
}
// dgate = dy · up · silu'(gate); dgate may be any operand.
extern "C" __global__ void swiglu_gate(const elem *gate, const elem *up, const elem *dy, elem *dgate, i64 n, int vec,
                                       int accumulate) {
    i64 i = FLAT_INDEX;
    if (vec && i + 4 <= n && !accumulate) {
        Vec<elem, 4> a = load4(gate + i), b = load4(up + i), c = load4(dy + i), r;
#pragma unroll
        for (int j = 0; j < 4; j++) set(r.v[j], to_real(c.v[j]) * to_real(b.v[j]) * silu_derivative(to_real(a.v[j])));
        store4(dgate + i, r);
        return;
    }
    for (int j = 0; j < 4 && i + j < n; j++) {
        real d = to_real(dy[i + j]) * to_real(up[i + j]) * silu_derivative(to_real(gate[i + j]));
        set(dgate[i + j], accumulate ? to_real(dgate[i + j]) + d : d);
    }
}
// dup = dy · silu(gate); dup may be any operand.
extern "C" __global__ void swiglu_up(const elem *gate, const elem *dy, elem *dup, i64 n, int vec, int accumulate) {
    if (accumulate) {
        i64 i = FLAT_INDEX;
        for (int j = 0; j < 4 && i + j < n; j++)
            set(dup[i + j], to_real(dup[i + j]) + to_real(dy[i + j]) * silu_of(to_real(gate[i + j])));
        return;
    }
    map2(gate, dy, dup, n, vec, [](real g, real d) { return d * silu_of(g); });
}

// y = 0, 1, …, n − 1
extern "C" __global__ void positions(int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = i;
}
