// Keys and values of earlier tokens: B rows of C positions of W elements, of which
// at[b] are those of tokens before the present one.

template <class T>
__device__ __forceinline__ void store_tokens(const T *x, T *cache, const int *at, i64 n, int tokens, int first, int columns,
                                             int from, int W, int C) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int w = (int)(i % W), kept = tokens - first, t = first + (int)(i / W % kept);
    i64 b = i / W / kept;
    cache[(b * C + (at[b] + t) % C) * W + w] = x[(b * tokens + t) * columns + from + w];
}

// x (B, tokens, columns): the columns from from on of the tokens from first on go
// to cache (B, C, W). n is B·(tokens − first)·W.
extern "C" __global__ void cache_write(const elem *x, elem *cache, const int *at, i64 n, int tokens, int first, int columns,
                                       int from, int W, int C) {
    store_tokens(x, cache, at, n, tokens, first, columns, from, W, C);
}
// The same where all sizes are given in packs of 16 bytes.
extern "C" __global__ void cache_write_packs(const elem *x, elem *cache, const int *at, i64 n, int tokens, int first,
                                             int columns, int from, int W, int C) {
    store_tokens((const Vec<u32, 4> *)x, (Vec<u32, 4> *)cache, at, n, tokens, first, columns, from, W, C);
}

#ifdef HEAD
// One query a row: a block is a head of a row, and its WARPS warps take KEYS keys
// in turn, with a running maximum and sum. A lane has every 32nd element of the
// head. q (B, columns), k and v (B, C, Hkv·HEAD), out (B, H·HEAD). Position p lies
// in place p mod C, and the last of them, C or window if that is not 0, count.
#define WARPS 8
#define KEYS 4
extern "C" __global__ void attention_decode(const elem *q, const elem *k, const elem *v, const int *at, elem *out, int H,
                                            int Hkv, int C, int columns, int window, real scale, real cap) {
    const int PER = (HEAD + 31) / 32;
    __shared__ real maxima[WARPS], sums[WARPS], parts[WARPS][HEAD];
    int row = blockIdx.x / H, h = blockIdx.x % H, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int past = at[row], hi = past + 1 < C ? past + 1 : C;
    if (window > 0 && hi > window) hi = window;
    int begin = (past + 1 - hi) % C;
    i64 first = ((i64)row * C * Hkv + h / (H / Hkv)) * HEAD, stride = (i64)Hkv * HEAD;
    q += (i64)row * columns + h * HEAD;
    k += first;
    v += first;
    real x[PER], sum = 0, acc[PER] = {}, most = -INFINITE;
#pragma unroll
    for (int e = 0; e < PER; e++) x[e] = lane + 32 * e < HEAD ? to_real(q[lane + 32 * e]) : (real)0;
    for (int j = warp * KEYS; j < hi; j += WARPS * KEYS) {
        real s[KEYS] = {};
        i64 place[KEYS];
#pragma unroll
        for (int u = 0; u < KEYS; u++) {
            int p = begin + j + u;
            place[u] = (p >= C ? p - C : p) * stride + lane;
        }
#pragma unroll
        for (int u = 0; u < KEYS; u++) {
            if (j + u >= hi) continue;
#pragma unroll
            for (int e = 0; e < PER; e++)
                if (lane + 32 * e < HEAD) s[u] += x[e] * to_real(k[place[u] + 32 * e]);
        }
        real best = most;
#pragma unroll
        for (int u = 0; u < KEYS; u++) {
            s[u] = warp_sum(s[u]) * scale;
            if (cap > 0) s[u] = cap * tanh(s[u] / cap);
            if (j + u >= hi) s[u] = -INFINITE;
            best = largest(best, s[u]);
        }
        real shrink = exp(most - best);
        most = best;
        sum *= shrink;
#pragma unroll
        for (int e = 0; e < PER; e++) acc[e] *= shrink;
#pragma unroll
        for (int u = 0; u < KEYS; u++) {
            if (j + u >= hi) continue;
            real p = exp(s[u] - best);
            sum += p;
#pragma unroll
            for (int e = 0; e < PER; e++)
                if (lane + 32 * e < HEAD) acc[e] += p * to_real(v[place[u] + 32 * e]);
        }
    }
    if (lane == 0) {
        maxima[warp] = most;
        sums[warp] = sum;
    }
#pragma unroll
    for (int e = 0; e < PER; e++)
        if (lane + 32 * e < HEAD) parts[warp][lane + 32 * e] = acc[e];
    __syncthreads();
    real best = -INFINITE, total = 0;
    for (int w = 0; w < WARPS; w++) best = largest(best, maxima[w]);
    for (int w = 0; w < WARPS; w++) total += sums[w] * exp(maxima[w] - best); // of a warp without keys, 0
    for (int d = threadIdx.x; d < HEAD; d += blockDim.x) {
        real y = 0;
        for (int w = 0; w < WARPS; w++) y += parts[w][d] * exp(maxima[w] - best);
        set(out[((i64)row * H + h) * HEAD + d], y / total);
    }
}
#endif

// y (rows) = the position of the largest of the first C elements of each row of x,
// rows being stride apart: the first of equal ones. One block of 1024 threads a row.
extern "C" __global__ void argmax(const elem *x, int *y, int C, i64 stride) {
    __shared__ real values[32];
    __shared__ int places[32];
    x += (i64)blockIdx.x * stride;
    real best = -INFINITE;
    int place = C;
    for (int i = threadIdx.x; i < C; i += blockDim.x) {
        real v = to_real(x[i]);
        if (v > best) {
            best = v;
            place = i;
        }
    }
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int round = 0; round < 2; round++) {
        for (int o = 16; o > 0; o >>= 1) {
            real v = __shfl_xor_sync(0xffffffffu, best, o);
            int p = __shfl_xor_sync(0xffffffffu, place, o);
            if (v > best || (v == best && p < place)) {
                best = v;
                place = p;
            }
        }
        if (round == 1) break;
        if (lane == 0) {
            values[warp] = best;
            places[warp] = place;
        }
        __syncthreads();
        best = lane < (int)(blockDim.x >> 5) ? values[lane] : -INFINITE;
        place = lane < (int)(blockDim.x >> 5) ? places[lane] : C;
    }
    if (threadIdx.x == 0) y[blockIdx.x] = place < C ? place : 0;
}
