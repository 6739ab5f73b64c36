// The norm of all gradients, and the fused AdamW update: each parameter, its gradient and its moments are read once, and all but the gradient written.
#include "common.h"

// What does not depend on the element is worked out by the host, in double precision.
struct Factors {
    float grad, beta1, rest1, beta2, rest2, unbias1, unbias2, eps, lr, keep;
};

DEVICE void update(const Factors& f, float& param, float grad, float& m, float& v) {
    float g = grad * f.grad;
    m = fmaf(f.beta1, m, f.rest1 * g);
    v = fmaf(f.beta2, v, f.rest2 * (g * g));
    float change = (m * f.unbias1) / (sqrtf(v * f.unbias2) + f.eps);
    param = fmaf(f.keep, param, -f.lr * change);
}

DEVICE void update_line(const Factors& f, float* __restrict__ param, const float* __restrict__ grad,
                        float* __restrict__ m, float* __restrict__ v, u64 n) {
    for (u64 i = line_start(); i < n / 4; i += line_step()) {
        Four p = load4(param, i), g = load4(grad, i), first = load4(m, i), second = load4(v, i);
        for (int j = 0; j < 4; j++) update(f, p.v[j], g.v[j], first.v[j], second.v[j]);
        store4(param, i, p);
        store4(m, i, first);
        store4(v, i, second);
    }
    u64 rest = n / 4 * 4 + line_start();
    if (rest < n) {
        float p = param[rest], first = m[rest], second = v[rest];
        update(f, p, grad[rest], first, second);
        param[rest] = p;
        m[rest] = first;
        v[rest] = second;
    }
}

// grad_scale, beta, 1 - beta, 1 / (1 - beta^step), eps, lr and 1 - lr weight_decay.
KERNEL adamw(float* __restrict__ param, const float* __restrict__ grad, float* __restrict__ m, float* __restrict__ v,
             float scale, float beta1, float rest1, float beta2, float rest2, float unbias1, float unbias2, float eps,
             float lr, float keep, u64 n) {
    Factors f = {scale, beta1, rest1, beta2, rest2, unbias1, unbias2, eps, lr, keep};
    update_line(f, param, grad, m, v, n);
}

// The same with what changes from update to update in memory: factors are lr, unbias1, unbias2 and 1 - lr weight_decay; the
// second of `clip` is grad_scale.
KERNEL adamw_at(float* __restrict__ param, const float* __restrict__ grad, float* __restrict__ m,
                float* __restrict__ v, const float* __restrict__ factors, const float* __restrict__ clip, float beta1,
                float rest1, float beta2, float rest2, float eps, u32 decays, u64 n) {
    float keep = decays ? factors[3] : 1.0f;
    Factors f = {clip[1], beta1, rest1, beta2, rest2, factors[1], factors[2], eps, factors[0], keep};
    update_line(f, param, grad, m, v, n);
}

// The sum over the block's threads, in an order that is always the same; thread 0 gets it.
DEVICE double over_block(double value) {
    __shared__ double shared[THREADS];
    shared[threadIdx.x] = value;
    __syncthreads();
    for (u32 half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    return shared[0];
}

DEVICE double squared(float x) { return (double)x * (double)x; }

#define SPAN 16384

// One sum of squares for each SPAN elements of x, in f64: each block has one.
KERNEL squares(double* __restrict__ parts, const float* __restrict__ x, u64 n) {
    u64 from = (u64)blockIdx.x * SPAN, to = from + SPAN < n ? from + SPAN : n;
    double total = 0.0;
    for (u64 i = from / 4 + threadIdx.x; i < to / 4; i += THREADS) {
        Four f = load4(x, i);
        for (int j = 0; j < 4; j++) total += squared(f.v[j]);
    }
    u64 rest = to / 4 * 4 + threadIdx.x;
    if (rest < to) total += squared(x[rest]);
    total = over_block(total);
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
}

union Double {
    u64 bits;
    double number;
};

// The root of the sum of all parts, and the factor that brings it down to the limit, whose bits are given.
KERNEL clip(float* __restrict__ y, const double* __restrict__ parts, u64 count, u64 limit) {
    double total = 0.0;
    for (u64 i = threadIdx.x; i < count; i += THREADS) total += parts[i];
    double norm = sqrt(over_block(total));
    Double most;
    most.bits = limit;
    if (threadIdx.x == 0) {
        y[0] = (float)norm;
        y[1] = norm > most.number ? (float)(most.number / norm) : 1.0f;
    }
}
