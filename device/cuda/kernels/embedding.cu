// Embedding: V rows of C elements, N token ids.

// y (N, C) = w (V, C) at the rows ids (N). An id outside [0, V) gives NaN.
extern "C" __global__ void embedding_forward(const int *ids, const real *w, elem *y, int V, int C, int vec) {
    i64 n = blockIdx.x;
    int id = ids[n];
    bool known = id >= 0 && id < V;
    w += (i64)(known ? id : 0) * C;
    y += n * C;
    if (vec) {
        for (int c = threadIdx.x * 4; c < C; c += blockDim.x * 4) {
            Vec<real, 4> a = load4(w + c);
            Vec<elem, 4> r;
#pragma unroll
            for (int j = 0; j < 4; j++) set(r.v[j], known ? a.v[j] : NOT_A_NUMBER);
            store4(y + c, r);
        }
        return;
    }
    for (int c = threadIdx.x; c < C; c += blockDim.x) set(y[c], known ? w[c] : NOT_A_NUMBER);
}

// dw (V, C): one block a row. It looks through the ids for its own, SCAN at a
// time, and adds the rows of dy (N, C) in the order of the tokens, so the sum's
// order does not depend on the launch. Rows without a token become zero, or
// stay as they are when accumulate is set.
#define SCAN 1024
extern "C" __global__ void embedding_backward(const int *ids, const elem *dy, real *dw, i64 N, int C, int accumulate) {
    __shared__ int found[SCAN];
    __shared__ int counts[33];
    int row = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    dw += (i64)row * C;
    bool fresh = !accumulate;
    for (i64 base = 0; base < N; base += SCAN) {
        // The block has 256 threads: four ids each, in consecutive quarters.
        i64 first = base + threadIdx.x * 4;
        u32 mine = 0;
        if (first + 4 <= N) {
            Vec<int, 4> a = load4(ids + first);
#pragma unroll
            for (int j = 0; j < 4; j++) mine |= (u32)(a.v[j] == row) << j;
        } else {
            for (int j = 0; j < 4 && first + j < N; j++) mine |= (u32)(ids[first + j] == row) << j;
        }
        if (!__syncthreads_or(mine != 0)) continue;
        // Place of this thread's first match among the block's.
        int count = __popc(mine), before = count;
        for (int o = 1; o < 32; o <<= 1) {
            int left = __shfl_up_sync(0xffffffffu, before, o);
            if (lane >= o) before += left;
        }
        if (lane == 31) counts[warp] = before;
        __syncthreads();
        int at = before - count, total = 0;
        for (int k = 0; k < warps; k++) {
            if (k < warp) at += counts[k];
            total += counts[k];
        }
        for (int j = 0; j < 4; j++)
            if (mine >> j & 1) found[at++] = threadIdx.x * 4 + j;
        __syncthreads();
        for (int c = threadIdx.x; c < C; c += blockDim.x) {
            real sum = fresh ? (real)0 : dw[c];
#pragma unroll 4
            for (int k = 0; k < total; k++) sum += to_real(dy[(base + found[k]) * C + c]);
            dw[c] = sum;
        }
        fresh = false;
        __syncthreads();
    }
    if (fresh)
        for (int c = threadIdx.x; c < C; c += blockDim.x) dw[c] = 0;
}
