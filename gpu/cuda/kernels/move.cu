// Copies of strided bytes, zeros, and transposition.
#include "common.cuh"

// The unit of a copy is 16 bytes where everything lies on 16, else 4 or 1.
// Rows of one sample lie yRow and xRow units apart, samples ySample and xSample.
template <class U>
__device__ inline void copy(U* y, long long yRow, long long ySample, const U* x, long long xRow, long long xSample, int rows, int across, long long cols) {
    Place at(across, 1);
    if (at.col >= cols) return;
    size_t sample = at.row / rows, row = at.row % rows;
    U v = {};
    if (x) v = x[sample * xSample + row * xRow + at.col];
    y[sample * ySample + row * yRow + at.col] = v;
}

// copy: y = x, or zeros without x.
#define COPY(suffix, U) \
    KERNEL copy_##suffix(U* y, long long yRow, long long ySample, const U* x, long long xRow, long long xSample, int rows, int across, long long cols) { \
        copy(y, yRow, ySample, x, xRow, xSample, rows, across, cols); \
    }

COPY(16, uint4)
COPY(4, unsigned)
COPY(1, unsigned char)

// transpose swaps the r rows and c columns of each sample, in squares of 32 by
// 32 that pass through shared memory, 8 rows at a time.
template <class T>
__device__ inline void transpose(T* y, long long yRow, const T* x, long long xRow, int r, int c) {
    __shared__ T square[32][33];
    int down = (r + 31) / 32, right = (c + 31) / 32;
    int tile = blockIdx.x % (down * right);
    size_t sample = blockIdx.x / (down * right);
    int r0 = tile / right * 32, c0 = tile % right * 32;
    int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    for (int i = line; i < 32; i += 8)
        if (r0 + i < r && c0 + lane < c) square[i][lane] = x[(sample * r + r0 + i) * xRow + c0 + lane];
    __syncthreads();
    for (int i = line; i < 32; i += 8)
        if (c0 + i < c && r0 + lane < r) y[(sample * c + c0 + i) * yRow + r0 + lane] = square[lane][i];
}

KERNEL transpose_f32(float* y, long long yRow, const float* x, long long xRow, int r, int c) { transpose(y, yRow, x, xRow, r, c); }
KERNEL transpose_bf16(bf16* y, long long yRow, const bf16* x, long long xRow, int r, int c) { transpose(y, yRow, x, xRow, r, c); }
