// What a linear layer needs beside its matrix products. N rows, C columns.

// y (N, C) = x (N, C) + b (C); y may be x. With vec the columns are a multiple of
// WIDTH.
extern "C" __global__ void bias_add(const elem *x, const real *__restrict__ b, elem *y, i64 n, int columns, int vec) {
    const int packs = 2;
    int step = blockDim.x * WIDTH;
    i64 i = (i64)blockIdx.x * (packs * step) + threadIdx.x * WIDTH;
    auto column = [&](i64 i) { return n <= 0xffffffffll ? (int)((u32)i % (u32)columns) : (int)(i % columns); };
    if (vec) {
        Pack<elem> held[packs];
#pragma unroll
        for (int u = 0; u < packs; u++)
            if (i + u * step < n) held[u] = read_pack(x + i + u * step);
#pragma unroll
        for (int u = 0; u < packs; u++) {
            if (i + u * step >= n) break;
            real a[WIDTH], c[WIDTH];
            widen(held[u], a);
            read_reals(b + column(i + u * step), c);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) a[j] += c[j];
            narrow(a, held[u]);
            write_pack(y + i + u * step, held[u]);
        }
        return;
    }
    for (int u = 0; u < packs; u++)
        for (int j = 0; j < WIDTH; j++) {
            i64 at = i + u * step + j;
            if (at < n) set(y[at], to_real(x[at]) + b[column(at)]);
        }
}

// db (C) = Σ over rows of dy (N, C): the first stage of two, see sum_columns.
extern "C" __global__ void __launch_bounds__(256, 5)
    column_sum(const elem *dy, real *partial, i64 rows, int columns, i64 chunk, int vec, int accumulate) {
    const int ahead = 4; // rows that are read before the first is added
    if (vec) {
        sum_columns<16, WIDTH>(partial, rows, columns, chunk, accumulate,
                               [&](i64 r, i64 last, int step, int c, real(&sum)[WIDTH]) {
            for (; r < last; r += ahead * step) {
                Pack<elem> held[ahead];
#pragma unroll
                for (int u = 0; u < ahead; u++)
                    if (r + u * step < last) held[u] = read_pack(dy + (r + u * step) * columns + c);
#pragma unroll
                for (int u = 0; u < ahead; u++) {
                    if (r + u * step >= last) break;
                    real a[WIDTH];
                    widen(held[u], a);
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) sum[j] += a[j];
                }
            }
        });
        return;
    }
    sum_columns<32, 1>(partial, rows, columns, chunk, accumulate, [&](i64 r, i64 last, int step, int c, real(&sum)[1]) {
#pragma unroll 4
        for (; r < last; r += step) sum[0] += to_real(dy[r * columns + c]);
    });
}

// out (C) = Σ over chunks of partial (chunks, C). A block does 32 columns; each warp
// adds up some of the chunks.
extern "C" __global__ void column_finish(const real *partial, real *out, int chunks, int columns, int accumulate) {
    __shared__ real part[32][33];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, warps = blockDim.x >> 5, c = blockIdx.x * 32 + tx;
    real sum = 0;
    if (c < columns)
#pragma unroll 8
        for (int k = ty; k < chunks; k += warps) sum += partial[(i64)k * columns + c];
    part[ty][tx] = sum;
    __syncthreads();
    if (ty || c >= columns) return;
#pragma unroll 8
    for (int k = 1; k < warps; k++) sum += part[k][tx];
    out[c] = accumulate ? out[c] + sum : sum;
}
