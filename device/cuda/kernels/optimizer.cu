// Optimizers over many tensors in one launch. A launch takes up to TENSORS
// tensors; block b works on a chunk of CHUNK elements of the tensor that
// `first` puts it in.
#define TENSORS 64
#define CHUNK 16384

struct Tensors {
    int count;
    int first[TENSORS]; // the first block of each tensor
    i64 n[TENSORS];     // elements
    real *p[TENSORS];   // parameters
    const real *g[TENSORS];
    real *m[TENSORS]; // first state, or null
    real *v[TENSORS]; // second state, or null
};

__device__ __forceinline__ int tensor_of(const Tensors &t) {
    int low = 0, high = t.count - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (t.first[mid] <= (int)blockIdx.x) low = mid;
        else high = mid - 1;
    }
    return low;
}

// Calls f(tensor, element) for the elements of this block's chunk.
template <class F> __device__ __forceinline__ void each(const Tensors &t, F f) {
    int k = tensor_of(t);
    i64 start = (i64)((int)blockIdx.x - t.first[k]) * CHUNK;
    i64 end = start + CHUNK < t.n[k] ? start + CHUNK : t.n[k];
#pragma unroll 4
    for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) f(k, i);
}

// Adam (Kingma and Ba 2014) with weight decay added to the gradient, or, when
// decoupled, AdamW (Loshchilov and Hutter 2017). m and v are the moments; clip,
// where not null, scales the gradients. step = lr/(1 − beta1ᵗ),
// root = √(1 − beta2ᵗ).
extern "C" __global__ void adam(const Tensors t, const real *clip, real lr, real beta1, real beta2, real eps,
                                real decay, int decoupled, real step, real root) {
    real f = clip ? clip[0] : (real)1;
    each(t, [&](int k, i64 i) {
        real p = t.p[k][i], g = t.g[k][i] * f;
        if (decoupled) p *= (real)1 - lr * decay;
        else g += decay * p;
        real m = t.m[k][i], v = t.v[k][i];
        m += ((real)1 - beta1) * (g - m);
        v = beta2 * v + ((real)1 - beta2) * g * g;
        t.m[k][i] = m;
        t.v[k][i] = v;
        t.p[k][i] = p - step * m / (sqrt(v) / root + eps);
    });
}

// AMSGrad (Reddi, Kale and Kumar 2018): the step uses the largest v so far.
struct Largest {
    real *v[TENSORS];
};
extern "C" __global__ void adam_amsgrad(const Tensors t, const Largest top, const real *clip, real lr, real beta1,
                                        real beta2, real eps, real decay, int decoupled, real step, real root) {
    real f = clip ? clip[0] : (real)1;
    each(t, [&](int k, i64 i) {
        real p = t.p[k][i], g = t.g[k][i] * f;
        if (decoupled) p *= (real)1 - lr * decay;
        else g += decay * p;
        real m = t.m[k][i], v = t.v[k][i];
        m += ((real)1 - beta1) * (g - m);
        v = beta2 * v + ((real)1 - beta2) * g * g;
        real l = largest(top.v[k][i], v);
        top.v[k][i] = l;
        t.m[k][i] = m;
        t.v[k][i] = v;
        t.p[k][i] = p - step * m / (sqrt(l) / root + eps);
    });
}

// Stochastic gradient descent as PyTorch defines it: g += decay·p;
// m = momentum·m + (1 − dampening)·g (m = g in the first step);
// p −= lr·(nesterov ? g + momentum·m : m). Without momentum m is not read.
extern "C" __global__ void sgd(const Tensors t, const real *clip, real lr, real momentum, real dampening, real decay,
                               int nesterov, int start) {
    real f = clip ? clip[0] : (real)1;
    each(t, [&](int k, i64 i) {
        real p = t.p[k][i], g = t.g[k][i] * f + decay * p;
        if (momentum != (real)0) {
            real m = start ? g : momentum * t.m[k][i] + ((real)1 - dampening) * g;
            t.m[k][i] = m;
            g = nesterov ? g + momentum * m : m;
        }
        t.p[k][i] = p - lr * g;
    });
}

// Squares of the gradients: partial[first + block] is a chunk's sum. With
// sum_finish of loss.cu they give the global norm.
extern "C" __global__ void squares(const Tensors t, real *partial) {
    real sum = 0;
    each(t, [&](int k, i64 i) { sum += t.g[k][i] * t.g[k][i]; });
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// p = factor[0] · p, by the coefficient that clip_coefficient wrote.
extern "C" __global__ void multiply(const Tensors t, const real *factor) {
    real f = factor[0];
    if (f == (real)1) return;
    each(t, [&](int k, i64 i) { t.p[k][i] *= f; });
}

// coefficient = min(1, limit/(norm + 1e−6)), as torch.nn.utils.clip_grad_norm_.
extern "C" __global__ void clip_coefficient(const real *norm, real *coefficient, real limit) {
    real c = limit / (norm[0] + (real)1e-6);
    coefficient[0] = c < (real)1 ? c : (real)1;
}

// Adafactor (Shazeer and Stern 2018) as PyTorch has it, for a parameter of R × C
// (one leading group). First the factored second moments:
// row (R) += (1 − beta)·(mean over columns of g² − row), one block a row.
extern "C" __global__ void adafactor_rows(const real *g, const real *clip, real *row, int C, real weight) {
    i64 r = blockIdx.x;
    real f = clip ? clip[0] : (real)1, sum = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        real x = g[r * C + c] * f;
        sum += x * x;
    }
    sum = block_sum(sum) / C;
    if (threadIdx.x == 0) row[r] += weight * (sum - row[r]);
}
// Then columns, in two stages: partial (chunks, C) sums of squares, and
// col (C) += (1 − beta)·(mean over rows of g² − col).
extern "C" __global__ void adafactor_columns(const real *g, const real *clip, real *partial, i64 rows, int C,
                                             i64 chunk) {
    __shared__ real part[8][33];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, c = blockIdx.x * 32 + tx;
    i64 first = blockIdx.y * chunk, last = first + chunk < rows ? first + chunk : rows;
    real f = clip ? clip[0] : (real)1, sum = 0;
    if (c < C)
        for (i64 r = first + ty; r < last; r += 8) {
            real x = g[r * C + c] * f;
            sum += x * x;
        }
    part[ty][tx] = sum;
    __syncthreads();
    if (ty == 0 && c < C) {
        for (int k = 1; k < 8; k++) sum += part[k][tx];
        partial[(i64)blockIdx.y * C + c] = sum;
    }
}
extern "C" __global__ void adafactor_columns_finish(const real *partial, real *col, int chunks, int C, i64 rows,
                                                    real weight) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= C) return;
    real sum = 0;
    for (int k = 0; k < chunks; k++) sum += partial[(i64)k * C + c];
    col[c] += weight * (sum / rows - col[c]);
}
// The update of one element: g/√(max(row·col/max(mean(row), eps), eps²)); without
// factors (one dimension), var += (1 − beta)·(g² − var) and g/√(max(var, eps²)).
__device__ __forceinline__ real adafactor_update(const real *g, real f, const real *row, const real *col,
                                                 const real *var, real mean, i64 i, int C, real eps) {
    real v = row ? row[i / C] * col[i % C] / largest(mean, eps) : var[i];
    return g[i] * f / sqrt(largest(v, eps * eps));
}
extern "C" __global__ void adafactor_variance(const real *g, const real *clip, real *var, i64 n, real weight) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    real x = g[i] * (clip ? clip[0] : (real)1);
    var[i] += weight * (x * x - var[i]);
}
// partial: sums over blocks of update² (first half) and p² (second half).
extern "C" __global__ void adafactor_norms(const real *p, const real *g, const real *clip, const real *row,
                                           const real *col, const real *var, const real *mean, real *partial, i64 n,
                                           int C, real eps) {
    real f = clip ? clip[0] : (real)1, m = mean ? mean[0] : (real)0, a = 0, b = 0;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
        real u = adafactor_update(g, f, row, col, var, m, i, C, eps);
        a += u * u;
        b += p[i] * p[i];
    }
    a = block_sum(a);
    b = block_sum(b);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = a;
        partial[gridDim.x + blockIdx.x] = b;
    }
}
// p = p·(1 − lr·decay) − rho·max(eps2, rms(p))/max(1, rms(update)/d) · update.
// norms[0] and norms[1] are Σ update² and Σ p² (of p before decay, as given).
extern "C" __global__ void adafactor_apply(real *p, const real *g, const real *clip, const real *row, const real *col,
                                           const real *var, const real *mean, const real *norms, i64 n, int C,
                                           real eps, real eps2, real d, real rho, real shrink) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    real f = clip ? clip[0] : (real)1, m = mean ? mean[0] : (real)0;
    real u = adafactor_update(g, f, row, col, var, m, i, C, eps);
    real alpha = largest(eps2, sqrt(norms[1] / n)) * rho / largest((real)1, sqrt(norms[0] / n) / d);
    p[i] = p[i] * shrink - alpha * u;
}
