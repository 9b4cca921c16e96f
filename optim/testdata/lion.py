"""Writes lion.json: twenty steps of Lion on the objective of paths.safetensors.gz
in Python's own float64, after the paper's algorithm 2 and without this package's
code. Run it in this folder: python3 lion.py"""
import gzip, json, math, struct

raw = gzip.open("paths.safetensors.gz").read()
n = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8 : 8 + n])


def tensor(name):
    a, b = header["opt." + name]["data_offsets"]
    return list(struct.unpack("<%dd" % ((b - a) // 8), raw[8 + n + a : 8 + n + b]))


X, Y, w0, b0 = (tensor(k) for k in ("X", "Y", "w0", "b0"))
ROWS, IN, OUT = 16, 6, 5


def gradients(w, b):
    dw, db = [0.1 * math.cos(v) for v in w], [0.0] * OUT
    for r in range(ROWS):
        for j in range(OUT):
            e = sum(X[r * IN + i] * w[i * OUT + j] for i in range(IN)) + b[j] - Y[r * OUT + j]
            d = 2 * e / (ROWS * OUT)
            db[j] += d
            for i in range(IN):
                dw[i * OUT + j] += d * X[r * IN + i]
    return dw, db


def path(lr, beta1, beta2, decay, decay_bias):
    w, b = list(w0), list(b0)
    mw, mb = [0.0] * len(w), [0.0] * len(b)
    for _ in range(20):
        for p, m, g, by in zip((w, b), (mw, mb), gradients(w, b), (decay, decay_bias)):
            for i in range(len(p)):
                c = beta1 * m[i] + (1 - beta1) * g[i]
                sign = (c > 0) - (c < 0)
                p[i] = p[i] - lr * (sign + by * p[i])
                m[i] = beta2 * m[i] + (1 - beta2) * g[i]
        yield w + b


json.dump({
    "default": list(path(0.01, 0.9, 0.99, 0, 0)),
    "decayed": list(path(0.02, 0.95, 0.98, 0.3, 0)),
}, open("lion.json", "w"), indent=0)
