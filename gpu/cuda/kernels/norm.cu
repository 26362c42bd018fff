// Norms of rows and of heads, with modulation and rotation, forward and
// backward. A row (or a head of it) belongs to a team of threads that holds it
// in registers, so memory is read once. Statistics are float32 sums in a fixed
// order; the variance is that of the differences from the mean.
#include "common.cuh"

// held is how many vectors of V elements a thread holds at most.
template <int V>
constexpr int held = V <= 2 ? 8 : 4;

// layerNorm: y = (1 + scale[b])·(x - mean)·rstd + shift[b], b = row / per; a
// block a row. scale and shift, and mean and rstd, may be absent.
template <class T, int V>
__device__ inline void layerNorm(T* y, long long yRow, const T* x, long long xRow, const T* shift, long long shiftRow,
                                 const T* scale, long long scaleRow, int per, float* mean, float* rstd, float eps, int cols) {
    constexpr int N = held<V>;
    size_t row = blockIdx.x;
    float v[N][V], sum = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        int col = (n * blockDim.x + threadIdx.x) * V;
        if (col >= cols) break;
        load(v[n], x + row * xRow + col);
#pragma unroll
        for (int i = 0; i < V; i++) sum += v[n][i];
    }
    float mu = teamSum(sum, blockDim.x) / cols, squares = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        if ((n * blockDim.x + threadIdx.x) * V >= cols) break;
#pragma unroll
        for (int i = 0; i < V; i++) {
            v[n][i] -= mu;
            squares += v[n][i] * v[n][i];
        }
    }
    float r = 1 / sqrtf(teamSum(squares, blockDim.x) / cols + eps);
    if (threadIdx.x == 0 && mean) mean[row] = mu, rstd[row] = r;
    size_t sample = row / per;
#pragma unroll
    for (int n = 0; n < N; n++) {
        int col = (n * blockDim.x + threadIdx.x) * V;
        if (col >= cols) break;
#pragma unroll
        for (int i = 0; i < V; i++) v[n][i] *= r;
        if (scale) {
            float a[V], b[V];
            load(a, scale + sample * scaleRow + col);
            load(b, shift + sample * shiftRow + col);
#pragma unroll
            for (int i = 0; i < V; i++) v[n][i] = (1 + a[i]) * v[n][i] + b[i];
        }
        store(y + row * yRow + col, v[n]);
    }
}

// layerNormBackward: dx (+)= rstd·(g - mean(g) - x̂·mean(g·x̂)), g = (1 + scale)·dy.
template <class T, int V>
__device__ inline void layerNormBackward(T* dx, long long dxRow, const T* dy, long long dyRow, const T* x, long long xRow,
                                         const T* scale, long long scaleRow, int per, const float* mean, const float* rstd,
                                         int accumulate, int cols) {
    constexpr int N = held<V>;
    size_t row = blockIdx.x, sample = row / per;
    float mu = mean[row], r = rstd[row];
    float g[N][V], h[N][V], sum = 0, dot = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        int col = (n * blockDim.x + threadIdx.x) * V;
        if (col >= cols) break;
        load(g[n], dy + row * dyRow + col);
        load(h[n], x + row * xRow + col);
        float s[V] = {};
        if (scale) load(s, scale + sample * scaleRow + col);
#pragma unroll
        for (int i = 0; i < V; i++) {
            g[n][i] *= 1 + s[i];
            h[n][i] = (h[n][i] - mu) * r;
            sum += g[n][i];
            dot += g[n][i] * h[n][i];
        }
    }
    float m = teamSum(sum, blockDim.x) / cols, p = teamSum(dot, blockDim.x) / cols;
#pragma unroll
    for (int n = 0; n < N; n++) {
        int col = (n * blockDim.x + threadIdx.x) * V;
        if (col >= cols) break;
        float d[V] = {};
        if (accumulate) load(d, dx + row * dxRow + col);
#pragma unroll
        for (int i = 0; i < V; i++) d[i] += r * (g[n][i] - m - h[n][i] * p);
        store(dx + row * dxRow + col, d);
    }
}

// layerNormColumns: dscale[b] += Σ dy·x̂ or, without dscale, dshift[b] += Σ dy,
// over the rows of sample b = blockIdx.y.
template <class T>
__device__ inline void layerNormColumns(float* dscale, long long dscaleRow, float* dshift, long long dshiftRow, const T* dy, long long dyRow,
                                        const T* x, long long xRow, const float* mean, const float* rstd, int per, int cols) {
    size_t sample = blockIdx.y, first = sample * per;
    if (dscale) {
        columnSum(dscale + sample * dscaleRow, cols, per, [=](long long i, int c) {
            size_t row = first + i;
            return widen(dy[row * dyRow + c]) * ((widen(x[row * xRow + c]) - mean[row]) * rstd[row]);
        });
    } else {
        columnSum(dshift + sample * dshiftRow, cols, per, [=](long long i, int c) { return widen(dy[(first + i) * dyRow + c]); });
    }
}

// gateColumns: dgate[b] += Σ dy·h over the rows of sample b = blockIdx.y.
template <class T>
__device__ inline void gateColumns(float* dgate, long long dgateRow, const T* dy, long long dyRow, const T* h, long long hRow, int per, int cols) {
    size_t sample = blockIdx.y, first = sample * per;
    columnSum(dgate + sample * dgateRow, cols, per,
              [=](long long i, int c) { return widen(dy[(first + i) * dyRow + c]) * widen(h[(first + i) * hRow + c]); });
}

// Rotation of pairs of neighbouring columns by position: tables cos and sin, a
// row a position, row i of the matrix at position i mod positions.
struct Rotation {
    const float *cos, *sin;
    long long cosRow, sinRow;
    int positions;
};

// rotate turns the pairs of v, which start at column col of row's head; back turns them the other way.
template <int V>
__device__ inline void rotate(float (&v)[V], Rotation t, size_t row, int col, bool back) {
    size_t at = row % t.positions;
    float c[V], s[V];
    loadAny(c, t.cos, at * t.cosRow + col, F32);
    loadAny(s, t.sin, at * t.sinRow + col, F32);
#pragma unroll
    for (int i = 0; i < V; i += 2) {
        float a = v[i], b = v[i + 1], turn = back ? -s[i] : s[i];
        v[i] = a * c[i] - b * turn;
        v[i + 1] = b * c[i] + a * turn;
    }
}

// Team is a thread's part in the norm of one group of `width` columns: of
// `groups` in each of n rows, taken by teams of `team` threads. A thread without
// a group works on the last one and stores nothing.
struct Team {
    size_t row, index; // index: of the group among all
    int head, lane;
    bool real;

    __device__ Team(long long n, int groups, int team) {
        long long g = (long long)blockIdx.x * (blockDim.x / team) + threadIdx.x / team;
        real = g < n * groups;
        index = real ? g : n * groups - 1;
        row = index / groups, head = index % groups, lane = threadIdx.x % team;
    }
};

// rmsNorm: y = w·x·rstd of every group, rotated where there is a rotation.
template <class T, int V>
__device__ inline void rmsNorm(T* y, long long yRow, const T* x, long long xRow, const void* w, int wType, float* rstd,
                               Rotation turn, float eps, long long n, int groups, int width, int team) {
    constexpr int N = held<V>;
    Team t(n, groups, team);
    const T* in = x + t.row * xRow + (long long)t.head * width;
    T* out = y + t.row * yRow + (long long)t.head * width;
    float v[N][V], squares = 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        int col = (k * team + t.lane) * V;
        if (col >= width) break;
        load(v[k], in + col);
#pragma unroll
        for (int i = 0; i < V; i++) squares += v[k][i] * v[k][i];
    }
    float r = 1 / sqrtf(teamSum(squares, team) / width + eps);
    if (!t.real) return;
    if (rstd && t.lane == 0) rstd[t.index] = r;
#pragma unroll
    for (int k = 0; k < N; k++) {
        int col = (k * team + t.lane) * V;
        if (col >= width) break;
        float weight[V];
        loadAny(weight, w, col, wType);
#pragma unroll
        for (int i = 0; i < V; i++) v[k][i] *= r * weight[i];
        if (turn.cos) rotate(v[k], turn, t.row, col, false);
        store(out + col, v[k]);
    }
}

// rmsNormBackward: dx (+)= rstd·(g - x·rstd²·mean(g·x)), g = w·dy, dy rotated
// back first where there is a rotation.
template <class T, int V>
__device__ inline void rmsNormBackward(T* dx, long long dxRow, const T* dy, long long dyRow, const T* x, long long xRow,
                                       const void* w, int wType, const float* rstd, Rotation turn, int accumulate,
                                       long long n, int groups, int width, int team) {
    constexpr int N = held<V>;
    Team t(n, groups, team);
    long long at = (long long)t.head * width;
    const T *in = x + t.row * xRow + at, *up = dy + t.row * dyRow + at;
    T* out = dx + t.row * dxRow + at;
    float v[N][V], g[N][V], dot = 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        int col = (k * team + t.lane) * V;
        if (col >= width) break;
        load(v[k], in + col);
        load(g[k], up + col);
        if (turn.cos) rotate(g[k], turn, t.row, col, true);
        float weight[V];
        loadAny(weight, w, col, wType);
#pragma unroll
        for (int i = 0; i < V; i++) {
            g[k][i] *= weight[i];
            dot += g[k][i] * v[k][i];
        }
    }
    float r = rstd[t.index], p = teamSum(dot, team) / width * r * r;
    if (!t.real) return;
#pragma unroll
    for (int k = 0; k < N; k++) {
        int col = (k * team + t.lane) * V;
        if (col >= width) break;
        float d[V] = {};
        if (accumulate) load(d, out + col);
#pragma unroll
        for (int i = 0; i < V; i++) d[i] += r * (g[k][i] - v[k][i] * p);
        store(out + col, d);
    }
}

// rmsNormColumns: dw += Σ dy·x·rstd over rows and groups, dy rotated back first
// where there is a rotation.
template <class T>
__device__ inline void rmsNormColumns(float* dw, const T* dy, long long dyRow, const T* x, long long xRow, const float* rstd,
                                      Rotation turn, long long n, int groups, int width) {
    columnSum(dw, width, n * groups, [=](long long g, int c) {
        size_t row = g / groups;
        long long at = g % groups * width;
        const T* up = dy + row * dyRow + at;
        float d = widen(up[c]);
        if (turn.cos) {
            size_t place = row % turn.positions;
            float s = turn.sin[place * turn.sinRow + c];
            d = d * turn.cos[place * turn.cosRow + c] + widen(up[c ^ 1]) * (c % 2 ? -s : s);
        }
        return d * widen(x[row * xRow + at + c]) * rstd[g];
    });
}

// rope rotates columns a and b of a head of width hd, a pair a thread: b is a's
// neighbour, or with half lies hd/2 further.
template <class T>
__device__ inline void rope(T* y, long long yRow, const T* x, long long xRow, Rotation turn, int half, int back, int hd, int across, long long pairs) {
    Place at(across, 1);
    if (at.col >= pairs) return;
    int j = at.col % (hd / 2);
    long long head = at.col / (hd / 2) * hd;
    int first = half ? j : 2 * j, second = half ? j + hd / 2 : 2 * j + 1;
    const T* in = x + at.row * xRow + head;
    T* out = y + at.row * yRow + head;
    size_t place = at.row % turn.positions;
    float c = turn.cos[place * turn.cosRow + first], s = turn.sin[place * turn.sinRow + first];
    if (back) s = -s;
    float a = widen(in[first]), b = widen(in[second]);
    put(out[first], a * c - b * s);
    put(out[second], b * c + a * s);
}

#define ROTATION const float *cos, long long cosRow, const float *sin, long long sinRow, int positions
#define TURN Rotation{cos, sin, cosRow, sinRow, positions}

#define LAYER_NORM(suffix, T, V) \
    KERNEL layer_norm_##suffix(T* y, long long yRow, const T* x, long long xRow, const T* shift, long long shiftRow, \
                               const T* scale, long long scaleRow, int per, float* mean, float* rstd, float eps, int cols) { \
        layerNorm<T, V>(y, yRow, x, xRow, shift, shiftRow, scale, scaleRow, per, mean, rstd, eps, cols); \
    } \
    KERNEL layer_norm_backward_##suffix(T* dx, long long dxRow, const T* dy, long long dyRow, const T* x, long long xRow, \
                                        const T* scale, long long scaleRow, int per, const float* mean, const float* rstd, int accumulate, int cols) { \
        layerNormBackward<T, V>(dx, dxRow, dy, dyRow, x, xRow, scale, scaleRow, per, mean, rstd, accumulate, cols); \
    }

EACH_TYPE(LAYER_NORM)

#define RMS_NORM(suffix, T, V) \
    KERNEL rms_norm_##suffix(T* y, long long yRow, const T* x, long long xRow, const void* w, int wType, float* rstd, ROTATION, \
                             float eps, long long n, int groups, int width, int team) { \
        rmsNorm<T, V>(y, yRow, x, xRow, w, wType, rstd, TURN, eps, n, groups, width, team); \
    } \
    KERNEL rms_norm_backward_##suffix(T* dx, long long dxRow, const T* dy, long long dyRow, const T* x, long long xRow, const void* w, int wType, \
                                      const float* rstd, ROTATION, int accumulate, long long n, int groups, int width, int team) { \
        rmsNormBackward<T, V>(dx, dxRow, dy, dyRow, x, xRow, w, wType, rstd, TURN, accumulate, n, groups, width, team); \
    }

// Pairs stay together: where vectors do not fit, two neighbours are read one by one.
RMS_NORM(f32x2, float, 2)
RMS_NORM(f32x4, float, 4)
RMS_NORM(bf16x2, bf16, 2)
RMS_NORM(bf16x8, bf16, 8)

#define COLUMNS(suffix, T) \
    KERNEL layer_norm_columns_##suffix(float* dscale, long long dscaleRow, float* dshift, long long dshiftRow, const T* dy, long long dyRow, \
                                       const T* x, long long xRow, const float* mean, const float* rstd, int per, int cols) { \
        layerNormColumns(dscale, dscaleRow, dshift, dshiftRow, dy, dyRow, x, xRow, mean, rstd, per, cols); \
    } \
    KERNEL gate_columns_##suffix(float* dgate, long long dgateRow, const T* dy, long long dyRow, const T* h, long long hRow, int per, int cols) { \
        gateColumns(dgate, dgateRow, dy, dyRow, h, hRow, per, cols); \
    } \
    KERNEL rms_norm_columns_##suffix(float* dw, const T* dy, long long dyRow, const T* x, long long xRow, const float* rstd, ROTATION, \
                                     long long n, int groups, int width) { \
        rmsNormColumns(dw, dy, dyRow, x, xRow, rstd, TURN, n, groups, width); \
    } \
    KERNEL rope_##suffix(T* y, long long yRow, const T* x, long long xRow, ROTATION, int half, int back, int hd, int across, long long pairs) { \
        rope(y, yRow, x, xRow, TURN, half, back, hd, across, pairs); \
    }

COLUMNS(f32, float)
COLUMNS(bf16, bf16)
