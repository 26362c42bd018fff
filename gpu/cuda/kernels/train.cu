// What a training step needs beside the model: embeddings of times, noisy
// samples, the loss, norms of gradients, counters, averages. Sums are in float64
// and in a fixed order.
#include "common.cuh"

// sinusoid: y[b] = [cos(t[b]·f) … sin(t[b]·f) …], f = exp(-ln(10000)·j/half); a
// block a row. Frequencies and phases are float32 products of exact factors.
KERNEL sinusoid(float* y, long long yRow, const float* t, int half) {
    for (int j = threadIdx.x; j < half; j += blockDim.x) {
        float f = (float)exp((double)(-9.21034037197618273607f * j / half));
        double turns = (double)(t[blockIdx.x] * f) / 3.14159265358979323846; // half turns
        float* row = y + blockIdx.x * yRow;
        row[j] = (float)cospi(turns);
        row[half + j] = (float)sinpi(turns);
    }
}

// flow_mix: xt = (1 - sigma)·x0 + sigma·noise, target = noise - x0, sigma by sample.
KERNEL flow_mix(void* xt, long long xtRow, int xtType, void* target, long long targetRow, int targetType,
                const void* x0, long long x0Row, int x0Type, const void* noise, long long noiseRow, int noiseType,
                const float* sigma, int per, int across, long long cols) {
    Place at(across, 1);
    if (at.col >= cols) return;
    float s = sigma[at.row / per];
    float a = element(x0, at.row * x0Row + at.col, x0Type), e = element(noise, at.row * noiseRow + at.col, noiseType);
    putElement(xt, at.row * xtRow + at.col, xtType, (1 - s) * a + s * e);
    putElement(target, at.row * targetRow + at.col, targetType, e - a);
}

// flow_loss: samples[b] = weight[b]·mean((v - target)²) and, where given,
// dv = factor·weight[b]·(v - target); a block a sample.
KERNEL flow_loss(float* samples, void* dv, long long dvRow, int dvType, const void* v, long long vRow, int vType,
                 const void* target, long long targetRow, int targetType, const float* weight, double factor, int per, int cols) {
    size_t sample = blockIdx.x;
    float w = weight[sample], scale = (float)(factor * w);
    double sum = 0;
    for (long long i = threadIdx.x; i < (long long)per * cols; i += blockDim.x) {
        size_t row = sample * per + i / cols, col = i % cols;
        float a = element(v, row * vRow + col, vType), t = element(target, row * targetRow + col, targetType);
        double d = (double)a - (double)t;
        sum += d * d;
        if (dv) putElement(dv, row * dvRow + col, dvType, scale * (a - t));
    }
    sum = teamSum(sum, blockDim.x);
    if (threadIdx.x == 0) samples[sample] = (float)(w * sum / ((double)per * cols));
}

// flow_loss_mean: loss = mean(samples), and flag = 1 where that is not finite. One thread.
KERNEL flow_loss_mean(float* loss, int* flag, const float* samples, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += samples[i];
    loss[0] = (float)(sum / n);
    if (flag && !isfinite(loss[0])) flag[0] = 1;
}

// sum_squares: partial[block] = Σ x² over the elements that are the block's.
KERNEL sum_squares(double* partial, const void* x, long long xRow, int xType, long long rows, long long cols) {
    double sum = 0;
    for (long long r = 0; r < rows; r++)
        for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < cols; i += (long long)gridDim.x * blockDim.x) {
            double v = element(x, r * xRow + i, xType);
            sum += v * v;
        }
    sum = teamSum(sum, blockDim.x);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// sum_partial: sum += Σ partial; one block.
KERNEL sum_partial(double* sum, const double* partial, int n) {
    double s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += partial[i];
    s = teamSum(s, blockDim.x);
    if (threadIdx.x == 0) sum[0] += s;
}

// clip_norm: norm = sqrt(sum), coef = min(1, most / (norm + 1e-6)), and flag = 1
// where the norm is not finite. One thread.
KERNEL clip_norm(float* coef, float* norm, const double* sum, float most, int* flag) {
    float n = (float)sqrt(sum[0]), c = most / (n + 1e-6f);
    norm[0] = n;
    coef[0] = c < 1 || c != c ? c : 1;
    if (flag && !isfinite(n)) flag[0] = 1;
}

// count_step: step += 1 unless the flag is set. One thread.
KERNEL count_step(int* step, const int* flag) {
    if (!flag || !flag[0]) step[0]++;
}

// ema: shadow -= part·(shadow - p) unless the flag is set.
KERNEL ema(float* shadow, const void* p, int pType, float part, const int* flag, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || flag && flag[0]) return;
    shadow[i] -= part * (shadow[i] - element(p, i, pType));
}
