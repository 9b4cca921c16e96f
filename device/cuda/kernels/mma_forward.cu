// Attention forward on tensor cores; see mma.cuh.

// o = softmax(scale · q·kᵀ)·v in bf16, and lse.
// Grid: x is b·H + h, y the tile of queries, the longest rows first. Shared
// memory: q (ROWS), and twice k and v (COLS each), so that the next come while
// these are used. Key positions past N are beyond what any row before M sees
// where a query sees no later key, so the causal mask is all that partial tiles
// need there.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    mma_attention_forward(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *o, float *lse, int M, int N, int H, int KV,
                          i64 qs, i64 ks, i64 vs, i64 os, float scale, Options with) {
    DYNAMIC_SHARED(char, shared);
    int b = blockIdx.x / H, h = blockIdx.x % H, kv = h / (H / KV);
    int first = (gridDim.y - 1 - blockIdx.y) * ROWS, shift = N - M;
    int mine = first + WARP * 16 * MI; // the warp's first query
    int g = LANE >> 2, t = LANE & 3;
    q += (i64)b * M * qs + h * HEAD;
    k += (i64)b * N * ks + kv * HEAD;
    v += (i64)b * N * vs + kv * HEAD;
    o += (i64)b * M * os + h * HEAD;
    lse += ((i64)b * H + h) * M;

    auto row_of = [&](int i, int r) { return ((i64)b * H + h) * M + mine + 16 * i + 8 * r + g; }; // of the weights
    shared_at sq = shared_address(shared), sk = sq + ROWS * PITCH;
    const int stage = 2 * COLS * PITCH;
    auto fetch = [&](int n, int buffer) {
        shared_at to = sk + buffer * stage;
        fetch_rows<COLS>(to, k, ks, n, N);
        fetch_rows<COLS>(to + COLS * PITCH, v, vs, n, N);
        fetch_group();
    };
    int start = first_key(first + shift, with) / COLS * COLS, end = end_key(first + ROWS - 1 + shift, N, with), buffer = 0;
    fetch_rows<ROWS>(sq, q, qs, first, M);
    if (KEEP) fetch_group();
    fetch(start, 0);

    float acc[MI][CHUNKS][4] = {}, top[MI][2], sum[MI][2];
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            top[i][r] = -INFINITE;
            sum[i][r] = 0;
        }
    sq += WARP * 16 * MI * PITCH + LEFT;
    u32 kept[HEAD / 16][MI][4];
    if (KEEP) {
        fetched<1>();
        __syncthreads();
#pragma unroll
        for (int d = 0; d < HEAD / 16; d++) left(kept[d], sq, d);
    }
    float c = SCALED(scale) * LOG2E;
    for (int n = start; n < end; n += COLS, buffer ^= 1) {
        fetched<0>();
        __syncthreads();
        if (n + COLS < end) fetch(n + COLS, buffer ^ 1);
        if (mine >= M || n >= end_key(mine + 16 * MI - 1 + shift, N, with) || n + COLS <= first_key(mine + shift, with)) continue;
        shared_at tile = sk + buffer * stage;
        float s[MI][COLS / 8][4];
        begin<1>(s, mine + shift - n, N - n, with);
        auto rows = [&](u32(&x)[MI][4], int d) {
            if (!KEEP) {
                left(x, sq, d);
                return;
            }
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) x[i][e] = kept[d][i][e];
        };
        scores_of(s, rows, tile + RIGHT);
        finish<1>(s, scale, mine + shift - n, N - n, with);
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float m = top[i][r], a = 0;
#pragma unroll
                for (int j = 0; j < COLS / 8; j++) m = fmaxf(m, fmaxf(s[i][j][2 * r], s[i][j][2 * r + 1]));
                m = row_max(m);
                // Without a window every row sees column 0 in the first tile, so that m is
                // finite. With one, a row may have seen nothing yet.
                float base = WINDOWED && m == -INFINITE ? 0.f : m, f = power((top[i][r] - base) * c), mc = base * c;
#pragma unroll
                for (int j = 0; j < COLS / 8; j++)
#pragma unroll
                    for (int e = 2 * r; e < 2 * r + 2; e++) {
                        s[i][j][e] = power(s[i][j][e] * c - mc);
                        a += s[i][j][e];
                        if (DROPPING)
                            s[i][j][e] = keeps(row_of(i, r), N, n + 8 * j + 2 * t + (e & 1), with) ? s[i][j][e] * with.keep : 0.f;
                    }
                sum[i][r] = sum[i][r] * f + a;
                top[i][r] = m;
#pragma unroll
                for (int d = 0; d < CHUNKS; d++) {
                    acc[i][d][2 * r] *= f;
                    acc[i][d][2 * r + 1] *= f;
                }
            }
        gather(acc, s, tile + COLS * PITCH + LEFT);
    }
    float f[MI][2];
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = row_sum(sum[i][r]);
            f[i][r] = 1 / a;
            int row = mine + 16 * i + 8 * r + g;
            if (t == 0 && row < M) lse[row] = top[i][r] * SCALED(scale) + log(a);
        }
    store_rows(shared + WARP * 16 * MI * PITCH, o, os, mine, M, acc, f);
}
