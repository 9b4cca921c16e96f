// Optimizers over many tensors in one launch. A launch takes up to TENSORS
// tensors; block b works on a chunk of t.chunk elements of the tensor that
// t.first puts it in. Package optim has the formulas.
#define TENSORS 64

struct Tensors {
    int count, chunk;
    int first[TENSORS]; // the first block of each tensor
    i64 n[TENSORS];     // elements
    real *x[TENSORS];   // the result, or the parameters
    real *a[TENSORS];   // operands, gradients and state; null where there is none
    real *b[TENSORS];
    real *c[TENSORS];
    real *d[TENSORS];
};

// a + w·(b − a), as PyTorch computes it.
__device__ __forceinline__ real lerp(real a, real b, real w) {
    return w < (real)0.5 ? a + w * (b - a) : b - (b - a) * ((real)1 - w);
}

// Calls f(tensor, element) for every fourth element, with the three after it
// read and written at once, and one(tensor, element) for what is left over or
// lies where four elements cannot be moved at once.
template <class F, class G> __device__ __forceinline__ void each4(const Tensors &t, F f, G one) {
    int low = 0, high = t.count - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (t.first[mid] <= (int)blockIdx.x) low = mid;
        else high = mid - 1;
    }
    i64 start = (i64)((int)blockIdx.x - t.first[low]) * t.chunk;
    i64 end = start + t.chunk < t.n[low] ? start + t.chunk : t.n[low], i = start;
    u64 all = (u64)t.x[low] | (u64)t.a[low] | (u64)t.b[low] | (u64)t.c[low] | (u64)t.d[low];
    if (all % (4 * sizeof(real)) == 0 && t.chunk % 4 == 0) {
        i64 whole = start + (end - start) / 4 * 4;
#pragma unroll 2
        for (i = start + 4 * threadIdx.x; i < whole; i += 4 * blockDim.x) f(low, i);
        i = whole;
    }
    for (i += threadIdx.x; i < end; i += blockDim.x) one(low, i);
}

typedef Vec<real, 4> real4;
// Four elements at p, or none where there is no list.
__device__ __forceinline__ real4 four(const real *p, i64 i) {
    real4 none = {};
    return p ? load4(p + i) : none;
}

// Elementwise kernels with one scalar v. x, a and b are the elements of the
// lists of these names; reads says whether the old x is one of the operands.
#define LISTS(name, reads, value)                                                                     \
    extern "C" __global__ void name(const Tensors t, real v) {                                        \
        each4(                                                                                        \
            t,                                                                                        \
            [&](int k, i64 i) {                                                                       \
                real4 xs = four(reads ? t.x[k] : 0, i), as = four(t.a[k], i), bs = four(t.b[k], i), r; \
                _Pragma("unroll") for (int j = 0; j < 4; j++) {                                       \
                    real x = xs.v[j], a = as.v[j], b = bs.v[j];                                       \
                    r.v[j] = value;                                                                   \
                }                                                                                     \
                store4(t.x[k] + i, r);                                                                \
            },                                                                                        \
            [&](int k, i64 i) {                                                                       \
                real x = reads ? t.x[k][i] : 0, a = t.a[k] ? t.a[k][i] : 0, b = t.b[k] ? t.b[k][i] : 0; \
                t.x[k][i] = value;                                                                    \
            });                                                                                       \
    }
LISTS(foreach_fill, false, v)
LISTS(foreach_copy, false, a)
LISTS(foreach_sqrt, false, sqrt(a))
LISTS(foreach_square, false, a *a)
LISTS(foreach_add, false, a + v * b)
LISTS(foreach_shift, true, x + v)
LISTS(foreach_scale, true, x *v)
LISTS(foreach_divide, false, a / v)
LISTS(foreach_maximum, true, largest(x, a))
LISTS(foreach_lerp, true, lerp(x, a, v))
LISTS(foreach_addcmul, true, x + v * (a * b))
LISTS(foreach_addcdiv, true, x + v * (a / b))
LISTS(lion_scaled, false, v *a)
LISTS(lion_sign, true, (real)((x > 0) - (x < 0)))
LISTS(adafactor_update, true, a / sqrt(largest(x, v))) // v = eps²

// Adam, AdamW (decoupled) and AMSGrad (d is its largest second moment): x the
// parameters, a gradients, b and c the moments. rate = lr/(1 − beta1ᵗ),
// root = √(1 − beta2ᵗ).
extern "C" __global__ void adam_fused(const Tensors t, real lr, real beta1, real beta2, real eps, real decay, real rate,
                                      real root, int decoupled, int amsgrad) {
    auto update = [&](real &p, real g, real &m, real &v, real &most) {
        if (decoupled) p *= (real)1 - lr * decay;
        else g += decay * p;
        m = lerp(m, g, (real)1 - beta1);
        v = v * beta2 + ((real)1 - beta2) * (g * g);
        real w = v;
        if (amsgrad) w = most = largest(most, v);
        p -= rate * (m / (sqrt(w) / root + eps));
    };
    each4(
        t,
        [&](int k, i64 i) {
            real4 p = load4(t.x[k] + i), g = load4(t.a[k] + i), m = load4(t.b[k] + i), v = load4(t.c[k] + i),
                  most = four(t.d[k], i);
#pragma unroll
            for (int j = 0; j < 4; j++) update(p.v[j], g.v[j], m.v[j], v.v[j], most.v[j]);
            store4(t.x[k] + i, p);
            store4(t.b[k] + i, m);
            store4(t.c[k] + i, v);
            if (amsgrad) store4(t.d[k] + i, most);
        },
        [&](int k, i64 i) {
            real none = 0;
            update(t.x[k][i], t.a[k][i], t.b[k][i], t.c[k][i], amsgrad ? t.d[k][i] : none);
        });
}

// Stochastic gradient descent: x the parameters, a gradients, b the momentum
// buffers, which have no content yet in the first step.
extern "C" __global__ void sgd_fused(const Tensors t, real lr, real momentum, real dampening, real decay, int nesterov,
                                     int first) {
    bool has = momentum != (real)0;
    auto update = [&](real &p, real g, real &m) {
        g += decay * p;
        if (has) {
            m = first ? g : momentum * m + ((real)1 - dampening) * g;
            g = nesterov ? g + momentum * m : m;
        }
        p -= lr * g;
    };
    each4(
        t,
        [&](int k, i64 i) {
            real4 p = load4(t.x[k] + i), g = load4(t.a[k] + i), m = four(has && !first ? t.b[k] : 0, i);
#pragma unroll
            for (int j = 0; j < 4; j++) update(p.v[j], g.v[j], m.v[j]);
            store4(t.x[k] + i, p);
            if (has) store4(t.b[k] + i, m);
        },
        [&](int k, i64 i) {
            real none = 0;
            update(t.x[k][i], t.a[k][i], has ? t.b[k][i] : none);
        });
}

// Lion: x the parameters, a gradients, b the momentum.
extern "C" __global__ void lion_fused(const Tensors t, real lr, real beta1, real beta2, real decay) {
    auto update = [&](real &p, real g, real &m) {
        real u = beta1 * m + ((real)1 - beta1) * g;
        p = p * ((real)1 - lr * decay) - lr * (real)((u > 0) - (u < 0));
        m = beta2 * m + ((real)1 - beta2) * g;
    };
    each4(
        t,
        [&](int k, i64 i) {
            real4 p = load4(t.x[k] + i), g = load4(t.a[k] + i), m = load4(t.b[k] + i);
#pragma unroll
            for (int j = 0; j < 4; j++) update(p.v[j], g.v[j], m.v[j]);
            store4(t.x[k] + i, p);
            store4(t.b[k] + i, m);
        },
        [&](int k, i64 i) { update(t.x[k][i], t.a[k][i], t.b[k][i]); });
}

// Sums in double over the block, left in all its threads.
__device__ __forceinline__ double block_sum_double(double x) {
    __shared__ double part[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (int o = 16; o > 0; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
    __syncthreads(); // part may still be read by the last call
    if (lane == 0) part[warp] = x;
    __syncthreads();
    x = lane < warps ? part[lane] : 0;
    for (int o = 16; o > 0; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
    return x;
}

// partial[block] = the sum of squares of a chunk of x.
extern "C" __global__ void squares(const Tensors t, double *partial) {
    double sum = 0;
    auto add = [&](real x) { sum += (double)x * (double)x; };
    each4(
        t,
        [&](int k, i64 i) {
            real4 x = load4(t.x[k] + i);
#pragma unroll
            for (int j = 0; j < 4; j++) add(x.v[j]);
        },
        [&](int k, i64 i) { add(t.x[k][i]); });
    sum = block_sum_double(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// out = √Σ partial. One block. The result is of type double, or real with single set.
extern "C" __global__ void total_norm(const double *partial, void *out, int parts, int single) {
    double sum = 0;
    for (int i = threadIdx.x; i < parts; i += blockDim.x) sum += partial[i];
    sum = sqrt(block_sum_double(sum));
    if (threadIdx.x) return;
    if (single) *(real *)out = (real)sum;
    else *(double *)out = sum;
}

// x = x · limit/(norm + 1e−6) where that is below 1 and the norm is finite.
extern "C" __global__ void clip(const Tensors t, const double *norm, double limit) {
    double f = limit / (norm[0] + 1e-6);
    if (!(f < 1) || !(norm[0] <= 1.7976931348623157e308)) return;
    each4(
        t,
        [&](int k, i64 i) {
            real4 x = load4(t.x[k] + i);
#pragma unroll
            for (int j = 0; j < 4; j++) x.v[j] *= (real)f;
            store4(t.x[k] + i, x);
        },
        [&](int k, i64 i) { t.x[k][i] *= (real)f; });
}

// Adafactor, for a parameter seen as B matrices of R × C.

// mean of g² over n elements, from their sum, by way of the norm, as PyTorch
// computes it.
__device__ __forceinline__ real mean_square(double sum, i64 n) {
    real norm = (real)sqrt(sum);
    return norm * norm / (real)n;
}

// row (B·R): means over columns, one block a row. add sets row to
// lerp(row, mean, weight) instead of to the mean.
extern "C" __global__ void adafactor_rows(const real *g, real *row, int C, int add, real weight) {
    i64 r = blockIdx.x;
    double sum = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) sum += (double)g[r * C + c] * (double)g[r * C + c];
    real mean = mean_square(block_sum_double(sum), C);
    if (threadIdx.x == 0) row[r] = add ? lerp(row[r], mean, weight) : mean;
}

// Columns in two stages: partial (B, chunks, C) holds sums of squares over chunks
// of rows. Grid: columns/32, chunks, B.
extern "C" __global__ void adafactor_columns(const real *g, double *partial, i64 R, int C, i64 chunk) {
    __shared__ double part[8][33];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, c = blockIdx.x * 32 + tx;
    i64 first = blockIdx.y * chunk, last = first + chunk < R ? first + chunk : R;
    g += blockIdx.z * R * C;
    double sum = 0;
    if (c < C)
#pragma unroll 4
        for (i64 r = first + ty; r < last; r += 8) sum += (double)g[r * C + c] * (double)g[r * C + c];
    part[ty][tx] = sum;
    __syncthreads();
    if (ty == 0 && c < C) {
        for (int k = 1; k < 8; k++) sum += part[k][tx];
        partial[((i64)blockIdx.z * gridDim.y + blockIdx.y) * C + c] = sum;
    }
}
// col (B·C) from partial: means over rows. Grid: columns/128, B.
extern "C" __global__ void adafactor_columns_finish(const double *partial, real *col, int chunks, i64 R, int C, int add,
                                                    real weight) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C) return;
    double sum = 0;
    for (int k = 0; k < chunks; k++) sum += partial[((i64)blockIdx.y * chunks + k) * C + c];
    real mean = mean_square(sum, R), *to = col + (i64)blockIdx.y * C + c;
    *to = add ? lerp(*to, mean, weight) : mean;
}

// mean (B) of row (B, R), one block each; at least eps. The result is of type
// double, or real with single set.
extern "C" __global__ void adafactor_mean(const real *row, void *mean, int R, int single, real eps) {
    double sum = 0;
    for (int r = threadIdx.x; r < R; r += blockDim.x) sum += (double)row[(i64)blockIdx.x * R + r];
    real m = (real)(block_sum_double(sum) / R);
    m = largest(m, eps);
    if (threadIdx.x) return;
    if (single) ((real *)mean)[blockIdx.x] = m;
    else ((double *)mean)[blockIdx.x] = (double)m;
}

// x (B, R, C) = row · col
extern "C" __global__ void adafactor_outer(const real *row, const real *col, real *x, i64 n, int R, int C) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = row[i / C] * col[i / C / R * C + i % C];
}
// x (B, R·C) = x / max(mean (B), eps)
extern "C" __global__ void adafactor_normalize(const real *mean, real *x, i64 n, i64 matrix, real eps) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] /= largest(mean[i / matrix], eps);
}
// v = lerp(v, g², weight)
extern "C" __global__ void adafactor_variance(const real *g, real *v, i64 n, real weight) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] = lerp(v[i], g[i] * g[i], weight);
}

// The update of one element: g/√max(v, eps²) with v = row·col/mean, or the
// variance kept of a vector, when row is null.
struct Factors {
    const real *row, *col, *variance;
    const double *mean; // at least eps
    int R, C;
    real least; // eps²
};
__device__ __forceinline__ real adafactor_element(const Factors &f, real g, i64 i) {
    real v;
    if (f.row) {
        i64 r = i / f.C, b = r / f.R;
        v = f.row[r] * f.col[b * f.C + i % f.C] / (real)f.mean[b];
    } else {
        v = f.variance[i];
    }
    return g / sqrt(largest(v, f.least));
}
// partial: sums over blocks of p² (from 0) and of update² (from 256), for up to
// 256 blocks.
extern "C" __global__ void adafactor_norms(const Factors f, const real *p, const real *g, double *partial, i64 n) {
    double a = 0, b = 0;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
        real u = adafactor_element(f, g[i], i);
        a += (double)p[i] * (double)p[i];
        b += (double)u * (double)u;
    }
    a = block_sum_double(a);
    b = block_sum_double(b);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = a;
        partial[256 + blockIdx.x] = b;
    }
}
// p = shrink·p − rho·max(eps2, rms(p))/max(1, rms(update)/threshold) · update. Every
// block of 256 threads adds the partial sums up for itself.
extern "C" __global__ void adafactor_apply(const Factors f, real *p, const real *g, const double *partial, i64 n,
                                           int parts, double rho, double eps2, double threshold, real shrink) {
    bool mine = (int)threadIdx.x < parts;
    double size = sqrt((double)n);
    double a = sqrt(block_sum_double(mine ? partial[threadIdx.x] : 0)) / size;
    double b = sqrt(block_sum_double(mine ? partial[256 + threadIdx.x] : 0)) / size / threshold;
    real rate = (real)(-(a > eps2 ? a : eps2) * rho / (b > 1 ? b : 1));
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x)
        p[i] = p[i] * shrink + rate * adafactor_element(f, g[i], i);
}
