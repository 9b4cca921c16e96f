// Attention's gradient; see attention.cuh. It comes in two ways. These two kernels,
// one for dq and one for dk and dv, compute every product of their own, seven in
// all, and need no order between blocks. Those of attention_shared.cu compute
// five, and blocks wait for each other.

// dq = scale · Σ over n of p·(dp − delta)·k, with dp = dO·vᵀ and
// delta = Σ over d of dO·o, which is written for the other kernel.
// Grid as attention_forward. Shared memory: q and dO (ROWS each), k and v
// (COLS each), p.
extern "C" __global__ void __launch_bounds__(128)
    attention_backward_q(const elem *q, const elem *k, const elem *v, const elem *o, const elem *dout,
                         const real *lse, real *delta, elem *dq, int M, int N, int H, int KV, i64 qs, i64 ks, i64 vs, i64 os,
                         i64 dos, i64 dqs, real scale, Options with) {
    DYNAMIC_SHARED(real, shared);
    real *sq = shared, *sd = sq + ROWS * STRIDE, *sk = sd + ROWS * STRIDE, *sv = sk + COLS * STRIDE,
         *sp = sv + COLS * STRIDE;
    int b = blockIdx.x / H, h = blockIdx.x % H, kv = h / (H / KV);
    int first = (gridDim.y - 1 - blockIdx.y) * ROWS;
    q += (i64)b * M * qs + h * HEAD;
    k += (i64)b * N * ks + kv * HEAD;
    v += (i64)b * N * vs + kv * HEAD;
    o += (i64)b * M * os + h * HEAD;
    dout += (i64)b * M * dos + h * HEAD;
    dq += (i64)b * M * dqs + h * HEAD;
    lse += ((i64)b * H + h) * M;
    delta += ((i64)b * H + h) * M;

    load_tile(sq, q, qs, first, ROWS, M);
    load_tile(sd, dout, dos, first, ROWS, M);
    load_tile(sk, o, os, first, ROWS, M); // sk and sv together have room for ROWS positions
    __syncthreads();
    real l[RI], e[RI], one[RI], s[RI][CJ], dp[RI][CJ];
    real4 acc[RI][GROUPS] = {};
#pragma unroll
    for (int i = 0; i < RI; i++) {
        int r = TY + 16 * i, t = first + r;
        e[i] = row_delta(sd + r * STRIDE, sk + r * STRIDE);
        one[i] = 1;
        l[i] = t < M ? lse[t] : (real)0;
        if (TX == 0 && t < M) delta[t] = e[i];
    }
    int shift = N - M, end = end_key(first + ROWS - 1 + shift, N, with);
    for (int n = first_key(first + shift, with) / COLS * COLS; n < end; n += COLS) {
        __syncthreads();
        load_tile(sk, k, ks, n, COLS, N);
        load_tile(sv, v, vs, n, COLS, N);
        __syncthreads();
        scores(s, sq, sk);
        scores(dp, sd, sv);
#pragma unroll
        for (int i = 0; i < RI; i++) {
            int t = first + TY + 16 * i;
#pragma unroll
            for (int j = 0; j < CJ; j++) {
                int u = n + TX + 8 * j;
                real slope, p = probability(s[i][j], scale, l[i], t < M && u < N && sees(t + shift, u, with), with, slope);
                if (DROPPING) dp[i][j] = keeps(((i64)b * H + h) * M + t, N, u, with) ? dp[i][j] * with.keep : (real)0;
                s[i][j] = p * (dp[i][j] - e[i]) * slope;
            }
        }
        stage(sp, s);
        gather<RI, COLS>(acc, sp, sk);
    }
    store_tile(dq, dqs, first, M, acc, one);
}

// dv = Σ over queries of p·dO, dk = scale · Σ over queries of p·(dp − delta)·q, the
// queries being those of all heads that read this key head. Here the rows of
// a tile are keys and the columns queries.
// Grid: x is b·KV + kv, y the tile of keys. Shared memory: k and v (ROWS each),
// q and dO (COLS each), p, lse and delta (COLS each).
extern "C" __global__ void __launch_bounds__(128)
    attention_backward_kv(const elem *q, const elem *k, const elem *v, const elem *dout, const real *lse,
                          const real *delta, elem *dk, elem *dv, int M, int N, int H, int KV, i64 qs, i64 ks, i64 vs, i64 dos,
                          i64 dks, i64 dvs, real scale, Options with) {
    DYNAMIC_SHARED(real, shared);
    real *sk = shared, *sv = sk + ROWS * STRIDE, *sq = sv + ROWS * STRIDE, *sd = sq + COLS * STRIDE,
         *sp = sd + COLS * STRIDE, *sl = sp + ROWS * (COLS + PAD), *se = sl + COLS;
    int b = blockIdx.x / KV, kv = blockIdx.x % KV, share = H / KV;
    int first = blockIdx.y * ROWS, shift = N - M;
    k += (i64)b * N * ks + kv * HEAD;
    v += (i64)b * N * vs + kv * HEAD;
    dk += (i64)b * N * dks + kv * HEAD;
    dv += (i64)b * N * dvs + kv * HEAD;

    load_tile(sk, k, ks, first, ROWS, N);
    load_tile(sv, v, vs, first, ROWS, N);
    real one[RI], s[RI][CJ], dp[RI][CJ];
    real4 acck[RI][GROUPS] = {}, accv[RI][GROUPS] = {};
#pragma unroll
    for (int i = 0; i < RI; i++) one[i] = 1;
    for (int h = kv * share; h < (kv + 1) * share; h++) {
        const elem *qh = q + (i64)b * M * qs + h * HEAD, *dh = dout + (i64)b * M * dos + h * HEAD;
        const real *lh = lse + ((i64)b * H + h) * M, *eh = delta + ((i64)b * H + h) * M;
        int end = end_query(first + ROWS - 1, shift, M, with);
        for (int m = first_query(first, shift, with) / COLS * COLS; m < end; m += COLS) {
            __syncthreads();
            load_tile(sq, qh, qs, m, COLS, M);
            load_tile(sd, dh, dos, m, COLS, M);
            for (int i = threadIdx.x; i < COLS; i += 128) {
                sl[i] = m + i < M ? lh[m + i] : (real)0;
                se[i] = m + i < M ? eh[m + i] : (real)0;
            }
            __syncthreads();
            scores(s, sk, sq);
            scores(dp, sv, sd);
#pragma unroll
            for (int i = 0; i < RI; i++) {
                int u = first + TY + 16 * i;
#pragma unroll
                for (int j = 0; j < CJ; j++) {
                    int c = TX + 8 * j, t = m + c;
                    real slope;
                    s[i][j] = probability(s[i][j], scale, sl[c], t < M && u < N && sees(t + shift, u, with), with, slope);
                    bool stays = keeps(((i64)b * H + h) * M + t, N, u, with);
                    if (DROPPING) dp[i][j] = stays ? dp[i][j] * with.keep : (real)0;
                    dp[i][j] = s[i][j] * (dp[i][j] - se[c]) * slope;
                    if (DROPPING) s[i][j] = stays ? s[i][j] * with.keep : (real)0;
                }
            }
            stage(sp, s);
            gather<RI, COLS>(accv, sp, sd);
            stage(sp, dp);
            gather<RI, COLS>(acck, sp, sq);
        }
    }
    store_tile(dk, dks, first, N, acck, one);
    store_tile(dv, dvs, first, N, accv, one);
}
