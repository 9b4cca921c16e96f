// Normalisations over rows of C elements, one block a row. norm_held.cu has faster
// kernels for rows that fit in registers.

// Layer normalisation (Ba, Kiros and Hinton 2016):
// y = (x − mean) · rstd · w + b, rstd = 1/√(variance + eps).
// x, y (N, C); w, b (C); mean, rstd (N). b may be null.
extern "C" __global__ void layernorm_forward(const elem *x, const real *w, const real *b, elem *y, real *mean,
                                             real *rstd, int C, real eps) {
    i64 row = blockIdx.x;
    x += row * C;
    y += row * C;
    real sum = 0, squares = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) sum += to_real(x[c]);
    real m = block_sum(sum) / C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        real d = to_real(x[c]) - m;
        squares += d * d;
    }
    real s = (real)1 / sqrt(block_sum(squares) / C + eps);
    for (int c = threadIdx.x; c < C; c += blockDim.x)
        set(y[c], (to_real(x[c]) - m) * s * w[c] + (b ? b[c] : (real)0));
    if (threadIdx.x == 0) {
        mean[row] = m;
        rstd[row] = s;
    }
}

// dx = rstd · (g − mean(g) − x̂ · mean(g · x̂)), with g = dy · w and
// x̂ = (x − mean) · rstd. dx may be dy.
extern "C" __global__ void layernorm_backward(const elem *x, const real *w, const real *mean, const real *rstd,
                                              const elem *dy, elem *dx, int C, int accumulate) {
    i64 row = blockIdx.x;
    x += row * C;
    dy += row * C;
    dx += row * C;
    real m = mean[row], s = rstd[row], a = 0, b = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        real g = to_real(dy[c]) * w[c];
        a += g;
        b += g * (to_real(x[c]) - m) * s;
    }
    block_sums(a, b);
    a /= C;
    b /= C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        real d = s * (to_real(dy[c]) * w[c] - a - (to_real(x[c]) - m) * s * b);
        set(dx[c], accumulate ? to_real(dx[c]) + d : d);
    }
}

// Root-mean-square normalisation (Zhang and Sennrich 2019):
// y = x · rstd · (offset + w), rstd = 1/√(mean(x²) + eps).
extern "C" __global__ void rmsnorm_forward(const elem *x, const real *w, elem *y, real *rstd, int C, real eps, real offset) {
    i64 row = blockIdx.x;
    x += row * C;
    y += row * C;
    real squares = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) squares += to_real(x[c]) * to_real(x[c]);
    real s = (real)1 / sqrt(block_sum(squares) / C + eps);
    for (int c = threadIdx.x; c < C; c += blockDim.x) set(y[c], to_real(x[c]) * s * (offset + w[c]));
    if (threadIdx.x == 0) rstd[row] = s;
}

// dx = rstd · (g − x̂ · mean(g · x̂)), with g = dy · (offset + w) and x̂ = x · rstd.
extern "C" __global__ void rmsnorm_backward(const elem *x, const real *w, const real *rstd, const elem *dy, elem *dx,
                                            int C, int accumulate, real offset) {
    i64 row = blockIdx.x;
    x += row * C;
    dy += row * C;
    dx += row * C;
    real s = rstd[row], b = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) b += to_real(dy[c]) * (offset + w[c]) * to_real(x[c]) * s;
    b = block_sum(b) / C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        real d = s * (to_real(dy[c]) * (offset + w[c]) - to_real(x[c]) * s * b);
        set(dx[c], accumulate ? to_real(dx[c]) + d : d);
    }
}

// dw = Σ over rows of dy · x̂: the first stage, as column_sum of linear.cu. mean is
// null for rmsnorm.
extern "C" __global__ void __launch_bounds__(256, 4)
    norm_weight_gradient(const elem *x, const real *mean, const real *rstd, const elem *dy, real *dw, i64 rows, int C,
                         i64 chunk, int vec, int accumulate) {
    const int ahead = 4; // rows that are read before the first is added
    if (vec) {
        sum_columns<16, WIDTH>(dw, rows, C, chunk, accumulate, [&](i64 r, i64 last, int step, int c, real(&sum)[WIDTH]) {
            for (; r < last; r += ahead * step) {
                Pack<elem> xs[ahead], gs[ahead];
                real m[ahead], s[ahead];
#pragma unroll
                for (int u = 0; u < ahead; u++) {
                    i64 row = r + u * step;
                    if (row < last) {
                        xs[u] = read_pack(x + row * C + c);
                        gs[u] = read_pack(dy + row * C + c);
                        m[u] = mean ? mean[row] : (real)0;
                        s[u] = rstd[row];
                    }
                }
#pragma unroll
                for (int u = 0; u < ahead; u++) {
                    if (r + u * step >= last) break;
                    real a[WIDTH], g[WIDTH];
                    widen(xs[u], a);
                    widen(gs[u], g);
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) sum[j] += g[j] * ((a[j] - m[u]) * s[u]);
                }
            }
        });
        return;
    }
    sum_columns<32, 1>(dw, rows, C, chunk, accumulate, [&](i64 r, i64 last, int step, int c, real(&sum)[1]) {
#pragma unroll 4
        for (; r < last; r += step)
            sum[0] += to_real(dy[r * C + c]) * (to_real(x[r * C + c]) - (mean ? mean[r] : (real)0)) * rstd[r];
    });
}

// Softmax over rows of C elements. y may be x.
extern "C" __global__ void softmax_forward(const elem *x, elem *y, int C) {
    i64 row = blockIdx.x;
    x += row * C;
    y += row * C;
    real m = -INFINITE;
    for (int c = threadIdx.x; c < C; c += blockDim.x) m = largest(m, to_real(x[c]));
    m = block_max(m);
    real sum = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) sum += exp(to_real(x[c]) - m);
    sum = (real)1 / block_sum(sum);
    for (int c = threadIdx.x; c < C; c += blockDim.x) set(y[c], exp(to_real(x[c]) - m) * sum);
}

// dx = y · (dy − Σ y·dy). dx may be dy.
extern "C" __global__ void softmax_backward(const elem *y, const elem *dy, elem *dx, int C, int accumulate) {
    i64 row = blockIdx.x;
    y += row * C;
    dy += row * C;
    dx += row * C;
    real dot = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) dot += to_real(y[c]) * to_real(dy[c]);
    dot = block_sum(dot);
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        real d = to_real(y[c]) * (to_real(dy[c]) - dot);
        set(dx[c], accumulate ? to_real(dx[c]) + d : d);
    }
}
