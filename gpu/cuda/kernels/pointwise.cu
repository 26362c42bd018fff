// Pointwise operations on matrices: every thread takes V neighbouring columns
// of one row (see Place). Bound by memory: each element is read and written once.
// Outputs may lie on inputs, since a thread reads all it needs before it writes.
#include "common.cuh"

#define PLACE(V) \
    Place at(across, V); \
    if (at.col >= cols) return;

// swiglu: y = silu(gate) · up.
template <class T, int V>
__device__ inline void swiglu(T* y, long long yRow, const T* gate, long long gateRow, const T* up, long long upRow, int across, long long cols) {
    PLACE(V)
    float g[V], u[V];
    load(g, gate + at.row * gateRow + at.col);
    load(u, up + at.row * upRow + at.col);
#pragma unroll
    for (int i = 0; i < V; i++) g[i] = g[i] * sigmoid(g[i]) * u[i];
    store(y + at.row * yRow + at.col, g);
}

// swigluBackward: dgate = dy · up · s·(1 + gate·(1-s)), dup = dy · silu(gate).
template <class T, int V>
__device__ inline void swigluBackward(T* dgate, long long dgateRow, T* dup, long long dupRow, const T* dy, long long dyRow,
                                      const T* gate, long long gateRow, const T* up, long long upRow, int across, long long cols) {
    PLACE(V)
    float g[V], u[V], d[V];
    load(d, dy + at.row * dyRow + at.col);
    load(g, gate + at.row * gateRow + at.col);
    load(u, up + at.row * upRow + at.col);
#pragma unroll
    for (int i = 0; i < V; i++) {
        float x = g[i], s = sigmoid(x);
        g[i] = d[i] * u[i] * (s * (1 + x * (1 - s)));
        u[i] = d[i] * (x * s);
    }
    store(dgate + at.row * dgateRow + at.col, g);
    store(dup + at.row * dupRow + at.col, u);
}

// silu: y = x · sigmoid(x).
template <class T, int V>
__device__ inline void silu(T* y, long long yRow, const T* x, long long xRow, int across, long long cols) {
    PLACE(V)
    float v[V];
    load(v, x + at.row * xRow + at.col);
#pragma unroll
    for (int i = 0; i < V; i++) v[i] *= sigmoid(v[i]);
    store(y + at.row * yRow + at.col, v);
}

// siluBackward: dx = dy · s·(1 + x·(1-s)).
template <class T, int V>
__device__ inline void siluBackward(T* dx, long long dxRow, const T* dy, long long dyRow, const T* x, long long xRow, int across, long long cols) {
    PLACE(V)
    float v[V], d[V];
    load(d, dy + at.row * dyRow + at.col);
    load(v, x + at.row * xRow + at.col);
#pragma unroll
    for (int i = 0; i < V; i++) {
        float s = sigmoid(v[i]);
        d[i] *= s * (1 + v[i] * (1 - s));
    }
    store(dx + at.row * dxRow + at.col, d);
}

// gateResidual: y = x + gate[row / per] · h; without gate y = x + h.
template <class T, int V>
__device__ inline void gateResidual(T* y, long long yRow, const T* x, long long xRow, const T* h, long long hRow,
                                    const T* gate, long long gateRow, int per, int across, long long cols) {
    PLACE(V)
    float a[V], b[V];
    load(a, x + at.row * xRow + at.col);
    load(b, h + at.row * hRow + at.col);
    if (gate) {
        float g[V];
        load(g, gate + at.row / per * gateRow + at.col);
#pragma unroll
        for (int i = 0; i < V; i++) b[i] *= g[i];
    }
#pragma unroll
    for (int i = 0; i < V; i++) a[i] += b[i];
    store(y + at.row * yRow + at.col, a);
}

// gateScale: dh = gate[row / per] · dy, the gradient of a gated branch.
template <class T, int V>
__device__ inline void gateScale(T* dh, long long dhRow, const T* dy, long long dyRow, const T* gate, long long gateRow, int per, int across, long long cols) {
    PLACE(V)
    float d[V], g[V];
    load(d, dy + at.row * dyRow + at.col);
    load(g, gate + at.row / per * gateRow + at.col);
#pragma unroll
    for (int i = 0; i < V; i++) d[i] *= g[i];
    store(dh + at.row * dhRow + at.col, d);
}

// combine: y = alpha · a + beta · b; without b y = alpha · a, times by[0] where given.
template <class T, int V>
__device__ inline void combine(T* y, long long yRow, const T* a, long long aRow, const T* b, long long bRow,
                               float alpha, float beta, const float* by, int across, long long cols) {
    PLACE(V)
    if (by) alpha *= by[0];
    float p[V];
    load(p, a + at.row * aRow + at.col);
#pragma unroll
    for (int i = 0; i < V; i++) p[i] *= alpha;
    if (b) {
        float q[V];
        load(q, b + at.row * bRow + at.col);
#pragma unroll
        for (int i = 0; i < V; i++) p[i] += beta * q[i];
    }
    store(y + at.row * yRow + at.col, p);
}

// addBias: y = x + bias, bias in any type.
template <class T, int V>
__device__ inline void addBias(T* y, long long yRow, const T* x, long long xRow, const void* bias, int biasType, int across, long long cols) {
    PLACE(V)
    float v[V];
    load(v, x + at.row * xRow + at.col);
#pragma unroll
    for (int i = 0; i < V; i++) v[i] += element(bias, at.col + i, biasType);
    store(y + at.row * yRow + at.col, v);
}

#define KERNELS(suffix, T, V) \
    KERNEL swiglu_##suffix(T* y, long long yRow, const T* gate, long long gateRow, const T* up, long long upRow, int across, long long cols) { \
        swiglu<T, V>(y, yRow, gate, gateRow, up, upRow, across, cols); \
    } \
    KERNEL swiglu_backward_##suffix(T* dgate, long long dgateRow, T* dup, long long dupRow, const T* dy, long long dyRow, \
                                    const T* gate, long long gateRow, const T* up, long long upRow, int across, long long cols) { \
        swigluBackward<T, V>(dgate, dgateRow, dup, dupRow, dy, dyRow, gate, gateRow, up, upRow, across, cols); \
    } \
    KERNEL silu_##suffix(T* y, long long yRow, const T* x, long long xRow, int across, long long cols) { \
        silu<T, V>(y, yRow, x, xRow, across, cols); \
    } \
    KERNEL silu_backward_##suffix(T* dx, long long dxRow, const T* dy, long long dyRow, const T* x, long long xRow, int across, long long cols) { \
        siluBackward<T, V>(dx, dxRow, dy, dyRow, x, xRow, across, cols); \
    } \
    KERNEL gate_residual_##suffix(T* y, long long yRow, const T* x, long long xRow, const T* h, long long hRow, \
                                  const T* gate, long long gateRow, int per, int across, long long cols) { \
        gateResidual<T, V>(y, yRow, x, xRow, h, hRow, gate, gateRow, per, across, cols); \
    } \
    KERNEL gate_scale_##suffix(T* dh, long long dhRow, const T* dy, long long dyRow, const T* gate, long long gateRow, int per, int across, long long cols) { \
        gateScale<T, V>(dh, dhRow, dy, dyRow, gate, gateRow, per, across, cols); \
    } \
    KERNEL combine_##suffix(T* y, long long yRow, const T* a, long long aRow, const T* b, long long bRow, \
                            float alpha, float beta, const float* by, int across, long long cols) { \
        combine<T, V>(y, yRow, a, aRow, b, bRow, alpha, beta, by, across, cols); \
    } \
    KERNEL add_bias_##suffix(T* y, long long yRow, const T* x, long long xRow, const void* bias, int biasType, int across, long long cols) { \
        addBias<T, V>(y, yRow, x, xRow, bias, biasType, across, cols); \
    }

EACH_TYPE(KERNELS)
