// Products of four waves at once, whose right side lies in shared memory.
//
// A block is one warpgroup: four waves, each of which has 16 of its 64 rows in the fragments of fragments.h. On compute capability 9.0
// a product is wgmma.m64n64k16 (PTX ISA, asynchronous warpgroup level matrix instructions). It runs while its waves do other
// work: they call `begin_products` with the registers that the products read and write, state the products, and call `end_products`
// with what the products write; or `start_products`, and `wait_for_products` later. Elsewhere (the emulator and other devices) each wave computes its rows with `add_product`, at once.
#pragma once
#include "fragments.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(ASSAY_GPU_EMULATOR)
#define ASYNCHRONOUS_PRODUCTS 1
#else
#define ASYNCHRONOUS_PRODUCTS 0
#endif

#define WARPGROUP 128

// Rows of bf16 in shared memory, in panels of 64 columns. A row of a panel is 128 bytes, and its eight parts of 16 bytes are permuted
// according to the row: the swizzle of 128 bytes of wgmma's matrix descriptors. ROWS is a multiple of 64.
template <int ROWS, int WIDTH>
struct alignas(1024) Panels {
    u16 elements[ROWS * WIDTH];

    DEVICE u16* at(u32 row, u32 column) {
        return elements + ((column / 64 * ROWS + row) * 8 + ((column / 8 ^ row) & 7)) * 8 + column % 8;
    }

    // Rows `first` and on of x [rows, d]; zeros beyond either end. x starts at a multiple of 16 bytes, and d is a multiple
    // of 8. They are there after `arrived_for_products` and a barrier.
    DEVICE void fetch(const u16* __restrict__ x, u32 first, u32 rows, u32 d) {
        // A thread copies the same part of every ABREAST-th row. These rows have the same permutation.
        const u32 PARTS = WIDTH / 8, ABREAST = WARPGROUP / PARTS;
        static_assert(ROWS % ABREAST == 0 && ABREAST % 8 == 0, "each thread copies equally many parts, permuted alike");
        u32 own = threadIdx.x / PARTS, column = threadIdx.x % PARTS * 8;
        u16* to = at(own, column);
        const u16* from = x + (u64)(first + own) * d + column;
        u64 step = (u64)ABREAST * d;
        if (first + ROWS <= rows && d == WIDTH) {
#pragma unroll
            for (int i = 0; i < ROWS / ABREAST; i++) copy16(to + i * ABREAST * 64, from + i * (ABREAST * WIDTH), true);
        } else {
#pragma unroll
            for (int i = 0; i < ROWS / ABREAST; i++) {
                bool there = first + own + i * ABREAST < rows && column < d;
                copy16(to + i * ABREAST * 64, there ? from + i * step : x, there);
            }
        }
    }
};

// As `arrived`, where products read what came.
DEVICE void arrived_for_products() {
    arrived();
#if ASYNCHRONOUS_PRODUCTS
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#if ASYNCHRONOUS_PRODUCTS
// The compiler must not move a write of these registers down, or a read up, past this place: it does not know that products which
// have been started read and write them until they are over.
template <int COUNT>
DEVICE void pin_registers(Sum (&sums)[COUNT]) {
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) asm volatile("" : "+f"(sums[n].at[i])::"memory");
    }
}

template <int COUNT>
DEVICE void pin_registers(Left (&left)[COUNT]) {
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
#pragma unroll
        for (int i = 0; i < PAIRS; i++) asm volatile("" : "+r"(left[n].pair[i])::"memory");
    }
}
#else
template <typename Registers>
DEVICE void pin_registers(Registers&) {}
#endif

// To be called before the first product after one of its registers has changed, with all the registers of the products.
template <typename... Registers>
DEVICE void begin_products(Registers&... registers) {
    (pin_registers(registers), ...);
#if ASYNCHRONOUS_PRODUCTS
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// Starts the products since the last call as one group. Groups end in the order in which they were started.
DEVICE void start_products() {
#if ASYNCHRONOUS_PRODUCTS
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Waits until all groups of products but the last `UNDER_WAY` are over, which have written `sums`.
template <int UNDER_WAY, typename... Sums>
DEVICE void wait_for_products(Sums&... sums) {
#if ASYNCHRONOUS_PRODUCTS
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(UNDER_WAY) : "memory");
#endif
    (pin_registers(sums), ...);
}

// Starts the products and waits until they are over.
template <int COUNT>
DEVICE void end_products(Sum (&sums)[COUNT]) {
    start_products();
    wait_for_products<0>(sums);
}

#if ASYNCHRONOUS_PRODUCTS
// The descriptor of a matrix in panels, whose groups of eight rows lie 1024 bytes apart. What is added to it moves the start of the
// matrix by so many times 16 bytes.
DEVICE u64 descriptor(const void* matrix) {
    return (u64)((u32)__cvta_generic_to_shared(matrix) >> 4) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

#define SUM_OF_64                                                                                    \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define OPERANDS_OF_SUM(sum) \
    "+f"(sum.at[0]), "+f"(sum.at[1]), "+f"(sum.at[2]), "+f"(sum.at[3]), \
    "+f"(sum.at[4]), "+f"(sum.at[5]), "+f"(sum.at[6]), "+f"(sum.at[7])
#define OPERANDS_OF_64(sum) OPERANDS_OF_SUM(sum[0]), OPERANDS_OF_SUM(sum[1]), OPERANDS_OF_SUM(sum[2]), OPERANDS_OF_SUM(sum[3])

// sum = left right^T, or added to it: 16 columns of both sides, which are in shared memory.
DEVICE void multiply_columns(Sum* sum, u64 left, u64 right, int onto) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SUM_OF_64 ", %32, %33, p, 1, 1, 0, 0;\n}\n"
                 : OPERANDS_OF_64(sum)
                 : "l"(left), "l"(right), "r"(onto));
}

// sum += left right: 16 rows of the right side, 64 columns of each.
DEVICE void multiply_rows(Sum* sum, const Left& left, u64 right) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SUM_OF_64
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
                 : OPERANDS_OF_64(sum)
                 : "r"(left.pair[0]), "r"(left.pair[1]), "r"(left.pair[2]), "r"(left.pair[3]), "l"(right));
}
#endif

// sums = left x^T: the 64 rows of left by all rows of x. (Left in registers would be overwritten: ptxas of CUDA 13.0 gives registers that
// keep their content over a loop to the left sides of other products.)
template <int COUNT, int WIDTH>
DEVICE void set_to_products_of_rows(Sum (&sums)[COUNT], Panels<64, WIDTH>& left, Panels<16 * COUNT, WIDTH>& x) {
#if ASYNCHRONOUS_PRODUCTS
    // Within a row of 128 bytes the hardware permutes the address.
    u64 from = descriptor(&left), to = descriptor(&x);
#pragma unroll
    for (int n = 0; n < COUNT; n += 4) {
#pragma unroll
        for (int step = 0; step < WIDTH / 16; step++) {
            u32 part = step % 4 * 2, panel = step / 4;
            multiply_columns(sums + n, from + panel * 64 * 8 + part, to + (panel * COUNT + n) * 16 * 8 + part, step > 0);
        }
    }
#else
    u32 matrix = lane_of() / 8, line = lane_of() % 8;
    clear(sums);
    for (int step = 0; step < WIDTH / 16; step++) {
        Left rows;
        four_matrices(rows.pair, left.at(threadIdx.x / WAVE * 16 + matrix % 2 * 8 + line, 16 * step + matrix / 2 * 8));
        for (int n = 0; n < COUNT; n++) {
            Right right;
            four_matrices(right.pair, x.at(16 * n + matrix / 2 * 8 + line, 16 * step + matrix % 2 * 8));
            add_product(sums[n], rows, right);
        }
    }
#endif
}

// sums += left x, where left has as many columns as x has rows.
template <int COUNT, int STEPS>
DEVICE void add_weighed_rows(Sum (&sums)[STEPS], const Left (&left)[COUNT], Panels<16 * COUNT, 16 * STEPS>& x) {
#if ASYNCHRONOUS_PRODUCTS
    u64 from = descriptor(&x);
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
#pragma unroll
        for (int step = 0; step < STEPS; step += 4) multiply_rows(sums + step, left[n], from + (step / 4 * COUNT + n) * 16 * 8);
    }
#else
    u32 matrix = lane_of() / 8, line = lane_of() % 8;
    for (int n = 0; n < COUNT; n++) {
        for (int step = 0; step < STEPS; step++) {
            Right right;
            four_transposed(right.pair, x.at(16 * n + matrix % 2 * 8 + line, 16 * step + matrix / 2 * 8));
            add_product(sums[step], left[n], right);
        }
    }
#endif
}
