// What scores of attention become and which of them count; see nn/op.Attention.
// Each of these is compiled into a kernel or not:
//
//	CAPPED    a score s becomes cap·tanh(s/cap)
//	WINDOWED  a query sees keys less than window positions away only
//	BOTHWAYS  a query sees the keys after it, too
//	DROPPING  a weight is dropped where its random number says so, and else
//	          multiplied by keep
//
// A query's position is its number plus N − M.
#ifndef CAPPED
#define CAPPED 0
#endif
#ifndef WINDOWED
#define WINDOWED 0
#endif
#ifndef BOTHWAYS
#define BOTHWAYS 0
#endif
#ifndef DROPPING
#define DROPPING 0
#endif

struct Options {
    int window;
    u32 limit; // of a word's upper 24 bits: what is below is dropped
    u64 seed, stream;
    real cap, keep;
};

// The first key that the query at a position sees.
__device__ __forceinline__ int first_key(int position, const Options &o) {
    return WINDOWED && position >= o.window ? position - o.window + 1 : 0;
}
// One past the last key, of N.
__device__ __forceinline__ int end_key(int position, int N, const Options &o) {
    if (BOTHWAYS && !(WINDOWED && position + o.window < N)) return N;
    int end = BOTHWAYS ? position + o.window : position + 1;
    return end < N ? end : N;
}
// The first query that sees a key or one after it.
__device__ __forceinline__ int first_query(int key, int shift, const Options &o) {
    if (BOTHWAYS && !WINDOWED) return 0;
    int first = BOTHWAYS ? key - o.window + 1 - shift : key - shift;
    return first > 0 ? first : 0;
}
// One past the last query, of M, that sees a key or one before it.
__device__ __forceinline__ int end_query(int key, int shift, int M, const Options &o) {
    return WINDOWED && key + o.window - shift < M ? key + o.window - shift : M;
}
__device__ __forceinline__ bool sees(int position, int key, const Options &o) {
    return (BOTHWAYS || key <= position) && (!WINDOWED || key > position - o.window) &&
           (!(BOTHWAYS && WINDOWED) || key < position + o.window);
}

#if DROPPING
// Whether the weight of a key stays, in row (b·H + h)·M + query of the weights.
__device__ __forceinline__ bool keeps(i64 row, int N, int key, const Options &o) {
    u64 at = (u64)row * N + key;
    u32 w[4];
    philox(o.seed, o.stream, at / 4, w);
    u32 x = at & 2 ? (at & 1 ? w[3] : w[2]) : (at & 1 ? w[1] : w[0]);
    return x >> 8 >= o.limit;
}
#else
__device__ __forceinline__ bool keeps(i64, int, int, const Options &) { return true; }
#endif
