// The softmax of scores that come tile by tile (Dao et al., 2022), in the fragments of fragments.h, and what becomes of the result: what
// both kernels of attention in bf16 share.
#pragma once
#include "attention.h"
#include "fragments.h"

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

// Writes 16 rows of y [rows, d] from row `first` on, as far as there are such. Neighbours in a row go in one access where rows
// have an even length.
template <int STEPS>
DEVICE void put(float* __restrict__ y, const Sum (&sums)[STEPS], u32 first, u32 rows, u32 d) {
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
#pragma unroll
        for (int i = 0; i < ITEMS; i += 2) {
            u32 row = first + line_of(i), column = 16 * step + column_of(i);
            if (row >= rows || column >= d) continue;
            float* to = y + (u64)row * d + column;
            if (d % 2 == 0) {
                Pack<float, 2> pair = {{sums[step].at[i], sums[step].at[i + 1]}};
                *(Pack<float, 2>*)to = pair;
            } else {
                to[0] = sums[step].at[i];
                if (column + 1 < d) to[1] = sums[step].at[i + 1];
            }
        }
    }
}

// Whether each of 16 queries from `query` on sees each of `count` keys from `key` on.
DEVICE bool all_seen(const Call& call, u32 query, u32 key, u32 count) {
    return query + 16 <= call.tq && key + count <= call.tk && (!call.causal || key + count - 1 + call.tq <= query + call.tk);
}

struct Largest {
    static DEVICE float of(float a, float b) { return fmaxf(a, b); }
};

// The running softmax of the rows of a lane, in powers of 2: of scale log2(e) s. `sum` is of this lane's columns alone.
struct Running {
    float peak[LINES], sum[LINES];
};

// Turns scores of 16 queries and 16 COUNT keys into e^(score - peak). `scale_down(factor)` scales what was summed below an older peak
// by the factor of each slot; it is called by a lane whose peak has changed. The scale is positive, so that the largest score
// scaled is the largest scaled score.
//
// A peak only follows the largest score when that is more than 2^SLACK times as heavy: until then weights are at most 2^SLACK, which
// bf16 and f32 hold as exactly as 1, and peaks seldom change after the first tile.
#define SLACK 8.0f
template <int COUNT, class ScaleDown>
DEVICE void absorb(Sum (&s)[COUNT], Running& running, const Call& call, u32 query, u32 key, ScaleDown scale_down) {
    float scale = call.scale * LOG2_E, best[LINES];
    if (!all_seen(call, query, key, 16 * COUNT)) {
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                u32 row = query + line_of(i), column = key + 16 * n + column_of(i);
                // Rows behind the last query see what it sees, so that their sums are numbers; nothing of them is stored.
                if (!call.sees(row < call.tq ? row : call.tq - 1, column)) s[n].at[i] = MINUS_INFINITY;
            }
        }
    }
#pragma unroll
    for (int slot = 0; slot < LINES; slot++) best[slot] = MINUS_INFINITY;
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
#pragma unroll
        for (int i = 0; i < ITEMS; i += 2) {
            best[slot_of(i)] = fmaxf(best[slot_of(i)], fmaxf(s[n].at[i], s[n].at[i + 1]));
        }
    }
    bool grown = false;
#pragma unroll
    for (int slot = 0; slot < LINES; slot++) {
        best[slot] = over_line<Largest>(best[slot]) * scale;
        // At the first tile, in which all rows see a key, the peak is minus infinity.
        grown |= best[slot] > running.peak[slot] + SLACK;
    }
    if (grown) {
        float factor[LINES];
#pragma unroll
        for (int slot = 0; slot < LINES; slot++) {
            best[slot] = fmaxf(running.peak[slot], best[slot]);
            factor[slot] = power_of_2(running.peak[slot] - best[slot]);
            running.peak[slot] = best[slot];
            running.sum[slot] *= factor[slot];
        }
        scale_down(factor);
    }
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            s[n].at[i] = power_of_2(fmaf(s[n].at[i], scale, -running.peak[slot_of(i)]));
        }
#pragma unroll
        for (int i = 0; i < ITEMS; i += 2) running.sum[slot_of(i)] += s[n].at[i] + s[n].at[i + 1];
    }
}

template <int COUNT>
DEVICE void scale_lines(Sum (&sums)[COUNT], const float (&factor)[LINES]) {
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) sums[n].at[i] *= factor[slot_of(i)];
    }
}

// Divides by the sums of the weights, and writes the result and the log-sum-exp of 16 queries.
template <int STEPS>
DEVICE void finish(float* out, float* lse, Sum (&o)[STEPS], const Running& running, u32 query, const Call& call) {
    float factor[LINES];
#pragma unroll
    for (int slot = 0; slot < LINES; slot++) {
        float total = over_line<Plus>(running.sum[slot]);
        factor[slot] = 1.0f / total;
        // Element 2 slot is of this slot; the four lanes of a row have the same.
        u32 row = query + line_of(2 * slot);
        if (row < call.tq && column_of(0) == 0) lse[row] = (running.peak[slot] + log2f(total)) * LN_2;
    }
    scale_lines(o, factor);
    put(out, o, query, call.tq, call.d);
}
