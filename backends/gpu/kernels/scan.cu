// The diagonal recurrence c_t = a c_{t-1} + beta_t over complex states, and its gradient.
//
// A thread has one state of one line; neighbouring threads have neighbouring states, so that memory is read and written in
// whole rows, once. A line is a sequence, or one of several pieces of it where sequences times states alone would leave the
// device idle: then each piece is first run from zero, the states between pieces follow from what those runs end in,
// and each piece is run again from there. The cuts are decided by the shape. Input is asked for one group of steps ahead.
#include "common.h"

// The steps whose input is under way together: more where there is one array to read than where there are several.
#define GROUP 8
#define LONG_GROUP 16

// The extents: steps of a sequence, states, and the cut of each sequence into `pieces` of `length` steps at most. The
// decay is [states], or one for each step.
struct Extent {
    u32 steps, states, pieces, length, lines, over_time;
};

// Where a thread stands: its line, its state, and the steps from and to.
struct Place {
    u32 line, state, from, to;
    bool inside;
    // The first step of the sequence, in elements.
    u64 origin;
};

DEVICE Place place_of(const Extent& e) {
    u32 across = (e.states + blockDim.x - 1) / blockDim.x;
    Place p;
    p.state = blockIdx.x % across * blockDim.x + threadIdx.x;
    p.line = blockIdx.x / across * blockDim.y + threadIdx.y;
    p.inside = p.line < e.lines && p.state < e.states;
    p.from = p.line % e.pieces * e.length;
    p.from = p.from < e.steps ? p.from : e.steps;
    p.to = e.steps - p.from > e.length ? p.from + e.length : e.steps;
    p.origin = (u64)(p.line / e.pieces) * e.steps * e.states + p.state;
    return p;
}

// A group of steps of a complex array [B, T, K], or of one that has no imaginary part, or nothing at all.
template <int SIZE>
struct Group {
    float re[SIZE], im[SIZE];
};

// Steps `first`, and on or back by `sign`; zeros from the `count`-th on.
template <int SIZE>
DEVICE void take(Group<SIZE>& g, const float* __restrict__ re, const float* __restrict__ im, const Place& p, u32 first,
                 int sign, u32 count, u32 states) {
#pragma unroll
    for (int j = 0; j < SIZE; j++) {
        bool there = (u32)j < count;
        u64 at = p.origin + (u64)(there ? first + sign * j : 0) * states;
        g.re[j] = there && re ? re[at] : 0.0f;
        g.im[j] = there && im ? im[at] : 0.0f;
    }
}

struct Complex {
    float re, im;
};

// a x + y
DEVICE Complex advanced(Complex a, Complex x, Complex y) {
    Complex z = {fmaf(a.re, x.re, fmaf(-a.im, x.im, y.re)), fmaf(a.re, x.im, fmaf(a.im, x.re, y.im))};
    return z;
}

// conj(a) x
DEVICE Complex back(Complex a, Complex x) {
    Complex z = {fmaf(a.re, x.re, a.im * x.im), fmaf(a.re, x.im, -(a.im * x.re))};
    return z;
}

// The arrays of a scan: those that are not there are null.
struct Arrays {
    const float *a_re, *a_im, *x_re, *x_im;
};

// All steps of a line from state c on. Stores the states, or where `re` is null follows `factor`, the product of the a.
template <bool OVER_TIME>
DEVICE void run(Complex& c, Complex& factor, float* __restrict__ re, float* __restrict__ im, const Arrays& x,
                const Place& p, u32 states) {
    Complex a = {0.0f, 0.0f};
    if (!OVER_TIME) {
        a.re = x.a_re[p.state];
        a.im = x.a_im[p.state];
    }
    Group<LONG_GROUP> now, next, decay;
    take(now, x.x_re, x.x_im, p, p.from, 1, p.to - p.from, states);
    for (u32 t = p.from; t < p.to; t += LONG_GROUP) {
        u32 left = p.to - t;
        take(next, x.x_re, x.x_im, p, t + LONG_GROUP, 1, left > LONG_GROUP ? left - LONG_GROUP : 0, states);
        if (OVER_TIME) take(decay, x.a_re, x.a_im, p, t, 1, left, states);
#pragma unroll
        for (int j = 0; j < LONG_GROUP; j++) {
            if ((u32)j < left) {
                if (OVER_TIME) {
                    a.re = decay.re[j];
                    a.im = decay.im[j];
                }
                Complex input = {now.re[j], now.im[j]}, none = {0.0f, 0.0f};
                c = advanced(a, c, input);
                if (re) {
                    u64 at = p.origin + (u64)(t + j) * states;
                    re[at] = c.re;
                    im[at] = c.im;
                } else {
                    factor = advanced(a, factor, none);
                }
            }
        }
        now = next;
    }
}

#define EXTENT u32 steps, u32 states, u32 pieces, u32 length, u32 lines, u32 over_time
#define EXTENT_OF Extent e = {steps, states, pieces, length, lines, over_time}
#define ARRAYS const float *a_re, const float *a_im, const float *x_re, const float *x_im
#define ARRAYS_OF Arrays x = {a_re, a_im, x_re, x_im}

// The states of each line, from carries [lines, K]: those of the sequences, or what `scan_between` gave.
KERNEL scan_states(float* re, float* im, const float* carry_re, const float* carry_im, ARRAYS, EXTENT) {
    EXTENT_OF;
    ARRAYS_OF;
    Place p = place_of(e);
    if (!p.inside) return;
    u64 lane = (u64)p.line * states + p.state;
    Complex c = {carry_re[lane], carry_im[lane]}, factor = {1.0f, 0.0f};
    if (over_time) {
        run<true>(c, factor, re, im, x, p, states);
    } else {
        run<false>(c, factor, re, im, x, p, states);
    }
}

// What each piece ends in, from zero, and the product of its factors: four arrays [B, pieces, K].
KERNEL scan_ends(float* end_re, float* end_im, float* factor_re, float* factor_im, ARRAYS, EXTENT) {
    EXTENT_OF;
    ARRAYS_OF;
    Place p = place_of(e);
    if (!p.inside) return;
    Complex c = {0.0f, 0.0f}, factor = {1.0f, 0.0f};
    if (over_time) {
        run<true>(c, factor, 0, 0, x, p, states);
    } else {
        run<false>(c, factor, 0, 0, x, p, states);
    }
    u64 lane = (u64)p.line * states + p.state;
    end_re[lane] = c.re;
    end_im[lane] = c.im;
    factor_re[lane] = factor.re;
    factor_im[lane] = factor.im;
}

// What flows into each piece, [B, pieces, K], from the carry (zero where it is null) and from what the pieces before it end in;
// backwards in time, from the pieces behind it.
KERNEL scan_between(float* __restrict__ in_re, float* __restrict__ in_im, const float* __restrict__ end_re,
                    const float* __restrict__ end_im, const float* __restrict__ factor_re,
                    const float* __restrict__ factor_im, const float* __restrict__ carry_re,
                    const float* __restrict__ carry_im, u32 pieces, u32 states, u32 backwards, u64 lanes) {
    for (u64 lane = line_start(); lane < lanes; lane += line_step()) {
        Complex c = {carry_re ? carry_re[lane] : 0.0f, carry_im ? carry_im[lane] : 0.0f};
        for (u32 i = 0; i < pieces; i++) {
            u32 piece = backwards ? pieces - 1 - i : i;
            u64 at = (lane / states * pieces + piece) * states + lane % states;
            in_re[at] = c.re;
            in_im[at] = c.im;
            Complex factor = {factor_re[at], factor_im[at]}, end = {end_re[at], end_im[at]};
            c = advanced(factor, c, end);
        }
    }
}

// What flows out of the first step of each piece if nothing flows into its last, and the product of the conjugate factors.
template <bool OVER_TIME>
DEVICE void flow_ends(Complex& flow, Complex& factor, const Arrays& x, const Place& p, u32 states) {
    Complex a = {0.0f, 0.0f};
    if (!OVER_TIME) {
        a.re = x.a_re[p.state];
        a.im = x.a_im[p.state];
    }
    Group<GROUP> now, decay;
    for (u32 left = p.to - p.from; left > 0; left -= left < GROUP ? left : GROUP) {
        u32 t = p.from + left - 1;
        take(now, x.x_re, x.x_im, p, t, -1, left, states);
        if (OVER_TIME) take(decay, x.a_re, x.a_im, p, t, -1, left, states);
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            if ((u32)j < left) {
                if (OVER_TIME) {
                    a.re = decay.re[j];
                    a.im = decay.im[j];
                }
                Complex g = {now.re[j] + flow.re, now.im[j] + flow.im};
                flow = back(a, g);
                factor = back(a, factor);
            }
        }
    }
}

KERNEL scan_flow_ends(float* end_re, float* end_im, float* factor_re, float* factor_im, ARRAYS, EXTENT) {
    EXTENT_OF;
    ARRAYS_OF;
    Place p = place_of(e);
    if (!p.inside) return;
    Complex flow = {0.0f, 0.0f}, factor = {1.0f, 0.0f};
    if (over_time) {
        flow_ends<true>(flow, factor, x, p, states);
    } else {
        flow_ends<false>(flow, factor, x, p, states);
    }
    u64 lane = (u64)p.line * states + p.state;
    end_re[lane] = flow.re;
    end_im[lane] = flow.im;
    factor_re[lane] = factor.re;
    factor_im[lane] = factor.im;
}

// What the gradient reads and writes besides [B, T, K] operands: what flows into each piece (null for zero), and the
// gradients: of the input, of the decay (of each step, or summed over the steps of a piece), and of the carry.
struct Gradient {
    const float *c_re, *c_im, *carry_re, *carry_im;
    const float *in_re, *in_im;
    float *dx_re, *dx_im, *da_re, *da_im;
    float *sum_re, *sum_im;
    float *dcarry_re, *dcarry_im;
    u32 segment;
};

// g_t = u_t + conj(a) g_{t+1}, from the last step of a piece to its first; x holds u.
template <bool OVER_TIME>
DEVICE void gradient(const Gradient& d, const Arrays& x, const Place& p, const Extent& e) {
    u64 lane = (u64)p.line * e.states + p.state, sequence = (u64)(p.line / e.pieces) * e.states + p.state;
    Complex a = {0.0f, 0.0f}, flow = {0.0f, 0.0f}, sum = {0.0f, 0.0f};
    if (!OVER_TIME) {
        a.re = x.a_re[p.state];
        a.im = x.a_im[p.state];
    }
    if (d.in_re) {
        flow.re = d.in_re[lane];
        flow.im = d.in_im[lane];
    }
    // Steps since the last cut, counted down.
    u32 until_cut = p.to % d.segment;
    Group<GROUP> now, before, decay;
    for (u32 left = p.to - p.from; left > 0; left -= left < GROUP ? left : GROUP) {
        u32 last = p.from + left - 1;
        take(now, x.x_re, x.x_im, p, last, -1, left, e.states);
        // The state before the first step of all is the carry.
        take(before, d.c_re, d.c_im, p, last - 1, -1, left < last ? left : last, e.states);
        if (OVER_TIME) take(decay, x.a_re, x.a_im, p, last, -1, left, e.states);
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            if ((u32)j < left) {
                u32 t = last - j;
                if (until_cut == 0) {
                    flow.re = 0.0f;
                    flow.im = 0.0f;
                    until_cut = d.segment;
                }
                until_cut--;
                if (OVER_TIME) {
                    a.re = decay.re[j];
                    a.im = decay.im[j];
                }
                Complex g = {now.re[j] + flow.re, now.im[j] + flow.im}, c = {before.re[j], before.im[j]};
                if (t == 0) {
                    c.re = d.carry_re[sequence];
                    c.im = d.carry_im[sequence];
                }
                u64 at = p.origin + (u64)t * e.states;
                if (OVER_TIME) {
                    d.da_re[at] = fmaf(g.re, c.re, g.im * c.im);
                    d.da_im[at] = fmaf(g.im, c.re, -(g.re * c.im));
                } else {
                    sum.re = fmaf(g.re, c.re, fmaf(g.im, c.im, sum.re));
                    sum.im = fmaf(g.im, c.re, fmaf(-g.re, c.im, sum.im));
                }
                d.dx_re[at] = g.re;
                d.dx_im[at] = g.im;
                flow = back(a, g);
            }
        }
    }
    if (!OVER_TIME) {
        d.sum_re[lane] = sum.re;
        d.sum_im[lane] = sum.im;
    }
    if (p.line % e.pieces == 0) {
        d.dcarry_re[sequence] = flow.re;
        d.dcarry_im[sequence] = flow.im;
    }
}

KERNEL scan_gradient(float* dx_re, float* dx_im, float* da_re, float* da_im, float* sum_re, float* sum_im,
                     float* dcarry_re, float* dcarry_im, const float* c_re, const float* c_im, const float* carry_re,
                     const float* carry_im, const float* in_re, const float* in_im, u32 segment, ARRAYS, EXTENT) {
    EXTENT_OF;
    ARRAYS_OF;
    Gradient d = {c_re,  c_im,  carry_re, carry_im, in_re,  in_im,     dx_re,     dx_im,
                  da_re, da_im, sum_re,   sum_im,   dcarry_re, dcarry_im, segment};
    Place p = place_of(e);
    if (!p.inside) return;
    if (over_time) {
        gradient<true>(d, x, p, e);
    } else {
        gradient<false>(d, x, p, e);
    }
}
