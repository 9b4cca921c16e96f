// What a linear layer needs beside its matrix products. N rows, C columns.

// y (N, C) = x (N, C) + b (C); y may be x.
extern "C" __global__ void bias_add(const elem *x, const real *b, elem *y, i64 n, int columns, int vec) {
    i64 i = FLAT_INDEX;
    if (vec && i + 4 <= n) { // columns is a multiple of four
        Vec<elem, 4> a = load4(x + i), r;
        Vec<real, 4> c = load4(b + (int)(i % columns));
#pragma unroll
        for (int j = 0; j < 4; j++) set(r.v[j], to_real(a.v[j]) + c.v[j]);
        store4(y + i, r);
        return;
    }
    for (int j = 0; j < 4 && i + j < n; j++) set(y[i + j], to_real(x[i + j]) + b[(i + j) % columns]);
}

// Sums over rows in two stages. First, a block of 32 × 8 threads sums 32
// columns of one chunk of rows into partial (chunks, C); with one chunk it
// writes the result itself. Then column_finish sums the chunks.
__device__ __forceinline__ void column_write(real sum, real *out, int accumulate) {
    *out = accumulate ? *out + sum : sum;
}

// db (C) = Σ over rows of dy (N, C)
extern "C" __global__ void column_sum(const elem *dy, real *partial, i64 rows, int columns, i64 chunk, int accumulate) {
    __shared__ real part[8][33];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, c = blockIdx.x * 32 + tx;
    i64 first = blockIdx.y * chunk, last = first + chunk < rows ? first + chunk : rows;
    real sum = 0;
    if (c < columns) {
#pragma unroll 4
        for (i64 r = first + ty; r < last; r += 8) sum += to_real(dy[r * columns + c]);
    }
    part[ty][tx] = sum;
    __syncthreads();
    if (ty == 0 && c < columns) {
        for (int k = 1; k < 8; k++) sum += part[k][tx];
        column_write(sum, partial + (i64)blockIdx.y * columns + c, accumulate);
    }
}

// out (C) = Σ over chunks of partial (chunks, C)
extern "C" __global__ void column_finish(const real *partial, real *out, int chunks, int columns, int accumulate) {
    __shared__ real part[8][33];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, c = blockIdx.x * 32 + tx;
    real sum = 0;
    if (c < columns)
        for (int k = ty; k < chunks; k += 8) sum += partial[(i64)k * columns + c];
    part[ty][tx] = sum;
    __syncthreads();
    if (ty == 0 && c < columns) {
        for (int k = 1; k < 8; k++) sum += part[k][tx];
        column_write(sum, out + c, accumulate);
    }
}
