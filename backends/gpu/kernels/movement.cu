// Movement of elements of any type, as words of 1, 2, 4 or 16 bytes; filling; and conversions between types.
#include "common.h"

struct alignas(16) Sixteen {
    u32 v[4];
};

// y[i] = x[where i stands by the strides], for up to six axes, given by the extents of the inner five.
template <class Word>
DEVICE void strided(Word* __restrict__ y, const Word* __restrict__ x, u64 n, const u64* extent, const u64* stride) {
    for (u64 i = line_start(); i < n; i += line_step()) {
        u64 rest = i, from = 0;
        for (int axis = 5; axis > 0; axis--) {
            from += rest % extent[axis - 1] * stride[axis];
            rest /= extent[axis - 1];
        }
        y[i] = x[from + rest * stride[0]];
    }
}

// Rows of `width` words, each `to` words behind the last in y, and `from` words in x.
template <class Word>
DEVICE void pieces(Word* __restrict__ y, const Word* __restrict__ x, u64 rows, u64 width, u64 to, u64 from) {
    u64 column = line_start();
    if (column >= width) return;
    for (u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += (u64)gridDim.y * blockDim.y) {
        y[row * to + column] = x[row * from + column];
    }
}

// Row i of y is row ids[i] of the table.
template <class Word>
DEVICE void gather(Word* __restrict__ y, const Word* __restrict__ table, const u32* __restrict__ ids, u64 rows,
                   u64 width) {
    u64 column = line_start();
    if (column >= width) return;
    for (u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += (u64)gridDim.y * blockDim.y) {
        y[row * width + column] = table[ids[row] * width + column];
    }
}

#define MOVEMENT(BYTES, WORD)                                                                  \
    KERNEL strided_##BYTES(WORD* y, const WORD* x, u64 n, u64 e1, u64 e2, u64 e3, u64 e4, u64 e5, \
                           u64 s0, u64 s1, u64 s2, u64 s3, u64 s4, u64 s5) {                   \
        const u64 extent[5] = {e1, e2, e3, e4, e5}, stride[6] = {s0, s1, s2, s3, s4, s5};      \
        strided(y, x, n, extent, stride);                                                      \
    }                                                                                          \
    KERNEL pieces_##BYTES(WORD* y, const WORD* x, u64 rows, u64 width, u64 to, u64 from) {     \
        pieces(y, x, rows, width, to, from);                                                   \
    }                                                                                          \
    KERNEL gather_##BYTES(WORD* y, const WORD* table, const u32* ids, u64 rows, u64 width) {   \
        gather(y, table, ids, rows, width);                                                    \
    }

MOVEMENT(1, u8)
MOVEMENT(2, u16)
MOVEMENT(4, u32)
MOVEMENT(16, Sixteen)

#define FILL(BYTES, WORD)                                                                      \
    KERNEL fill_##BYTES(WORD* y, u32 value, u64 n) {                                           \
        for (u64 i = line_start(); i < n; i += line_step()) y[i] = (WORD)value;                \
    }

FILL(1, u8)
FILL(2, u16)
FILL(4, u32)

// Conversions as Rust's `as` has them: truncated towards zero, saturated at the limits, 0 for NaN.
DEVICE u32 as_u32(float x) {
    if (!(x > 0.0f)) return 0;
    return x >= 4294967296.0f ? 0xffffffffu : (u32)x;
}

DEVICE i8 as_i8(float x) {
    if (x != x) return 0;
    return (i8)(int)fminf(fmaxf(x, -128.0f), 127.0f);
}

#define CAST(NAME, FROM, TO, VALUE)                                                            \
    KERNEL NAME(TO* __restrict__ y, const FROM* __restrict__ values, u64 n) {                  \
        for (u64 i = line_start(); i < n / 4; i += line_step()) {                              \
            Pack<FROM, 4> from = ((const Pack<FROM, 4>*)values)[i];                            \
            Pack<TO, 4> to;                                                                    \
            for (int j = 0; j < 4; j++) {                                                      \
                FROM x = from.v[j];                                                            \
                to.v[j] = VALUE;                                                               \
            }                                                                                  \
            ((Pack<TO, 4>*)y)[i] = to;                                                         \
        }                                                                                      \
        u64 rest = n / 4 * 4 + line_start();                                                   \
        if (rest < n) {                                                                        \
            FROM x = values[rest];                                                             \
            y[rest] = VALUE;                                                                   \
        }                                                                                      \
    }

CAST(f32_to_u32, float, u32, as_u32(x))
CAST(f32_to_i8, float, i8, as_i8(x))
CAST(u32_to_f32, u32, float, (float)x)
CAST(u32_to_i8, u32, i8, (i8)(x < 127u ? x : 127u))
CAST(f32_to_bf16, float, u16, as_bf16(x))
CAST(bf16_to_f32, u16, float, of_bf16(x))
CAST(bf16_to_u32, u16, u32, as_u32(of_bf16(x)))
CAST(bf16_to_i8, u16, i8, as_i8(of_bf16(x)))
CAST(u32_to_bf16, u32, u16, as_bf16((float)x))
CAST(i8_to_bf16, i8, u16, as_bf16((float)x))
CAST(i8_to_f32, i8, float, (float)x)
CAST(i8_to_u32, i8, u32, x > 0 ? (u32)x : 0u)
