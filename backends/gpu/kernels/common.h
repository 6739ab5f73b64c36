// What all kernels share: loads and stores of four elements, sums over the lanes of a block, and bf16.
#pragma once
#include "vendor.h"

// Four neighbours, which memory gives in one access.
struct alignas(16) Quad {
    float x, y, z, w;
};

struct Four {
    float v[4];
};

// V neighbours of any type, which memory gives in one access.
template <class T, int V>
struct alignas(V * sizeof(T)) Pack {
    T v[V];
};

DEVICE Four load4(const float* x, u64 quad) {
    Quad q = ((const Quad*)x)[quad];
    Four f = {{q.x, q.y, q.z, q.w}};
    return f;
}

DEVICE void store4(float* y, u64 quad, const Four& f) {
    Quad q = {f.v[0], f.v[1], f.v[2], f.v[3]};
    ((Quad*)y)[quad] = q;
}

// The threads of a kernel over a line of elements: where one starts, and how far its next element is.
DEVICE u64 line_start() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE u64 line_step() { return (u64)gridDim.x * blockDim.x; }

// The most threads that a block has, and so the floats that a reduction over its lanes needs in shared memory.
#define THREADS 256

struct Plus {
    static DEVICE float of(float a, float b) { return a + b; }
};

// NaN is passed over, as `b > a ? b : a` does.
struct Larger {
    static DEVICE float of(float a, float b) { return b > a ? b : a; }
};

// Combines the values of the lanes (threadIdx.x) that stand in one row of the block (threadIdx.y), in an order that the
// width of the row alone decides; every lane gets the result. blockDim.x is a power of two. All threads of the block
// have to call it. `shared` has THREADS floats.
template <class Op>
DEVICE float over_lanes(float value, float* shared) {
    u32 lane = threadIdx.x, width = blockDim.x;
    float* row = shared + threadIdx.y * width;
    __syncthreads();
    row[lane] = value;
    __syncthreads();
    u32 heads = width < 16 ? width : 16;
    // First each of 16 lanes combines those that are 16 apart, then every lane the 16. Two rounds of short loops wait
    // less at barriers than a tree of eight.
    if (lane < heads) {
        float total = row[lane];
        for (u32 i = lane + heads; i < width; i += heads) total = Op::of(total, row[i]);
        row[lane] = total;
    }
    __syncthreads();
    float total = row[0];
    for (u32 i = 1; i < heads; i++) total = Op::of(total, row[i]);
    return total;
}

#define MINUS_INFINITY from_bits(0xff800000u)
#define NOT_A_NUMBER from_bits(0x7fc00000u)

// bfloat16, the upper half of a float: rounded to nearest, ties to even.
DEVICE u16 as_bf16(float x) {
    u32 word = to_bits(x);
    // A NaN whose payload lies in the lower half alone would become an infinity.
    if (x != x) return (u16)((word >> 16) | 0x40u);
    return (u16)((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

DEVICE float of_bf16(u16 x) { return from_bits((u32)x << 16); }

// Elements of either type as kernels compute with them, and what is stored of a result.
DEVICE float widened(float x) { return x; }
DEVICE float widened(u16 x) { return of_bf16(x); }
DEVICE void store(float& to, float x) { to = x; }
DEVICE void store(u16& to, float x) { to = as_bf16(x); }
