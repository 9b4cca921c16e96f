// Conversion between element types. FROM and TO are float, double or bf16.
// y = x, or y += x with accumulate.
extern "C" __global__ void cast(const FROM *x, TO *y, i64 n, int accumulate) {
    i64 i = FLAT_INDEX;
    if (i + 4 <= n && !((u64)(x + i) % sizeof(Vec<FROM, 4>)) && !((u64)(y + i) % sizeof(Vec<TO, 4>))) {
        Vec<FROM, 4> a = load4(x + i);
        Vec<TO, 4> b;
        if (accumulate) b = load4(y + i);
#pragma unroll
        for (int j = 0; j < 4; j++) set(b.v[j], (real)to_real(a.v[j]) + (accumulate ? (real)to_real(b.v[j]) : (real)0));
        store4(y + i, b);
        return;
    }
    for (int j = 0; j < 4 && i + j < n; j++)
        set(y[i + j], (real)to_real(x[i + j]) + (accumulate ? (real)to_real(y[i + j]) : (real)0));
}
