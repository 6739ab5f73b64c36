// Attention and its gradient for bf16 queries, keys and values, with the products of warpgroup.h: what attention_bf16.cu does, quicker
// on NVIDIA's compute capability 9.0. The width of heads is a multiple of 8. A block is one warpgroup and has 64 queries or keys;
// several blocks share a multiprocessor, so that the softmax of one runs while the products of another do. Everywhere else the
// kernels are right, and slower than those of attention_bf16.cu.
#include "attention_gradient.h"
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

// All of a block's shared memory in the gradient: its own rows, and those that it walks, of two operands each. Lines are the log-sum-exps
// of a tile of queries, times -log2(e), and behind them sum g o.
template <int WIDTH>
struct SharedOfGradient {
    Panels<64, WIDTH> own[2], walked[STAGES][2];
    float lines[STAGES][2 * QUERIES];
};

template <int COUNT>
DEVICE void scale_all(Sum (&sums)[COUNT], float factor) {
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
#pragma unroll
        for (int i = 0; i < ITEMS; i++) sums[n].at[i] *= factor;
    }
}

// dV = P^T G and dK = dS^T Q of a tile of keys. Products of the transposed scores S^T = K Q^T and dP^T = V G^T start together; while
// the gradients are multiplied, the block computes the weights of the next product.
template <int WIDTH>
DEVICE void backward_keys(float* dk, float* dv, Saved all, Call call) {
    const u32 COUNT = QUERIES / 16, STEPS = WIDTH / 16;
    extern __shared__ Panels<64, 64> dynamic[];
    SharedOfGradient<WIDTH>& shared = *(SharedOfGradient<WIDTH>*)dynamic;
    u32 tiles = (call.tk + KEYS - 1) / KEYS, head = blockIdx.x / tiles;
    // The first tiles of keys are seen by the most queries.
    u32 first = blockIdx.x % tiles * KEYS, own = first + threadIdx.x / WAVE * 16;
    Saved saved = all.at(head, call);
    Sum p[COUNT], ds[COUNT], to_k[STEPS], to_v[STEPS];
    clear(p);
    clear(ds);
    clear(to_k);
    clear(to_v);
    auto fetch = [&](u32 query, u32 stage) {
        shared.walked[stage][0].fetch(saved.q, query, call.tq, call.d);
        shared.walked[stage][1].fetch(saved.grad, query, call.tq, call.d);
    };
    // Half of the threads have a log-sum-exp each, half a sum.
    auto line = [&](u32 query) {
        u32 row = query + threadIdx.x % QUERIES;
        if (row >= call.tq) return 0.0f;
        return threadIdx.x < QUERIES ? saved.lse[row] * -LOG2_E : saved.inner[row];
    };
    u32 query = call.queries(first, QUERIES), stage = 0;
    shared.own[0].fetch(saved.k, first, call.tk, call.d);
    shared.own[1].fetch(saved.v, first, call.tk, call.d);
    if (query < call.tq) {
        fetch(query, 0);
        shared.lines[0][threadIdx.x] = line(query);
    }
    float scale = call.scale * LOG2_E;
#pragma unroll 1
    for (; query < call.tq; query += QUERIES) {
        arrived_for_products();
        // What all have fetched is there, and all have used what is overwritten next.
        __syncthreads();
        float next = 0.0f;
        if (query + QUERIES < call.tq) {
            fetch(query + QUERIES, stage ^ 1);
            next = line(query + QUERIES);
        }
        begin_products(p, ds);
        set_to_products_of_rows(p, shared.own[0], shared.walked[stage][0]);
        start_products();
        set_to_products_of_rows(ds, shared.own[1], shared.walked[stage][1]);
        start_products();
        wait_for_products<1>(p);
        const float* lines = shared.lines[stage];
        Left weights[COUNT], slopes[COUNT];
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                p[n].at[i] = power_of_2(fmaf(p[n].at[i], scale, lines[16 * n + column_of(i)]));
            }
        }
        // The first query sees the fewest keys.
        if (!(query + QUERIES <= call.tq && own + 16 <= call.tk && call.sees(query, own + 15))) {
#pragma unroll
            for (int n = 0; n < COUNT; n++) {
#pragma unroll
                for (int i = 0; i < ITEMS; i++) {
                    if (!call.sees(query + 16 * n + column_of(i), own + line_of(i))) p[n].at[i] = 0.0f;
                }
            }
        }
#pragma unroll
        for (int n = 0; n < COUNT; n++) weights[n] = rounded(p[n]);
        begin_products(to_v, weights);
        add_weighed_rows(to_v, weights, shared.walked[stage][1]);
        start_products();
        wait_for_products<1>(ds);
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
#pragma unroll
            for (int i = 0; i < ITEMS; i++) ds[n].at[i] = p[n].at[i] * (ds[n].at[i] - lines[QUERIES + 16 * n + column_of(i)]);
            slopes[n] = rounded(ds[n]);
        }
        begin_products(to_k, slopes);
        add_weighed_rows(to_k, slopes, shared.walked[stage][0]);
        start_products();
        shared.lines[stage ^ 1][threadIdx.x] = next;
        wait_for_products<0>(to_k, to_v);
        stage ^= 1;
    }
    scale_all(to_k, call.scale);
    u64 in_keys = (u64)head * call.tk * call.d;
    put(dk + in_keys, to_k, own, call.tk, call.d);
    put(dv + in_keys, to_v, own, call.tk, call.d);
}

// dQ = dS K of a tile of queries.
template <int WIDTH>
DEVICE void backward_queries(float* dq, Saved all, Call call) {
    const u32 COUNT = KEYS / 16, STEPS = WIDTH / 16;
    extern __shared__ Panels<64, 64> dynamic[];
    SharedOfGradient<WIDTH>& shared = *(SharedOfGradient<WIDTH>*)dynamic;
    u32 tiles = (call.tq + QUERIES - 1) / QUERIES, head = blockIdx.x / tiles;
    u32 first = (tiles - 1 - blockIdx.x % tiles) * QUERIES, own = first + threadIdx.x / WAVE * 16;
    u32 end = call.keys(first, QUERIES);
    Saved saved = all.at(head, call);
    Sum s[COUNT], ds[COUNT], to_q[STEPS];
    clear(s);
    clear(ds);
    clear(to_q);
    float lse[LINES], inner[LINES];
#pragma unroll
    for (int slot = 0; slot < LINES; slot++) {
        u32 row = own + line_of(2 * slot);
        lse[slot] = row < call.tq ? saved.lse[row] * -LOG2_E : 0.0f;
        inner[slot] = row < call.tq ? saved.inner[row] : 0.0f;
    }
    auto fetch = [&](u32 key, u32 stage) {
        shared.walked[stage][0].fetch(saved.k, key, call.tk, call.d);
        shared.walked[stage][1].fetch(saved.v, key, call.tk, call.d);
    };
    shared.own[0].fetch(saved.q, first, call.tq, call.d);
    shared.own[1].fetch(saved.grad, first, call.tq, call.d);
    if (end > 0) fetch(0, 0);
    u32 stage = 0;
    float scale = call.scale * LOG2_E;
#pragma unroll 1
    for (u32 key = 0; key < end; key += KEYS) {
        arrived_for_products();
        __syncthreads();
        if (key + KEYS < end) fetch(key + KEYS, stage ^ 1);
        begin_products(s, ds);
        set_to_products_of_rows(s, shared.own[0], shared.walked[stage][0]);
        start_products();
        set_to_products_of_rows(ds, shared.own[1], shared.walked[stage][1]);
        start_products();
        wait_for_products<1>(s);
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                s[n].at[i] = power_of_2(fmaf(s[n].at[i], scale, lse[slot_of(i)]));
            }
        }
        if (!all_seen(call, own, key, KEYS)) {
#pragma unroll
            for (int n = 0; n < COUNT; n++) {
#pragma unroll
                for (int i = 0; i < ITEMS; i++) {
                    if (!call.sees(own + line_of(i), key + 16 * n + column_of(i))) s[n].at[i] = 0.0f;
                }
            }
        }
        wait_for_products<0>(ds);
        Left slopes[COUNT];
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
#pragma unroll
            for (int i = 0; i < ITEMS; i++) ds[n].at[i] = s[n].at[i] * (ds[n].at[i] - inner[slot_of(i)]);
            slopes[n] = rounded(ds[n]);
        }
        begin_products(to_q, slopes);
        add_weighed_rows(to_q, slopes, shared.walked[stage][0]);
        end_products(to_q);
        stage ^= 1;
    }
    scale_all(to_q, call.scale);
    put(dq + (u64)head * call.tq * call.d, to_q, own, call.tq, call.d);
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

#define GRADIENT(WIDTH, BLOCKS_OF_KEYS, BLOCKS_OF_QUERIES)                                                            \
    extern "C" __global__ void BOUNDS(BLOCKS_OF_KEYS) attention_warpgroup_keys_##WIDTH(                               \
        float* dk, float* dv, const u16* q, const u16* k, const u16* v, const u16* grad, const float* lse,             \
        const float* inner, u32 tq, u32 tk, u32 d, u32 causal, float scale) {                                         \
        Call call = {tq, tk, d, causal, scale};                                                                       \
        Saved saved = {q, k, v, grad, lse, inner};                                                                    \
        backward_keys<WIDTH>(dk, dv, saved, call);                                                                    \
    }                                                                                                                 \
    extern "C" __global__ void BOUNDS(BLOCKS_OF_QUERIES) attention_warpgroup_queries_##WIDTH(                         \
        float* dq, const u16* q, const u16* k, const u16* v, const u16* grad, const float* lse, const float* inner,   \
        u32 tq, u32 tk, u32 d, u32 causal, float scale) {                                                             \
        Call call = {tq, tk, d, causal, scale};                                                                       \
        Saved saved = {q, k, v, grad, lse, inner};                                                                    \
        backward_queries<WIDTH>(dq, saved, call);                                                                     \
    }

// (Three blocks of narrow heads' keys were 5 % quicker on an H100, though the compiler then spills registers and lets no products overlap.)
GRADIENT(64, 2, 4)
GRADIENT(128, 2, 2)
