// The norm of all gradients, and the fused AdamW update: each parameter, its gradient and its moments are read once, and all but
// the gradient written. One launch goes through many arrays: small models have more of them than launches are worth.
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

// Quads from `quad` on, `step` apart, before `quads`; and the element `rest` if it is before n.
DEVICE void update_some(const Factors& f, float* __restrict__ param, const float* __restrict__ grad,
                        float* __restrict__ m, float* __restrict__ v, u64 quad, u64 step, u64 quads, u64 rest, u64 n) {
    for (u64 i = quad; i < quads; i += step) {
        Four p = load4(param, i), g = load4(grad, i), first = load4(m, i), second = load4(v, i);
        for (int j = 0; j < 4; j++) update(f, p.v[j], g.v[j], first.v[j], second.v[j]);
        store4(param, i, p);
        store4(m, i, first);
        store4(v, i, second);
    }
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
    update_some(f, param, grad, m, v, line_start(), line_step(), n / 4, n / 4 * 4 + line_start(), n);
}

// Arrays that one launch goes through, each by blocks of its own. They are arguments of the kernel, all in one, which may have
// 4096 bytes.
#define MOST 64

// An array's elements, and how many blocks of the launch are before its first one.
struct Place {
    u64 n;
    u32 first;
    u32 decays;
};

// The one that this block works on.
template <class All>
DEVICE u32 mine(const All& all, u32 count) {
    u32 found = 0;
    for (u32 half = MOST / 2; half > 0; half /= 2)
        if (found + half < count && all.of[found + half].place.first <= blockIdx.x) found += half;
    return found;
}

// The part of an array that this block works on.
struct Part {
    u64 from, to;
};

DEVICE Part part(const Place& place, u64 span) {
    u64 from = (blockIdx.x - place.first) * span;
    Part part = {from, from + span < place.n ? from + span : place.n};
    return part;
}

struct Updates {
    struct {
        float* param;
        const float* grad;
        float *m, *v;
        Place place;
    } of[MOST];
};

// Elements that a block updates.
#define UPDATES 4096

// `adamw` of several parameters, with what changes from update to update in memory: factors are lr, unbias1, unbias2 and
// 1 - lr weight_decay; the second of `clip` is grad_scale.
KERNEL adamw_all(const Updates all, u32 count, const float* __restrict__ factors, const float* __restrict__ clip,
                 float beta1, float rest1, float beta2, float rest2, float eps) {
    u32 i = mine(all, count);
    Place place = all.of[i].place;
    Part p = part(place, UPDATES);
    float keep = place.decays ? factors[3] : 1.0f;
    Factors f = {clip[1], beta1, rest1, beta2, rest2, factors[1], factors[2], eps, factors[0], keep};
    update_some(f, all.of[i].param, all.of[i].grad, all.of[i].m, all.of[i].v, p.from / 4 + threadIdx.x, THREADS, p.to / 4,
                p.to / 4 * 4 + threadIdx.x, p.to);
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

struct Vectors {
    struct {
        const float* x;
        Place place;
    } of[MOST];
};

// One sum of squares for each SPAN elements of each vector, in f64: each block has one.
KERNEL squares(const Vectors all, u32 count, double* __restrict__ parts) {
    u32 at = mine(all, count);
    const float* __restrict__ x = all.of[at].x;
    Part p = part(all.of[at].place, SPAN);
    double total = 0.0;
    for (u64 i = p.from / 4 + threadIdx.x; i < p.to / 4; i += THREADS) {
        Four f = load4(x, i);
        for (int j = 0; j < 4; j++) total += squared(f.v[j]);
    }
    u64 rest = p.to / 4 * 4 + threadIdx.x;
    if (rest < p.to) total += squared(x[rest]);
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
