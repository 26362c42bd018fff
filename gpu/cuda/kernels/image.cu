// Operations on images [B, C, H, W], contiguous: the autoencoder's.
#include "common.cuh"

// conv2d: y[b,o] = bias[o] + Σ w[o,c,p,q]·x[b,c, i·stride+p-pad, j·stride+q-pad],
// as a product of w [O, C·K·K] and the patches under the output's positions. A
// block of 256 threads computes 64 channels by 64 positions, a thread 4 by 4,
// sixteen of the depth at a time.
template <class T>
__device__ inline void conv2d(T* y, const T* x, const float* w, const void* bias, int biasType,
                              int channels, int h, int width, int out, int oh, int ow, int k, int stride, int pad) {
    constexpr int tile = 64, deep = 16;
    __shared__ float ws[deep][tile + 4], xs[deep][tile + 4];
    int depth = channels * k * k, area = oh * ow, tiles = (area + tile - 1) / tile;
    int o0 = blockIdx.y * tile, p0 = blockIdx.x % tiles * tile;
    size_t sample = blockIdx.x / tiles;
    const T* image = x + sample * channels * h * width;
    int tid = threadIdx.x, tx = tid % 16, ty = tid / 16;
    float acc[4][4] = {};
    for (int d0 = 0; d0 < depth; d0 += deep) {
        for (int i = tid; i < tile * deep; i += 256) {
            int d = d0 + i % deep, o = o0 + i / deep;
            ws[i % deep][i / deep] = d < depth && o < out ? w[(size_t)o * depth + d] : 0;
        }
        for (int i = tid; i < tile * deep; i += 256) {
            int d = d0 + i / tile, p = p0 + i % tile;
            float v = 0;
            if (d < depth && p < area) {
                int c = d / (k * k), r = p / ow * stride + d / k % k - pad, q = p % ow * stride + d % k - pad;
                if (r >= 0 && r < h && q >= 0 && q < width) v = widen(image[((size_t)c * h + r) * width + q]);
            }
            xs[i / tile][i % tile] = v;
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < deep; d++) {
            float a[4], b[4];
            load(a, &ws[d][ty * 4]);
            load(b, &xs[d][tx * 4]);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) acc[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        int o = o0 + ty * 4 + i;
        if (o >= out) continue;
        float b = bias ? element(bias, o, biasType) : 0;
        for (int j = 0; j < 4; j++) {
            int p = p0 + tx * 4 + j;
            if (p < area) put(y[(sample * out + o) * area + p], acc[i][j] + b);
        }
    }
}

// groupNorm: y = w[c]·(x - mean)·rstd + b[c] by group of `per` channels, then
// silu where asked; a block a group, three passes.
template <class T>
__device__ inline void groupNorm(T* y, const T* x, const void* w, int wType, const void* b, int bType, int groups, int per, int area, float eps, int silu) {
    size_t at = (size_t)blockIdx.x * per * area;
    long long n = (long long)per * area;
    float sum = 0, squares = 0;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) sum += widen(x[at + i]);
    float mean = teamSum(sum, blockDim.x) / n;
    for (long long i = threadIdx.x; i < n; i += blockDim.x) {
        float d = widen(x[at + i]) - mean;
        squares += d * d;
    }
    float rstd = 1 / sqrtf(teamSum(squares, blockDim.x) / n + eps);
    int first = blockIdx.x % groups * per;
    for (int c = 0; c < per; c++) {
        float scale = element(w, first + c, wType), shift = element(b, first + c, bType);
        for (long long i = threadIdx.x; i < area; i += blockDim.x) {
            size_t e = at + (size_t)c * area + i;
            float v = (widen(x[e]) - mean) * rstd * scale + shift;
            put(y[e], silu ? v * sigmoid(v) : v);
        }
    }
}

// channelNorm: y = (x - mean[c]) / std[c], or its inverse; a row of blocks a plane.
template <class T>
__device__ inline void channelNorm(T* y, const T* x, const float* mean, const float* std, int channels, int inverse, int across, long long area) {
    Place at(across, 1);
    if (at.col >= area) return;
    int c = at.row % channels;
    size_t i = at.row * area + at.col;
    float v = widen(x[i]);
    put(y[i], inverse ? v * std[c] + mean[c] : (v - mean[c]) / std[c]);
}

// upsample: every pixel 2 x 2 times; a thread an output pixel.
template <class T>
__device__ inline void upsample(T* y, const T* x, int h, int width, int across, long long area) {
    Place at(across, 1);
    if (at.col >= area) return;
    int r = at.col / (2 * width) / 2, q = at.col % (2 * width) / 2;
    y[at.row * area + at.col] = x[(at.row * h + r) * width + q];
}

// patchify: y[b, 4c+2p+q, i, j] = x[b, c, 2i+p, 2j+q] for h x width of (i, j), or
// its inverse; a thread an element, a row of blocks a channel of the image.
template <class T>
__device__ inline void patchify(T* y, const T* x, int h, int width, int inverse, int across, long long area) {
    Place at(across, 1);
    if (at.col >= area) return;
    int part = at.col / (h * width), i = at.col / width % h, j = at.col % width;
    size_t folded = at.row * area + at.col;
    size_t image = at.row * area + (2 * i + part / 2) * 2 * (size_t)width + 2 * j + part % 2;
    if (inverse)
        y[image] = x[folded];
    else
        y[folded] = x[image];
}

#define IMAGE(suffix, T) \
    KERNEL conv2d_##suffix(T* y, const T* x, const float* w, const void* bias, int biasType, int channels, int h, int width, \
                           int out, int oh, int ow, int k, int stride, int pad) { \
        conv2d(y, x, w, bias, biasType, channels, h, width, out, oh, ow, k, stride, pad); \
    } \
    KERNEL group_norm_##suffix(T* y, const T* x, const void* w, int wType, const void* b, int bType, int groups, int per, int area, float eps, int silu) { \
        groupNorm(y, x, w, wType, b, bType, groups, per, area, eps, silu); \
    } \
    KERNEL channel_norm_##suffix(T* y, const T* x, const float* mean, const float* std, int channels, int inverse, int across, long long area) { \
        channelNorm(y, x, mean, std, channels, inverse, across, area); \
    } \
    KERNEL upsample2x_##suffix(T* y, const T* x, int h, int width, int across, long long area) { upsample(y, x, h, width, across, area); } \
    KERNEL patchify_##suffix(T* y, const T* x, int h, int width, int inverse, int across, long long area) { patchify(y, x, h, width, inverse, across, area); }

IMAGE(f32, float)
IMAGE(bf16, bf16)
