// Fused attention: causal softmax(q·kᵀ·scale)·v, tile by tile, without an M × N matrix
// in memory (Dao et al., "FlashAttention", 2022; the online softmax is Milakov and
// Gimelshein's, 2018). One kernel forward; backward two, one for dq and one for
// dk and dv, so that no sum needs atomic additions.
//
// B batches, M query positions, N key positions, H query heads, KV key and value
// heads (H is a multiple of KV; query head h reads head h/(H/KV)), HEAD elements
// a head. The queries are the last of the N positions: query t sees the keys
// up to t + N − M.
// q, o, dO, dq: (B, M, H·HEAD); k, v, dk, dv: (B, N, KV·HEAD); each has its own
// stride from position to position, so parts of a packed (B, N, 3·H·HEAD) work.
// lse, delta: (B, H, M).
//
// A block has 128 threads and works on a tile of ROWS × COLS scores. Thread
// (ty, tx), ty < 16, tx < 8, has rows ty + 16i and columns tx + 8j of the scores,
// and elements 4·tx + 32g … + 3 of the heads in its rows. The eight threads of
// a row are in one warp.

#define PAD 4 // keeps 16-byte reads of eight rows in different banks
#define WIDE ((HEAD + 31) / 32 * 32)
#define DEEP ((HEAD + 3) / 4 * 4)
#define STRIDE (WIDE + PAD)
#define RI (ROWS / 16)
#define CJ (COLS / 8)
#define GROUPS (WIDE / 32)
#define LOG2E ((real)1.44269504088896340736)
#define LN2 ((real)0.69314718055994530942)

typedef Vec<real, 4> real4;

#define TY (threadIdx.x >> 3)
#define TX (threadIdx.x & 7)

// Copies n positions from `first` on to shared memory; what lies past T or HEAD
// becomes zero.
__device__ __forceinline__ void load_tile(real *to, const elem *from, i64 stride, int first, int n, int T) {
    if (HEAD % 4 == 0 && stride % 4 == 0 && (u64)from % (4 * sizeof(elem)) == 0) {
#pragma unroll 4
        for (int i = threadIdx.x; i < n * (WIDE / 4); i += 128) {
            int r = i / (WIDE / 4), c = i % (WIDE / 4) * 4;
            real4 y = {};
            if (first + r < T && c < HEAD) {
                Vec<elem, 4> x = load4(from + (i64)(first + r) * stride + c);
#pragma unroll
                for (int j = 0; j < 4; j++) y.v[j] = to_real(x.v[j]);
            }
            store4(to + r * STRIDE + c, y);
        }
        return;
    }
    for (int i = threadIdx.x; i < n * WIDE; i += 128) {
        int r = i / WIDE, c = i % WIDE;
        to[r * STRIDE + c] = first + r < T && c < HEAD ? to_real(from[(i64)(first + r) * stride + c]) : (real)0;
    }
}

// fetch_tile is load_tile that need not be done before fetched() returns, so that
// arithmetic goes on meanwhile, and no register holds what is on its way.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ void fetch_tile(real *to, const elem *from, i64 stride, int first, int n, int T) {
    if (sizeof(elem) != sizeof(real) || HEAD % 4 || stride % 4 || (u64)from % (4 * sizeof(elem))) {
        load_tile(to, from, stride, first, n, T);
        return;
    }
    const int each = 16 / sizeof(elem), pieces = WIDE / each; // of 16 bytes in a row
#pragma unroll 4
    for (int i = threadIdx.x; i < n * pieces; i += 128) {
        int r = i / pieces, c = i % pieces * each;
        bool there = first + r < T && c < HEAD;
        const elem *p = from + (there ? (i64)(first + r) * stride + c : 0);
        u32 at = (u32)__cvta_generic_to_shared(to + r * STRIDE + c);
        // Of the 16 bytes, as many as the last operand says are read, and the
        // others become zero.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(p), "r"(there ? 16 : 0) : "memory");
    }
}
// Ends a group of fetches.
__device__ __forceinline__ void fetch_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all but the last N groups that this thread began are there.
template <int N> __device__ __forceinline__ void fetched() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
#else
#define fetch_tile load_tile
__device__ __forceinline__ void fetch_group() {}
template <int N> __device__ __forceinline__ void fetched() {}
#endif

// Writes the thread's part of a tile of ROWS positions, times f[i].
__device__ __forceinline__ void store_tile(elem *to, i64 stride, int first, int T, real4 (&x)[RI][GROUPS],
                                           const real *f) {
#pragma unroll
    for (int i = 0; i < RI; i++) {
        int t = first + TY + 16 * i;
        if (t >= T) continue;
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            int c = 4 * TX + 32 * g;
            elem *p = to + (i64)t * stride + c;
            if (HEAD % 4 == 0 && stride % 4 == 0 && (u64)to % (4 * sizeof(elem)) == 0) {
                if (c < HEAD) {
                    Vec<elem, 4> y;
#pragma unroll
                    for (int j = 0; j < 4; j++) set(y.v[j], x[i][g].v[j] * f[i]);
                    store4(p, y);
                }
                continue;
            }
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (c + j < HEAD) set(p[j], x[i][g].v[j] * f[i]);
        }
    }
}

// s[i][j] = Σ over d of a[row i][d] · b[column j][d]
__device__ __forceinline__ void scores(real (&s)[RI][CJ], const real *a, const real *b) {
#pragma unroll
    for (int i = 0; i < RI; i++)
#pragma unroll
        for (int j = 0; j < CJ; j++) s[i][j] = 0;
#pragma unroll 4
    for (int d = 0; d < DEEP; d += 4) {
        real4 x[RI];
#pragma unroll
        for (int i = 0; i < RI; i++) x[i] = load4(a + (TY + 16 * i) * STRIDE + d);
#pragma unroll
        for (int j = 0; j < CJ; j++) {
            real4 y = load4(b + (TX + 8 * j) * STRIDE + d);
#pragma unroll
            for (int i = 0; i < RI; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) s[i][j] += x[i].v[e] * y.v[e];
        }
    }
}

// The scores go through shared memory p (ROWS × (COLS + PAD)): a row is
// written and read by one warp only.
__device__ __forceinline__ void stage(real *p, real (&s)[RI][CJ]) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < RI; i++)
#pragma unroll
        for (int j = 0; j < CJ; j++) p[(TY + 16 * i) * (COLS + PAD) + TX + 8 * j] = s[i][j];
    __syncwarp();
}

// acc[i] += Σ over n < LENGTH of p[row i][n] · m[n], with R rows a thread
template <int R, int LENGTH>
__device__ __forceinline__ void gather(real4 (&acc)[R][GROUPS], const real *p, const real *m) {
#pragma unroll 2
    for (int n = 0; n < LENGTH; n += 4) {
        real4 x[R];
#pragma unroll
        for (int i = 0; i < R; i++) x[i] = load4(p + (TY + 16 * i) * (LENGTH + PAD) + n);
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                real4 y = load4(m + (n + e) * STRIDE + 4 * TX + 32 * g);
#pragma unroll
                for (int i = 0; i < R; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) acc[i][g].v[j] += x[i].v[e] * y.v[j];
            }
    }
}

// Sums and maxima over the eight threads of a row.
__device__ __forceinline__ real row_sum(real x) {
#pragma unroll
    for (int o = 1; o < 8; o <<= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
    return x;
}
__device__ __forceinline__ real row_max(real x) {
#pragma unroll
    for (int o = 1; o < 8; o <<= 1) x = largest(x, (real)__shfl_xor_sync(0xffffffffu, x, o));
    return x;
}

// Grid: x is b·H + h, y the tile of queries, the longest rows first.
// Shared memory: q (ROWS), k and v (COLS each), p.
extern "C" __global__ void __launch_bounds__(128)
    attention_forward(const elem *q, const elem *k, const elem *v, elem *o, real *lse, int M, int N, int H, int KV, i64 qs,
                      i64 ks, i64 vs, i64 os, real scale) {
    DYNAMIC_SHARED(real, shared);
    real *sq = shared, *sk = sq + ROWS * STRIDE, *sv = sk + COLS * STRIDE, *sp = sv + COLS * STRIDE;
    int b = blockIdx.x / H, h = blockIdx.x % H, kv = h / (H / KV);
    int first = (gridDim.y - 1 - blockIdx.y) * ROWS;
    q += (i64)b * M * qs + h * HEAD;
    k += (i64)b * N * ks + kv * HEAD;
    v += (i64)b * N * vs + kv * HEAD;
    o += (i64)b * M * os + h * HEAD;
    lse += ((i64)b * H + h) * M;

    // k of the next tile comes while v of this one is used, and v while k is.
    fetch_tile(sq, q, qs, first, ROWS, M);
    fetch_tile(sk, k, ks, 0, COLS, N);
    fetch_group();
    fetch_tile(sv, v, vs, 0, COLS, N);
    fetch_group();
    real4 acc[RI][GROUPS] = {};
    real top[RI], sum[RI], s[RI][CJ];
#pragma unroll
    for (int i = 0; i < RI; i++) {
        top[i] = -INFINITE;
        sum[i] = 0;
    }
    int shift = N - M, end = first + ROWS + shift < N ? first + ROWS + shift : N;
    for (int n = 0; n < end; n += COLS) {
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
                s[i][j] = u < N && u <= t + shift ? s[i][j] * (scale * LOG2E) : -INFINITE;
                m = largest(m, s[i][j]);
            }
            m = row_max(m);
            // Every row sees column 0 in the first tile, so m is finite.
            real f = exp2(top[i] - m), a = 0;
#pragma unroll
            for (int j = 0; j < CJ; j++) {
                s[i][j] = exp2(s[i][j] - m);
                a += s[i][j];
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

// p = exp(s·scale − lse) where the mask lets it be, else 0.
__device__ __forceinline__ real probability(real s, real scale, real lse, bool visible) {
    return visible ? exp2((s * scale - lse) * LOG2E) : (real)0;
}

// Σ over d of dO·o of one row, in the order of scores, so that dp − delta is zero
// for a row of one key.
__device__ __forceinline__ real row_delta(const real *dout, const real *o) {
    real a = 0;
#pragma unroll 4
    for (int d = 0; d < DEEP; d += 4) {
        real4 x = load4(dout + d), y = load4(o + d);
#pragma unroll
        for (int e = 0; e < 4; e++) a += x.v[e] * y.v[e];
    }
    return a;
}

// The gradient comes in two ways. attention_backward_q and attention_backward_kv
// compute every product of their own, seven in all, and need no order between
// blocks. attention_delta and attention_backward share them, five in all, and
// blocks wait for each other; see there.

// dq = scale · Σ over n of p·(dp − delta)·k, with dp = dO·vᵀ and
// delta = Σ over d of dO·o, which is written for the other kernel.
// Grid as attention_forward. Shared memory: q and dO (ROWS each), k and v
// (COLS each), p.
extern "C" __global__ void __launch_bounds__(128)
    attention_backward_q(const elem *q, const elem *k, const elem *v, const elem *o, const elem *dout,
                         const real *lse, real *delta, elem *dq, int M, int N, int H, int KV, i64 qs, i64 ks, i64 vs, i64 os,
                         i64 dos, i64 dqs, real scale) {
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
    int shift = N - M, end = first + ROWS + shift < N ? first + ROWS + shift : N;
    for (int n = 0; n < end; n += COLS) {
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
                real p = probability(s[i][j], scale, l[i], t < M && u < N && u <= t + shift);
                s[i][j] = p * (dp[i][j] - e[i]) * scale;
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
                          i64 dks, i64 dvs, real scale) {
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
        // Queries before the first key see none of these keys.
        for (int m = first > shift ? (first - shift) / COLS * COLS : 0; m < M; m += COLS) {
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
                    s[i][j] = probability(s[i][j], scale, sl[c], t < M && u < N && u <= t + shift);
                    dp[i][j] = s[i][j] * (dp[i][j] - se[c]) * scale;
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

#ifdef SHARED_PRODUCTS
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
                       i64 dos, i64 dqs, i64 dks, i64 dvs, real scale) {
    DYNAMIC_SHARED(real, shared);
    real *sk = shared, *sv = sk + ROWS * STRIDE, *sq = sv + ROWS * STRIDE, *sd = sq + COLS * STRIDE,
         *sp = sd + COLS * STRIDE, *st = sp + ROWS * (COLS + PAD), *sl = st + COLS * (ROWS + PAD), *se = sl + COLS;
    int b = blockIdx.x / KV, kv = blockIdx.x % KV, share = H / KV;
    int tile = gridDim.y - 1 - blockIdx.y, first = tile * ROWS, shift = N - M, tiles = (M + COLS - 1) / COLS;
    k += (i64)b * N * ks + kv * HEAD;
    v += (i64)b * N * vs + kv * HEAD;
    dk += (i64)b * N * dks + kv * HEAD;
    dv += (i64)b * N * dvs + kv * HEAD;

    int from = first > shift ? (first - shift) / COLS * COLS : 0; // queries before see none of these keys
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
        for (int m = from; m < M; m += COLS) {
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
                    s[i][j] = probability(s[i][j], scale, sl[c], t < M && u < N && u <= t + shift);
                    dp[i][j] = s[i][j] * (dp[i][j] - se[c]) * scale;
                    st[c * (ROWS + PAD) + TY + 16 * i] = dp[i][j];
                }
            }
            stage(sp, s);
            gather<RI, COLS>(accv, sp, sd);
            stage(sp, dp);
            gather<RI, COLS>(acck, sp, sq);
            int last = (m + COLS < M ? m + COLS : M) - 1 + shift; // the last key that these queries see
            mine = done + ((i64)b * H + h) * tiles + m / COLS;
            turn = last / ROWS - tile;
            if (threadIdx.x == 0)
                while (read_count(mine) != turn) {}
            __syncthreads();
            if (m + COLS < M) fetch(h, m + COLS);
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
#endif
