// Layer normalisation of rows, and its gradient.
#include "common.h"

// y = (x - mean) rstd gain + bias for each row. The lanes of a block share a row; a block has blockDim.y rows.
KERNEL layer_norm(float* __restrict__ y, float* __restrict__ mean, float* __restrict__ rstd,
                  const float* __restrict__ x, const float* __restrict__ gain, const float* __restrict__ bias, float eps,
                  u64 rows, u64 width) {
    __shared__ float shared[THREADS];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y, start = row * width;
    bool inside = row < rows;
    float total = 0.0f;
    if (inside) {
        for (u64 i = threadIdx.x; i < width; i += blockDim.x) total += x[start + i];
    }
    float m = over_lanes<Plus>(total, shared) / (float)width;
    // The row is read again rather than its squares summed: large means would cancel.
    total = 0.0f;
    if (inside) {
        for (u64 i = threadIdx.x; i < width; i += blockDim.x) {
            float d = x[start + i] - m;
            total = fmaf(d, d, total);
        }
    }
    float variance = over_lanes<Plus>(total, shared) / (float)width;
    if (!inside) return;
    float r = 1.0f / sqrtf(variance + eps);
    for (u64 i = threadIdx.x; i < width; i += blockDim.x) {
        y[start + i] = fmaf((x[start + i] - m) * r, gain[i], bias[i]);
    }
    if (threadIdx.x == 0) {
        mean[row] = m;
        rstd[row] = r;
    }
}

// With n = (x - mean) rstd and h = g gain: dx = rstd (h - mean(h) - n mean(h n)).
KERNEL layer_norm_backward(float* __restrict__ dx, const float* __restrict__ x, const float* __restrict__ gain,
                           const float* __restrict__ mean, const float* __restrict__ rstd,
                           const float* __restrict__ grad, u64 rows, u64 width) {
    __shared__ float shared[THREADS];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y, start = row * width;
    bool inside = row < rows;
    float m = 0.0f, r = 0.0f, sum_h = 0.0f, sum_hn = 0.0f;
    if (inside) {
        m = mean[row];
        r = rstd[row];
        for (u64 i = threadIdx.x; i < width; i += blockDim.x) {
            float h = grad[start + i] * gain[i];
            sum_h += h;
            sum_hn = fmaf(h, (x[start + i] - m) * r, sum_hn);
        }
    }
    float mean_h = over_lanes<Plus>(sum_h, shared) / (float)width;
    float mean_hn = over_lanes<Plus>(sum_hn, shared) / (float)width;
    if (!inside) return;
    for (u64 i = threadIdx.x; i < width; i += blockDim.x) {
        float n = (x[start + i] - m) * r, h = grad[start + i] * gain[i];
        dx[start + i] = r * fmaf(-n, mean_hn, h - mean_h);
    }
}

// The gradients of gain and bias, sum g n and sum g over rows, in pieces of `length` rows: sums [pieces, 2, width], to be
// added up. A block has 32 columns and 8 rows at a time.
KERNEL layer_norm_affine(float* __restrict__ sums, const float* __restrict__ x, const float* __restrict__ mean,
                         const float* __restrict__ rstd, const float* __restrict__ grad, u64 rows, u64 width, u64 length) {
    __shared__ float shared[2][8][32];
    u64 across = (width + 31) / 32, column = blockIdx.x % across * 32 + threadIdx.x, piece = blockIdx.x / across;
    u64 from = piece * length, to = from + length < rows ? from + length : rows;
    float gain = 0.0f, bias = 0.0f;
    if (column < width) {
        for (u64 row = from + threadIdx.y; row < to; row += 8) {
            float g = grad[row * width + column];
            gain = fmaf((x[row * width + column] - mean[row]) * rstd[row], g, gain);
            bias += g;
        }
    }
    shared[0][threadIdx.y][threadIdx.x] = gain;
    shared[1][threadIdx.y][threadIdx.x] = bias;
    __syncthreads();
    if (threadIdx.y < 2 && column < width) {
        float total = shared[threadIdx.y][0][threadIdx.x];
        for (int i = 1; i < 8; i++) total += shared[threadIdx.y][i][threadIdx.x];
        sums[(piece * 2 + threadIdx.y) * width + column] = total;
    }
}
