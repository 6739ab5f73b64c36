// Attention for bf16 queries, keys and values, with the products of warpgroup.h: what attention_bf16.cu does, quicker on NVIDIA's
// compute capability 9.0. A block is one warpgroup and has 64 queries; several blocks share a multiprocessor, so that the softmax of
// one runs while the products of another do. Everywhere else the kernels are right, and slower than those of attention_bf16.cu.
#include "online_softmax.h"
#include "warpgroup.h"

#define QUERIES 64
#define KEYS 64
// Tiles of keys and values in shared memory: the next one comes while this one is used.
#define STAGES 2

// All of a block's shared memory. The host knows its size (attention_bf16.rs).
template <int WIDTH>
struct Shared {
    Panels<QUERIES, WIDTH> queries;
    Panels<KEYS, WIDTH> keys[STAGES], values[STAGES];
};

template <int WIDTH>
DEVICE void forward(float* out, float* lse, const u16* q, const u16* k, const u16* v, Call call) {
    const u32 COUNT = KEYS / 16, STEPS = WIDTH / 16;
    extern __shared__ Panels<64, 64> dynamic[];
    Shared<WIDTH>& shared = *(Shared<WIDTH>*)dynamic;
    u32 tiles = (call.tq + QUERIES - 1) / QUERIES, head = blockIdx.x / tiles;
    // The tiles that see the most keys come first, so that the last blocks to start are short.
    u32 first = (tiles - 1 - blockIdx.x % tiles) * QUERIES, own = first + threadIdx.x / WAVE * 16;
    u64 in_queries = (u64)head * call.tq, in_keys = (u64)head * call.tk * call.d;
    u32 end = call.keys(first, QUERIES);
    Sum s[COUNT], o[STEPS];
    Running running;
    clear(s);
    clear(o);
#pragma unroll
    for (int slot = 0; slot < LINES; slot++) running.peak[slot] = MINUS_INFINITY, running.sum[slot] = 0.0f;
    auto fetch = [&](u32 key, u32 stage) {
        shared.keys[stage].fetch(k + in_keys, key, call.tk, call.d);
        shared.values[stage].fetch(v + in_keys, key, call.tk, call.d);
    };
    shared.queries.fetch(q + in_queries * call.d, first, call.tq, call.d);
    if (end > 0) fetch(0, 0);
    u32 stage = 0;
#pragma unroll 1
    for (u32 key = 0; key < end; key += KEYS) {
        arrived_for_products();
        // What all have fetched is there, and all have used what is overwritten next.
        __syncthreads();
        if (key + KEYS < end) fetch(key + KEYS, stage ^ 1);
        begin_products(s);
        set_to_products_of_rows(s, shared.queries, shared.keys[stage]);
        end_products(s);
        absorb(s, running, call, own, key, [&](const float (&factor)[LINES]) { scale_lines(o, factor); });
        Left weights[COUNT];
#pragma unroll
        for (int n = 0; n < COUNT; n++) weights[n] = rounded(s[n]);
        begin_products(o, weights);
        add_weighed_rows(o, weights, shared.values[stage]);
        end_products(o);
        stage ^= 1;
    }
    finish(out + in_queries * call.d, lse + in_queries, o, running, own, call);
}

// Blocks share a multiprocessor's registers and, where heads are wide, its shared memory.
#if ASYNCHRONOUS_PRODUCTS
#define BOUNDS(BLOCKS) __launch_bounds__(WARPGROUP, BLOCKS)
#else
#define BOUNDS(BLOCKS) __launch_bounds__(WARPGROUP)
#endif

#define ATTENTION(WIDTH, BLOCKS)                                                                                       \
    extern "C" __global__ void BOUNDS(BLOCKS)                                                                          \
        attention_warpgroup_##WIDTH(float* out, float* lse, const u16* q, const u16* k, const u16* v, u32 tq, u32 tk,  \
                                    u32 d, u32 causal, float scale) {                                                  \
        Call call = {tq, tk, d, causal, scale};                                                                        \
        forward<WIDTH>(out, lse, q, k, v, call);                                                                       \
    }

ATTENTION(64, 5)
ATTENTION(128, 2)
