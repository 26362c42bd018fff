// The gradient of attention on the tensor cores, from the saved log-sum-exps:
//
//	P = exp(scale·q·kᵀ - lse),  dS = P·(do·vᵀ - delta)
//	dv = Pᵀ·do,  dk = scale·dSᵀ·q    a block a tile of keys, walking over the queries
//	dq = scale·dS·k                  a block a tile of queries, walking over the keys
//
// Two passes that compute P and dS each for itself, so that every sum has one
// owner and one order. P and dS never leave registers: in the first pass the
// transposed scores are computed, so that results of one product are the left
// operand of the next. A warp owns 16 rows, whose two operands it holds in
// registers; eight warps share the tiles that pass by in two buffers.
#include "tiles.cuh"

constexpr int warps = 8, threads = warps * 32, rows = warps * 16;
constexpr float log2e = 1.4426950408889634f;

// hold reads the warp's 16 rows of a matrix into registers, through shared memory.
template <int HD>
__device__ inline void hold(unsigned (&a)[HD / 16][4], unsigned memory, Rows m, int first, int hd) {
    __syncthreads(); // all are done with the memory
    fetch<rows, HD, threads>(memory, m, first, hd);
    cpAsyncCommit();
    cpAsyncWait<0>();
    __syncthreads();
#pragma unroll
    for (int d = 0; d < HD / 16; d++) ldmatrix(a[d], left<HD>(memory, threadIdx.x / 32 * 16, d));
}

// multiply is c = a·tileᵀ: 16 rows by N rows of the tile.
template <int HD, int N>
__device__ inline void multiply(float (&c)[N / 8][4], const unsigned (&a)[HD / 16][4], unsigned tile) {
#pragma unroll
    for (int n = 0; n < N / 8; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
#pragma unroll
    for (int d = 0; d < HD / 16; d++)
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            unsigned b[4];
            ldmatrix(b, right<HD>(tile, n * 16, d));
            mma(c[2 * n], a[d], b[0], b[1]);
            mma(c[2 * n + 1], a[d], b[2], b[3]);
        }
}

// accumulate is c += p·tile: 16 by N weights with N rows of the tile.
template <int HD, int N>
__device__ inline void accumulate(float (&c)[HD / 8][4], const float (&p)[N / 8][4], unsigned tile) {
#pragma unroll
    for (int d = 0; d < N / 16; d++) {
        unsigned a[4];
        asLeft(a, p[2 * d], p[2 * d + 1]);
#pragma unroll
        for (int n = 0; n < HD / 16; n++) {
            unsigned b[4];
            ldmatrixT(b, across<HD>(tile, d * 16, n));
            mma(c[2 * n], a, b[0], b[1]);
            mma(c[2 * n + 1], a, b[2], b[3]);
        }
    }
}

// write stores the warp's 16 rows of a gradient times factor.
template <int HD>
__device__ inline void write(bf16* y, long long yRow, int first, int count, int hd, const float (&c)[HD / 8][4], float factor) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = first + threadIdx.x / 32 * 16 + lane / 4 + h * 8;
        if (row >= count) continue;
#pragma unroll
        for (int n = 0; n < HD / 8; n++) {
            int col = n * 8 + lane % 4 * 2;
            if (col < hd) *(unsigned*)(y + row * yRow + col) = packBF16(c[n][2 * h] * factor, c[n][2 * h + 1] * factor);
        }
    }
}

// level is what the exponent of a row starts from: -lse in powers of two, and
// -Inf, which gives weights of 0, for rows that see nothing or are not there.
__device__ inline float level(const float* lse, int row, int count) {
    float l = row < count ? lse[row] : -INFINITY;
    return l == -INFINITY ? -INFINITY : -l * log2e;
}

// One head of the first pass: its queries' part of dk and dv.
template <int HD, int BQ>
__device__ inline void keyPass(float (&dk)[HD / 8][4], float (&dv)[HD / 8][4], const unsigned (&k)[HD / 16][4], const unsigned (&v)[HD / 16][4],
                               unsigned tiles, float* rowValues, Rows q, Rows dout, const float* lse, const float* delta,
                               int k0, int hd, float scale, Seen seen) {
    constexpr unsigned tile = BQ * HD * 2;
    int lane = threadIdx.x % 32, key = k0 + threadIdx.x / 32 * 16 + lane / 4;
    int first = seen.causal ? k0 / BQ * BQ : 0;
    // Thread i < BQ brings the level of query i of the next tile, thread BQ + i its delta.
    auto value = [&](int q0) {
        int i = threadIdx.x % BQ, row = q0 + i;
        if (threadIdx.x < BQ) return level(lse, row, q.count);
        return threadIdx.x < 2 * BQ && row < q.count ? delta[row] : 0;
    };
    __syncthreads(); // all are done with the memory
    fetch<BQ, HD, threads>(tiles, q, first, hd);
    fetch<BQ, HD, threads>(tiles + tile, dout, first, hd);
    cpAsyncCommit();
    float next = value(first);
    int slot = 0;
    for (int q0 = first; q0 < q.count; q0 += BQ, slot ^= 1) {
        if (threadIdx.x < 2 * BQ) rowValues[slot * 2 * BQ + threadIdx.x] = next;
        cpAsyncWait<0>();
        __syncthreads(); // this tile is here, and all are done with the last one
        if (q0 + BQ < q.count) {
            fetch<BQ, HD, threads>(tiles + (slot ^ 1) * 2 * tile, q, q0 + BQ, hd);
            fetch<BQ, HD, threads>(tiles + (slot ^ 1) * 2 * tile + tile, dout, q0 + BQ, hd);
            cpAsyncCommit();
            next = value(q0 + BQ);
        }
        unsigned qTile = tiles + slot * 2 * tile, dTile = qTile + tile;
        const float* levels = rowValues + slot * 2 * BQ + lane % 4 * 2;
        float p[BQ / 8][4], ds[BQ / 8][4];
        multiply<HD, BQ>(p, k, qTile);
        bool all = seen.all(q0, k0, k0 + rows);
#pragma unroll
        for (int n = 0; n < BQ / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                p[n][i] = ex2(fmaf(p[n][i], scale, levels[n * 8 + i % 2]));
                if (!all && !seen.has(q0 + n * 8 + lane % 4 * 2 + i % 2, key + i / 2 * 8)) p[n][i] = 0;
            }
        multiply<HD, BQ>(ds, v, dTile);
        accumulate<HD, BQ>(dv, p, dTile);
#pragma unroll
        for (int n = 0; n < BQ / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) ds[n][i] = p[n][i] * (ds[n][i] - levels[BQ + n * 8 + i % 2]);
        accumulate<HD, BQ>(dk, ds, qTile);
    }
}

// The second pass: dq of the block's queries.
template <int HD, int BK>
__device__ inline void queryPass(float (&dq)[HD / 8][4], const unsigned (&q)[HD / 16][4], const unsigned (&dout)[HD / 16][4],
                                 unsigned tiles, Rows k, Rows v, const float (&levels)[2], const float (&deltas)[2],
                                 int q0, int end, int hd, float scale, Seen seen) {
    constexpr unsigned tile = BK * HD * 2;
    int lane = threadIdx.x % 32, query = q0 + threadIdx.x / 32 * 16 + lane / 4;
    int first = seen.from / BK * BK;
    __syncthreads(); // all are done with the memory
    if (first < end) {
        fetch<BK, HD, threads>(tiles, k, first, hd);
        fetch<BK, HD, threads>(tiles + tile, v, first, hd);
        cpAsyncCommit();
    }
    int slot = 0;
    for (int k0 = first; k0 < end; k0 += BK, slot ^= 1) {
        cpAsyncWait<0>();
        __syncthreads(); // this tile is here, and all are done with the last one
        if (k0 + BK < end) {
            fetch<BK, HD, threads>(tiles + (slot ^ 1) * 2 * tile, k, k0 + BK, hd);
            fetch<BK, HD, threads>(tiles + (slot ^ 1) * 2 * tile + tile, v, k0 + BK, hd);
            cpAsyncCommit();
        }
        unsigned kTile = tiles + slot * 2 * tile, vTile = kTile + tile;
        float p[BK / 8][4], ds[BK / 8][4];
        multiply<HD, BK>(p, q, kTile);
        multiply<HD, BK>(ds, dout, vTile);
        bool all = seen.all(q0, k0, k0 + BK);
#pragma unroll
        for (int n = 0; n < BK / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float w = ex2(fmaf(p[n][i], scale, levels[i / 2]));
                if (!all && !seen.has(query + i / 2 * 8, k0 + n * 8 + lane % 4 * 2 + i % 2)) w = 0;
                ds[n][i] = w * (ds[n][i] - deltas[i / 2]);
            }
        accumulate<HD, BK>(dq, ds, kTile);
    }
}

// q, dout [B·sq, H·hd], k, v, dk, dv [B·sk, H/perKV·hd], lse, delta [B, H, sq];
// scale is that of the scores. Grid: tiles of 128 keys, heads of keys, B.
#define KEYS(name, HD, BQ) \
    KERNEL __launch_bounds__(threads, 1) name(bf16* dk, long long dkRow, bf16* dv, long long dvRow, const bf16* dout, long long doutRow, \
                                              const bf16* q, long long qRow, const bf16* k, long long kRow, const bf16* v, long long vRow, \
                                              const float* lse, const float* delta, const int* ranges, int sq, int sk, int hd, int perKV, \
                                              float scale, int causal) { \
        extern __shared__ __align__(128) unsigned char memory[]; \
        __shared__ float rowValues[4 * BQ]; \
        unsigned tiles = sharedAddress(memory); \
        long long kv = blockIdx.y, sample = blockIdx.z, first = sample * sq, firstKey = sample * sk; \
        int k0 = blockIdx.x * rows; \
        Seen seen(ranges, sample, sk, causal); \
        unsigned kk[HD / 16][4], vv[HD / 16][4]; \
        hold<HD>(kk, tiles, Rows{k + firstKey * kRow + kv * hd, kRow, sk}, k0, hd); \
        hold<HD>(vv, tiles, Rows{v + firstKey * vRow + kv * hd, vRow, sk}, k0, hd); \
        float dkSum[HD / 8][4] = {}, dvSum[HD / 8][4] = {}; \
        if (k0 < seen.to && k0 + rows > seen.from) \
            for (long long head = kv * perKV; head < (kv + 1) * perKV; head++) { \
                long long at = (sample * gridDim.y * perKV + head) * sq; \
                keyPass<HD, BQ>(dkSum, dvSum, kk, vv, tiles, rowValues, Rows{q + first * qRow + head * hd, qRow, sq}, \
                                Rows{dout + first * doutRow + head * hd, doutRow, sq}, lse + at, delta + at, k0, hd, scale * log2e, seen); \
            } \
        write<HD>(dk + firstKey * dkRow + kv * hd, dkRow, k0, sk, hd, dkSum, scale); \
        write<HD>(dv + firstKey * dvRow + kv * hd, dvRow, k0, sk, hd, dvSum, 1); \
    }

KEYS(attention_keys_64, 64, 32)
KEYS(attention_keys_128, 128, 32)

// As above. Grid: tiles of 128 queries, H, B.
#define QUERIES(name, HD, BK) \
    KERNEL __launch_bounds__(threads, 1) name(bf16* dq, long long dqRow, const bf16* dout, long long doutRow, const bf16* q, long long qRow, \
                                              const bf16* k, long long kRow, const bf16* v, long long vRow, const float* lse, const float* delta, \
                                              const int* ranges, int sq, int sk, int hd, int perKV, float scale, int causal) { \
        extern __shared__ __align__(128) unsigned char memory[]; \
        unsigned tiles = sharedAddress(memory); \
        long long head = blockIdx.y, sample = blockIdx.z, first = sample * sq, firstKey = sample * sk, kv = head / perKV * hd; \
        int q0 = blockIdx.x * rows, row = q0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4; \
        Seen seen(ranges, sample, sk, causal); \
        unsigned qq[HD / 16][4], dd[HD / 16][4]; \
        hold<HD>(qq, tiles, Rows{q + first * qRow + head * hd, qRow, sq}, q0, hd); \
        hold<HD>(dd, tiles, Rows{dout + first * doutRow + head * hd, doutRow, sq}, q0, hd); \
        long long at = (sample * gridDim.y + head) * sq; \
        float levels[2], deltas[2], dqSum[HD / 8][4] = {}; \
        for (int h = 0; h < 2; h++) { \
            levels[h] = level(lse + at, row + h * 8, sq); \
            deltas[h] = row + h * 8 < sq ? delta[at + row + h * 8] : 0; \
        } \
        queryPass<HD, BK>(dqSum, qq, dd, tiles, Rows{k + firstKey * kRow + kv, kRow, sk}, Rows{v + firstKey * vRow + kv, vRow, sk}, \
                          levels, deltas, q0, seen.last(min(q0 + rows, sq) - 1), hd, scale * log2e, seen); \
        write<HD>(dq + first * dqRow + head * hd, dqRow, q0, sq, hd, dqSum, scale); \
    }

QUERIES(attention_queries_64, 64, 32)
QUERIES(attention_queries_128, 128, 32)
