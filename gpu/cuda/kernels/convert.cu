// Conversions between element types: frozen weights to what a GEMM reads, casts,
// rows of embedding tables. Bound by memory.
#include "common.cuh"

// Sixteen elements of one byte each to float32.
template <int From>
__device__ inline void widen16(float (&x)[16], uint4 q) {
    unsigned w[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int i = 0; i < 16; i++) {
        unsigned b = w[i / 4] >> (i % 4 * 8) & 0xff;
        x[i] = From == E5M2 ? widenE5M2(b) : From == E4M3 ? widenE4M3(b) : (float)(signed char)b;
    }
}

// expand: y = w · scale[row], w of one-byte elements; scale may be absent. A
// thread takes 16 elements: rows start on 16 bytes and hold whole vectors.
template <int From>
__device__ inline void expand(bf16* y, long long yRow, const unsigned char* w, long long wRow, const float* scale, int across, long long cols) {
    Place at(across, 16);
    if (at.col >= cols) return;
    float x[16];
    widen16<From>(x, *(const uint4*)(w + at.row * wRow + at.col));
    float s = scale ? scale[at.row] : 1;
    uint4* out = (uint4*)(y + at.row * yRow + at.col);
#pragma unroll
    for (int i = 0; i < 16; i += 8)
        out[i / 8] = make_uint4(packBF16(x[i] * s, x[i + 1] * s), packBF16(x[i + 2] * s, x[i + 3] * s),
                                packBF16(x[i + 4] * s, x[i + 5] * s), packBF16(x[i + 6] * s, x[i + 7] * s));
}

KERNEL expand_e5m2_bf16(bf16* y, long long yRow, const unsigned char* w, long long wRow, const float* scale, int across, long long cols) {
    expand<E5M2>(y, yRow, w, wRow, scale, across, cols);
}

KERNEL expand_e4m3_bf16(bf16* y, long long yRow, const unsigned char* w, long long wRow, const float* scale, int across, long long cols) {
    expand<E4M3>(y, yRow, w, wRow, scale, across, cols);
}

KERNEL expand_i8_bf16(bf16* y, long long yRow, const unsigned char* w, long long wRow, const float* scale, int across, long long cols) {
    expand<I8>(y, yRow, w, wRow, scale, across, cols);
}

// cast between float32 and bf16, eight elements a thread.
template <class To, class From>
__device__ inline void cast(To* y, long long yRow, const From* x, long long xRow, int across, long long cols) {
    Place at(across, 8);
    if (at.col >= cols) return;
    const From* in = x + at.row * xRow + at.col;
    To* out = y + at.row * yRow + at.col;
    float v[8];
    if constexpr (sizeof(From) == 2) {
        load(v, in);
    } else {
        load(*(float(*)[4])v, in);
        load(*(float(*)[4])(v + 4), in + 4);
    }
    if constexpr (sizeof(To) == 2) {
        store(out, v);
    } else {
        store(out, *(float(*)[4])v);
        store(out + 4, *(float(*)[4])(v + 4));
    }
}

KERNEL cast_f32_bf16(bf16* y, long long yRow, const float* x, long long xRow, int across, long long cols) {
    cast(y, yRow, x, xRow, across, cols);
}

KERNEL cast_bf16_f32(float* y, long long yRow, const bf16* x, long long xRow, int across, long long cols) {
    cast(y, yRow, x, xRow, across, cols);
}

// convert: y = x · scale[row] between any two types, one element a thread. With
// ids row i of y is row ids[i] of x, a table of n rows; an id outside gives NaN.
KERNEL convert(void* y, long long yRow, int to, const void* x, long long xRow, int from, const float* scale,
               const int* ids, int n, int across, long long cols) {
    Place at(across, 1);
    if (at.col >= cols) return;
    long long row = ids ? ids[at.row] : (long long)at.row;
    float v = __int_as_float(0x7fffffff);
    if (!ids || row >= 0 && row < n) {
        v = element(x, row * xRow + at.col, from);
        if (scale) v *= scale[row];
    }
    putElement(y, at.row * yRow + at.col, to, v);
}
