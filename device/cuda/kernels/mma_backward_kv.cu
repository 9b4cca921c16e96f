// The gradients of attention's keys and values on tensor cores; see mma.cuh and
// mma_backward_q.cu.

// dv = Σ over queries of p·dO, dk = scale · Σ over queries of p·(dp − delta)·q, the
// queries being those of all heads that read this key head. Here the rows of
// a tile are keys and the columns queries. Queries past M are zeros, with lse and
// delta zero, and add nothing.
// Grid: x is b·KV + kv, y the tile of keys. Shared memory: k and v (ROWS each),
// twice q and dO (COLS each), twice lse and delta (COLS each). With SPLIT 2,
// either half of the warps sums over its half of every tile of queries, and the
// two sums are added at the end.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    mma_attention_backward_kv(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *dout, const float *lse,
                              const float *delta, bf16 *dk, bf16 *dv, int M, int N, int H, int KV, i64 qs, i64 ks, i64 vs,
                              i64 dos, i64 dks, i64 dvs, float scale, Options with) {
    DYNAMIC_SHARED(char, shared);
    const int each = WARPS / SPLIT, J = COLS / SPLIT / 8;
    int b = blockIdx.x / KV, kv = blockIdx.x % KV, share = H / KV;
    int first = blockIdx.y * ROWS, shift = N - M;
    int half = WARP / each, column = half * (COLS / SPLIT), row = WARP % each * 16 * MI;
    int mine = first + row; // the warp's first key
    int g = LANE >> 2, t = LANE & 3;
    k += (i64)b * N * ks + kv * HEAD;
    v += (i64)b * N * vs + kv * HEAD;
    dk += (i64)b * N * dks + kv * HEAD;
    dv += (i64)b * N * dvs + kv * HEAD;

    const int at_q = 2 * ROWS * PITCH, at_l = at_q + 4 * COLS * PITCH;
    shared_at sk = shared_address(shared), sv = sk + ROWS * PITCH;
    auto fetch = [&](int h, int m, int buffer) {
        shared_at to = shared_address(shared) + at_q + buffer * 2 * COLS * PITCH;
        fetch_rows<COLS>(to, q + (i64)b * M * qs + h * HEAD, qs, m, M);
        fetch_rows<COLS>(to + COLS * PITCH, dout + (i64)b * M * dos + h * HEAD, dos, m, M);
        to = shared_address(shared) + at_l + buffer * 8 * COLS;
        static_assert(2 * COLS <= THREADS, "a thread fetches one number");
        if (threadIdx.x < 2 * COLS) {
            int i = m + threadIdx.x % COLS;
            const float *p = threadIdx.x < COLS ? lse : delta;
            fetch4(to + 4 * threadIdx.x, p + ((i64)b * H + h) * M + i, i < M);
        }
        fetch_group();
    };
    // The tiles of the queries that see any of these keys.
    int from = first_query(first, shift, with) / COLS * COLS, end = end_query(first + ROWS - 1, shift, M, with);
    int h = kv * share, m = from, buffer = 0;
    fetch_rows<ROWS>(sk, k, ks, first, N);
    fetch_rows<ROWS>(sv, v, vs, first, N);
    fetch(h, m, 0);
    sk += row * PITCH + LEFT;
    sv += row * PITCH + LEFT;
    float acck[MI][CHUNKS][4] = {}, accv[MI][CHUNKS][4] = {};
    float c = SCALED(scale) * LOG2E;
    for (bool more = from < end; more; buffer ^= 1) {
        fetched<0>();
        __syncthreads();
        int query = m + column, of = h; // the warp's first
        m += COLS;
        if (m >= end) {
            m = from;
            h++;
        }
        more = h < (kv + 1) * share;
        if (more) fetch(h, m, buffer ^ 1);
        if (mine >= N || query >= end_query(mine + 16 * MI - 1, shift, M, with) ||
            query + COLS / SPLIT <= first_query(mine, shift, with))
            continue;
        shared_at sq = shared_address(shared) + at_q + (buffer * 2 * COLS + column) * PITCH, sd = sq + COLS * PITCH;
        const float *sl = (const float *)(shared + at_l) + buffer * 2 * COLS + column;
        float s[MI][J][4], dp[MI][J][4];
        begin<-1>(s, query + shift - mine, N - mine, with);
        scores(s, sk, sq + RIGHT);
        finish<-1>(s, scale, query + shift - mine, N - mine, with);
#pragma unroll
        for (int j = 0; j < J; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int n = 8 * j + 2 * t + e;
                float l = sl[n] * LOG2E, less = -sl[COLS + n];
#pragma unroll
                for (int i = 0; i < MI; i++)
#pragma unroll
                    for (int r = 0; r < 4; r += 2) {
                        float p = power(s[i][j][e + r] * c - l);
                        bool stays = keeps(((i64)b * H + of) * M + query + n, N, mine + 16 * i + 4 * r + g, with);
                        s[i][j][e + r] = DROPPING && !stays ? -p : p;
                        dp[i][j][e + r] = DROPPING ? 0.f : less;
                    }
            }
        gather_of(accv, s, sd + LEFT, [&](float p) { return weight_of(p, with); });
        scores(dp, sv, sd + RIGHT);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < J; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int n = 8 * j + 2 * t + (e & 1);
                    float p = s[i][j][e], d = dp[i][j][e];
                    if (DROPPING) {
                        d = (p > 0 ? d * with.keep : 0.f) - sl[COLS + n];
                        p = fabsf(p);
                    }
                    if (CAPPED) p *= cap_slope(p, sl[n] * LOG2E, with);
                    s[i][j][e] = p * d;
                }
        gather(acck, s, sq + LEFT);
    }
    if (WINDOWED && from >= end) { // no query sees these keys: what was fetched must not come later
        fetched<0>();
        __syncthreads();
    }
    float one[MI][2], f[MI][2];
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            one[i][r] = 1;
            f[i][r] = scale;
        }
    char *own = shared + row * PITCH; // rows of k, and ROWS further of v
    if (SPLIT == 1) {
        store_rows(own, dk, dks, mine, N, acck, f);
        store_rows(own + ROWS * PITCH, dv, dvs, mine, N, accv, one);
        return;
    }
    // The first half of the warps hands its sum for dk over and finishes dv; the
    // second half does the reverse.
    static_assert(SPLIT == 1 || 8 * ROWS * HEAD <= at_l, "no room for the sums");
    float *sums = (float *)shared + threadIdx.x;
    auto give = [&](const float(&x)[MI][CHUNKS][4]) {
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int d = 0; d < CHUNKS; d++)
#pragma unroll
                for (int e = 0; e < 4; e++) sums[((i * CHUNKS + d) * 4 + e) * THREADS] = x[i][d][e];
    };
    auto take = [&](float(&x)[MI][CHUNKS][4]) {
        const float *p = sums + (half ? -32 * each : 32 * each);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int d = 0; d < CHUNKS; d++)
#pragma unroll
                for (int e = 0; e < 4; e++) x[i][d][e] += p[((i * CHUNKS + d) * 4 + e) * THREADS];
    };
    __syncthreads();
    if (half) give(accv);
    else give(acck);
    __syncthreads();
    if (half) take(acck);
    else take(accv);
    __syncthreads();
    if (half) store_rows(own, dk, dks, mine, N, acck, f);
    else store_rows(own + ROWS * PITCH, dv, dvs, mine, N, accv, one);
}
