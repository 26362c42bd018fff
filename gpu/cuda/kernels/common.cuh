// Common ground of the kernels: element types, vectors of elements, sums over
// teams of threads. All arithmetic is float32 unless a kernel says otherwise.
//
// A row-major matrix is a pointer to its first element and the distance of two
// rows in elements (a parameter of the same name with `Row` behind it).
#pragma once
#include "ptx.cuh"

#define KERNEL extern "C" __global__ void

struct bf16 {
    unsigned short bits;
};

constexpr unsigned wholeWarp = 0xffffffff;
#define INFINITY __int_as_float(0x7f800000)

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

__device__ inline void put(float& y, float x) { y = x; }
__device__ inline void put(bf16& y, float x) { y.bits = roundBF16(x); }

// EACH_TYPE(F) stamps out F(suffix, type, width): the kernels of an op by
// activations' type, and by how many neighbours a thread takes in one access.
// The wide ones need rows that start on 16 bytes and hold whole vectors.
#define EACH_TYPE(F) F(f32, float, 1) F(f32x4, float, 4) F(bf16, bf16, 1) F(bf16x8, bf16, 8)

// load reads V neighbours: 16 bytes where V is 4 floats or 8 bf16, else one by one.
template <int V>
__device__ inline void load(float (&x)[V], const float* p) {
    if constexpr (V == 4) {
        float4 q = *(const float4*)p;
        x[0] = q.x, x[1] = q.y, x[2] = q.z, x[3] = q.w;
    } else {
        for (int i = 0; i < V; i++) x[i] = p[i];
    }
}

template <int V>
__device__ inline void load(float (&x)[V], const bf16* p) {
    if constexpr (V == 8) {
        uint4 q = *(const uint4*)p;
        unsigned w[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[2 * i] = __uint_as_float(w[i] << 16);
            x[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000);
        }
    } else {
        for (int i = 0; i < V; i++) x[i] = widen(p[i]);
    }
}

// store is the inverse of load.
template <int V>
__device__ inline void store(float* p, const float (&x)[V]) {
    if constexpr (V == 4) {
        *(float4*)p = make_float4(x[0], x[1], x[2], x[3]);
    } else {
        for (int i = 0; i < V; i++) p[i] = x[i];
    }
}

template <int V>
__device__ inline void store(bf16* p, const float (&x)[V]) {
    if constexpr (V == 8) {
        *(uint4*)p = make_uint4(packBF16(x[0], x[1]), packBF16(x[2], x[3]), packBF16(x[4], x[5]), packBF16(x[6], x[7]));
    } else {
        for (int i = 0; i < V; i++) put(p[i], x[i]);
    }
}

// The element types of tensors, by the host's numbers.
enum { F32 = 1, BF16, F16, E5M2, E4M3, I8 };

__device__ inline float widenE5M2(unsigned b) { return widenF16((unsigned short)(b << 8)); }

// widenE4M3 reads the byte as the upper bits of a float16, whose exponents lie 8 lower.
__device__ inline float widenE4M3(unsigned b) {
    float x = widenF16((unsigned short)((b & 0x80) << 8 | (b & 0x7f) << 7)) * 256;
    return (b & 0x7f) == 0x7f ? __int_as_float(0x7fffffff) : x;
}

// element reads element i of an array of any type.
__device__ inline float element(const void* p, size_t i, int type) {
    switch (type) {
    case BF16: return widen(((const bf16*)p)[i]);
    case F16: return widenF16(((const unsigned short*)p)[i]);
    case E5M2: return widenE5M2(((const unsigned char*)p)[i]);
    case E4M3: return widenE4M3(((const unsigned char*)p)[i]);
    case I8: return ((const signed char*)p)[i];
    }
    return ((const float*)p)[i];
}

// toFloat8 rounds to a format of some mantissa bits, to nearest even, and
// saturates at the pattern most.
__device__ inline unsigned toFloat8(float x, unsigned mantissa, unsigned bias, unsigned most) {
    unsigned b = __float_as_uint(x), sign = b >> 24 & 0x80, shift = 23 - mantissa;
    b &= 0x7fffffff;
    if (b > 0x7f800000) return sign | 0x7f;
    if (b >> 23 < 128 - bias) { // below the smallest normal: the adder rounds at the last subnormal's place
        unsigned magic = (128 - bias + shift) << 23;
        return sign | (__float_as_uint(__uint_as_float(b) + __uint_as_float(magic)) - magic);
    }
    b -= (127 - bias) << 23;
    return sign | min((b + (1u << (shift - 1)) - 1 + (b >> shift & 1)) >> shift, most);
}

// putElement writes element i of an array of any floating type.
__device__ inline void putElement(void* p, size_t i, int type, float x) {
    switch (type) {
    case BF16: put(((bf16*)p)[i], x); return;
    case F16: ((unsigned short*)p)[i] = roundF16(x); return;
    case E5M2: ((unsigned char*)p)[i] = (unsigned char)toFloat8(x, 2, 15, 0x7b); return;
    case E4M3: ((unsigned char*)p)[i] = (unsigned char)toFloat8(x, 3, 7, 0x7e); return;
    }
    ((float*)p)[i] = x;
}

// sigmoid is 1/(1 + e^-x), within 1e-6.
__device__ inline float sigmoid(float x) { return __fdividef(1, 1 + __expf(-x)); }

// teamSum adds up x over teams of `team` neighbouring threads, always in the
// same order, and gives every thread the sum. A team is a power of two of at
// most a warp, or the whole block, which then is whole warps. All threads of
// the block call it.
template <class F>
__device__ inline F teamSum(F x, int team) {
    for (int d = min(team, 32) / 2; d > 0; d /= 2) x += __shfl_xor_sync(wholeWarp, x, d);
    if (team <= 32) return x;
    __shared__ F part[32];
    int warps = blockDim.x / 32;
    __syncthreads(); // the last sum has been read
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    F sum = part[0];
    for (int i = 1; i < warps; i++) sum += part[i];
    return sum;
}

// Place is where a thread of a pointwise kernel works: V neighbouring columns
// of one row. A row takes `across` blocks.
struct Place {
    size_t row;
    long long col;

    __device__ Place(int across, int v)
        : row(blockIdx.x / across), col(((long long)(blockIdx.x % across) * blockDim.x + threadIdx.x) * v) {}
};

// loadAny is load from an array of float32, bf16 or float16, at element i.
template <int V>
__device__ inline void loadAny(float (&x)[V], const void* p, size_t i, int type) {
    if (type == F32) {
        const float* q = (const float*)p + i;
        if constexpr (V == 8) {
            float4 a = *(const float4*)q, b = *(const float4*)(q + 4);
            x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
        } else {
            load(x, q);
        }
    } else if (type == BF16) {
        load(x, (const bf16*)p + i);
    } else {
#pragma unroll
        for (int j = 0; j < V; j++) x[j] = widenF16(((const unsigned short*)p)[i + j]);
    }
}

// columnSum adds Σ f(i, c) over i in [0, n) to out[c], in an order that depends
// on n alone. A block of 32 x 32 threads takes 32 columns.
template <class F>
__device__ inline void columnSum(float* out, int cols, long long n, F f) {
    __shared__ float part[32][33];
    int c = blockIdx.x * 32 + threadIdx.x % 32, line = threadIdx.x / 32;
    float sum = 0;
    if (c < cols)
        for (long long i = line; i < n; i += 32) sum += f(i, c);
    part[line][threadIdx.x % 32] = sum;
    __syncthreads();
    if (line > 0 || c >= cols) return;
    for (int l = 1; l < 32; l++) sum += part[l][threadIdx.x];
    out[c] += sum;
}
