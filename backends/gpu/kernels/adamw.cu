// The fused AdamW update: each parameter, its gradient and its moments are read once, and all but the gradient written.
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

// grad_scale, beta, 1 - beta, 1 / (1 - beta^step), eps, lr and 1 - lr weight_decay.
KERNEL adamw(float* __restrict__ param, const float* __restrict__ grad, float* __restrict__ m, float* __restrict__ v,
             float scale, float beta1, float rest1, float beta2, float rest2, float unbias1, float unbias2, float eps,
             float lr, float keep, u64 n) {
    Factors f = {scale, beta1, rest1, beta2, rest2, unbias1, unbias2, eps, lr, keep};
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
