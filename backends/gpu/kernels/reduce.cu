// Sums and maxima, in two passes where one would leave the device idle. The order of every sum is decided by the shape.
#include "common.h"

#define SUM 0u
#define MAX 1u

DEVICE float start_of(u32 op) { return op == SUM ? 0.0f : MINUS_INFINITY; }
DEVICE float combined(u32 op, float a, float b) { return op == SUM ? a + b : (b > a ? b : a); }

// x [rows, width] to y [rows, splits]: each row in `splits` pieces, one row of a block's lanes for each.
KERNEL reduce_rows(float* __restrict__ y, const float* __restrict__ x, u32 op, u64 rows, u64 width, u64 splits,
                   float factor) {
    __shared__ float shared[THREADS];
    u64 piece = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    u64 row = piece / splits, length = (width + splits - 1) / splits, from = piece % splits * length;
    u64 to = from + length < width ? from + length : width;
    bool inside = row < rows;
    float total = start_of(op);
    if (inside) {
        for (u64 i = from + threadIdx.x; i < to; i += blockDim.x) total = combined(op, total, x[row * width + i]);
    }
    total = op == SUM ? over_lanes<Plus>(total, shared) : over_lanes<Larger>(total, shared);
    if (inside && threadIdx.x == 0) y[piece] = total * factor;
}

// x [outer, middle, inner] to y [outer, splits, inner]. A block of 32 V columns and 8 rows has one piece of the middle.
template <class T, int V>
DEVICE void columns(float* __restrict__ y, const T* __restrict__ x, u32 op, u64 middle, u64 inner, u64 splits,
                    float factor) {
    __shared__ float shared[8][32 * V];
    u64 count = inner / V, across = (count + 31) / 32, column = blockIdx.x % across * 32 + threadIdx.x;
    u64 piece = blockIdx.x / across, outer = piece / splits, length = (middle + splits - 1) / splits;
    u64 from = piece % splits * length, to = from + length < middle ? from + length : middle;
    float total[V];
    for (int j = 0; j < V; j++) total[j] = start_of(op);
    if (column < count) {
        for (u64 row = from + threadIdx.y; row < to; row += 8) {
            Pack<T, V> f = ((const Pack<T, V>*)x)[(outer * middle + row) * count + column];
            for (int j = 0; j < V; j++) total[j] = combined(op, total[j], widened(f.v[j]));
        }
    }
    for (int j = 0; j < V; j++) shared[threadIdx.y][threadIdx.x * V + j] = total[j];
    __syncthreads();
    if (threadIdx.y == 0 && column < count) {
        for (int j = 0; j < V; j++) {
            float sum = total[j];
            for (int i = 1; i < 8; i++) sum = combined(op, sum, shared[i][threadIdx.x * V + j]);
            y[piece * inner + column * V + j] = sum * factor;
        }
    }
}

#define COLUMNS(NAME, T, V)                                                                                     \
    KERNEL NAME(float* y, const T* x, u32 op, u64 middle, u64 inner, u64 splits, float factor) {                \
        columns<T, V>(y, x, op, middle, inner, splits, factor);                                                 \
    }

COLUMNS(reduce_columns, float, 1)
COLUMNS(reduce_columns_bf16, u16, 1)
COLUMNS(reduce_columns_bf16_by_4, u16, 4)
