// Optimisers. Compiled without contraction of products and sums, and in the
// order of the host's form: the same inputs give the same bits on both.
//
// nvrtc: --fmad=false
#include "adam8_codes.cuh"
#include "common.cuh"

// Random numbers of one tensor and step: Philox4x32-10 (Salmon and others, SC
// 2011) under a key; stream is the upper half of its counter. key and stream are
// those of the host's generator, whose element j is words 2·(j%2) and the next of
// block j/2. Rounding takes the 16 bits from bit 16·(i%4) on of element i/4 for
// parameter i, so a block is the random bits of eight neighbours.
struct Random {
    unsigned key0, key1;
    unsigned long long stream;

    __device__ uint4 block(unsigned long long n) const {
        unsigned c0 = (unsigned)n, c1 = (unsigned)(n >> 32), c2 = (unsigned)stream, c3 = (unsigned)(stream >> 32);
        unsigned k0 = key0, k1 = key1;
        for (int round = 0; round < 10; round++) {
            unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
            unsigned h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
            c0 = h1 ^ c1 ^ k0, c1 = l1, c2 = h0 ^ c3 ^ k1, c3 = l0;
            k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
        }
        return make_uint4(c0, c1, c2, c3);
    }
};

// Noise is the random bits of 256 neighbouring parameters, an element a thread
// of the block. float32 parameters need none.
template <class P>
struct Noise {
    __device__ void draw(Random, long long) {}
    __device__ unsigned mine() const { return 0; }
};

template <>
struct Noise<bf16> {
    uint4 bits[32];

    // draw draws those of parameters from 256·chunk on; all threads call it.
    __device__ void draw(Random r, long long chunk) {
        __syncthreads(); // the last ones have been read
        if (threadIdx.x < 32) bits[threadIdx.x] = r.block(32 * chunk + threadIdx.x);
        __syncthreads();
    }
    __device__ unsigned mine() const { return ((const unsigned short*)bits)[threadIdx.x]; }
};

// putParameter writes a parameter; bf16 ones are rounded up or down at random,
// up with the probability that keeps the mean.
__device__ inline void putParameter(float& p, float x, unsigned) { p = x; }
__device__ inline void putParameter(bf16& p, float x, unsigned noise) {
    if (isfinite(x))
        p.bits = (unsigned short)((__float_as_uint(x) + noise) >> 16);
    else
        put(p, x);
}

// Settings of a step, as the host has them.
struct Adam {
    double lr, beta1, beta2, eps, decay;
    const int* step;
    const float* clip; // may be absent
    const int* flag;   // may be absent

    __device__ bool off() const { return flag && flag[0]; }
    __device__ float factor() const { return clip ? clip[0] : 1; }
};

// adamw: m += (1-β1)·(g - m), v = β2·v + (1-β2)·g²,
// p = p·(1 - lr·wd) - lr/(1-β1^t) · m / (sqrt(v)/sqrt(1-β2^t) + eps); a thread
// an element of 256 neighbours.
template <class P>
__device__ inline void adamw(P* p, const void* g, int gType, float* m, float* v, Adam a, Random random, long long n) {
    if (a.off()) return;
    __shared__ float size, root;
    __shared__ Noise<P> noise;
    if (threadIdx.x == 0) {
        double t = a.step[0];
        size = (float)(a.lr / (1 - pow(a.beta1, t)));
        root = (float)sqrt(1 - pow(a.beta2, t));
    }
    __syncthreads();
    float keep = (float)(1 - a.lr * a.decay), eps = (float)a.eps, clip = a.factor();
    float rise = (float)(1 - a.beta1), beta2 = (float)a.beta2, rest = (float)(1 - a.beta2);
    for (long long chunk = blockIdx.x; chunk * 256 < n; chunk += gridDim.x) {
        noise.draw(random, chunk);
        long long i = chunk * 256 + threadIdx.x;
        if (i >= n) return; // in the last chunk of all
        float gi = element(g, i, gType) * clip;
        float mi = m[i] + rise * (gi - m[i]);
        float vi = beta2 * v[i] + rest * gi * gi;
        m[i] = mi, v[i] = vi;
        putParameter(p[i], widen(p[i]) * keep - size * (mi / (sqrtf(vi) / root + eps)), noise.mine());
    }
}

// nearest returns the code whose value is nearest to x, at a middle the lower
// one: the number of middles below x.
__device__ inline int nearest(const float* middle, float x) {
    int lo = 0;
#pragma unroll
    for (int half = 128; half > 0; half /= 2)
        if (middle[lo + half - 1] < x) lo += half;
    return lo;
}

// blockMax is the largest of the block's 256 values.
__device__ inline float blockMax(float x) {
    __shared__ float part[8];
    for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(wholeWarp, x, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < 8; i++) x = fmaxf(x, part[i]);
    return x;
}

// adamw8: AdamW whose moments are codes of 8 bits with one absolute maximum a
// block of 256 elements; a thread an element.
template <class P>
__device__ inline void adamw8(P* p, const void* g, int gType, unsigned char* mcode, unsigned char* vcode, float* mmax, float* vmax,
                              Adam a, int decayAfter, int fixSign, Random random, long long n) {
    if (a.off()) return;
    __shared__ float value[2][256], middle[2][256], size, c2;
    __shared__ Noise<P> noise;
    int tid = threadIdx.x;
    value[0][tid] = signedCode[tid], value[1][tid] = unsignedCode[tid];
    float lr = (float)a.lr, beta1 = (float)a.beta1, beta2 = (float)a.beta2;
    if (tid == 0) {
        double t = a.step[0];
        c2 = (float)sqrt(1 - pow((double)beta2, t));
        size = -lr * c2 / (float)(1 - pow((double)beta1, t));
    }
    __syncthreads();
    for (int i = 0; i < 2; i++) middle[i][tid] = tid < 255 ? (value[i][tid] + value[i][tid + 1]) * 0.5f : INFINITY;
    __syncthreads();
    float eps = c2 * (float)a.eps, keep = 1 - lr * (float)a.decay, clip = a.factor();
    for (long long block = blockIdx.x; block * 256 < n; block += gridDim.x) {
        noise.draw(random, block);
        long long i = block * 256 + tid;
        float m = 0, v = 0;
        float gi = i < n ? element(g, i, gType) * clip : 0;
        bool fine = i < n && isfinite(gi);
        if (fine) {
            m = value[0][mcode[i]] * mmax[block] * beta1 + (1 - beta1) * gi;
            v = value[1][vcode[i]] * vmax[block] * beta2 + (1 - beta2) * gi * gi;
            float x = widen(p[i]);
            if (!decayAfter) x *= keep;
            x += size * (m / (sqrtf(v) + eps));
            if (decayAfter) x *= keep;
            putParameter(p[i], x, noise.mine());
        }
        float mtop = blockMax(fabsf(m)), vtop = blockMax(fabsf(v));
        if (tid == 0) mmax[block] = mtop, vmax[block] = vtop;
        if (i >= n) continue;
        int code = nearest(middle[0], m / (mtop == 0 ? 1 : mtop));
        if (fixSign && signbit(value[0][code]) != signbit(m)) code = m > 0 ? min(code, 254) + 1 : max(code, 1) - 1;
        mcode[i] = (unsigned char)code;
        vcode[i] = (unsigned char)nearest(middle[1], v / (vtop == 0 ? 1 : vtop));
    }
}

#define ADAM double lr, double beta1, double beta2, double eps, double decay, const int *step, const float *clip, const int *flag
#define SETTINGS Adam{lr, beta1, beta2, eps, decay, step, clip, flag}
#define RANDOM unsigned key0, unsigned key1, unsigned long long stream
#define NUMBERS Random{key0, key1, stream}

#define OPTIMISERS(suffix, P) \
    KERNEL adamw_##suffix(P* p, const void* g, int gType, float* m, float* v, ADAM, RANDOM, long long n) { \
        adamw(p, g, gType, m, v, SETTINGS, NUMBERS, n); \
    } \
    KERNEL adamw8_##suffix(P* p, const void* g, int gType, unsigned char* mcode, unsigned char* vcode, float* mmax, float* vmax, ADAM, \
                           int decayAfter, int fixSign, RANDOM, long long n) { \
        adamw8(p, g, gType, mcode, vcode, mmax, vmax, SETTINGS, decayAfter, fixSign, NUMBERS, n); \
    }

OPTIMISERS(f32, float)
OPTIMISERS(bf16, bf16)
