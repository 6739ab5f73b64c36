// Layer normalisation of rows, and its gradient. What is normalised is f32, or was kept as bf16.
//
// The lanes of a block (threadIdx.x) share a row, and a block has blockDim.y rows. Rows whose width is a multiple of four are
// read and written four elements at a time.
#include "common.h"

// y = (x - mean) rstd gain + bias for each row. With KEEP, x is rounded to bf16 first, and kept so.
template <class In, class Out, int V, bool KEEP>
DEVICE void normalise(Out* __restrict__ y, u16* __restrict__ kept, float* __restrict__ mean, float* __restrict__ rstd,
                      const In* __restrict__ x, const float* __restrict__ gain, const float* __restrict__ bias,
                      float eps, u64 rows, u64 width) {
    __shared__ float shared[THREADS];
    typedef Pack<float, V> Floats;
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y, count = width / V, start = row * count;
    bool inside = row < rows;
    auto values = [&](u64 i) {
        Pack<In, V> in = ((const Pack<In, V>*)x)[start + i];
        Floats f;
        for (int j = 0; j < V; j++) {
            f.v[j] = widened(in.v[j]);
            if (KEEP) f.v[j] = of_bf16(as_bf16(f.v[j]));
        }
        return f;
    };
    float total = 0.0f;
    if (inside) {
        for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
            Floats f = values(i);
            for (int j = 0; j < V; j++) total += f.v[j];
        }
    }
    float m = over_lanes<Plus>(total, shared) / (float)width;
    // The row is read again rather than its squares summed: large means would cancel.
    total = 0.0f;
    if (inside) {
        for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
            Floats f = values(i);
            for (int j = 0; j < V; j++) {
                float d = f.v[j] - m;
                total = fmaf(d, d, total);
            }
        }
    }
    float variance = over_lanes<Plus>(total, shared) / (float)width;
    if (!inside) return;
    float r = 1.0f / sqrtf(variance + eps);
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        Floats f = values(i), g = ((const Floats*)gain)[i], b = ((const Floats*)bias)[i];
        Pack<Out, V> out;
        Pack<u16, V> rounded;
        for (int j = 0; j < V; j++) {
            store(out.v[j], fmaf((f.v[j] - m) * r, g.v[j], b.v[j]));
            store(rounded.v[j], f.v[j]);
        }
        ((Pack<Out, V>*)y)[start + i] = out;
        if (KEEP) ((Pack<u16, V>*)kept)[start + i] = rounded;
    }
    if (threadIdx.x == 0) {
        mean[row] = m;
        rstd[row] = r;
    }
}

KERNEL layer_norm(float* y, float* mean, float* rstd, const float* x, const float* gain, const float* bias, float eps,
                  u64 rows, u64 width) {
    if (width % 4 == 0) {
        normalise<float, float, 4, false>(y, 0, mean, rstd, x, gain, bias, eps, rows, width);
    } else {
        normalise<float, float, 1, false>(y, 0, mean, rstd, x, gain, bias, eps, rows, width);
    }
}

KERNEL layer_norm_bf16(u16* y, u16* kept, float* mean, float* rstd, const float* x, const float* gain, const float* bias,
                       float eps, u64 rows, u64 width) {
    if (width % 4 == 0) {
        normalise<float, u16, 4, true>(y, kept, mean, rstd, x, gain, bias, eps, rows, width);
    } else {
        normalise<float, u16, 1, true>(y, kept, mean, rstd, x, gain, bias, eps, rows, width);
    }
}

KERNEL layer_norm_of_bf16(u16* y, float* mean, float* rstd, const u16* x, const float* gain, const float* bias, float eps,
                          u64 rows, u64 width) {
    if (width % 4 == 0) {
        normalise<u16, u16, 4, false>(y, 0, mean, rstd, x, gain, bias, eps, rows, width);
    } else {
        normalise<u16, u16, 1, false>(y, 0, mean, rstd, x, gain, bias, eps, rows, width);
    }
}

// With n = (x - mean) rstd and h = g gain: dx = rstd (h - mean(h) - n mean(h n)), added to what is there if `onto`.
template <class In, int V>
DEVICE void gradient(float* __restrict__ dx, const In* __restrict__ x, const float* __restrict__ gain,
                     const float* __restrict__ mean, const float* __restrict__ rstd, const float* __restrict__ grad,
                     u32 onto, u64 rows, u64 width) {
    __shared__ float shared[THREADS];
    typedef Pack<float, V> Floats;
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y, count = width / V, start = row * count;
    bool inside = row < rows;
    float m = 0.0f, r = 0.0f, sum_h = 0.0f, sum_hn = 0.0f;
    if (inside) {
        m = mean[row];
        r = rstd[row];
        for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
            Pack<In, V> f = ((const Pack<In, V>*)x)[start + i];
            Floats g = ((const Floats*)grad)[start + i], w = ((const Floats*)gain)[i];
            for (int j = 0; j < V; j++) {
                float h = g.v[j] * w.v[j];
                sum_h += h;
                sum_hn = fmaf(h, (widened(f.v[j]) - m) * r, sum_hn);
            }
        }
    }
    float mean_h = over_lanes<Plus>(sum_h, shared) / (float)width;
    float mean_hn = over_lanes<Plus>(sum_hn, shared) / (float)width;
    if (!inside) return;
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        Pack<In, V> f = ((const Pack<In, V>*)x)[start + i];
        Floats g = ((const Floats*)grad)[start + i], w = ((const Floats*)gain)[i], d;
        for (int j = 0; j < V; j++) {
            float n = (widened(f.v[j]) - m) * r;
            d.v[j] = r * fmaf(-n, mean_hn, g.v[j] * w.v[j] - mean_h);
        }
        if (onto) {
            Floats before = ((const Floats*)dx)[start + i];
            for (int j = 0; j < V; j++) d.v[j] += before.v[j];
        }
        ((Floats*)dx)[start + i] = d;
    }
}

// The gradients of gain and bias, sum g n and sum g over rows, in pieces of `length` rows: sums [pieces, 2, width], to be
// added up. A block has 32 V columns and 8 rows at a time.
template <class In, int V>
DEVICE void affine(float* __restrict__ sums, const In* __restrict__ x, const float* __restrict__ mean,
                   const float* __restrict__ rstd, const float* __restrict__ grad, u64 rows, u64 width, u64 length) {
    __shared__ float shared[2][8][32 * V];
    u64 count = width / V, across = (count + 31) / 32, column = blockIdx.x % across * 32 + threadIdx.x;
    u64 piece = blockIdx.x / across, from = piece * length, to = from + length < rows ? from + length : rows;
    float gain[V], bias[V];
    for (int j = 0; j < V; j++) gain[j] = bias[j] = 0.0f;
    if (column < count) {
        for (u64 row = from + threadIdx.y; row < to; row += 8) {
            Pack<In, V> f = ((const Pack<In, V>*)x)[row * count + column];
            Pack<float, V> g = ((const Pack<float, V>*)grad)[row * count + column];
            float m = mean[row], r = rstd[row];
            for (int j = 0; j < V; j++) {
                gain[j] = fmaf((widened(f.v[j]) - m) * r, g.v[j], gain[j]);
                bias[j] += g.v[j];
            }
        }
    }
    for (int j = 0; j < V; j++) {
        shared[0][threadIdx.y][threadIdx.x * V + j] = gain[j];
        shared[1][threadIdx.y][threadIdx.x * V + j] = bias[j];
    }
    __syncthreads();
    if (threadIdx.y < 2 && column < count) {
        for (int j = 0; j < V; j++) {
            float total = shared[threadIdx.y][0][threadIdx.x * V + j];
            for (int i = 1; i < 8; i++) total += shared[threadIdx.y][i][threadIdx.x * V + j];
            sums[(piece * 2 + threadIdx.y) * width + column * V + j] = total;
        }
    }
}

#define GRADIENT(SUFFIX, IN)                                                                                         \
    KERNEL layer_norm_backward##SUFFIX(float* dx, const IN* x, const float* gain, const float* mean, const float* rstd, \
                                       const float* grad, u32 onto, u64 rows, u64 width) {                           \
        if (width % 4 == 0) {                                                                                        \
            gradient<IN, 4>(dx, x, gain, mean, rstd, grad, onto, rows, width);                                       \
        } else {                                                                                                     \
            gradient<IN, 1>(dx, x, gain, mean, rstd, grad, onto, rows, width);                                       \
        }                                                                                                            \
    }                                                                                                                \
    KERNEL layer_norm_affine##SUFFIX(float* sums, const IN* x, const float* mean, const float* rstd,                 \
                                     const float* grad, u64 rows, u64 width, u64 length) {                           \
        if (width % 4 == 0) {                                                                                        \
            affine<IN, 4>(sums, x, mean, rstd, grad, rows, width, length);                                           \
        } else {                                                                                                     \
            affine<IN, 1>(sums, x, mean, rstd, grad, rows, width, length);                                           \
        }                                                                                                            \
    }

GRADIENT(, float)
GRADIENT(_bf16, u16)
