// Products of int8 weights with activations that are quantized row by row on the way. The sums are of integers and exact.
#include "common.h"

// NaN stays once it is met, so that a row which is not finite is seen as such.
struct Magnitude {
    static DEVICE float of(float a, float b) { return b > a || b != b ? b : a; }
};

// Each row of x as levels x (127 / peak), ties to even, four to a word, zeros behind the last; and the step peak / 127. A
// row whose peak is not above `least` gets a step of 0, one that is not finite a step of NaN.
KERNEL quantize(u32* __restrict__ levels, float* __restrict__ steps, const float* __restrict__ x, float least, u64 rows,
                u64 width, u64 words) {
    __shared__ float shared[THREADS];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y, start = row * width;
    bool inside = row < rows;
    float peak = 0.0f;
    if (inside) {
        for (u64 i = threadIdx.x; i < width; i += blockDim.x) peak = Magnitude::of(peak, fabsf(x[start + i]));
    }
    peak = over_lanes<Magnitude>(peak, shared);
    if (!inside) return;
    bool finite = peak - peak == 0.0f, live = finite && peak > least;
    float inverse = live ? 127.0f / peak : 0.0f;
    for (u64 word = threadIdx.x; word < words; word += blockDim.x) {
        u32 packed = 0;
        for (u32 j = 0; live && j < 4 && word * 4 + j < width; j++) {
            packed |= ((u32)(int)rintf(x[start + word * 4 + j] * inverse) & 0xffu) << (8 * j);
        }
        levels[row * words + word] = packed;
    }
    if (threadIdx.x == 0) steps[row] = live ? peak * (float)(1.0 / 127.0) : (finite ? 0.0f : NOT_A_NUMBER);
}

// y [rows, n] = (sum levels q) step scale, for levels [rows, words] and q [n, width] bytes. A block of 16 by 16 threads
// has a tile of 64 by 64, and a thread four by four of it.
KERNEL multiply_int8(float* __restrict__ y, const u32* __restrict__ levels, const float* __restrict__ steps,
                     const i8* __restrict__ q, const float* __restrict__ scale, u64 rows, u64 n, u64 width, u64 words) {
    // 8 words of 64 rows each; the odd stride keeps the lanes on different banks.
    __shared__ u32 left[8][65], right[8][65];
    u64 across = (n + 63) / 64, first_row = blockIdx.x / across * 64, first_column = blockIdx.x % across * 64;
    u32 thread = threadIdx.y * 16 + threadIdx.x;
    int sums[4][4] = {};
    for (u64 first = 0; first < words; first += 8) {
        __syncthreads();
        for (u32 i = thread; i < 512; i += THREADS) {
            u64 word = first + i % 8, row = first_row + i / 8, column = first_column + i / 8;
            left[i % 8][i / 8] = word < words && row < rows ? levels[row * words + word] : 0;
            u32 packed = 0;
            for (u32 j = 0; j < 4 && column < n && word * 4 + j < width; j++) {
                packed |= ((u32)q[column * width + word * 4 + j] & 0xffu) << (8 * j);
            }
            right[i % 8][i / 8] = packed;
        }
        __syncthreads();
        for (u32 word = 0; word < 8; word++) {
            for (u32 i = 0; i < 4; i++) {
                for (u32 j = 0; j < 4; j++) {
                    int a = (int)left[word][threadIdx.y + 16 * i], b = (int)right[word][threadIdx.x + 16 * j];
                    sums[i][j] = dot4(a, b, sums[i][j]);
                }
            }
        }
    }
    for (u32 i = 0; i < 4; i++) {
        for (u32 j = 0; j < 4; j++) {
            u64 row = first_row + threadIdx.y + 16 * i, column = first_column + threadIdx.x + 16 * j;
            if (row < rows && column < n) y[row * n + column] = (float)sums[i][j] * steps[row] * scale[column];
        }
    }
}
