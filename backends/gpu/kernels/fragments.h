// Products of bf16 matrices on tensor cores (NVIDIA, sm_80 and later) and matrix cores (AMD, gfx90a and gfx942).
//
// The lanes of a wave hold a matrix of 16 by 16 together, and one call of `add_product` of all of them does
//
//     sum += left right^T        left, right: 16 rows of 16 bf16; sum: 16 rows of left by 16 rows of right, f32
//
// Which elements a lane holds is the hardware's choice. In `Left` and in `Sum`, element i of a lane stands in row `line_of(i)`
// and column `column_of(i)`: the same places in both, so that a sum which has been rounded is the left side of the next
// product without another word between lanes. `Right` comes from shared memory only, and its places are nobody else's business.
//
// NVIDIA: mma.m16n8k16, twice (PTX ISA, matrix fragments for mma.m16n8k16 with floating point type). AMD:
// v_mfma_f32_16x16x16_bf16_1k, whose A and B are held alike, a lane having one row, and whose result is held transposed
// (AMD CDNA 2 and 3 instruction set architectures): our left side is its B, our right side its A. A wave has 64 lanes there.
#pragma once
#include "common.h"

#if defined(__HIP_PLATFORM_AMD__)
#define WAVE 64
// Elements of a matrix that a lane holds, and how many rows these are of.
#define ITEMS 4
#define LINES 1
#else
#define WAVE 32
#define ITEMS 8
#define LINES 2
#endif
#define PAIRS (ITEMS / 2)

// Two bf16 a word, the first in its lower half.
struct Left {
    u32 pair[PAIRS];
};

struct Right {
    u32 pair[PAIRS];
};

struct Sum {
    float at[ITEMS];
};

template <int COUNT>
DEVICE void clear(Sum (&sums)[COUNT]) {
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) sums[n].at[i] = 0.0f;
    }
}

DEVICE u32 lane_of() { return threadIdx.x % WAVE; }

// Which of the LINES rows of a lane element i is of.
DEVICE u32 slot_of(u32 i) {
#if defined(__HIP_PLATFORM_AMD__)
    return 0;
#else
    return i / 2 % 2;
#endif
}

DEVICE u32 line_of(u32 i) {
#if defined(__HIP_PLATFORM_AMD__)
    return lane_of() % 16;
#else
    return lane_of() / 4 + 8 * slot_of(i);
#endif
}

// Neighbours in a pair are neighbours in a row.
DEVICE u32 column_of(u32 i) {
#if defined(__HIP_PLATFORM_AMD__)
    return lane_of() / 16 * 4 + i;
#else
    return lane_of() % 4 * 2 + i % 2 + i / 4 * 8;
#endif
}

// The value of the lane whose number differs from this one's in the bits of `by`.
DEVICE float exchanged(float value, int by) {
#if defined(__HIP_PLATFORM_AMD__)
    return __shfl_xor(value, by);
#else
    return __shfl_xor_sync(0xffffffffu, value, by);
#endif
}

// Combines the values of the four lanes that share a row; each of them gets the same bits.
template <class Op>
DEVICE float over_line(float value) {
#if defined(__HIP_PLATFORM_AMD__)
    const int near = 16, far = 32;
#else
    const int near = 1, far = 2;
#endif
    value = Op::of(value, exchanged(value, near));
    return Op::of(value, exchanged(value, far));
}

// 2^x, to some 2^-22; 0 where it would be denormal.
DEVICE float power_of_2(float x) {
#if defined(__HIP_PLATFORM_AMD__) || defined(ASSAY_GPU_EMULATOR)
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

// Two floats, rounded to bf16.
DEVICE u32 pair_of(float low, float high) {
#if defined(__HIP_PLATFORM_AMD__) || defined(ASSAY_GPU_EMULATOR)
    return as_bf16(low) | (u32)as_bf16(high) << 16;
#else
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

DEVICE Left rounded(const Sum& sum) {
    Left left;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) left.pair[p] = pair_of(sum.at[2 * p], sum.at[2 * p + 1]);
    return left;
}

// 16 rows of x [rows, d], from row `first` on, all columns up to 16 STEPS; zeros beyond either end.
template <int STEPS>
DEVICE void left_rows(Left (&left)[STEPS], const u16* __restrict__ x, u32 first, u32 rows, u32 d) {
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
#pragma unroll
        for (int p = 0; p < PAIRS; p++) {
            u32 row = first + line_of(2 * p), column = 16 * step + column_of(2 * p);
            const u16* from = x + (u64)row * d + column;
            u32 low = row < rows && column < d ? from[0] : 0, high = row < rows && column + 1 < d ? from[1] : 0;
            left[step].pair[p] = low | high << 16;
        }
    }
}

#if !defined(__HIP_PLATFORM_AMD__)
// Four matrices of 8 by 8 from shared memory: lane l names row l % 8 of matrix l / 8, and is given two elements of each.
DEVICE void four_matrices(u32 (&pair)[4], const u16* row) {
#if defined(ASSAY_GPU_EMULATOR)
    assay_ldmatrix_x4(pair, row, false);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pair[0]), "=r"(pair[1]), "=r"(pair[2]), "=r"(pair[3])
                 : "r"((u32)__cvta_generic_to_shared(row))
                 : "memory");
#endif
}

// The same, each of them transposed.
DEVICE void four_transposed(u32 (&pair)[4], const u16* row) {
#if defined(ASSAY_GPU_EMULATOR)
    assay_ldmatrix_x4(pair, row, true);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pair[0]), "=r"(pair[1]), "=r"(pair[2]), "=r"(pair[3])
                 : "r"((u32)__cvta_generic_to_shared(row))
                 : "memory");
#endif
}

DEVICE void multiply(float* sum, const Left& left, u32 low, u32 high) {
#if defined(ASSAY_GPU_EMULATOR)
    assay_mma_m16n8k16(sum, left.pair, low, high);
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(left.pair[0]), "r"(left.pair[1]), "r"(left.pair[2]), "r"(left.pair[3]), "r"(low), "r"(high));
#endif
}
#endif

// The 16 rows of the right side are 16 rows of `tile` in shared memory, which start `stride` elements from each other.
// `tile` and `stride` are multiples of 16 bytes.
DEVICE Right right_rows(const u16* tile, u32 stride) {
    Right right;
#if defined(__HIP_PLATFORM_AMD__)
    const u32* from = (const u32*)(tile + lane_of() % 16 * stride + lane_of() / 16 * 4);
    right.pair[0] = from[0];
    right.pair[1] = from[1];
#else
    u32 matrix = lane_of() / 8;
    four_matrices(right.pair, tile + (matrix / 2 * 8 + lane_of() % 8) * stride + matrix % 2 * 8);
#endif
    return right;
}

// The same, where the rows of the right side are columns of `tile`.
DEVICE Right right_columns(const u16* tile, u32 stride) {
    Right right;
#if defined(__HIP_PLATFORM_AMD__)
    const u16* from = tile + lane_of() / 16 * 4 * stride + lane_of() % 16;
    right.pair[0] = from[0] | (u32)from[stride] << 16;
    right.pair[1] = from[2 * stride] | (u32)from[3 * stride] << 16;
#else
    u32 matrix = lane_of() / 8;
    four_transposed(right.pair, tile + (matrix % 2 * 8 + lane_of() % 8) * stride + matrix / 2 * 8);
#endif
    return right;
}

// The 16 rows of the left side are those of `tile`, as for `right_rows`.
DEVICE Left left_tile(const u16* tile, u32 stride) {
    Left left;
#if defined(__HIP_PLATFORM_AMD__)
    const u32* from = (const u32*)(tile + lane_of() % 16 * stride + lane_of() / 16 * 4);
    left.pair[0] = from[0];
    left.pair[1] = from[1];
#else
    u32 matrix = lane_of() / 8;
    four_matrices(left.pair, tile + (matrix % 2 * 8 + lane_of() % 8) * stride + matrix / 2 * 8);
#endif
    return left;
}

// sum += left right^T. All lanes of the wave have to call it.
DEVICE void add_product(Sum& sum, const Left& left, const Right& right) {
#if defined(__HIP_PLATFORM_AMD__)
    typedef short Four16 __attribute__((vector_size(8)));
    typedef float Four32 __attribute__((vector_size(16)));
    Four16 a, b;
    __builtin_memcpy(&a, right.pair, 8);
    __builtin_memcpy(&b, left.pair, 8);
    Four32 total = {sum.at[0], sum.at[1], sum.at[2], sum.at[3]};
    total = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, total, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < 4; i++) sum.at[i] = total[i];
#else
    multiply(sum.at, left, right.pair[0], right.pair[1]);
    multiply(sum.at + 4, left, right.pair[2], right.pair[3]);
#endif
}
