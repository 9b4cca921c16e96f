// Attention's gradient with every product computed once; see attention.cuh and
// attention_backward.cu.

// delta = Σ over d of dO·o, for attention_backward. Grid: x is b·H + h, y the tile
// of ROWS queries. Shared memory: dO and o (ROWS each).
extern "C" __global__ void __launch_bounds__(128)
    attention_delta(const elem *o, const elem *dout, real *delta, int M, int H, i64 os, i64 dos) {
    DYNAMIC_SHARED(real, shared);
    real *sd = shared, *so = sd + ROWS * STRIDE;
    int b = blockIdx.x / H, h = blockIdx.x % H, first = blockIdx.y * ROWS;
    load_tile(sd, dout + (i64)b * M * dos + h * HEAD, dos, first, ROWS, M);
    load_tile(so, o + (i64)b * M * os + h * HEAD, os, first, ROWS, M);
    __syncthreads();
    for (int r = threadIdx.x; r < ROWS && first + r < M; r += 128)
        delta[((i64)b * H + h) * M + first + r] = row_delta(sd + r * STRIDE, so + r * STRIDE);
}

// Reads that do not see an old copy in this multiprocessor's own cache of what
// another block wrote.
#ifdef __CUDACC_RTC__
__device__ __forceinline__ int read_count(const int *p) {
    int x;
    asm volatile("ld.global.acquire.gpu.s32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}
__device__ __forceinline__ Vec<float, 4> read_fresh(const float *p) {
    Vec<float, 4> x;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.v[0]), "=f"(x.v[1]), "=f"(x.v[2]), "=f"(x.v[3]) : "l"(p) : "memory");
    return x;
}
__device__ __forceinline__ float read_fresh1(const float *p) {
    float x;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");
    return x;
}
__device__ __forceinline__ double read_fresh1(const double *p) {
    double x;
    asm volatile("ld.global.cg.f64 %0, [%1];" : "=d"(x) : "l"(p) : "memory");
    return x;
}
__device__ __forceinline__ Vec<double, 4> read_fresh(const double *p) {
    Vec<double, 4> x;
#pragma unroll
    for (int j = 0; j < 4; j++) x.v[j] = read_fresh1(p + j);
    return x;
}
#define PUBLISH() __threadfence()
#else
__device__ __forceinline__ int read_count(const int *p) { return *(volatile const int *)p; }
template <class T> __device__ __forceinline__ Vec<T, 4> read_fresh(const T *p) { return load4(p); }
template <class T> __device__ __forceinline__ T read_fresh1(const T *p) { return *p; }
#define PUBLISH()
#endif

// dq, dk and dv in one pass over the tiles: dv and dk as attention_backward_kv
// sums them, and each tile's part of dq added to memory in turn. The blocks of
// the later keys come first in the grid, and a block takes its turn at a tile
// of queries when the blocks of all later keys that the tile sees have had
// theirs, which `done` (b·H + h, tile of queries), zero at the start, counts. So
// the order of the sum is fixed, and since a block begins with the first
// queries that see its keys, it hardly waits. Only blocks earlier in the grid
// are waited for, which run already or have run.
// Grid: x is b·KV + kv, y the tile of keys, the last first. Shared memory: k and v
// (ROWS each), q and dO (COLS each), p (ROWS × COLS), its transpose, lse, delta.
// elem must be real.
extern "C" __global__ void __launch_bounds__(128)
    attention_backward(const elem *q, const elem *k, const elem *v, const elem *dout, const real *lse, const real *delta,
                       elem *dq, elem *dk, elem *dv, int *done, int M, int N, int H, int KV, i64 qs, i64 ks, i64 vs,
                       i64 dos, i64 dqs, i64 dks, i64 dvs, real scale, Options with) {
    DYNAMIC_SHARED(real, shared);
    real *sk = shared, *sv = sk + ROWS * STRIDE, *sq = sv + ROWS * STRIDE, *sd = sq + COLS * STRIDE,
         *sp = sd + COLS * STRIDE, *st = sp + ROWS * (COLS + PAD), *sl = st + COLS * (ROWS + PAD), *se = sl + COLS;
    int b = blockIdx.x / KV, kv = blockIdx.x % KV, share = H / KV;
    int tile = gridDim.y - 1 - blockIdx.y, first = tile * ROWS, shift = N - M, tiles = (M + COLS - 1) / COLS;
    k += (i64)b * N * ks + kv * HEAD;
    v += (i64)b * N * vs + kv * HEAD;
    dk += (i64)b * N * dks + kv * HEAD;
    dv += (i64)b * N * dvs + kv * HEAD;

    // The tiles of the queries that see any of these keys.
    int from = first_query(first, shift, with) / COLS * COLS, end = end_query(first + ROWS - 1, shift, M, with);
    auto fetch = [&](int h, int m) {
        fetch_tile(sq, q + (i64)b * M * qs + h * HEAD, qs, m, COLS, M);
        fetch_tile(sd, dout + (i64)b * M * dos + h * HEAD, dos, m, COLS, M);
        fetch_group();
        i64 row = ((i64)b * H + h) * M + m;
        for (int i = threadIdx.x; i < COLS; i += 128) {
            sl[i] = m + i < M ? lse[row + i] : (real)0;
            se[i] = m + i < M ? delta[row + i] : (real)0;
        }
    };
    fetch_tile(sk, k, ks, first, ROWS, N);
    fetch_tile(sv, v, vs, first, ROWS, N);
    fetch(kv * share, from);
    real one[RI], s[RI][CJ], dp[RI][CJ];
    real4 acck[RI][GROUPS] = {}, accv[RI][GROUPS] = {};
#pragma unroll
    for (int i = 0; i < RI; i++) one[i] = 1;
    int *mine = 0, turn = 0; // a turn that is over but not yet published
    for (int h = kv * share; h < (kv + 1) * share; h++) {
        elem *to = dq + (i64)b * M * dqs + h * HEAD;
        for (int m = from; m < end; m += COLS) {
            fetched<0>();
            __syncthreads();
            if (threadIdx.x == 0 && mine) *(volatile int *)mine = turn;
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
                    st[c * (ROWS + PAD) + TY + 16 * i] = dp[i][j];
                }
            }
            stage(sp, s);
            gather<RI, COLS>(accv, sp, sd);
            stage(sp, dp);
            gather<RI, COLS>(acck, sp, sq);
            int last = end_key((m + COLS < M ? m + COLS : M) - 1 + shift, N, with) - 1; // the last key that these queries see
            mine = done + ((i64)b * H + h) * tiles + m / COLS;
            turn = last / ROWS - tile;
            if (threadIdx.x == 0)
                while (read_count(mine) != turn) {}
            __syncthreads();
            if (m + COLS < end) fetch(h, m + COLS);
            else if (h + 1 < (kv + 1) * share) fetch(h + 1, from);
            real4 accq[COLS / 16][GROUPS] = {};
            gather<COLS / 16, ROWS>(accq, st, sk);
#pragma unroll
            for (int i = 0; i < COLS / 16; i++) {
                int t = m + TY + 16 * i;
                if (t >= M) continue;
#pragma unroll
                for (int g = 0; g < GROUPS; g++) {
                    int c = 4 * TX + 32 * g;
                    elem *p = to + (i64)t * dqs + c;
                    if (HEAD % 4 == 0 && dqs % 4 == 0 && (u64)to % (4 * sizeof(elem)) == 0) {
                        if (c < HEAD) {
                            if (turn) {
                                real4 x = read_fresh(p);
#pragma unroll
                                for (int j = 0; j < 4; j++) accq[i][g].v[j] += x.v[j];
                            }
                            store4(p, accq[i][g]);
                        }
                        continue;
                    }
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        if (c + j < HEAD) p[j] = turn ? read_fresh1(p + j) + accq[i][g].v[j] : accq[i][g].v[j];
                }
            }
            PUBLISH();
            turn++;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0 && mine) *(volatile int *)mine = turn;
    store_tile(dk, dks, first, N, acck, one);
    store_tile(dv, dvs, first, N, accv, one);
}
