// Normalisations over rows of C elements that stay in registers: LANES threads a
// row, with up to PACKS packs each. norm.cu has the formulas, and does what these
// cannot: here C is a multiple of WIDTH and rows start where a pack can be read.
//
// Up to 32 LANES are a part of a warp, which does several rows; a row then needs no
// barrier. More are a block.
#ifndef LANES
#define LANES 32
#define PACKS 3
#endif
#define HELD_THREADS (LANES <= 32 ? 128 : LANES)

struct Row {
    i64 row;   // which row is this thread's
    bool live; // not of a thread that only keeps its warp company
    int first; // column of the thread's first pack; the others are LANES packs apart
    bool full; // whether the thread's last pack is inside the row: the others always are
};

// False says that the warp has no row.
__device__ __forceinline__ bool find_row(Row &r, i64 rows, int C) {
    int lane = threadIdx.x % LANES;
    r.row = (i64)blockIdx.x * (HELD_THREADS / LANES) + threadIdx.x / LANES;
    if (LANES < 32 && r.row - (threadIdx.x & 31) / LANES >= rows || LANES >= 32 && r.row >= rows) return false;
    r.live = r.row < rows;
    if (!r.live) r.row = rows - 1;
    r.first = lane * WIDTH;
    r.full = (lane + (PACKS - 1) * LANES) * WIDTH < C;
    return true;
}

// Calls f(pack, column) for the thread's packs.
template <class F> __device__ __forceinline__ void packs(const Row &r, F f) {
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p < PACKS - 1 || r.full) f(p, r.first + p * (LANES * WIDTH));
}

// Reads the thread's part of a row; zeros after its end.
__device__ __forceinline__ void read_row(const Row &r, const elem *x, Pack<elem> (&to)[PACKS]) {
    to[PACKS - 1] = Pack<elem>();
    packs(r, [&](int p, int c) { to[p] = read_pack(x + c); });
}

// Sums over the row's threads.
__device__ __forceinline__ void row_sums(real &x, real &y) {
#if LANES > 32
    block_sums(x, y);
#else
#pragma unroll
    for (int o = LANES / 2; o > 0; o >>= 1) {
        x += __shfl_xor_sync(0xffffffffu, x, o);
        y += __shfl_xor_sync(0xffffffffu, y, o);
    }
#endif
}
__device__ __forceinline__ real row_sum(real x) {
#if LANES > 32
    return block_sum(x);
#else
#pragma unroll
    for (int o = LANES / 2; o > 0; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
    return x;
#endif
}

extern "C" __global__ void __launch_bounds__(HELD_THREADS)
    layernorm_forward(const elem *x, const real *__restrict__ w, const real *__restrict__ b, elem *y, real *mean,
                           real *rstd, i64 rows, int C, real eps) {
    Row at;
    if (!find_row(at, rows, C)) return;
    Pack<elem> held[PACKS];
    read_row(at, x + at.row * C, held);
    real sum = 0, squares = 0;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        real a[WIDTH];
        widen(held[p], a);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sum += a[j];
    }
    real m = row_sum(sum) / C;
    packs(at, [&](int p, int) {
        real a[WIDTH];
        widen(held[p], a);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) squares += (a[j] - m) * (a[j] - m);
    });
    real s = (real)1 / sqrt(row_sum(squares) / C + eps);
    if (!at.live) return;
    y += at.row * C;
    packs(at, [&](int p, int c) {
        real a[WIDTH], f[WIDTH], t[WIDTH] = {};
        widen(held[p], a);
        read_reals(w + c, f);
        if (b) read_reals(b + c, t);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) a[j] = (a[j] - m) * s * f[j] + t[j];
        narrow(a, held[p]);
        write_pack(y + c, held[p]);
    });
    if (threadIdx.x % LANES == 0) {
        mean[at.row] = m;
        rstd[at.row] = s;
    }
}

// The gradients; dx may be dy. LAYER is false for rmsnorm, whose x̂ is x · rstd and
// whose dx has no mean(g).
template <bool LAYER>
__device__ __forceinline__ void backward(const elem *x, const real *__restrict__ w, const real *mean, const real *rstd,
                                         const elem *dy, elem *dx, i64 rows, int C, int accumulate, real offset) {
    Row at;
    if (!find_row(at, rows, C)) return;
    Pack<elem> xs[PACKS], gs[PACKS];
    read_row(at, x + at.row * C, xs);
    read_row(at, dy + at.row * C, gs);
    real m = LAYER ? mean[at.row] : (real)0, s = rstd[at.row], a = 0, b = 0;
    packs(at, [&](int p, int c) {
        real h[WIDTH], g[WIDTH], f[WIDTH];
        widen(xs[p], h);
        widen(gs[p], g);
        read_reals(w + c, f);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            real v = g[j] * (offset + f[j]);
            a += v;
            b += v * ((h[j] - m) * s);
        }
    });
    if (LAYER) row_sums(a, b);
    else b = row_sum(b);
    a = LAYER ? a / C : (real)0;
    b /= C;
    if (!at.live) return;
    dx += at.row * C;
    packs(at, [&](int p, int c) {
        real h[WIDTH], g[WIDTH], f[WIDTH], old[WIDTH] = {};
        widen(xs[p], h);
        widen(gs[p], g);
        read_reals(w + c, f);
        if (accumulate) widen(read_pack(dx + c), old);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) g[j] = old[j] + s * (g[j] * (offset + f[j]) - a - (h[j] - m) * s * b);
        narrow(g, gs[p]);
        write_pack(dx + c, gs[p]);
    });
}

extern "C" __global__ void __launch_bounds__(HELD_THREADS)
    layernorm_backward(const elem *x, const real *__restrict__ w, const real *mean, const real *rstd, const elem *dy,
                            elem *dx, i64 rows, int C, int accumulate) {
    backward<true>(x, w, mean, rstd, dy, dx, rows, C, accumulate, 0);
}

extern "C" __global__ void __launch_bounds__(HELD_THREADS)
    rmsnorm_forward(const elem *x, const real *__restrict__ w, elem *y, real *rstd, i64 rows, int C, real eps, real offset) {
    Row at;
    if (!find_row(at, rows, C)) return;
    Pack<elem> held[PACKS];
    read_row(at, x + at.row * C, held);
    real squares = 0;
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        real a[WIDTH];
        widen(held[p], a);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) squares += a[j] * a[j];
    }
    real s = (real)1 / sqrt(row_sum(squares) / C + eps);
    if (!at.live) return;
    y += at.row * C;
    packs(at, [&](int p, int c) {
        real a[WIDTH], f[WIDTH];
        widen(held[p], a);
        read_reals(w + c, f);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) a[j] = a[j] * s * (offset + f[j]);
        narrow(a, held[p]);
        write_pack(y + c, held[p]);
    });
    if (threadIdx.x % LANES == 0) rstd[at.row] = s;
}

extern "C" __global__ void __launch_bounds__(HELD_THREADS)
    rmsnorm_backward(const elem *x, const real *__restrict__ w, const real *rstd, const elem *dy, elem *dx,
                          i64 rows, int C, int accumulate, real offset) {
    backward<false>(x, w, 0, rstd, dy, dx, rows, C, accumulate, offset);
}
