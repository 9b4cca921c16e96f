// Normalisations over rows of C elements, one block a row.

// Layer normalisation (Ba, Kiros and Hinton 2016):
// y = (x − mean) · rstd · w + b, rstd = 1/√(variance + eps).
// x, y (N, C); w, b (C); mean, rstd (N). b may be null.
//
// A row of up to 4 · HELD · blockDim.x elements whose rows start where four can be
// read at once (vec) is read once and stays in registers.
#define HELD 4

// Calls f for this thread's groups of four: the group's number, its column.
template <class F> __device__ __forceinline__ void groups(int C, F f) {
#pragma unroll
    for (int g = 0; g < HELD; g++) {
        int c = 4 * (threadIdx.x + g * blockDim.x);
        if (c < C) f(g, c);
    }
}

extern "C" __global__ void layernorm_forward(const elem *x, const real *w, const real *b, elem *y, real *mean,
                                             real *rstd, int C, int vec, real eps) {
    i64 row = blockIdx.x;
    x += row * C;
    y += row * C;
    real sum = 0, squares = 0, m, s;
    if (vec) {
        Vec<real, 4> held[HELD];
        groups(C, [&](int g, int c) {
            Vec<elem, 4> a = load4(x + c);
#pragma unroll
            for (int j = 0; j < 4; j++) sum += held[g].v[j] = to_real(a.v[j]);
        });
        m = block_sum(sum) / C;
        groups(C, [&](int g, int) {
#pragma unroll
            for (int j = 0; j < 4; j++) squares += (held[g].v[j] - m) * (held[g].v[j] - m);
        });
        s = (real)1 / sqrt(block_sum(squares) / C + eps);
        groups(C, [&](int g, int c) {
            Vec<real, 4> f = load4(w + c), t = {};
            if (b) t = load4(b + c);
            Vec<elem, 4> r;
#pragma unroll
            for (int j = 0; j < 4; j++) set(r.v[j], (held[g].v[j] - m) * s * f.v[j] + t.v[j]);
            store4(y + c, r);
        });
    } else {
        for (int c = threadIdx.x; c < C; c += blockDim.x) sum += to_real(x[c]);
        m = block_sum(sum) / C;
        for (int c = threadIdx.x; c < C; c += blockDim.x) {
            real d = to_real(x[c]) - m;
            squares += d * d;
        }
        s = (real)1 / sqrt(block_sum(squares) / C + eps);
        for (int c = threadIdx.x; c < C; c += blockDim.x)
            set(y[c], (to_real(x[c]) - m) * s * w[c] + (b ? b[c] : (real)0));
    }
    if (threadIdx.x == 0) {
        mean[row] = m;
        rstd[row] = s;
    }
}

// dx = rstd · (g − mean(g) − x̂ · mean(g · x̂)), with g = dy · w and
// x̂ = (x − mean) · rstd. dx may be dy.
extern "C" __global__ void layernorm_backward(const elem *x, const real *w, const real *mean, const real *rstd,
                                              const elem *dy, elem *dx, int C, int vec, int accumulate) {
    i64 row = blockIdx.x;
    x += row * C;
    dy += row * C;
    dx += row * C;
    real m = mean[row], s = rstd[row], a = 0, b = 0;
    if (vec) {
        Vec<real, 4> hat[HELD], gs[HELD];
        groups(C, [&](int g, int c) {
            Vec<elem, 4> p = load4(x + c), q = load4(dy + c);
            Vec<real, 4> f = load4(w + c);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                real v = to_real(q.v[j]) * f.v[j], h = (to_real(p.v[j]) - m) * s;
                gs[g].v[j] = v;
                hat[g].v[j] = h;
                a += v;
                b += v * h;
            }
        });
        a = block_sum(a) / C;
        b = block_sum(b) / C;
        groups(C, [&](int g, int c) {
            Vec<elem, 4> r;
            if (accumulate) r = load4(dx + c);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                real d = s * (gs[g].v[j] - a - hat[g].v[j] * b);
                set(r.v[j], accumulate ? to_real(r.v[j]) + d : d);
            }
            store4(dx + c, r);
        });
        return;
    }
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        real g = to_real(dy[c]) * w[c];
        a += g;
        b += g * (to_real(x[c]) - m) * s;
    }
    a = block_sum(a) / C;
    b = block_sum(b) / C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        real d = s * (to_real(dy[c]) * w[c] - a - (to_real(x[c]) - m) * s * b);
        set(dx[c], accumulate ? to_real(dx[c]) + d : d);
    }
}

// Root-mean-square normalisation (Zhang and Sennrich 2019):
// y = x · rstd · w, rstd = 1/√(mean(x²) + eps).
extern "C" __global__ void rmsnorm_forward(const elem *x, const real *w, elem *y, real *rstd, int C, real eps) {
    i64 row = blockIdx.x;
    x += row * C;
    y += row * C;
    real squares = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) squares += to_real(x[c]) * to_real(x[c]);
    real s = (real)1 / sqrt(block_sum(squares) / C + eps);
    for (int c = threadIdx.x; c < C; c += blockDim.x) set(y[c], to_real(x[c]) * s * w[c]);
    if (threadIdx.x == 0) rstd[row] = s;
}

// dx = rstd · (g − x̂ · mean(g · x̂)), with g = dy · w and x̂ = x · rstd.
extern "C" __global__ void rmsnorm_backward(const elem *x, const real *w, const real *rstd, const elem *dy, elem *dx,
                                            int C, int accumulate) {
    i64 row = blockIdx.x;
    x += row * C;
    dy += row * C;
    dx += row * C;
    real s = rstd[row], b = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) b += to_real(dy[c]) * w[c] * to_real(x[c]) * s;
    b = block_sum(b) / C;
    for (int c = threadIdx.x; c < C; c += blockDim.x) {
        real d = s * (to_real(dy[c]) * w[c] - to_real(x[c]) * s * b);
        set(dx[c], accumulate ? to_real(dx[c]) + d : d);
    }
}

// dw = Σ over rows of dy · x̂: the first stage, as column_sum of linear.cu. mean is
// null for rmsnorm.
extern "C" __global__ void norm_weight_gradient(const elem *x, const real *mean, const real *rstd, const elem *dy,
                                                real *dw, i64 rows, int C, i64 chunk, int accumulate) {
    __shared__ real part[8][33];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, c = blockIdx.x * 32 + tx;
    i64 first = blockIdx.y * chunk, last = first + chunk < rows ? first + chunk : rows;
    real sum = 0;
    if (c < C) {
#pragma unroll 4
        for (i64 r = first + ty; r < last; r += 8)
            sum += to_real(dy[r * C + c]) * (to_real(x[r * C + c]) - (mean ? mean[r] : (real)0)) * rstd[r];
    }
    part[ty][tx] = sum;
    __syncthreads();
    if (ty == 0 && c < C) {
        for (int k = 1; k < 8; k++) sum += part[k][tx];
        dw += (i64)blockIdx.y * C + c;
        *dw = accumulate ? *dw + sum : sum;
    }
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
