// Attention on the tensor cores: o = softmax(scale·q·kᵀ)·v per head, without the
// matrix of scores (Dao, FlashAttention-2, arXiv 2307.08691). A block of four
// warps has BQ queries of one head, a warp 32 or 16 of them; it walks over the
// keys in tiles of BK and keeps a running softmax.
//
// One tile of keys and one of values are in shared memory: keys arrive while the
// last tile's values are multiplied, values while the scores are computed.
#include "tiles.cuh"

// Lifting a row's reference maximum means multiplying all that was summed so
// far. It waits until the maximum has grown by 8 (in powers of two): weights up
// to 256 are as exact in bf16 as those up to 1.
constexpr float slack = 8;

template <int HD, int BQ, int BK>
__device__ inline void attention(bf16* o, long long oRow, Rows q, Rows k, Rows v, float* lse, int hd, float scale, Seen seen) {
    constexpr int warps = 4, MT = BQ / warps / 16, threads = warps * 32;
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned qTile = sharedAddress(memory), kTile = qTile + BQ * HD * 2, vTile = kTile + BK * HD * 2;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int q0 = blockIdx.x * BQ, mine = warp * MT * 16; // the warp's first query in the tile
    int end = seen.last(min(q0 + BQ, q.count) - 1);
    int first = seen.from / BK * BK;

    fetch<BQ, HD, threads>(qTile, q, q0, hd);
    if (first < end) fetch<BK, HD, threads>(kTile, k, first, hd);
    cpAsyncCommit();

    float out[MT][HD / 8][4] = {}, top[MT][2], sum[MT][2] = {};
#pragma unroll
    for (int m = 0; m < MT; m++) top[m][0] = top[m][1] = -INFINITY;

    for (int k0 = first; k0 < end; k0 += BK) {
        cpAsyncWait<0>();
        __syncthreads(); // keys are here, and all are done with the last values
        fetch<BK, HD, threads>(vTile, v, k0, hd);
        cpAsyncCommit();

        float s[MT][BK / 8][4] = {};
#pragma unroll
        for (int d = 0; d < HD / 16; d++) {
            unsigned a[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++) ldmatrix(a[m], left<HD>(qTile, mine + m * 16, d));
#pragma unroll
            for (int n = 0; n < BK / 16; n++) {
                unsigned b[4];
                ldmatrix(b, right<HD>(kTile, n * 16, d));
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma(s[m][2 * n], a[m], b[0], b[1]);
                    mma(s[m][2 * n + 1], a[m], b[2], b[3]);
                }
            }
        }
        if (!seen.all(q0, k0, k0 + BK)) {
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int n = 0; n < BK / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        if (!seen.has(q0 + mine + m * 16 + lane / 4 + i / 2 * 8, k0 + n * 8 + lane % 4 * 2 + i % 2)) s[m][n][i] = -INFINITY;
        }

        // Scores to weights below the row's reference.
        float now[MT][2];
        bool lift = false;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float x = s[m][0][2 * h];
#pragma unroll
                for (int n = 0; n < BK / 8; n++) x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
                now[m][h] = quadMax(x) * scale;
                lift |= now[m][h] > top[m][h] + slack;
            }
        if (__any_sync(wholeWarp, lift)) {
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    if (now[m][h] <= top[m][h]) continue;
                    float shrink = ex2(top[m][h] - now[m][h]);
                    top[m][h] = now[m][h];
                    sum[m][h] *= shrink;
#pragma unroll
                    for (int n = 0; n < HD / 8; n++) out[m][n][2 * h] *= shrink, out[m][n][2 * h + 1] *= shrink;
                }
        }
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float level = top[m][h] == -INFINITY ? 0 : -top[m][h];
#pragma unroll
                for (int n = 0; n < BK / 8; n++)
#pragma unroll
                    for (int i = 2 * h; i < 2 * h + 2; i++) {
                        s[m][n][i] = ex2(fmaf(s[m][n][i], scale, level));
                        sum[m][h] += s[m][n][i];
                    }
            }

        cpAsyncWait<0>();
        __syncthreads(); // values are here, and all are done with the keys
        if (k0 + BK < end) {
            fetch<BK, HD, threads>(kTile, k, k0 + BK, hd);
            cpAsyncCommit();
        }
#pragma unroll
        for (int d = 0; d < BK / 16; d++) {
            unsigned a[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++) asLeft(a[m], s[m][2 * d], s[m][2 * d + 1]);
#pragma unroll
            for (int n = 0; n < HD / 16; n++) {
                unsigned b[4];
                ldmatrixT(b, across<HD>(vTile, d * 16, n));
#pragma unroll
                for (int m = 0; m < MT; m++) {
                    mma(out[m][2 * n], a[m], b[0], b[1]);
                    mma(out[m][2 * n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }

#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = q0 + mine + m * 16 + lane / 4 + h * 8;
            float all = quadSum(sum[m][h]), r = all > 0 ? 1 / all : 0;
            if (row >= q.count) continue;
            if (lse && lane % 4 == 0) lse[row] = all > 0 ? (top[m][h] + log2f(all)) * 0.6931471805599453f : -INFINITY;
#pragma unroll
            for (int n = 0; n < HD / 8; n++) {
                int col = n * 8 + lane % 4 * 2;
                if (col < hd) *(unsigned*)(o + row * oRow + col) = packBF16(out[m][n][2 * h] * r, out[m][n][2 * h + 1] * r);
            }
        }
}

// q, o [B·sq, H·hd], k, v [B·sk, H/perKV·hd], lse [B, H, sq]; scale is that of
// the scores times log2(e). Grid: tiles of queries, H, B.
#define ATTENTION(name, HD, BQ, BK) \
    KERNEL __launch_bounds__(128) name(bf16* o, long long oRow, const bf16* q, long long qRow, const bf16* k, long long kRow, \
                                       const bf16* v, long long vRow, float* lse, const int* ranges, int sq, int sk, int hd, \
                                       int perKV, float scale, int causal) { \
        long long head = blockIdx.y, sample = blockIdx.z, first = sample * sq, firstKey = sample * sk, kv = head / perKV * hd; \
        attention<HD, BQ, BK>(o + first * oRow + head * hd, oRow, Rows{q + first * qRow + head * hd, qRow, sq}, \
                              Rows{k + firstKey * kRow + kv, kRow, sk}, Rows{v + firstKey * vRow + kv, vRow, sk}, \
                              lse ? lse + (sample * gridDim.y + head) * sq : nullptr, hd, scale, Seen(ranges, sample, sk, causal)); \
    }

ATTENTION(attention_64, 64, 128, 64)
// 64 KB of shared memory; for cards on which two blocks of it fit.
ATTENTION(attention_128, 128, 128, 64)
// 48 KB.
ATTENTION(attention_128_small, 128, 128, 32)
