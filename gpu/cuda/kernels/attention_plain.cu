// Attention and its gradient without tensor cores: float32 arithmetic, elements
// of any type, heads of up to 512 columns (256 in the gradient), rows at any
// address. For what attention.cu does not take: float32 models, the
// autoencoder's one wide head.
//
// A block of 256 threads works on 32 rows (queries or keys) of one head against
// tiles of 32 rows of the other kind. Thread t has row t/8, and of 32 columns
// four: in scores 4·(t%8) and on, in sums over heads' columns t%8, t%8+8, ...
#include "tiles.cuh"

constexpr int side = 32, deep = 32;

template <class T>
struct PlainRows {
    const T* data;
    long long stride;
    int count;

    __device__ float at(int row, int col, int hd) const { return row < count && col < hd ? widen(data[row * stride + col]) : 0; }
};

// fill brings rows [row, row+32), columns [col, col+32) to shared memory.
template <class T>
__device__ inline void fill(float (*to)[deep + 1], PlainRows<T> m, int row, int col, int hd) {
#pragma unroll 1
    for (int i = threadIdx.x; i < side * deep; i += 256) to[i / deep][i % deep] = m.at(row + i / deep, col + i % deep, hd);
}

// dots is c[j] = a row t/8 · b row 4·(t%8)+j over the columns of a head.
template <class T>
__device__ inline void dots(float (&c)[4], PlainRows<T> a, int a0, PlainRows<T> b, int b0, int hd) {
    __shared__ float as[side][deep + 1], bs[side][deep + 1];
    c[0] = c[1] = c[2] = c[3] = 0;
    int r = threadIdx.x / 8, from = threadIdx.x % 8 * 4;
    for (int d0 = 0; d0 < hd; d0 += deep) {
        __syncthreads();
        fill(as, a, a0, d0, hd);
        fill(bs, b, b0, d0, hd);
        __syncthreads();
#pragma unroll 4
        for (int d = 0; d < deep; d++)
#pragma unroll
            for (int j = 0; j < 4; j++) c[j] += as[r][d] * bs[from + j][d];
    }
}

// gather is c[j] += Σ_i weights[t/8][i]·m[m0+i][t%8+8j] for the N columns of the
// thread. It begins with a barrier, so that the weights are there.
template <int N, class T>
__device__ inline void gather(float (&c)[N], const float (*weights)[side + 1], PlainRows<T> m, int m0, int hd) {
    __shared__ float ms[side][deep + 1];
    int r = threadIdx.x / 8, from = threadIdx.x % 8;
#pragma unroll
    for (int part = 0; part < N / 4; part++) {
        if (part * deep >= hd) break;
        __syncthreads();
        fill(ms, m, m0, part * deep, hd);
        __syncthreads();
#pragma unroll 2
        for (int i = 0; i < side; i++) {
            float w = weights[r][i];
#pragma unroll
            for (int j = 0; j < 4; j++) c[part * 4 + j] += w * ms[i][from + 8 * j];
        }
    }
}

// scatter stores what gather summed.
template <int N, class T>
__device__ inline void scatter(T* y, long long yRow, int row, int count, int hd, const float (&c)[N], float factor) {
    if (row >= count) return;
#pragma unroll
    for (int j = 0; j < N; j++) {
        int col = threadIdx.x % 8 + 8 * j;
        if (col < hd) put(y[row * yRow + col], c[j] * factor);
    }
}

// octetMax and octetSum are over the eight threads of a row.
__device__ inline float octetMax(float x) {
    x = quadMax(x);
    return fmaxf(x, __shfl_xor_sync(wholeWarp, x, 4));
}

__device__ inline float octetSum(float x) {
    x = quadSum(x);
    return x + __shfl_xor_sync(wholeWarp, x, 4);
}

template <class T>
__device__ inline void attention(T* o, long long oRow, PlainRows<T> q, PlainRows<T> k, PlainRows<T> v, float* lse, int hd, float scale, Seen seen) {
    __shared__ float weights[side][side + 1];
    int q0 = blockIdx.x * side, r = threadIdx.x / 8, from = threadIdx.x % 8 * 4, query = q0 + r;
    float out[64] = {}, top = -INFINITY, sum = 0;
    int end = seen.last(min(q0 + side, q.count) - 1);
    for (int k0 = seen.from; k0 < end; k0 += side) {
        float s[4];
        dots(s, q, q0, k, k0, hd);
        float now = top;
        for (int j = 0; j < 4; j++) {
            s[j] = seen.has(query, k0 + from + j) ? s[j] * scale : -INFINITY;
            now = fmaxf(now, s[j]);
        }
        now = octetMax(now);
        float shrink = now == -INFINITY ? 1 : expf(top - now);
        top = now;
        sum *= shrink;
        for (int j = 0; j < 64; j++) out[j] *= shrink;
        for (int j = 0; j < 4; j++) {
            float w = s[j] == -INFINITY ? 0 : expf(s[j] - now);
            sum += w;
            weights[r][from + j] = w;
        }
        gather(out, weights, v, k0, hd);
    }
    sum = octetSum(sum);
    if (query < q.count && lse && threadIdx.x % 8 == 0) lse[query] = sum > 0 ? top + logf(sum) : -INFINITY;
    scatter(o, oRow, query, q.count, hd, out, sum > 0 ? 1 / sum : 0);
}

// weight is P of a query and a key from their score.
__device__ inline float weight(float score, float lse, bool seen) { return seen && lse != -INFINITY ? expf(score - lse) : 0; }

// One head's part of dk and dv of 32 keys.
template <class T>
__device__ inline void keyPass(float (&dk)[32], float (&dv)[32], PlainRows<T> k, PlainRows<T> v, PlainRows<T> q, PlainRows<T> dout,
                               const float* lse, const float* delta, int k0, int hd, float scale, Seen seen) {
    __shared__ float ps[side][side + 1], ds[side][side + 1];
    int r = threadIdx.x / 8, from = threadIdx.x % 8 * 4;
    for (int q0 = seen.causal ? k0 / side * side : 0; q0 < q.count; q0 += side) {
        float s[4], dp[4];
        dots(s, k, k0, q, q0, hd);
        dots(dp, v, k0, dout, q0, hd);
        for (int j = 0; j < 4; j++) {
            int query = q0 + from + j;
            bool there = query < q.count;
            float p = weight(s[j] * scale, there ? lse[query] : -INFINITY, seen.has(query, k0 + r));
            ps[r][from + j] = p;
            ds[r][from + j] = there ? p * (dp[j] - delta[query]) : 0;
        }
        gather(dv, ps, dout, q0, hd);
        gather(dk, ds, q, q0, hd);
    }
}

// dq of 32 queries.
template <class T>
__device__ inline void queryPass(float (&dq)[32], PlainRows<T> k, PlainRows<T> v, PlainRows<T> q, PlainRows<T> dout,
                                 const float* lse, const float* delta, int q0, int hd, float scale, Seen seen) {
    __shared__ float ds[side][side + 1];
    int r = threadIdx.x / 8, from = threadIdx.x % 8 * 4, query = q0 + r;
    bool there = query < q.count;
    float l = there ? lse[query] : -INFINITY, d = there ? delta[query] : 0;
    int end = seen.last(min(q0 + side, q.count) - 1);
    for (int k0 = seen.from; k0 < end; k0 += side) {
        float s[4], dp[4];
        dots(s, q, q0, k, k0, hd);
        dots(dp, dout, q0, v, k0, hd);
        for (int j = 0; j < 4; j++) ds[r][from + j] = weight(s[j] * scale, l, seen.has(query, k0 + from + j)) * (dp[j] - d);
        gather(dq, ds, k, k0, hd);
    }
}

// delta[b,h,s] = Σ do·o over the columns of a head; a warp a head of a row.
template <class T>
__device__ inline void deltas(float* delta, const T* dout, long long doutRow, const T* o, long long oRow, int sq, int heads, int hd, long long n) {
    long long index = (long long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (index >= n) return;
    long long row = index / heads, head = index % heads;
    const T *a = dout + row * doutRow + head * hd, *b = o + row * oRow + head * hd;
    float sum = 0;
    for (int i = threadIdx.x % 32; i < hd; i += 32) sum += widen(a[i]) * widen(b[i]);
    sum = teamSum(sum, 32);
    if (threadIdx.x % 32 == 0) delta[(row / sq * heads + head) * sq + row % sq] = sum;
}

// Shapes as in attention.cu and attention_backward.cu; scale is that of the scores.
#define PLAIN(suffix, T) \
    KERNEL __launch_bounds__(256) attention_plain_##suffix(T* o, long long oRow, const T* q, long long qRow, const T* k, long long kRow, \
                                                           const T* v, long long vRow, float* lse, const int* ranges, int sq, int sk, int hd, \
                                                           int perKV, float scale, int causal) { \
        long long head = blockIdx.y, sample = blockIdx.z, first = sample * sq, firstKey = sample * sk, kv = head / perKV * hd; \
        attention(o + first * oRow + head * hd, oRow, PlainRows<T>{q + first * qRow + head * hd, qRow, sq}, \
                  PlainRows<T>{k + firstKey * kRow + kv, kRow, sk}, PlainRows<T>{v + firstKey * vRow + kv, vRow, sk}, \
                  lse ? lse + (sample * gridDim.y + head) * sq : nullptr, hd, scale, Seen(ranges, sample, sk, causal)); \
    } \
    KERNEL __launch_bounds__(256) attention_keys_plain_##suffix(T* dk, long long dkRow, T* dv, long long dvRow, const T* dout, long long doutRow, \
                                                                const T* q, long long qRow, const T* k, long long kRow, const T* v, long long vRow, \
                                                                const float* lse, const float* delta, const int* ranges, int sq, int sk, int hd, \
                                                                int perKV, float scale, int causal) { \
        long long kv = blockIdx.y, sample = blockIdx.z, first = sample * sq, firstKey = sample * sk; \
        int k0 = blockIdx.x * side, row = k0 + threadIdx.x / 8; \
        float dkSum[32] = {}, dvSum[32] = {}; \
        for (long long head = kv * perKV; head < (kv + 1) * perKV; head++) { \
            long long at = (sample * gridDim.y * perKV + head) * sq; \
            keyPass(dkSum, dvSum, PlainRows<T>{k + firstKey * kRow + kv * hd, kRow, sk}, PlainRows<T>{v + firstKey * vRow + kv * hd, vRow, sk}, \
                    PlainRows<T>{q + first * qRow + head * hd, qRow, sq}, PlainRows<T>{dout + first * doutRow + head * hd, doutRow, sq}, \
                    lse + at, delta + at, k0, hd, scale, Seen(ranges, sample, sk, causal)); \
        } \
        scatter(dk + firstKey * dkRow + kv * hd, dkRow, row, sk, hd, dkSum, scale); \
        scatter(dv + firstKey * dvRow + kv * hd, dvRow, row, sk, hd, dvSum, 1); \
    } \
    KERNEL __launch_bounds__(256) attention_queries_plain_##suffix(T* dq, long long dqRow, const T* dout, long long doutRow, const T* q, long long qRow, \
                                                                   const T* k, long long kRow, const T* v, long long vRow, const float* lse, \
                                                                   const float* delta, const int* ranges, int sq, int sk, int hd, int perKV, \
                                                                   float scale, int causal) { \
        long long head = blockIdx.y, sample = blockIdx.z, first = sample * sq, firstKey = sample * sk, kv = head / perKV * hd; \
        long long at = (sample * gridDim.y + head) * sq; \
        int q0 = blockIdx.x * side; \
        float dqSum[32] = {}; \
        queryPass(dqSum, PlainRows<T>{k + firstKey * kRow + kv, kRow, sk}, PlainRows<T>{v + firstKey * vRow + kv, vRow, sk}, \
                  PlainRows<T>{q + first * qRow + head * hd, qRow, sq}, PlainRows<T>{dout + first * doutRow + head * hd, doutRow, sq}, \
                  lse + at, delta + at, q0, hd, scale, Seen(ranges, sample, sk, causal)); \
        scatter(dq + first * dqRow + head * hd, dqRow, q0 + threadIdx.x / 8, sq, hd, dqSum, scale); \
    } \
    KERNEL attention_delta_##suffix(float* delta, const T* dout, long long doutRow, const T* o, long long oRow, int sq, int heads, int hd, long long n) { \
        deltas(delta, dout, doutRow, o, oRow, sq, heads, hd, n); \
    }

PLAIN(f32, float)
PLAIN(bf16, bf16)
