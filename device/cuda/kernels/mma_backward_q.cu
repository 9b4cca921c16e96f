// The gradient of attention's queries on tensor cores; see mma.cuh. As in
// attention_backward.cu, a kernel for dq and one for dk and dv compute every
// product of their own, seven in all, and no block waits for another.

// dq = scale · Σ over n of p·(dp − delta)·k, with p from lse, dp = dO·vᵀ and
// delta = Σ over d of dO·o, which is written for the other kernel. dq may take o's
// place: a warp has read its rows of o before it writes dq's.
// Grid: x is b·H + h, y the tile of queries, the longest rows first. Shared
// memory: q and dO (ROWS each), twice k and v (COLS each).
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    mma_attention_backward_q(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *o, const bf16 *dout,
                             const float *lse, float *delta, bf16 *dq, int M, int N, int H, int KV, i64 qs, i64 ks, i64 vs,
                             i64 os, i64 dos, i64 dqs, float scale, Options with) {
    DYNAMIC_SHARED(char, shared);
    int b = blockIdx.x / H, h = blockIdx.x % H, kv = h / (H / KV);
    int first = (gridDim.y - 1 - blockIdx.y) * ROWS, shift = N - M;
    int mine = first + WARP * 16 * MI; // the warp's first query
    int g = LANE >> 2, t = LANE & 3;
    q += (i64)b * M * qs + h * HEAD;
    k += (i64)b * N * ks + kv * HEAD;
    v += (i64)b * N * vs + kv * HEAD;
    o += (i64)b * M * os + h * HEAD;
    dout += (i64)b * M * dos + h * HEAD;
    dq += (i64)b * M * dqs + h * HEAD;
    lse += ((i64)b * H + h) * M;
    delta += ((i64)b * H + h) * M;

    shared_at sq = shared_address(shared), sd = sq + ROWS * PITCH, sk = sd + ROWS * PITCH;
    const int stage = 2 * COLS * PITCH;
    auto fetch = [&](int n, int buffer) {
        shared_at to = sk + buffer * stage;
        fetch_rows<COLS>(to, k, ks, n, N);
        fetch_rows<COLS>(to + COLS * PITCH, v, vs, n, N);
        fetch_group();
    };
    fetch_rows<ROWS>(sq, q, qs, first, M);
    fetch_rows<ROWS>(sd, dout, dos, first, M);
    int start = first_key(first + shift, with) / COLS * COLS, end = end_key(first + ROWS - 1 + shift, N, with), buffer = 0;
    fetch(start, 0);

    // −delta and −lse·log₂e of the lane's rows.
    float less[MI][2], l[MI][2], acc[MI][CHUNKS][4] = {}, f[MI][2];
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = mine + 16 * i + 8 * r + g;
            float a = 0;
            if (row < M) {
#pragma unroll
                for (int d = t; d < CHUNKS; d += 4) {
                    Vec<bf16, 8> x = *(const Vec<bf16, 8> *)(o + (i64)row * os + d * 8),
                                 y = *(const Vec<bf16, 8> *)(dout + (i64)row * dos + d * 8);
#pragma unroll
                    for (int e = 0; e < 8; e++) a += to_real(x.v[e]) * to_real(y.v[e]);
                }
            }
            a = row_sum(a);
            if (t == 0 && row < M) delta[row] = a;
            less[i][r] = -a;
            l[i][r] = row < M ? -lse[row] * LOG2E : 0.f;
            f[i][r] = scale;
        }
    sq += WARP * 16 * MI * PITCH + LEFT;
    sd += WARP * 16 * MI * PITCH + LEFT;
    float c = SCALED(scale) * LOG2E;
    for (int n = start; n < end; n += COLS, buffer ^= 1) {
        fetched<0>();
        __syncthreads();
        if (n + COLS < end) fetch(n + COLS, buffer ^ 1);
        if (mine >= M || n >= end_key(mine + 16 * MI - 1 + shift, N, with) || n + COLS <= first_key(mine + shift, with)) continue;
        shared_at tile = sk + buffer * stage;
        float s[MI][COLS / 8][4], dp[MI][COLS / 8][4];
        begin<1>(s, mine + shift - n, N - n, with);
        scores(s, sq, tile + RIGHT);
        finish<1>(s, scale, mine + shift - n, N - n, with);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < COLS / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float p = power(s[i][j][e] * c + l[i][e >> 1]);
                    s[i][j][e] = CAPPED ? p * cap_slope(p, -l[i][e >> 1], with) : p;
                    dp[i][j][e] = DROPPING ? 0.f : less[i][e >> 1];
                }
        scores(dp, sd, tile + COLS * PITCH + RIGHT);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < COLS / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    if (DROPPING) {
                        i64 row = ((i64)b * H + h) * M + mine + 16 * i + 8 * (e >> 1) + g;
                        bool stays = keeps(row, N, n + 8 * j + 2 * t + (e & 1), with);
                        dp[i][j][e] = (stays ? dp[i][j][e] * with.keep : 0.f) + less[i][e >> 1];
                    }
                    s[i][j][e] *= dp[i][j][e];
                }
        gather(acc, s, tile + LEFT);
    }
    store_rows(shared + WARP * 16 * MI * PITCH, dq, dqs, mine, M, acc, f);
}
