// softmax, log-softmax and cross entropy over rows, their gradients, and the largest elements of rows.
//
// The lanes of a block (threadIdx.x) share a row, and a block has blockDim.y rows.
#include "common.h"

DEVICE u64 block_row() { return (u64)blockIdx.x * blockDim.y + threadIdx.y; }

// The largest element of a row, and the sum of e^(x - peak).
struct Peak {
    float peak, sum;
};

// V elements of a lane: the sum is scaled down where the peak grows.
template <int V>
DEVICE void absorb(Peak& p, const Pack<float, V>& f) {
    float peak = p.peak;
    for (int j = 0; j < V; j++) peak = f.v[j] > peak ? f.v[j] : peak;
    if (peak != p.peak) {
        p.sum *= expf(p.peak - peak);
        p.peak = peak;
    }
    // Until something is larger, all is minus infinity, or NaN, which goes into the sum.
    for (int j = 0; j < V; j++) p.sum += f.v[j] == MINUS_INFINITY ? 0.0f : expf(f.v[j] - p.peak);
}

// One pass over the row. Threads without a row (`inside` is false) stand at the barriers with the others.
DEVICE Peak peak_of(const float* x, u64 start, u64 width, bool inside, float* shared) {
    Peak p = {MINUS_INFINITY, 0.0f};
    if (inside && width % 4 == 0) {
        for (u64 i = threadIdx.x; i < width / 4; i += blockDim.x) absorb(p, ((const Pack<float, 4>*)(x + start))[i]);
    } else if (inside) {
        for (u64 i = threadIdx.x; i < width; i += blockDim.x) absorb(p, ((const Pack<float, 1>*)(x + start))[i]);
    }
    float peak = over_lanes<Larger>(p.peak, shared);
    // A lane that saw nothing but minus infinity has a sum of 0, which the factor must not turn into NaN; one that saw
    // NaN has NaN in its sum.
    float part = p.peak == MINUS_INFINITY && p.sum == 0.0f ? 0.0f : p.sum * expf(p.peak - peak);
    p.peak = peak;
    p.sum = over_lanes<Plus>(part, shared);
    return p;
}

// y = e^x / sum e^x
KERNEL softmax(float* __restrict__ y, const float* __restrict__ x, u64 rows, u64 width) {
    __shared__ float shared[THREADS];
    u64 row = block_row();
    bool inside = row < rows;
    Peak p = peak_of(x, row * width, width, inside, shared);
    if (!inside) return;
    float factor = 1.0f / p.sum;
    for (u64 i = threadIdx.x; i < width; i += blockDim.x) {
        y[row * width + i] = expf(x[row * width + i] - p.peak) * factor;
    }
}

// y = x - ln sum e^x
KERNEL log_softmax(float* __restrict__ y, const float* __restrict__ x, u64 rows, u64 width) {
    __shared__ float shared[THREADS];
    u64 row = block_row();
    bool inside = row < rows;
    Peak p = peak_of(x, row * width, width, inside, shared);
    if (!inside) return;
    float lse = p.peak + logf(p.sum);
    for (u64 i = threadIdx.x; i < width; i += blockDim.x) y[row * width + i] = x[row * width + i] - lse;
}

// dx = y (g - sum g y)
KERNEL softmax_backward(float* __restrict__ dx, const float* __restrict__ y, const float* __restrict__ grad, u64 rows,
                        u64 width) {
    __shared__ float shared[THREADS];
    u64 row = block_row(), start = row * width;
    bool inside = row < rows;
    float inner = 0.0f;
    if (inside) {
        for (u64 i = threadIdx.x; i < width; i += blockDim.x) inner += y[start + i] * grad[start + i];
    }
    inner = over_lanes<Plus>(inner, shared);
    if (!inside) return;
    for (u64 i = threadIdx.x; i < width; i += blockDim.x) {
        dx[start + i] = y[start + i] * (grad[start + i] - inner);
    }
}

// dx = g - e^y sum g
KERNEL log_softmax_backward(float* __restrict__ dx, const float* __restrict__ y, const float* __restrict__ grad,
                            u64 rows, u64 width) {
    __shared__ float shared[THREADS];
    u64 row = block_row(), start = row * width;
    bool inside = row < rows;
    float total = 0.0f;
    if (inside) {
        for (u64 i = threadIdx.x; i < width; i += blockDim.x) total += grad[start + i];
    }
    total = over_lanes<Plus>(total, shared);
    if (!inside) return;
    for (u64 i = threadIdx.x; i < width; i += blockDim.x) {
        dx[start + i] = fmaf(expf(y[start + i]), -total, grad[start + i]);
    }
}

// The loss of each row, lse - (1 - s) x[target] - s mean(x), and its log-sum-exp; and 1 where nothing is larger than x[target],
// unless `hits` is null.
KERNEL cross_entropy(float* __restrict__ loss, float* __restrict__ lse, float* __restrict__ hits, const float* __restrict__ x,
                     const u32* __restrict__ targets, float smoothing, u64 rows, u64 width) {
    __shared__ float shared[THREADS];
    u64 row = block_row(), start = row * width;
    bool inside = row < rows;
    Peak p = peak_of(x, start, width, inside, shared);
    float total = 0.0f;
    if (smoothing != 0.0f) {
        if (inside) {
            for (u64 i = threadIdx.x; i < width; i += blockDim.x) total += x[start + i];
        }
        total = over_lanes<Plus>(total, shared);
    }
    if (!inside || threadIdx.x != 0) return;
    float all = p.peak + logf(p.sum), hot = x[start + targets[row]];
    float value = smoothing == 0.0f ? all - hot : all - (1.0f - smoothing) * hot - smoothing * (total / (float)width);
    loss[row] = value;
    lse[row] = all;
    if (hits) hits[row] = hot == p.peak ? 1.0f : 0.0f;
}

// dx = g (e^(x - lse) - the target distribution)
template <class Out, int V>
DEVICE void entropy_gradient(Out* __restrict__ dx, const float* __restrict__ x, u32 target, float lse, float g,
                             float smoothing, u64 width) {
    float wanted = smoothing / (float)width;
    for (u64 i = threadIdx.x; i < width / V; i += blockDim.x) {
        Pack<float, V> f = ((const Pack<float, V>*)x)[i];
        Pack<Out, V> d;
        for (int j = 0; j < V; j++) {
            float value = g * (expf(f.v[j] - lse) - wanted);
            if (i * V + j == target) value -= g * (1.0f - smoothing);
            store(d.v[j], value);
        }
        ((Pack<Out, V>*)dx)[i] = d;
    }
}

#define ENTROPY_GRADIENT(SUFFIX, OUT)                                                                                \
    KERNEL cross_entropy_backward##SUFFIX(OUT* dx, const float* x, const u32* targets, const float* lse,             \
                                          const float* grad, float smoothing, u64 rows, u64 width) {                 \
        u64 row = block_row(), start = row * width;                                                                  \
        if (row >= rows) return;                                                                                     \
        if (width % 4 == 0) {                                                                                        \
            entropy_gradient<OUT, 4>(dx + start, x + start, targets[row], lse[row], grad[row], smoothing, width);    \
        } else {                                                                                                     \
            entropy_gradient<OUT, 1>(dx + start, x + start, targets[row], lse[row], grad[row], smoothing, width);    \
        }                                                                                                            \
    }

ENTROPY_GRADIENT(, float)
ENTROPY_GRADIENT(_bf16, u16)

// What an element counts as when elements are compared: NaN as the least.
DEVICE float ranked(float x) { return x != x ? MINUS_INFINITY : x; }

// 1 where fewer than k elements of the row come before this one: larger ones, and equal ones with a lower index. The
// work is the square of the width, and rows are short: slots of a state, blocks of keys.
KERNEL top_k_mask(float* __restrict__ y, const float* __restrict__ x, u64 k, u64 width, u64 n) {
    for (u64 i = line_start(); i < n; i += line_step()) {
        u64 start = i / width * width, before = 0;
        float value = ranked(x[i]);
        for (u64 j = start; j < start + width && before < k; j++) {
            float other = ranked(x[j]);
            before += other > value || (other == value && j < i);
        }
        y[i] = before < k ? 1.0f : 0.0f;
    }
}
