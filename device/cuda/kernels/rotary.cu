// Rotary position embedding in the half-rotation form (Su et al. 2021, as in
// GPT-NeoX and Llama): of a head's D elements, i and i + D/2 are turned by the
// angle t · theta^(−2i/D).

// cosine, sine (T, D) of the angles for i < D/2, twice in each row. single
// rounds the frequencies, angles and results to float.
extern "C" __global__ void rotary_table(real *cosine, real *sine, int T, int D, int offset, int single, double theta) {
    int half = D / 2, at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= T * half) return;
    int t = at / half, i = at % half;
    double f = pow(theta, -(double)(2 * i) / D), s, c;
    if (single) f = (double)(1 / (float)pow(theta, (double)((float)(2 * i) / (float)D)));
    double angle = single ? (double)((float)(offset + t) * (float)f) : (offset + t) * f;
    sincos(angle, &s, &c);
    if (single) {
        s = (double)(float)s;
        c = (double)(float)c;
    }
    cosine[t * D + i] = cosine[t * D + half + i] = (real)c;
    sine[t * D + i] = sine[t * D + half + i] = (real)s;
}

// x, y (B, T, H·D); y may be x. inverse turns back, which is the gradient. One
// thread for each pair of elements.
extern "C" __global__ void rope(const elem *x, const real *cosine, const real *sine, elem *y, i64 pairs, int T, int H,
                                int D, int inverse) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= pairs) return;
    int half = D / 2, i = (int)(at % half), t = (int)(at / half / H % T);
    i64 low = at / half * D + i;
    real a = to_real(x[low]), b = to_real(x[low + half]);
    real c1 = cosine[t * D + i], c2 = cosine[t * D + half + i], s1 = sine[t * D + i], s2 = sine[t * D + half + i];
    set(y[low], inverse ? a * c1 + b * s2 : a * c1 - b * s1);
    set(y[low + half], inverse ? b * c2 - a * s1 : b * c2 + a * s2);
}
