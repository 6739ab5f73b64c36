// What both gradients of attention in bf16 share: their operands, and the softmax's weights from scores and log-sum-exps.
#pragma once
#include "online_softmax.h"

// The operands of the gradient, of one head. The gradient of the result has been rounded.
struct Saved {
    const u16 *q, *k, *v, *grad;
    const float *lse, *inner;

    DEVICE Saved at(u32 head, const Call& call) const {
        u64 queries = (u64)head * call.tq, keys = (u64)head * call.tk, d = call.d;
        Saved s = {q + queries * d, k + keys * d, v + keys * d, grad + queries * d, lse + queries, inner + queries};
        return s;
    }
};

// The weight e^(scale s - lse) of a score s.
DEVICE float weight(float s, float lse, bool seen, float scale) {
    return seen ? power_of_2(fmaf(s, scale * LOG2_E, -lse * LOG2_E)) : 0.0f;
}
