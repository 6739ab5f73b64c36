// Elementwise operations, their gradients, dropout, and conversions between types.
#include "common.h"

// y = op(x) for n elements, four at a time.
template <class Op>
DEVICE void map(Op op, float* __restrict__ y, const float* __restrict__ x, u64 n) {
    for (u64 i = line_start(); i < n / 4; i += line_step()) {
        Four f = load4(x, i);
        for (int j = 0; j < 4; j++) f.v[j] = op.at(f.v[j]);
        store4(y, i, f);
    }
    u64 rest = n / 4 * 4 + line_start();
    if (rest < n) y[rest] = op.at(x[rest]);
}

// y = op(a, b) for n elements of each, four at a time.
template <class Op>
DEVICE void zip(Op op, float* __restrict__ y, const float* __restrict__ a, const float* __restrict__ b, u64 n) {
    for (u64 i = line_start(); i < n / 4; i += line_step()) {
        Four f = load4(a, i), g = load4(b, i);
        for (int j = 0; j < 4; j++) f.v[j] = op.at(f.v[j], g.v[j]);
        store4(y, i, f);
    }
    u64 rest = n / 4 * 4 + line_start();
    if (rest < n) y[rest] = op.at(a[rest], b[rest]);
}

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// sqrt(2 / pi), and the coefficient of the cubic term, of GELU's tanh form.
#define GELU_FACTOR 0.7978845608028654f
#define GELU_CUBIC 0.044715f

// (1 + tanh u) / 2 = sigmoid(2 u) for u = sqrt(2 / pi) (x + 0.044715 x^3). Written so, it keeps its relative accuracy where
// the tanh is close to -1.
DEVICE float gelu_gate(float x) {
    return sigmoid(x * fmaf(x * x, 2.0f * GELU_FACTOR * GELU_CUBIC, 2.0f * GELU_FACTOR));
}

// With p the gate: p + x p (1 - p) 2 u'. Beyond 20 it is 0 or 1 to rounding; the square of a large x would overflow.
DEVICE float gelu_slope(float x) {
    x = fminf(fmaxf(x, -20.0f), 20.0f);
    float p = gelu_gate(x);
    float slope = fmaf(x * x, 6.0f * GELU_FACTOR * GELU_CUBIC, 2.0f * GELU_FACTOR);
    return fmaf(x * slope, p * (1.0f - p), p);
}

DEVICE float silu_slope(float x) {
    float p = sigmoid(x);
    return p + x * (p * (1.0f - p));
}

// y = a + b scale for rows [.., width], and the way back. Rows whose width is a multiple of four are read four elements at a time.
template <class A, class B, int V>
DEVICE void add_scaled(float* __restrict__ y, const A* __restrict__ a, const B* __restrict__ b,
                       const float* __restrict__ scale, u64 rows, u64 width) {
    u64 count = width / V, all = rows * count;
    for (u64 i = line_start(); i < all; i += line_step()) {
        Pack<A, V> f = ((const Pack<A, V>*)a)[i];
        Pack<B, V> g = ((const Pack<B, V>*)b)[i];
        Pack<float, V> s = ((const Pack<float, V>*)scale)[i % count], to;
        for (int j = 0; j < V; j++) to.v[j] = fmaf(widened(g.v[j]), s.v[j], widened(f.v[j]));
        ((Pack<float, V>*)y)[i] = to;
    }
}

#define ADD_SCALED(NAME, A, B)                                                                            \
    KERNEL add_scaled_##NAME(float* y, const A* a, const B* b, const float* scale, u64 rows, u64 width) { \
        if (width % 4 == 0) {                                                                             \
            add_scaled<A, B, 4>(y, a, b, scale, rows, width);                                             \
        } else {                                                                                          \
            add_scaled<A, B, 1>(y, a, b, scale, rows, width);                                             \
        }                                                                                                 \
    }

ADD_SCALED(f32_f32, float, float)
ADD_SCALED(f32_bf16, float, u16)
ADD_SCALED(bf16_f32, u16, float)
ADD_SCALED(bf16_bf16, u16, u16)

// db = g scale, and sum g b over rows in pieces of `length` rows: sums [pieces, width], to be added up. A block has 32 V columns
// and 8 rows at a time.
template <class B, int V>
DEVICE void add_scaled_backward(float* __restrict__ db, float* __restrict__ sums, const B* __restrict__ b,
                                const float* __restrict__ scale, const float* __restrict__ grad, u64 rows, u64 width,
                                u64 length) {
    __shared__ float shared[8][32 * V];
    u64 count = width / V, across = (count + 31) / 32, column = blockIdx.x % across * 32 + threadIdx.x;
    u64 piece = blockIdx.x / across, from = piece * length, to = from + length < rows ? from + length : rows;
    float total[V];
    for (int j = 0; j < V; j++) total[j] = 0.0f;
    if (column < count) {
        Pack<float, V> s = ((const Pack<float, V>*)scale)[column];
        for (u64 row = from + threadIdx.y; row < to; row += 8) {
            Pack<B, V> f = ((const Pack<B, V>*)b)[row * count + column];
            Pack<float, V> g = ((const Pack<float, V>*)grad)[row * count + column], d;
            for (int j = 0; j < V; j++) {
                d.v[j] = g.v[j] * s.v[j];
                total[j] = fmaf(g.v[j], widened(f.v[j]), total[j]);
            }
            ((Pack<float, V>*)db)[row * count + column] = d;
        }
    }
    for (int j = 0; j < V; j++) shared[threadIdx.y][threadIdx.x * V + j] = total[j];
    __syncthreads();
    if (threadIdx.y == 0 && column < count) {
        for (int j = 0; j < V; j++) {
            float sum = total[j];
            for (int i = 1; i < 8; i++) sum += shared[i][threadIdx.x * V + j];
            sums[piece * width + column * V + j] = sum;
        }
    }
}

#define ADD_SCALED_BACKWARD(NAME, B)                                                                                      \
    KERNEL add_scaled_backward_##NAME(float* db, float* sums, const B* b, const float* scale, const float* grad, u64 rows, \
                                      u64 width, u64 length) {                                                            \
        if (width % 4 == 0) {                                                                                             \
            add_scaled_backward<B, 4>(db, sums, b, scale, grad, rows, width, length);                                     \
        } else {                                                                                                          \
            add_scaled_backward<B, 1>(db, sums, b, scale, grad, rows, width, length);                                     \
        }                                                                                                                 \
    }

ADD_SCALED_BACKWARD(f32, float)
ADD_SCALED_BACKWARD(bf16, u16)

// GELU of n bf16 numbers, eight at a time.
KERNEL gelu_bf16(u16* __restrict__ y, const u16* __restrict__ x, u64 n) {
    typedef Pack<u16, 8> Eight;
    for (u64 i = line_start(); i < n / 8; i += line_step()) {
        Eight f = ((const Eight*)x)[i];
        for (int j = 0; j < 8; j++) {
            float value = of_bf16(f.v[j]);
            f.v[j] = as_bf16(value * gelu_gate(value));
        }
        ((Eight*)y)[i] = f;
    }
    u64 rest = n / 8 * 8 + line_start();
    if (rest < n) {
        float value = of_bf16(x[rest]);
        y[rest] = as_bf16(value * gelu_gate(value));
    }
}

// c is the constant of `scale` and `offset`.
#define UNARY(NAME, VALUE)                                                                     \
    struct Unary_##NAME {                                                                      \
        float c;                                                                               \
        DEVICE float at(float x) const { return VALUE; }                                       \
    };                                                                                         \
    KERNEL unary_##NAME(float* y, const float* x, float c, u64 n) {                          \
        Unary_##NAME op = {c};                                                                 \
        map(op, y, x, n);                                                                      \
    }

UNARY(neg, -x)
UNARY(abs, fabsf(x))
UNARY(exp, expf(x))
UNARY(ln, logf(x))
UNARY(sqrt, sqrtf(x))
UNARY(square, x* x)
UNARY(reciprocal, 1.0f / x)
UNARY(tanh, tanhf(x))
UNARY(sigmoid, sigmoid(x))
UNARY(gelu, x* gelu_gate(x))
UNARY(silu, x* sigmoid(x))
UNARY(relu, fmaxf(x, 0.0f))
UNARY(cos, cosf(x))
UNARY(sin, sinf(x))
UNARY(round, rintf(x))
UNARY(scale, x* c)
UNARY(offset, x + c)

// The gradient of the argument: s is the value where its name is y, else the argument; g is the gradient of the value.
#define SLOPE(NAME, S, VALUE)                                                                  \
    struct Slope_##NAME {                                                                      \
        DEVICE float at(float S, float g) const { return VALUE; }                              \
    };                                                                                         \
    KERNEL slope_##NAME(float* dx, const float* saved, const float* grad, u64 n) {          \
        zip(Slope_##NAME(), dx, saved, grad, n);                                               \
    }

SLOPE(abs, s, s > 0.0f ? g : (s < 0.0f ? -g : 0.0f))
SLOPE(exp, y, g* y)
SLOPE(ln, s, g / s)
SLOPE(sqrt, y, 0.5f * g / y)
SLOPE(square, s, 2.0f * s * g)
SLOPE(reciprocal, y, -g * (y * y))
SLOPE(tanh, y, g* fmaf(y, -y, 1.0f))
SLOPE(sigmoid, y, g*(y * (1.0f - y)))
SLOPE(gelu, s, g* gelu_slope(s))
SLOPE(silu, s, g* silu_slope(s))
SLOPE(relu, y, y > 0.0f ? g : 0.0f)
SLOPE(cos, s, -g * sinf(s))
SLOPE(sin, s, g* cosf(s))

// Where an element of a result of up to six axes, given by the extents of the inner five, is read in two operands.
struct Places {
    u64 a, b;
};

DEVICE Places places(u64 i, const u64* extent, const u64* in_a, const u64* in_b) {
    Places p = {0, 0};
    for (int axis = 5; axis > 0; axis--) {
        u64 at = i % extent[axis - 1];
        i /= extent[axis - 1];
        p.a += at * in_a[axis];
        p.b += at * in_b[axis];
    }
    p.a += i * in_a[0];
    p.b += i * in_b[0];
    return p;
}

// Three forms of each: over lines of one length, of which one may be a single element (a step of 0); over planes, where
// each operand has a distance between rows and one between columns; and over any six axes.
#define BINARY(NAME, VALUE)                                                                    \
    struct Binary_##NAME {                                                                     \
        DEVICE float at(float a, float b) const { return VALUE; }                              \
    };                                                                                         \
    KERNEL binary_##NAME(float* y, const float* a, const float* b, u32 step_a, u32 step_b, u64 n) { \
        line(Binary_##NAME(), y, a, b, step_a, step_b, n);                                     \
    }                                                                                          \
    KERNEL plane_##NAME(float* y, const float* a, const float* b, u64 rows, u64 columns,    \
                        u64 row_a, u64 column_a, u64 row_b, u64 column_b) {                    \
        plane(Binary_##NAME(), y, a, b, rows, columns, row_a, column_a, row_b, column_b);      \
    }                                                                                          \
    KERNEL strided_##NAME(float* y, const float* a, const float* b, u64 n,                  \
                          u64 e1, u64 e2, u64 e3, u64 e4, u64 e5,                              \
                          u64 a0, u64 a1, u64 a2, u64 a3, u64 a4, u64 a5,                      \
                          u64 b0, u64 b1, u64 b2, u64 b3, u64 b4, u64 b5) {                    \
        const u64 extent[5] = {e1, e2, e3, e4, e5};                                            \
        const u64 in_a[6] = {a0, a1, a2, a3, a4, a5}, in_b[6] = {b0, b1, b2, b3, b4, b5};      \
        for (u64 i = line_start(); i < n; i += line_step()) {                                  \
            Places p = places(i, extent, in_a, in_b);                                          \
            y[i] = Binary_##NAME().at(a[p.a], b[p.b]);                       \
        }                                                                                      \
    }

template <class Op>
DEVICE void line(Op op, float* __restrict__ y, const float* __restrict__ a, const float* __restrict__ b, u32 step_a,
                 u32 step_b, u64 n) {
    if (step_a && step_b) return zip(op, y, a, b, n);
    for (u64 i = line_start(); i < n; i += line_step()) y[i] = op.at(a[i * step_a], b[i * step_b]);
}

template <class Op>
DEVICE void plane(Op op, float* __restrict__ y, const float* __restrict__ a, const float* __restrict__ b, u64 rows,
                  u64 columns, u64 row_a, u64 column_a, u64 row_b, u64 column_b) {
    u64 column = line_start();
    if (column >= columns) return;
    for (u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += (u64)gridDim.y * blockDim.y) {
        float left = a[row * row_a + column * column_a], right = b[row * row_b + column * column_b];
        y[row * columns + column] = op.at(left, right);
    }
}

BINARY(add, a + b)
BINARY(sub, a - b)
BINARY(mul, a* b)
BINARY(div, a / b)
BINARY(maximum, b > a ? b : a)
BINARY(minimum, b < a ? b : a)
BINARY(equal, a == b ? 1.0f : 0.0f)
BINARY(greater, a > b ? 1.0f : 0.0f)

// sum += x
KERNEL accumulate(float* sum, const float* __restrict__ x, u64 n) {
    for (u64 i = line_start(); i < n / 4; i += line_step()) {
        Four f = load4(sum, i), g = load4(x, i);
        for (int j = 0; j < 4; j++) f.v[j] += g.v[j];
        store4(sum, i, f);
    }
    u64 rest = n / 4 * 4 + line_start();
    if (rest < n) sum[rest] = sum[rest] + x[rest];
}

// The finalizer `lowbias32` of Wellons (2018).
DEVICE u32 mixed(u32 x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

// y = x factor where the hash of key and index, as `assay_tensor::dropout_keeps` has it, is not below the limit; else 0.
DEVICE void drop(float* __restrict__ y, const float* __restrict__ x, u64 key, u32 limit, float factor, u64 n) {
    for (u64 i = line_start(); i < n; i += line_step()) {
        u32 first = mixed((u32)i ^ (u32)key);
        u32 second = mixed(first ^ (u32)(key >> 32) ^ ((u32)(i >> 32) * 0x9e3779b9u));
        y[i] = second >= limit ? x[i] * factor : 0.0f;
    }
}

KERNEL dropout(float* __restrict__ y, const float* __restrict__ x, u64 key, u32 limit, float factor, u64 n) {
    drop(y, x, key, limit, factor, n);
}

// The same with the key `assay_tensor::mix`(seed ^ place); the seed's low word comes first.
KERNEL dropout_at(float* __restrict__ y, const float* __restrict__ x, const u32* __restrict__ seed, u64 place,
                  u32 limit, float factor, u64 n) {
    u64 key = ((u64)seed[1] << 32 | seed[0]) ^ place;
    key += 0x9e3779b97f4a7c15ull;
    key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9ull;
    key = (key ^ key >> 27) * 0x94d049bb133111ebull;
    drop(y, x, key ^ key >> 31, limit, factor, n);
}
