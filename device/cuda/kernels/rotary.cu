// Rotary position embedding in the half-rotation form (Su et al. 2021, as in
// GPT-NeoX and Llama): of a head's D elements, i and i + D/2 are turned by the
// angle t · theta^(−2i/D).

// What a position is turned by: MaxRotarySize/2 of package kernel.
struct Frequencies {
    double of[128];
};

// cosine, sine (T, D) of the angles for i < D/2, twice in each row, times gain.
// single rounds angles and results to float. Positions are those of places (T),
// or, without it, count from offset on.
extern "C" __global__ void rotary_table(real *cosine, real *sine, const int *places, int T, int D, int offset, int single,
                                        double gain, Frequencies frequencies) {
    int half = D / 2, at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= T * half) return;
    int t = at / half, i = at % half;
    int place = places ? places[t] : offset + t;
    double f = frequencies.of[i], s, c;
    double angle = single ? (double)((float)place * (float)f) : place * f;
    sincos(angle, &s, &c);
    if (single) {
        s = (double)(float)s;
        c = (double)(float)c;
    }
    cosine[t * D + i] = cosine[t * D + half + i] = (real)(c * gain);
    sine[t * D + i] = sine[t * D + half + i] = (real)(s * gain);
}

// x, y (B, T, H·D); y may be x. inverse turns back, which is the gradient. The
// first R elements of a head are turned, the others stay. One thread for each
// pair of elements, turned ones first.
extern "C" __global__ void rope(const elem *x, const real *cosine, const real *sine, elem *y, i64 pairs, int T, int H,
                                int D, int R, int inverse) {
    i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= pairs) return;
    int half = R / 2, i = (int)(at % (D / 2)), t = (int)(at / (D / 2) / H % T);
    i64 head = at / (D / 2) * D;
    if (i >= half) { // 2i and 2i + 1 are beyond R
        y[head + 2 * i] = x[head + 2 * i];
        y[head + 2 * i + 1] = x[head + 2 * i + 1];
        return;
    }
    i64 low = head + i;
    real a = to_real(x[low]), b = to_real(x[low + half]);
    real c1 = cosine[t * R + i], c2 = cosine[t * R + half + i], s1 = sine[t * R + i], s2 = sine[t * R + half + i];
    set(y[low], inverse ? a * c1 + b * s2 : a * c1 - b * s1);
    set(y[low + half], inverse ? b * c2 - a * s1 : b * c2 + a * s2);
}

// The same for whole heads where D/2 is a multiple of WIDTH and rows of x, y, cosine and sine start
// where a pack can be read. A thread turns a pack of pairs of up to HEADS heads of
// one position. threads is (B·T) · ceil(H/HEADS) · (D/2)/WIDTH, below 2³².
#define HEADS 2
extern "C" __global__ void rope_packs(const elem *x, const real *cosine, const real *sine, elem *y, u32 threads, int T,
                                      int H, int D, int inverse) {
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= threads) return;
    u32 half = D / 2, across = half / WIDTH, parts = (H + HEADS - 1) / HEADS;
    u32 i = at % across * WIDTH, h = at / across % parts * HEADS, row = at / across / parts;
    i64 first = ((i64)row * H + h) * D + i, angle = (i64)(row % T) * D + i;
    Pack<elem> low[HEADS], high[HEADS];
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        if (k > 0 && (int)h + k >= H) break;
        low[k] = read_pack(x + first + k * D);
        high[k] = read_pack(x + first + k * D + half);
    }
    real c1[WIDTH], c2[WIDTH], s1[WIDTH], s2[WIDTH];
    read_reals(cosine + angle, c1);
    read_reals(cosine + angle + half, c2);
    read_reals(sine + angle, s1);
    read_reals(sine + angle + half, s2);
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        real a = s1[j], b = s2[j]; // the gradient exchanges them
        s1[j] = inverse ? -b : a;
        s2[j] = inverse ? -a : b;
    }
#pragma unroll
    for (int k = 0; k < HEADS; k++) {
        if (k > 0 && (int)h + k >= H) break;
        real a[WIDTH], b[WIDTH], p[WIDTH], q[WIDTH];
        widen(low[k], a);
        widen(high[k], b);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            p[j] = a[j] * c1[j] - b[j] * s1[j];
            q[j] = b[j] * c2[j] + a[j] * s2[j];
        }
        narrow(p, low[k]);
        narrow(q, high[k]);
        write_pack(y + first + k * D, low[k]);
        write_pack(y + first + k * D + half, high[k]);
    }
}
