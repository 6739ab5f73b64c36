// Matrix operations of a wave: products of bf16 accumulated in f32, and loading their operands. The layout of elements over
// lanes is that of the vendors' documentation.
#pragma once

namespace assay_emulator {

// Functions for all lanes' operands run between the threads' turns, outside of their stacks, and are not checked.
ASSAY_NO_CHECK static float of_bf16(unsigned pair, int half) {
    const unsigned word = half ? pair & 0xffff0000u : pair << 16;
    float number;
    __builtin_memcpy(&number, &word, sizeof number);
    return number;
}

// sum + x y over 16 columns of bf16. The vendors do not document the order of the additions; this one uses f32 throughout.
ASSAY_NO_CHECK static float dot(const float *x, const float *y, float sum) {
    for (int k = 0; k < 16; k++) sum = fmaf(x[k], y[k], sum);
    return sum;
}

// PTX ISA, matrix fragments for mma.m16n8k16 with floating point type: A is 16 by 16, B is 16 by 8 (here its columns), C and D
// are 16 by 8.
struct Mma {
    float d[4];
    unsigned a[4], b[2];
};

ASSAY_NO_CHECK static void mma_m16n8k16(void *const *lanes) {
    float a[16][16], b[8][16];
    for (int lane = 0; lane < 32; lane++) {
        const Mma *own = static_cast<const Mma *>(lanes[lane]);
        const int group = lane / 4, place = lane % 4;
        for (int i = 0; i < 8; i++) {
            a[group + (i / 2 % 2) * 8][place * 2 + i % 2 + (i / 4) * 8] = of_bf16(own->a[i / 2], i % 2);
        }
        for (int i = 0; i < 4; i++) b[group][place * 2 + i % 2 + (i / 2) * 8] = of_bf16(own->b[i / 2], i % 2);
    }
    for (int lane = 0; lane < 32; lane++) {
        Mma *own = static_cast<Mma *>(lanes[lane]);
        for (int i = 0; i < 4; i++) {
            own->d[i] = dot(a[lane / 4 + (i / 2) * 8], b[lane % 4 * 2 + i % 2], own->d[i]);
        }
    }
}

// PTX ISA, ldmatrix: lane l reads row l % 8 of matrix l / 8, and receives two neighbours of row l / 4 of each of the
// four; transposed, of column l / 4.
struct Ldmatrix {
    unsigned row[4], out[4];
    bool transposed;
};

ASSAY_NO_CHECK static void ldmatrix_x4(void *const *lanes) {
    for (int lane = 0; lane < 32; lane++) {
        Ldmatrix *own = static_cast<Ldmatrix *>(lanes[lane]);
        for (int matrix = 0; matrix < 4; matrix++) {
            unsigned pair = 0;
            for (int half = 0; half < 2; half++) {
                const int far = lane % 4 * 2 + half, near = lane / 4;
                const int row = own->transposed ? far : near, column = own->transposed ? near : far;
                const Ldmatrix *from = static_cast<const Ldmatrix *>(lanes[8 * matrix + row]);
                pair |= (from->row[column / 2] >> column % 2 * 16 & 0xffffu) << half * 16;
            }
            own->out[matrix] = pair;
        }
    }
}

// AMD CDNA 2 and 3, v_mfma_f32_16x16x16_bf16_1k: a lane has four neighbours of one row of A and of one column of B, and of D four
// neighbours of one column.
struct Mfma {
    float d[4];
    unsigned a[2], b[2];
};

ASSAY_NO_CHECK static void mfma_16x16x16_bf16(void *const *lanes) {
    float a[16][16], b[16][16];
    for (int lane = 0; lane < 64; lane++) {
        const Mfma *own = static_cast<const Mfma *>(lanes[lane]);
        for (int i = 0; i < 4; i++) {
            a[lane % 16][lane / 16 * 4 + i] = of_bf16(own->a[i / 2], i % 2);
            b[lane % 16][lane / 16 * 4 + i] = of_bf16(own->b[i / 2], i % 2);
        }
    }
    for (int lane = 0; lane < 64; lane++) {
        Mfma *own = static_cast<Mfma *>(lanes[lane]);
        for (int i = 0; i < 4; i++) own->d[i] = dot(a[lane / 16 * 4 + i], b[lane % 16], own->d[i]);
    }
}

}  // namespace assay_emulator

#if defined(__HIP_PLATFORM_AMD__)
typedef short assay_short4 __attribute__((vector_size(8)));
typedef float assay_float4 __attribute__((vector_size(16)));
static inline assay_float4 assay_mfma_f32_16x16x16bf16_1k(assay_short4 a, assay_short4 b, assay_float4 c, int, int, int) {
    if (assay_wave() != 64) assay_trap("v_mfma: a wave has not 64 lanes");
    assay_emulator::Mfma own;
    __builtin_memcpy(own.d, &c, sizeof c);
    __builtin_memcpy(own.a, &a, sizeof a);
    __builtin_memcpy(own.b, &b, sizeof b);
    assay_together(&own, assay_emulator::mfma_16x16x16_bf16);
    __builtin_memcpy(&c, own.d, sizeof c);
    return c;
}
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k assay_mfma_f32_16x16x16bf16_1k
#else
// Instructions that a kernel writes as PTX for a device are calls of these functions here.
static inline void assay_mma_m16n8k16(float *d, const unsigned *a, unsigned low, unsigned high) {
    assay_emulator::Mma own = {{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {low, high}};
    assay_together(&own, assay_emulator::mma_m16n8k16);
    for (int i = 0; i < 4; i++) d[i] = own.d[i];
}
static inline void assay_ldmatrix_x4(unsigned (&out)[4], const void *row, bool transposed) {
    if (reinterpret_cast<uintptr_t>(row) % 16) assay_trap("ldmatrix: a row does not start at a multiple of 16 bytes");
    if (!assay_is_shared(row)) assay_trap("ldmatrix: a row is not in shared memory");
    // Bounds and races are checked here.
    const unsigned *from = static_cast<const unsigned *>(row);
    assay_emulator::Ldmatrix own = {{from[0], from[1], from[2], from[3]}, {0, 0, 0, 0}, transposed};
    assay_together(&own, assay_emulator::ldmatrix_x4);
    for (int i = 0; i < 4; i++) out[i] = own.out[i];
}
#endif
