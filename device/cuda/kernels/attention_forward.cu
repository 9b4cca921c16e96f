// Attention forward; see attention.cuh.

// Grid: x is b·H + h, y the tile of queries, the longest rows first.
// Shared memory: q (ROWS), k and v (COLS each), p.
extern "C" __global__ void __launch_bounds__(128)
    attention_forward(const elem *q, const elem *k, const elem *v, elem *o, real *lse, int M, int N, int H, int KV, i64 qs,
                      i64 ks, i64 vs, i64 os, real scale, Options with) {
    DYNAMIC_SHARED(real, shared);
    real *sq = shared, *sk = sq + ROWS * STRIDE, *sv = sk + COLS * STRIDE, *sp = sv + COLS * STRIDE;
    int b = blockIdx.x / H, h = blockIdx.x % H, kv = h / (H / KV);
    int first = (gridDim.y - 1 - blockIdx.y) * ROWS;
    q += (i64)b * M * qs + h * HEAD;
    k += (i64)b * N * ks + kv * HEAD;
    v += (i64)b * N * vs + kv * HEAD;
    o += (i64)b * M * os + h * HEAD;
    lse += ((i64)b * H + h) * M;

    int shift = N - M, start = first_key(first + shift, with) / COLS * COLS, end = end_key(first + ROWS - 1 + shift, N, with);
    // k of the next tile comes while v of this one is used, and v while k is.
    fetch_tile(sq, q, qs, first, ROWS, M);
    fetch_tile(sk, k, ks, start, COLS, N);
    fetch_group();
    fetch_tile(sv, v, vs, start, COLS, N);
    fetch_group();
    real4 acc[RI][GROUPS] = {};
    real top[RI], sum[RI], s[RI][CJ];
#pragma unroll
    for (int i = 0; i < RI; i++) {
        top[i] = -INFINITE;
        sum[i] = 0;
    }
    for (int n = start; n < end; n += COLS) {
        fetched<1>();
        __syncthreads();
        scores(s, sq, sk);
#pragma unroll
        for (int i = 0; i < RI; i++) {
            int t = first + TY + 16 * i;
            real m = top[i];
#pragma unroll
            for (int j = 0; j < CJ; j++) {
                int u = n + TX + 8 * j;
                real x = CAPPED ? with.cap * tanh(s[i][j] * scale / with.cap) * LOG2E : s[i][j] * (scale * LOG2E);
                s[i][j] = u < N && sees(t + shift, u, with) ? x : -INFINITE;
                m = largest(m, s[i][j]);
            }
            m = row_max(m);
            // Without a window every row sees column 0 in the first tile, so that m is
            // finite. With one, a row may have seen nothing yet.
            real base = WINDOWED && m == -INFINITE ? (real)0 : m, f = exp2(top[i] - base), a = 0;
#pragma unroll
            for (int j = 0; j < CJ; j++) {
                s[i][j] = exp2(s[i][j] - base);
                a += s[i][j];
                if (DROPPING) s[i][j] = keeps(((i64)b * H + h) * M + t, N, n + TX + 8 * j, with) ? s[i][j] * with.keep : (real)0;
            }
            sum[i] = sum[i] * f + a;
            top[i] = m;
#pragma unroll
            for (int g = 0; g < GROUPS; g++)
#pragma unroll
                for (int j = 0; j < 4; j++) acc[i][g].v[j] *= f;
        }
        stage(sp, s);
        fetched<0>();
        __syncthreads();
        if (n + COLS < end) fetch_tile(sk, k, ks, n + COLS, COLS, N);
        fetch_group();
        gather<RI, COLS>(acc, sp, sv);
        __syncthreads();
        if (n + COLS < end) fetch_tile(sv, v, vs, n + COLS, COLS, N);
        fetch_group();
    }
    real f[RI];
#pragma unroll
    for (int i = 0; i < RI; i++) {
        real a = row_sum(sum[i]);
        f[i] = (real)1 / a;
        int t = first + TY + 16 * i;
        if (TX == 0 && t < M) lse[t] = top[i] * LN2 + log(a);
    }
    store_tile(o, os, first, M, acc, f);
}
