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

// acc[i] += Σ over columns n of p[row i][n] · m[n]
__device__ __forceinline__ void gather(real4 (&acc)[RI][GROUPS], const real *p, const real *m) {
#pragma unroll 2
    for (int n = 0; n < COLS; n += 4) {
        real4 x[RI];
#pragma unroll
        for (int i = 0; i < RI; i++) x[i] = load4(p + (TY + 16 * i) * (COLS + PAD) + n);
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                real4 y = load4(m + (n + e) * STRIDE + 4 * TX + 32 * g);
#pragma unroll
                for (int i = 0; i < RI; i++)
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

    load_tile(sq, q, qs, first, ROWS, M);
    real4 acc[RI][GROUPS] = {};
    real top[RI], sum[RI], s[RI][CJ];
#pragma unroll
    for (int i = 0; i < RI; i++) {
        top[i] = -INFINITE;
        sum[i] = 0;
    }
    int shift = N - M, end = first + ROWS + shift < N ? first + ROWS + shift : N;
    for (int n = 0; n < end; n += COLS) {
        __syncthreads();
        load_tile(sk, k, ks, n, COLS, N);
        load_tile(sv, v, vs, n, COLS, N);
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
        gather(acc, sp, sv);
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
    __syncthreads();
    real l[RI], e[RI], one[RI], s[RI][CJ], dp[RI][CJ];
    real4 acc[RI][GROUPS] = {};
#pragma unroll
    for (int i = 0; i < RI; i++) {
        int r = TY + 16 * i, t = first + r;
        real a = 0;
        // In the order of scores, so that dp − delta is zero for a row of one key.
        if (t < M)
            for (int c = 0; c < HEAD; c++) a += sd[r * STRIDE + c] * to_real(o[(i64)t * os + c]);
        e[i] = a;
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
        gather(acc, sp, sk);
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
            gather(accv, sp, sd);
            stage(sp, dp);
            gather(acck, sp, sq);
        }
    }
    store_tile(dk, dks, first, N, acck, one);
    store_tile(dv, dvs, first, N, accv, one);
}
