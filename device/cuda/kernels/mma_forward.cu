// Attention forward on tensor cores; see mma.cuh.

// o = softmax(scale · q·kᵀ)·v in bf16, and lse.
// Grid: x is b·H + h, y the tile of queries, the longest rows first. Shared
// memory: q (ROWS), and twice k and v (COLS each), so that the next come while
// these are used. Key positions past N are beyond what any row before M sees,
// so the causal mask is all that partial tiles need.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    mma_attention_forward(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *o, float *lse, int M, int N, int H, int KV,
                          i64 qs, i64 ks, i64 vs, i64 os, float scale) {
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

    shared_at sq = shared_address(shared), sk = sq + ROWS * PITCH;
    const int stage = 2 * COLS * PITCH;
    auto fetch = [&](int n, int buffer) {
        shared_at to = sk + buffer * stage;
        fetch_rows<COLS>(to, k, ks, n, N);
        fetch_rows<COLS>(to + COLS * PITCH, v, vs, n, N);
        fetch_group();
    };
    fetch_rows<ROWS>(sq, q, qs, first, M);
    if (KEEP) fetch_group();
    fetch(0, 0);

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
    float c = scale * LOG2E;
    int end = first + ROWS + shift < N ? first + ROWS + shift : N, buffer = 0;
    for (int n = 0; n < end; n += COLS, buffer ^= 1) {
        fetched<0>();
        __syncthreads();
        if (n + COLS < end) fetch(n + COLS, buffer ^ 1);
        if (mine >= M || n > mine + 16 * MI - 1 + shift) continue;
        shared_at tile = sk + buffer * stage;
        float s[MI][COLS / 8][4];
        begin<1>(s, mine + shift - n);
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
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float m = top[i][r], a = 0;
#pragma unroll
                for (int j = 0; j < COLS / 8; j++) m = fmaxf(m, fmaxf(s[i][j][2 * r], s[i][j][2 * r + 1]));
                m = row_max(m);
                // Every row sees column 0 in the first tile, so m is finite.
                float f = power((top[i][r] - m) * c), mc = m * c;
#pragma unroll
                for (int j = 0; j < COLS / 8; j++)
#pragma unroll
                    for (int e = 2 * r; e < 2 * r + 2; e++) {
                        s[i][j][e] = power(s[i][j][e] * c - mc);
                        a += s[i][j][e];
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
            if (t == 0 && row < M) lse[row] = top[i][r] * scale + log(a);
        }
    store_rows(shared + WARP * 16 * MI * PITCH, o, os, mine, M, acc, f);
}
