// Sums of rows by id: the transpose of gathering.
#include "common.h"

// The rows of the table that a block sums, and the ids that it looks through at a time.
#define TILE 16
#define CHUNK 1024

// y [rows, width]: row v is the sum of the rows of x [count, width] whose id is v, in their order; with `onto`, they are
// added to what y holds.
//
// A block owns TILE rows of the table and 256 of its columns, a thread one column. The block looks through all ids, a
// CHUNK at a time, and lists those that are its own, in order; each thread then adds up its column along the list. So
// nothing is added by two threads, and the order of a sum is that of x.
KERNEL scatter_add(float* __restrict__ y, const float* __restrict__ x, const u32* __restrict__ ids, u64 count,
                   u64 width, u64 rows, u32 onto) {
    __shared__ float sums[TILE][THREADS];
    __shared__ u32 list[CHUNK];
    __shared__ u32 counts[THREADS], groups[16];
    u32 thread = threadIdx.x, tile = blockIdx.x;
    u64 column = (u64)blockIdx.y * THREADS + thread;
    for (u32 row = 0; row < TILE; row++) {
        u64 place = (u64)tile * TILE + row;
        sums[row][thread] = onto && place < rows && column < width ? y[place * width + column] : 0.0f;
    }
    for (u64 first = 0; first < count; first += CHUNK) {
        u32 mine = 0, seen[4];
        for (u32 j = 0; j < 4; j++) {
            u64 i = first + thread * 4 + j;
            seen[j] = i < count ? ids[i] : 0xffffffffu;
            mine += seen[j] / TILE == tile;
        }
        // Before the list is written, all have read the last one.
        __syncthreads();
        counts[thread] = mine;
        __syncthreads();
        u32 before = 0, total = 0;
        for (u32 i = thread / 16 * 16; i < thread; i++) before += counts[i];
        if (thread % 16 == 15) groups[thread / 16] = before + mine;
        __syncthreads();
        for (u32 i = 0; i < 16; i++) {
            if (i < thread / 16) before += groups[i];
            total += groups[i];
        }
        for (u32 j = 0; j < 4; j++) {
            if (seen[j] / TILE == tile) list[before++] = (thread * 4 + j) * TILE + seen[j] % TILE;
        }
        __syncthreads();
        if (column < width) {
            for (u32 i = 0; i < total; i++) {
                u32 entry = list[i];
                sums[entry % TILE][thread] += x[(first + entry / TILE) * width + column];
            }
        }
    }
    if (column < width) {
        for (u32 row = 0; row < TILE && (u64)tile * TILE + row < rows; row++) {
            y[((u64)tile * TILE + row) * width + column] = sums[row][thread];
        }
    }
}
