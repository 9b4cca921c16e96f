// Kernels that treat tensors as flat: n elements. vec says that every pointer is
// aligned to a pack.

// out = f(in[0], in[1], …), element by element; out may be any operand. A thread
// reads all its packs before it writes: PACKS of each operand, blockDim.x packs
// apart.
#define PACKS 2
template <int K, class F>
__device__ __forceinline__ void map(const elem *const (&in)[K], elem *out, i64 n, int vec, F f) {
    i64 start = (i64)blockIdx.x * blockDim.x * (PACKS * WIDTH), i = start + threadIdx.x * WIDTH;
    int step = blockDim.x * WIDTH;
    auto pack = [&](const Pack<elem>(&p)[K], i64 at) {
        real x[K][WIDTH], r[WIDTH];
        Pack<elem> y;
#pragma unroll
        for (int k = 0; k < K; k++) widen(p[k], x[k]);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            real a[K];
#pragma unroll
            for (int k = 0; k < K; k++) a[k] = x[k][j];
            r[j] = f(a);
        }
        narrow(r, y);
        write_pack(out + at, y);
    };
    if (vec && start + PACKS * step <= n) {
        Pack<elem> p[PACKS][K];
#pragma unroll
        for (int u = 0; u < PACKS; u++)
#pragma unroll
            for (int k = 0; k < K; k++) p[u][k] = read_pack(in[k] + i + u * step);
#pragma unroll
        for (int u = 0; u < PACKS; u++) pack(p[u], i + u * step);
        return;
    }
    // The last block, or elements that do not lie as packs.
#pragma unroll 1
    for (int u = 0; u < PACKS; u++, i += step) {
        if (vec && i + WIDTH <= n) {
            Pack<elem> p[K];
#pragma unroll
            for (int k = 0; k < K; k++) p[k] = read_pack(in[k] + i);
            pack(p, i);
            continue;
        }
        elem x[WIDTH][K];
#pragma unroll
        for (int j = 0; j < WIDTH; j++)
#pragma unroll
            for (int k = 0; k < K; k++)
                if (i + j < n) x[j][k] = in[k][i + j];
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            if (i + j >= n) break;
            real a[K];
#pragma unroll
            for (int k = 0; k < K; k++) a[k] = to_real(x[j][k]);
            set(out[i + j], f(a));
        }
    }
}

// y = value
extern "C" __global__ void fill(elem *y, i64 n, int vec, real value) {
    map({y}, y, n, vec, [=](const real *) { return value; });
}
// y = factor · x
extern "C" __global__ void scale(const elem *x, elem *y, i64 n, int vec, real factor) {
    map({x}, y, n, vec, [=](const real *a) { return factor * a[0]; });
}
// out = a + b; out may be a or b.
extern "C" __global__ void add(const elem *a, const elem *b, elem *out, i64 n, int vec) {
    map({a, b}, out, n, vec, [](const real *a) { return a[0] + a[1]; });
}
// out = a · b; out may be a or b.
extern "C" __global__ void mul(const elem *a, const elem *b, elem *out, i64 n, int vec) {
    map({a, b}, out, n, vec, [](const real *a) { return a[0] * a[1]; });
}
// y += factor · x
extern "C" __global__ void axpy(const elem *x, elem *y, i64 n, int vec, real factor) {
    map({x, y}, y, n, vec, [=](const real *a) { return a[1] + factor * a[0]; });
}
// y = x[0], or y += x[0]: the gradient of a sum. factor is 1/n for a mean.
extern "C" __global__ void spread(const real *x, elem *y, i64 n, int vec, real factor, int accumulate) {
    real g = factor * x[0];
    if (accumulate) map({y}, y, n, vec, [=](const real *a) { return a[0] + g; });
    else map({y}, y, n, vec, [=](const real *) { return g; });
}

// Activations. Each backward kernel takes what the forward pass kept: the
// result y where the derivative is a function of it, else the operand x.
// dx = dy · f'(x), added to dx when accumulate is set.

__device__ __forceinline__ real sigmoid_of(real x) {
    if (ROUNDED) return (real)fast_reciprocal(1 + fast_exp2((float)x * -1.44269504088896340736f));
    return (real)1 / ((real)1 + exp(-x));
}

// gelu_tanh(x) = x/2 · (1 + tanh u), u = √(2/π) · (x + 0.044715 x³), Hendrycks and
// Gimpel 2016. (1 + tanh u)/2 is sigmoid(2u), which does not cancel for negative u.
#define GELU_K ((real)0.79788456080286535588)
#define GELU_C ((real)0.044715)
__device__ __forceinline__ real gelu_tanh_sigmoid(real x) {
    if (!ROUNDED) return sigmoid_of(2 * GELU_K * (x + GELU_C * x * x * x));
    // −2u · log₂e
    const float a = (float)(-2 * 0.79788456080286535588 * 1.44269504088896340736), b = a * 0.044715f;
    float f = (float)x;
    return (real)fast_reciprocal(1 + fast_exp2(f * (a + b * (f * f))));
}
__device__ __forceinline__ real gelu_tanh_of(real x) { return x * gelu_tanh_sigmoid(x); }
__device__ __forceinline__ real gelu_tanh_derivative(real x) {
    real s = gelu_tanh_sigmoid(x);
    return s + x * (s * ((real)1 - s)) * (2 * GELU_K + 6 * GELU_K * GELU_C * (x * x));
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

#define ACTIVATION(name, forward, kept, derivative)                                                        \
    extern "C" __global__ void name##_forward(const elem *x, elem *y, i64 n, int vec) {                    \
        map({x}, y, n, vec, [](const real *a) {                                                            \
            real x = a[0];                                                                                 \
            return forward;                                                                                \
        });                                                                                                \
    }                                                                                                      \
    extern "C" __global__ void name##_backward(const elem *kept, const elem *dy, elem *dx, i64 n, int vec, \
                                               int accumulate) {                                           \
        auto f = [](const real *a) {                                                                       \
            real x = a[0];                                                                                 \
            return a[1] * (derivative);                                                                    \
        };                                                                                                 \
        if (accumulate) map({kept, dy, dx}, dx, n, vec, [=](const real *a) { return a[2] + f(a); });       \
        else map({kept, dy}, dx, n, vec, f);                                                               \
    }

ACTIVATION(relu, x < 0 ? (real)0 : x, y, x > 0 ? (real)1 : (real)0) // a NaN stays one
ACTIVATION(gelu_tanh, gelu_tanh_of(x), x_, gelu_tanh_derivative(x))
ACTIVATION(gelu_erf, gelu_erf_of(x), x_, gelu_erf_derivative(x))
ACTIVATION(silu, silu_of(x), x_, silu_derivative(x))
ACTIVATION(tanh, tanh(x), y, (real)1 - x * x)
ACTIVATION(sigmoid, sigmoid_of(x), y, x *((real)1 - x))

// y = limit · tanh(x/limit)
extern "C" __global__ void softcap_forward(const elem *x, elem *y, i64 n, int vec, real limit) {
    map({x}, y, n, vec, [=](const real *a) { return limit * tanh(a[0] / limit); });
}
// dx = dy · (1 − (y/limit)²), of which the factor is 1/limit.
extern "C" __global__ void softcap_backward(const elem *y, const elem *dy, elem *dx, i64 n, int vec, real factor,
                                            int accumulate) {
    auto f = [=](const real *a) {
        real t = a[0] * factor;
        return a[1] * ((real)1 - t * t);
    };
    if (accumulate) map({y, dy, dx}, dx, n, vec, [=](const real *a) { return a[2] + f(a); });
    else map({y, dy}, dx, n, vec, f);
}

// name_forward: y = f(gate) · up. name_gate: dgate = dy · up · f'(gate), and name_up:
// dup = dy · f(gate), either of which may be any operand.
#define GATED(name, of, derivative)                                                                              \
    extern "C" __global__ void name##_forward(const elem *gate, const elem *up, elem *y, i64 n, int vec) {       \
        map({gate, up}, y, n, vec, [](const real *a) { return of(a[0]) * a[1]; });                               \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                         \
        name##_gate(const elem *gate, const elem *up, const elem *dy, elem *dgate, i64 n, int vec, int accumulate) { \
        auto f = [](const real *a) { return a[2] * a[1] * derivative(a[0]); };                                   \
        if (accumulate) map({gate, up, dy, dgate}, dgate, n, vec, [=](const real *a) { return a[3] + f(a); });   \
        else map({gate, up, dy}, dgate, n, vec, f);                                                              \
    }                                                                                                            \
    extern "C" __global__ void name##_up(const elem *gate, const elem *dy, elem *dup, i64 n, int vec, int accumulate) { \
        auto f = [](const real *a) { return a[1] * of(a[0]); };                                                  \
        if (accumulate) map({gate, dy, dup}, dup, n, vec, [=](const real *a) { return a[2] + f(a); });           \
        else map({gate, dy}, dup, n, vec, f);                                                                    \
    }

GATED(swiglu, silu_of, silu_derivative)
GATED(geglu, gelu_tanh_of, gelu_tanh_derivative)

// y = 0, 1, …, n − 1
extern "C" __global__ void positions(int *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = i;
}
