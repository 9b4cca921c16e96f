// Losses, and sums over whole tensors.

// Cross-entropy of N rows of V logits against targets (N). Rows lie `columns`
// elements apart; those after the first V are padding. Rows whose target is
// `ignore` are left out of the mean; any other target outside [0, V) makes it
// NaN.

// What is read at once: 16 bytes, of elements one by one.
typedef Vec<elem, WIDTH> word;
__device__ __forceinline__ word load_word(const elem *p) { return *reinterpret_cast<const word *>(p); }

// Beside numbers of eight bits the fast exponential is exact.
__device__ __forceinline__ real exponential(real x) {
#ifdef __CUDACC_RTC__
    if (sizeof(elem) == 2) return (real)__expf((float)x);
#endif
    return exp(x);
}

// lse (N) = log Σ exp(x), in one pass over the logits: each thread keeps a maximum
// and a sum of exponentials relative to it (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018).
// Rows need not start where a word can be read: what comes before the first such
// place, and after the last, is read one by one.
__device__ __forceinline__ int elements_before(const elem *x, int V) {
    int n = (int)((WIDTH - (u64)x / sizeof(elem) % WIDTH) % WIDTH);
    return n < V ? n : V;
}

extern "C" __global__ void cross_entropy_forward(const elem *x, real *lse, int V, i64 columns) {
    i64 row = blockIdx.x;
    x += row * columns;
    real m = -INFINITE, s = 0;
    auto one = [&](real b) {
        if (b > m) {
            s = s * exponential(m - b) + (real)1;
            m = b;
        } else if (m > -INFINITE) {
            s += exponential(b - m);
        }
    };
    int before = elements_before(x, V), end = before + (V - before) / WIDTH * WIDTH;
    if ((int)threadIdx.x < before) one(to_real(x[threadIdx.x]));
#pragma unroll 2
    for (int c = before + threadIdx.x * WIDTH; c < end; c += blockDim.x * WIDTH) {
        word a = load_word(x + c);
        real b[WIDTH], top = m;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            b[j] = to_real(a.v[j]);
            top = largest(top, b[j]);
        }
        if (top > m) {
            s *= exponential(m - top);
            m = top;
        }
        // A row of nothing but −∞ so far has no finite maximum.
        if (m > -INFINITE)
#pragma unroll
            for (int j = 0; j < WIDTH; j++) s += exponential(b[j] - m);
    }
    if (end + (int)threadIdx.x < V) one(to_real(x[end + threadIdx.x]));
    real top = block_max(m);
    s = block_sum(m > -INFINITE ? s * exp(m - top) : (real)0);
    if (threadIdx.x == 0) lse[row] = top + log(s);
}

// mean = the mean of lse − x[target] over the rows that count, count = how many.
// With none it is NaN, as in PyTorch. One block.
extern "C" __global__ void cross_entropy_mean(const elem *x, const int *targets, const real *lse, real *mean,
                                              int *count, i64 N, int V, i64 columns, int ignore) {
    real sum = 0, n = 0;
    for (i64 i = threadIdx.x; i < N; i += blockDim.x) {
        int t = targets[i];
        if (t == ignore) continue;
        sum += t >= 0 && t < V ? lse[i] - to_real(x[i * columns + t]) : NOT_A_NUMBER;
        n += (real)1;
    }
    sum = block_sum(sum);
    n = block_sum(n);
    if (threadIdx.x == 0) {
        mean[0] = sum / n;
        count[0] = (int)n;
    }
}

// dx = (softmax(x) − onehot(target)) · g/count, 0 in rows left out and in the
// padding; dx may be x. g is a scalar (1), count the number of rows that count.
extern "C" __global__ void cross_entropy_backward(const elem *x, const int *targets, const real *lse, const real *g,
                                                  const int *count, elem *dx, int V, i64 columns, int ignore) {
    i64 row = blockIdx.x;
    x += row * columns;
    dx += row * columns;
    int t = targets[row];
    bool counted = t != ignore;
    real f = counted ? g[0] / (real)count[0] : (real)0, l = lse[row];
    auto one = [&](int c) {
        set(dx[c], counted && c < V ? (exponential(to_real(x[c]) - l) - (real)(c == t)) * f : (real)0);
    };
    int before = elements_before(x, V), end = before + (V - before) / WIDTH * WIDTH;
    if (((u64)dx - (u64)x) % 16) before = V, end = V; // x and dx do not fit together
    for (int c = threadIdx.x; c < before; c += blockDim.x) one(c);
#pragma unroll 2
    for (int c = before + threadIdx.x * WIDTH; c < end; c += blockDim.x * WIDTH) {
        word a = load_word(x + c), r;
#pragma unroll
        for (int j = 0; j < WIDTH; j++)
            set(r.v[j], counted ? (exponential(to_real(a.v[j]) - l) - (real)(c + j == t)) * f : (real)0);
        *reinterpret_cast<word *>(dx + c) = r;
    }
    for (int c = end + threadIdx.x; c < columns; c += blockDim.x) one(c);
}

// Sums of n elements in two stages: partial has one entry for each of up to
// 1024 blocks, and finish adds them up in one block. What is summed: x, or
// (x − y)² where y is given.
extern "C" __global__ void sum_partial(const elem *x, const elem *y, real *partial, i64 n) {
    real sum = 0;
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        real a = to_real(x[i]);
        if (y) {
            a -= to_real(y[i]);
            a *= a;
        }
        sum += a;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// out[0] = factor · Σ partial
extern "C" __global__ void sum_finish(const real *partial, real *out, int parts, real factor) {
    real sum = 0;
    for (int i = threadIdx.x; i < parts; i += blockDim.x) sum += partial[i];
    sum = factor * block_sum(sum);
    if (threadIdx.x == 0) out[0] = sum;
}

// Mean squared error's gradient: dx = factor · g · (x − y), factor = 2/n.
// The gradient with respect to y is its negative: swap the operands.
extern "C" __global__ void mse_backward(const elem *x, const elem *y, const real *g, elem *dx, i64 n, int vec,
                                        real factor, int accumulate) {
    i64 i = FLAT_INDEX;
    real f = factor * g[0];
    if (vec && i + 4 <= n && !accumulate) {
        Vec<elem, 4> a = load4(x + i), b = load4(y + i), r;
#pragma unroll
        for (int j = 0; j < 4; j++) set(r.v[j], f * (to_real(a.v[j]) - to_real(b.v[j])));
        store4(dx + i, r);
        return;
    }
    for (int j = 0; j < 4 && i + j < n; j++) {
        real d = f * (to_real(x[i + j]) - to_real(y[i + j]));
        set(dx[i + j], accumulate ? to_real(dx[i + j]) + d : d);
    }
}
