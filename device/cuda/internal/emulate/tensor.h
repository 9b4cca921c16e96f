// The instructions of tensor cores and of asynchronous copies in C++, for kernels
// that use them. Part of emulate.h.
#ifndef EMULATE_TENSOR_H
#define EMULATE_TENSOR_H

#include <cstdio>
#include <cstdlib>
#include <vector>

// emulate_share lets each lane of a warp read what the others point to. It
// returns the lanes' pointers; emulate_shared ends the reading.
static inline const unsigned long long *emulate_share(const void *p) {
    emulate->slots[threadIdx.x] = (unsigned long long)p;
    int warp = threadIdx.x / 32;
    emulate->barrier(warp);
    return emulate->slots + warp * 32;
}
static inline void emulate_shared() { emulate->barrier(threadIdx.x / 32); }

static inline float emulate_bf16(unsigned short x) { return emulate_bits<float>((unsigned)x << 16); }

// ldmatrix.x4: lane 8i + r points to row r of the i-th 8 × 8 matrix; lane 4r + c gets
// elements 2c and 2c + 1 of row r, or of column r if transposed.
static inline void emulate_matrices(unsigned (&x)[4], const void *row, bool transposed) {
    if ((unsigned long long)row % 16) {
        fprintf(stderr, "emulated driver: ldmatrix of an address that is not a multiple of 16 bytes\n");
        abort();
    }
    auto rows = emulate_share(row);
    int lane = threadIdx.x & 31, r = lane / 4, c = lane % 4 * 2;
    for (int i = 0; i < 4; i++) {
        auto at = [&](int row, int column) { return (unsigned)((const unsigned short *)rows[8 * i + row])[column]; };
        x[i] = transposed ? at(c, r) | at(c + 1, r) << 16 : at(r, c) | at(r, c + 1) << 16;
    }
    emulate_shared();
}

// mma.m16n8k16 of bf16 with sums in float32: c += a·b. Lane 4g + t has of a the pairs
// [g][2t], [g+8][2t], [g][2t+8], [g+8][2t+8], of b the pairs [2t][g], [2t+8][g], and of c
// [g][2t], [g][2t+1], [g+8][2t], [g+8][2t+1].
struct emulate_operands {
    unsigned a[4], b[2];
};
static inline void emulate_multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    emulate_operands mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    auto lanes = emulate_share(&mine);
    int lane = threadIdx.x & 31;
    for (int e = 0; e < 4; e++) {
        int row = lane / 4, half = e / 2, column = lane % 4 * 2 + e % 2;
        float sum = 0;
        for (int k = 0; k < 16; k++) {
            auto x = ((const emulate_operands *)lanes[row * 4 + k % 8 / 2])->a[half + k / 8 * 2];
            auto y = ((const emulate_operands *)lanes[column * 4 + k % 8 / 2])->b[k / 8];
            sum += emulate_bf16((unsigned short)(x >> k % 2 * 16)) * emulate_bf16((unsigned short)(y >> k % 2 * 16));
        }
        c[e] += sum;
    }
    emulate_shared();
}

// cp.async: what is copied is NaN until the thread waits for its group, so that
// reading too early shows.
struct emulate_copy {
    void *to;
    const void *from;
    int bytes;
    bool there;
};
static std::vector<std::vector<emulate_copy>> emulate_copies[1024]; // a thread's groups, the last being open

static inline void emulate_fetch(void *to, const void *from, int bytes, bool there) {
    if ((unsigned long long)to % bytes || (unsigned long long)from % bytes) {
        fprintf(stderr, "emulated driver: cp.async of %d bytes at an address that is not a multiple of that\n", bytes);
        abort();
    }
    memset(to, 0xff, bytes);
    auto &groups = emulate_copies[threadIdx.x];
    if (groups.empty()) groups.emplace_back();
    groups.back().push_back({to, from, bytes, there});
}
static inline void emulate_fetch_group() { emulate_copies[threadIdx.x].emplace_back(); }
static inline void emulate_fetched(size_t but) {
    auto &groups = emulate_copies[threadIdx.x];
    while (groups.size() > but + 1) {
        for (auto &c : groups.front())
            if (c.there) memcpy(c.to, c.from, c.bytes);
            else memset(c.to, 0, c.bytes);
        groups.erase(groups.begin());
    }
}

#endif
