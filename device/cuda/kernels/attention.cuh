// Fused attention: softmax(q·kᵀ·scale)·v, tile by tile, without an M × N matrix
// in memory (Dao et al., "FlashAttention", 2022; the online softmax is Milakov and
// Gimelshein's, 2018). What attention_forward.cu, attention_backward.cu and
// attention_shared.cu share, put before each. No sum needs atomic additions.
//
// B batches, M query positions, N key positions, H query heads, KV key and value
// heads (H is a multiple of KV; query head h reads head h/(H/KV)), HEAD elements
// a head. The queries are the last of the N positions: query t sees the keys
// up to t + N − M, if mask.cuh says nothing else.
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

// p = exp(score − lse) where the mask lets it be, else 0, of s = q·k; slope is the
// score's derivative with respect to s.
__device__ __forceinline__ real probability(real s, real scale, real lse, bool visible, const Options &o, real &slope) {
    s *= scale;
    slope = scale;
    if (CAPPED) {
        real t = tanh(s / o.cap);
        s = o.cap * t;
        slope = scale * (1 - t * t);
    }
    return visible ? exp2((s - lse) * LOG2E) : (real)0;
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
