// Tiles of bf16 matrices in shared memory, as attention uses them: rows of HD
// elements in chunks of 16 bytes. Chunk c of row r lies at place c ^ r%8, so that
// the eight rows that ldmatrix reads at once lie in different banks.
#pragma once
#include "common.cuh"

// A head's rows of a matrix in global memory.
struct Rows {
    const bf16* data; // the head's first column of row 0 of the sample
    long long stride;
    int count; // rows that there are; those beyond read as zeros
};

template <int HD>
__device__ inline unsigned chunkAt(unsigned tile, int row, int chunk) {
    return tile + row * HD * 2 + ((chunk ^ (row & 7)) << 4);
}

// fetch starts copying rows [first, first + ROWS) to a tile; columns from hd on are zeros.
template <int ROWS, int HD, int THREADS>
__device__ inline void fetch(unsigned tile, Rows m, int first, int hd) {
    constexpr int chunks = HD / 8, step = THREADS / chunks;
    static_assert(ROWS % step == 0 && step % 8 == 0, "a pass takes whole groups of eight rows");
    int chunk = threadIdx.x % chunks, row = threadIdx.x / chunks;
    bool inside = chunk * 8 < hd;
    unsigned to = chunkAt<HD>(tile, row, chunk);
    const bf16* from = m.data + (long long)(first + row) * m.stride + chunk * 8;
#pragma unroll
    for (int i = 0; i < ROWS; i += step) {
        bool given = inside && first + row + i < m.count;
        cpAsync(to + i * HD * 2, given ? from + i * m.stride : m.data, given);
    }
}

// Addresses of a lane for ldmatrix, of 16 rows from `row` on:
// left gives a left operand's 16 x 16 (columns 16·k and on);
// right a right operand whose columns are the tile's rows, 16 deep: two
// operands of 8 columns, in registers 0, 1 and 2, 3;
// across (with ldmatrixT) one whose depth is the tile's rows and whose columns
// are the tile's 16·k and on, likewise.
template <int HD>
__device__ inline unsigned left(unsigned tile, int row, int k) {
    int lane = threadIdx.x % 32;
    return chunkAt<HD>(tile, row + (lane & 15), 2 * k + (lane >> 4));
}

template <int HD>
__device__ inline unsigned right(unsigned tile, int row, int k) {
    int lane = threadIdx.x % 32;
    return chunkAt<HD>(tile, row + (lane & 7) + (lane >> 4 << 3), 2 * k + (lane >> 3 & 1));
}

template <int HD>
__device__ inline unsigned across(unsigned tile, int row, int k) {
    return left<HD>(tile, row, k);
}

// asLeft turns two neighbouring 16 x 8 results into the left operand 16 x 16.
__device__ inline void asLeft(unsigned (&a)[4], const float (&lo)[4], const float (&hi)[4]) {
    a[0] = packBF16(lo[0], lo[1]);
    a[1] = packBF16(lo[2], lo[3]);
    a[2] = packBF16(hi[0], hi[1]);
    a[3] = packBF16(hi[2], hi[3]);
}

// quadMax and quadSum are over the four lanes that share a row of a result.
__device__ inline float quadMax(float x) {
    x = fmaxf(x, __shfl_xor_sync(wholeWarp, x, 1));
    return fmaxf(x, __shfl_xor_sync(wholeWarp, x, 2));
}

__device__ inline float quadSum(float x) {
    x += __shfl_xor_sync(wholeWarp, x, 1);
    return x + __shfl_xor_sync(wholeWarp, x, 2);
}

// Seen says which keys a query sees: those of the sample's range, and with
// causal none behind the query.
struct Seen {
    int from, to;
    bool causal;

    __device__ Seen(const int* ranges, int sample, int sk, bool causal) : from(0), to(sk), causal(causal) {
        if (ranges) from = max(0, ranges[2 * sample]), to = min(sk, ranges[2 * sample + 1]);
    }

    // last is behind the last key that query q sees.
    __device__ int last(int q) const { return causal ? min(to, q + 1) : to; }
    __device__ bool has(int q, int k) const { return k >= from && k < last(q); }

    // all says whether queries [q0, q1) all see keys [k0, k1).
    __device__ bool all(int q0, int k0, int k1) const { return k0 >= from && k1 <= last(q0); }
};
