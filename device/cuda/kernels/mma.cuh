// Attention on tensor cores, for bf16 activations on cards of compute capability
// 8.0 and newer: attention.cuh's quantities in the order of Dao,
// "FlashAttention-2: Faster Attention with Better Parallelism and Work
// Partitioning" (2023). What mma_forward.cu, mma_backward_q.cu and
// mma_backward_kv.cu share. Scores stay in the registers that the product left
// them in, where, rounded to bf16, they are the next product's left operand.
// Sums, statistics and exponentials are float32.
//
// The names B, M, N, H, KV and HEAD, and the layout of tensors, are
// attention.cuh's, with HEAD a multiple of 16, and addresses and strides that
// are multiples of 16 bytes. elem is bf16.
//
// A block of WARPS warps works on tiles of ROWS × COLS scores, of which a warp has
// 16·MI whole rows; with SPLIT 2, half of the warps have the first half of the
// columns, and the others the rest. In a warp, lane 4g + t, g < 8, t < 4, has of every
// 16 × 8 tile of scores or sums the elements [g][2t], [g][2t+1], [g+8][2t] and
// [g+8][2t+1].

#ifndef SPLIT
#define SPLIT 1
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1 // blocks that a multiprocessor should have room for
#endif
#ifndef KEEP
#define KEEP 0 // whether the forward kernel keeps q in registers
#endif
#define THREADS (WARPS * 32)
#define MI (ROWS * SPLIT / (16 * WARPS))
#define CHUNKS (HEAD / 8) // pieces of 16 bytes in a position
// Bytes from position to position in shared memory: an odd number of pieces, so
// that the eight pieces that are read at once lie in different banks.
#define PITCH (2 * HEAD + 16)
#define LOG2E 1.44269504088896340736f

static_assert(HEAD % 16 == 0 && COLS % (16 * SPLIT) == 0 && MI * 16 * WARPS == ROWS * SPLIT, "no such tile");

#define LANE (threadIdx.x & 31)
#define WARP ((int)(threadIdx.x >> 5))

// Instructions that C++ has no words for.
#ifdef __CUDACC_RTC__
typedef u32 shared_at; // an address in shared memory
__device__ __forceinline__ shared_at shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// Begins to copy 16 or 4 bytes to shared memory; zeros, if they are not there.
__device__ __forceinline__ void fetch16(shared_at to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void fetch4(shared_at to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}
__device__ __forceinline__ void fetch_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all but the last N groups that this thread began are there.
template <int N> __device__ __forceinline__ void fetched() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Reads four 8 × 8 matrices, whose rows the lanes point to, eight after eight.
__device__ __forceinline__ void matrices(u32 (&x)[4], shared_at row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void transposed(u32 (&x)[4], shared_at row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
}

// c += a·b with a 16 × 16 and b 16 × 8
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers as bf16, the first in the lower half.
__device__ __forceinline__ u32 pair(float lower, float upper) {
    u32 x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(upper), "f"(lower));
    return x;
}

// 2ˣ with a relative error near 2⁻²².
__device__ __forceinline__ float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
typedef u64 shared_at;
inline shared_at shared_address(const void *p) { return (u64)p; }
inline void fetch16(shared_at to, const void *from, bool there) { emulate_fetch((void *)to, from, 16, there); }
inline void fetch4(shared_at to, const void *from, bool there) { emulate_fetch((void *)to, from, 4, there); }
inline void fetch_group() { emulate_fetch_group(); }
template <int N> inline void fetched() { emulate_fetched(N); }
inline void matrices(u32 (&x)[4], shared_at row) { emulate_matrices(x, (const void *)row, false); }
inline void transposed(u32 (&x)[4], shared_at row) { emulate_matrices(x, (const void *)row, true); }
inline void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { emulate_multiply(c, a, b0, b1); }
inline u32 pair(float lower, float upper) {
    bf16 x, y;
    set(x, lower);
    set(y, upper);
    return x.bits | (u32)y.bits << 16;
}
inline float power(float x) { return exp2(x); }
#endif

// Begins to copy R positions from `first` on; zeros past T, where nothing is read.
template <int R> __device__ __forceinline__ void fetch_rows(shared_at to, const bf16 *from, i64 stride, int first, int T) {
    const int steps = (R * CHUNKS + THREADS - 1) / THREADS;
    if (THREADS % CHUNKS == 0 && R * CHUNKS % THREADS == 0) { // a thread stays in its column
        const int rows = THREADS / CHUNKS;
        int r = threadIdx.x / CHUNKS, c = threadIdx.x % CHUNKS;
        to += r * PITCH + c * 16;
        from += (i64)(first + r) * stride + c * 8;
        T -= first + r;
#pragma unroll
        for (int n = 0; n < steps; n++) fetch16(to + n * rows * PITCH, from + n * rows * stride, n * rows < T);
        return;
    }
#pragma unroll
    for (int n = 0; n < steps; n++) {
        int i = n * THREADS + threadIdx.x, r = i / CHUNKS, c = i % CHUNKS;
        if (i < R * CHUNKS) fetch16(to + r * PITCH + c * 16, from + (i64)(first + r) * stride + c * 8, first + r < T);
    }
}

// What a lane adds to the address of a tile to point matrices() at 16 rows of 16
// elements: as the left operand of a product, or for transposed() as the right
// operand; and as the right operand of a product with the transposed tile.
#define LEFT ((LANE & 15) * PITCH + (LANE >> 4) * 16)
#define RIGHT (((LANE & 7) + (LANE >> 4) * 8) * PITCH + (LANE >> 3 & 1) * 16)

// A warp's rows of a tile as left operands: k counts their 16 elements.
__device__ __forceinline__ void left(u32 (&x)[MI][4], shared_at rows, int k) {
#pragma unroll
    for (int i = 0; i < MI; i++) matrices(x[i], rows + i * 16 * PITCH + k * 32);
}

// s[row][column] += Σ over d of a[row][d] · b[column][d]; b has RIGHT in it, and
// a(x, k) finds left operands.
template <int J, class A> __device__ __forceinline__ void scores_of(float (&s)[MI][J][4], A a, shared_at b) {
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++) {
        u32 x[MI][4];
        a(x, k);
#pragma unroll
        for (int j = 0; j < J; j += 2) {
            u32 y[4];
            matrices(y, b + j * 8 * PITCH + k * 32);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                multiply(s[i][j], x[i], y[0], y[1]);
                multiply(s[i][j + 1], x[i], y[2], y[3]);
            }
        }
    }
}
// The same with left operands in shared memory; a has LEFT in it.
template <int J> __device__ __forceinline__ void scores(float (&s)[MI][J][4], shared_at a, shared_at b) {
    scores_of(s, [&](u32(&x)[MI][4], int k) { left(x, a, k); }, b);
}

// Makes those scores −∞ that do not count, of a tile whose first query, in the rows
// with SIGN 1 and in the columns with SIGN −1, is `ahead` positions past its first
// key. keys is how many keys there are from the tile's first on: those past them
// need no mask where a query sees no later key.
template <int SIGN, int J> __device__ __forceinline__ void hide(float (&s)[MI][J][4], int ahead, int keys, const Options &o) {
    const int rows = 16 * MI - 1, columns = 8 * J - 1;
    const int most = SIGN > 0 ? columns : rows, least = SIGN > 0 ? -rows : -columns; // of how far a key is past a query
    if ((BOTHWAYS || most <= ahead) && (!WINDOWED || least > ahead - o.window) && (!(BOTHWAYS && WINDOWED) || most < ahead + o.window) &&
        (!BOTHWAYS || SIGN < 0 || columns < keys))
        return; // all count
    int g = LANE >> 2, t = LANE & 3;
    ahead -= SIGN * (2 * t - g);
    keys -= 2 * t;
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < J; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int column = 8 * j + (e & 1), past = SIGN * (column - 16 * i - 8 * (e >> 1));
                if (!sees(ahead, past, o) || (BOTHWAYS && SIGN > 0 && column >= keys)) s[i][j][e] = -INFINITE;
            }
}

// What scores begin with: zero, and −∞ for those that do not count, unless that has
// to wait for finish().
template <int SIGN, int J> __device__ __forceinline__ void begin(float (&s)[MI][J][4], int ahead, int keys, const Options &o) {
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < J; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[i][j][e] = 0;
    if (!CAPPED) hide<SIGN>(s, ahead, keys, o);
}

// What is left to do for products q·k to be scores: those with a cap are scaled
// already, unlike the others.
template <int SIGN, int J>
__device__ __forceinline__ void finish(float (&s)[MI][J][4], float scale, int ahead, int keys, const Options &o) {
    if (!CAPPED) return;
    float f = scale / o.cap;
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < J; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[i][j][e] = o.cap * tanhf(s[i][j][e] * f);
    hide<SIGN>(s, ahead, keys, o);
}
#define SCALED(scale) (CAPPED ? 1.f : (scale))

// The derivative of a capped score with respect to the scaled product, from its
// weight p and the logarithm l of the row's sum, both to the base 2.
__device__ __forceinline__ float cap_slope(float p, float l, const Options &o) {
    float t = (log2f(p) + l) * (0.69314718055994530942f / o.cap);
    return p > 0 ? 1 - t * t : 0.f;
}

// A weight that is dropped is kept, where it is needed again, as its negative.
__device__ __forceinline__ float weight_of(float p, const Options &o) { return DROPPING ? fmaxf(p, 0.f) * o.keep : p; }

// acc[row][d] += Σ over n of f(p[row][n]) · m[n][d]; m has LEFT in it.
template <int J, class F>
__device__ __forceinline__ void gather_of(float (&acc)[MI][CHUNKS][4], const float (&p)[MI][J][4], shared_at m, F f) {
#pragma unroll
    for (int n = 0; n < J; n += 2) {
        u32 x[MI][4];
#pragma unroll
        for (int i = 0; i < MI; i++) {
            x[i][0] = pair(f(p[i][n][0]), f(p[i][n][1]));
            x[i][1] = pair(f(p[i][n][2]), f(p[i][n][3]));
            x[i][2] = pair(f(p[i][n + 1][0]), f(p[i][n + 1][1]));
            x[i][3] = pair(f(p[i][n + 1][2]), f(p[i][n + 1][3]));
        }
#pragma unroll
        for (int d = 0; d < CHUNKS; d += 2) {
            u32 y[4];
            transposed(y, m + n * 8 * PITCH + d * 16);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                multiply(acc[i][d], x[i], y[0], y[1]);
                multiply(acc[i][d + 1], x[i], y[2], y[3]);
            }
        }
    }
}

// The same of p itself.
template <int J>
__device__ __forceinline__ void gather(float (&acc)[MI][CHUNKS][4], const float (&p)[MI][J][4], shared_at m) {
    gather_of(acc, p, m, [](float x) { return x; });
}

// Writes a warp's 16·MI positions, each times f[i][0 or 1], by way of shared
// memory that no other warp uses, so that whole pieces are written.
__device__ __forceinline__ void store_rows(char *shared, bf16 *to, i64 stride, int first, int T,
                                           const float (&x)[MI][CHUNKS][4], const float (&f)[MI][2]) {
    int g = LANE >> 2, t = LANE & 3;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int d = 0; d < CHUNKS; d++)
                *(u32 *)(shared + (16 * i + 8 * h + g) * PITCH + d * 16 + 4 * t) =
                    pair(x[i][d][2 * h] * f[i][h], x[i][d][2 * h + 1] * f[i][h]);
    __syncwarp();
#pragma unroll
    for (int n = LANE; n < 16 * MI * CHUNKS; n += 32) {
        int r = n / CHUNKS, c = n % CHUNKS;
        if (first + r < T)
            *(Vec<u32, 4> *)(to + (i64)(first + r) * stride + c * 8) = *(const Vec<u32, 4> *)(shared + r * PITCH + c * 16);
    }
}

// Sums and maxima over the four lanes of a row.
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
