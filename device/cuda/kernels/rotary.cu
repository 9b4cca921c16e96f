// Rotary position embedding in the half-rotation form (Su et al. 2021, as in
// GPT-NeoX and Llama): of a head's D elements, i and i + D/2 are turned by the
// angle t · theta^(−2i/D).
// x, y: B·T rows of H heads of D elements, `xs` and `ys` elements from row to
// row; y may be x. direction is 1, or −1 for the inverse, which is the
// gradient. One thread for each (row, i): the angle serves all heads.
extern "C" __global__ void rotary(const elem *x, elem *y, i64 rows, int T, int H, int D, i64 xs, i64 ys, double theta,
                                  real direction, int offset) {
    int half = D / 2;
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= rows * half) return;
    i64 row = at / half;
    int i = (int)(at % half), t = (int)(row % T) + offset;
    double s, c;
    sincos(t * exp2(-2.0 * i / D * log2(theta)), &s, &c);
    real sine = (real)s * direction, cosine = (real)c;
    x += row * xs + i;
    y += row * ys + i;
    for (int h = 0; h < H; h++) {
        real a = to_real(x[h * D]), b = to_real(x[h * D + half]);
        set(y[h * D], a * cosine - b * sine);
        set(y[h * D + half], b * cosine + a * sine);
    }
}
