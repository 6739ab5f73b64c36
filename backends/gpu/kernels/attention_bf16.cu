// Attention and its gradient for bf16 queries, keys and values, on tensor cores (fragments.h), with an online softmax
// (Dao et al., 2022). The kernels of attention.cu do the same in f32.
//
// A block has four waves, each with 16 rows of its own, and they walk the tiles of the other side together, which lie in shared memory as bf16. Whatever is multiplied is bf16: queries, keys, values and the
// gradient of the result as they arrive; the softmax's weights and the gradient of the scores rounded in registers, where they
// become the left side of the next product. Scores, peaks, sums, and all that is added are f32, and so are the results.
//
// No sum is shared between waves, so the order of each is decided by the shape; scores are computed again where they are needed,
// and the gradient has two kernels, one by keys and one by queries, instead of atomics.
//
// On NVIDIA the next tile is on its way while this one is multiplied. Not done on AMD: there only other waves hide the way to memory,
// and columns of a tile are read element by element (`right_columns`).
#include "attention_gradient.h"

#define WAVES 4
// Elements behind each row in shared memory: rows of one access start on different banks.
#define SPARE 8

// Rows of bf16 in shared memory.
template <int ROWS, int WIDTH>
struct Tile {
    Quad quads[ROWS * (WIDTH + SPARE) / 8];

    DEVICE static u32 stride() { return WIDTH + SPARE; }
    DEVICE u16* row(u32 i) { return (u16*)quads + i * stride(); }
    DEVICE const u16* row(u32 i) const { return (const u16*)quads + i * stride(); }

    // Rows `first` and on of x [rows, d]; zeros beyond either end. x starts at a multiple of 16 bytes. See `walk` for when
    // they are there.
    DEVICE void fetch(const u16* __restrict__ x, u32 first, u32 rows, u32 d) {
        if (d % 8 == 0) {
            for (u32 i = threadIdx.x; i < ROWS * WIDTH / 8; i += WAVES * WAVE) {
                u32 r = i / (WIDTH / 8), column = i % (WIDTH / 8) * 8;
                bool there = first + r < rows && column < d;
                copy16(row(r) + column, there ? x + (u64)(first + r) * d + column : x, there);
            }
        } else {
            for (u32 i = threadIdx.x; i < ROWS * WIDTH; i += WAVES * WAVE) {
                u32 r = i / WIDTH, column = i % WIDTH;
                row(r)[column] = first + r < rows && column < d ? x[(u64)(first + r) * d + column] : 0;
            }
        }
    }
};

// Tiles in shared memory at a time: where copies go on while the thread does, the next one comes while this one is used.
#if defined(__HIP_PLATFORM_AMD__)
#define STAGES 1
#else
#define STAGES 2
#endif

// For each tile of `by` rows from `first` up to `end`: `fetch(row, stage)` has it brought to shared memory, and
// `use(row, stage)` finds it there.
template <class Fetch, class Use>
DEVICE void walk(u32 first, u32 end, u32 by, Fetch fetch, Use use) {
    u32 stage = 0;
    if (STAGES > 1 && first < end) fetch(first, stage);
#pragma unroll 1
    for (u32 at = first; at < end; at += by) {
        u32 next = (stage + 1) % STAGES;
        if (STAGES == 1) {
            // All have used what was there.
            __syncthreads();
            fetch(at, stage);
        }
        arrived();
        // What all have fetched is there; and with two stages, all have used what is overwritten next.
        __syncthreads();
        if (STAGES > 1 && at + by < end) fetch(at + by, next);
        use(at, stage);
        stage = next;
    }
}

// sum += left x^T over all columns, for the 16 rows of x from row `at` of its tile on.
template <int STEPS, class Rows>
DEVICE void add_scores(Sum& sum, const Left (&left)[STEPS], const Rows& x, u32 at) {
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        add_product(sum, left[step], right_rows(x.row(at) + 16 * step, Rows::stride()));
    }
}

// sums += left x for the same rows of x: what they weigh.
template <int STEPS, class Rows>
DEVICE void add_weighed(Sum (&sums)[STEPS], const Left& left, const Rows& x, u32 at) {
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        add_product(sums[step], left, right_columns(x.row(at) + 16 * step, Rows::stride()));
    }
}

// A wave has 16 queries. (On an H100, twice as many, for which each fragment of keys and values is fetched half as often, were
// slower: they leave registers for half as many waves.)
template <int WIDTH>
DEVICE void forward(float* out, float* lse, const u16* q, const u16* k, const u16* v, Call call) {
    // Keys of a tile, 16 COUNT, whose scores are in registers at a time.
    const u32 KEYS = WIDTH > 64 ? 32 : 64, COUNT = KEYS / 16, STEPS = WIDTH / 16, ROWS = 16 * WAVES;
    __shared__ Tile<KEYS, WIDTH> keys[STAGES], values[STAGES];
    u32 tiles = (call.tq + ROWS - 1) / ROWS, head = blockIdx.x / tiles;
    // The tiles that see the most keys come first, so that the last blocks to start are short.
    u32 first = (tiles - 1 - blockIdx.x % tiles) * ROWS, own = first + threadIdx.x / WAVE * 16;
    u64 in_queries = (u64)head * call.tq, in_keys = (u64)head * call.tk * call.d;
    Left queries[STEPS];
    Sum o[STEPS];
    Running running;
    left_rows(queries, q + in_queries * call.d, own, call.tq, call.d);
    clear(o);
#pragma unroll
    for (int slot = 0; slot < LINES; slot++) running.peak[slot] = MINUS_INFINITY, running.sum[slot] = 0.0f;
    auto fetch = [&](u32 key, u32 stage) {
        keys[stage].fetch(k + in_keys, key, call.tk, call.d);
        values[stage].fetch(v + in_keys, key, call.tk, call.d);
    };
    auto use = [&](u32 key, u32 stage) {
        Sum s[COUNT];
        clear(s);
#pragma unroll
        for (int n = 0; n < COUNT; n++) add_scores(s[n], queries, keys[stage], 16 * n);
        absorb(s, running, call, own, key, [&](const float (&factor)[LINES]) { scale_lines(o, factor); });
#pragma unroll
        for (int n = 0; n < COUNT; n++) add_weighed(o, rounded(s[n]), values[stage], 16 * n);
    };
    walk(0, call.keys(first, ROWS), KEYS, fetch, use);
    finish(out + in_queries * call.d, lse + in_queries, o, running, own, call);
}

// dV = P^T G and dK = dS^T Q of a tile of keys: a wave has 16 of them, and the transposed scores of these.
template <int WIDTH>
DEVICE void backward_keys(float* dk, float* dv, Saved all, Call call) {
    const u32 QUERIES = WIDTH > 64 ? 32 / STAGES : 64, STEPS = WIDTH / 16;
    __shared__ Tile<QUERIES, WIDTH> queries[STAGES], grads[STAGES];
    // Of wide heads, these and the keys together would be too many for the registers.
    const bool HELD = WIDTH <= 64;
    __shared__ Tile<HELD ? 1 : 16 * WAVES, WIDTH> values;
    __shared__ float lse[STAGES][QUERIES], inner[STAGES][QUERIES];
    u32 tiles = (call.tk + 16 * WAVES - 1) / (16 * WAVES), head = blockIdx.x / tiles;
    u32 first = blockIdx.x % tiles * 16 * WAVES, own = first + threadIdx.x / WAVE * 16;
    Saved saved = all.at(head, call);
    Left keys[STEPS];
    Sum to_k[STEPS], to_v[STEPS];
    Left held[STEPS];
    left_rows(keys, saved.k, own, call.tk, call.d);
    if (HELD) {
        left_rows(held, saved.v, own, call.tk, call.d);
    } else {
        values.fetch(saved.v, first, call.tk, call.d);
    }
    clear(to_k);
    clear(to_v);
    auto fetch = [&](u32 query, u32 stage) {
        queries[stage].fetch(saved.q, query, call.tq, call.d);
        grads[stage].fetch(saved.grad, query, call.tq, call.d);
        if (threadIdx.x < QUERIES) {
            u32 row = query + threadIdx.x;
            lse[stage][threadIdx.x] = row < call.tq ? saved.lse[row] : 0.0f;
            inner[stage][threadIdx.x] = row < call.tq ? saved.inner[row] : 0.0f;
        }
    };
    auto use = [&](u32 query, u32 stage) {
#pragma unroll 1
        for (u32 n = 0; n < QUERIES; n += 16) {
            Sum p[1], ds[1];
            clear(p);
            add_scores(p[0], keys, queries[stage], n);
            bool all = all_seen(call, query + n, own, 16);
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                u32 column = n + column_of(i);
                bool seen = all || call.sees(query + column, own + line_of(i));
                p[0].at[i] = weight(p[0].at[i], lse[stage][column], seen, call.scale);
            }
            add_weighed(to_v, rounded(p[0]), grads[stage], n);
            clear(ds);
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                Left left = HELD ? held[step] : left_tile(values.row(own - first) + 16 * step, values.stride());
                add_product(ds[0], left, right_rows(grads[stage].row(n) + 16 * step, grads[stage].stride()));
            }
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                ds[0].at[i] = call.scale * p[0].at[i] * (ds[0].at[i] - inner[stage][n + column_of(i)]);
            }
            add_weighed(to_k, rounded(ds[0]), queries[stage], n);
        }
    };
    walk(call.queries(first, QUERIES), call.tq, QUERIES, fetch, use);
    u64 in_keys = (u64)head * call.tk * call.d;
    put(dk + in_keys, to_k, own, call.tk, call.d);
    put(dv + in_keys, to_v, own, call.tk, call.d);
}

// dQ = dS K of a tile of queries, of which a wave has 16.
template <int WIDTH>
DEVICE void backward_queries(float* dq, Saved all, Call call) {
    const u32 KEYS = WIDTH > 64 ? 32 : 64, STEPS = WIDTH / 16, ROWS = 16 * WAVES;
    __shared__ Tile<KEYS, WIDTH> keys[STAGES], values[STAGES];
    u32 tiles = (call.tq + ROWS - 1) / ROWS, head = blockIdx.x / tiles;
    u32 first = (tiles - 1 - blockIdx.x % tiles) * ROWS, own = first + threadIdx.x / WAVE * 16;
    Saved saved = all.at(head, call);
    Left queries[STEPS], grads[STEPS];
    Sum to_q[STEPS];
    float lse[LINES], inner[LINES];
    left_rows(queries, saved.q, own, call.tq, call.d);
    left_rows(grads, saved.grad, own, call.tq, call.d);
    clear(to_q);
#pragma unroll
    for (int slot = 0; slot < LINES; slot++) {
        u32 row = own + line_of(2 * slot);
        lse[slot] = row < call.tq ? saved.lse[row] : 0.0f;
        inner[slot] = row < call.tq ? saved.inner[row] : 0.0f;
    }
    auto fetch = [&](u32 key, u32 stage) {
        keys[stage].fetch(saved.k, key, call.tk, call.d);
        values[stage].fetch(saved.v, key, call.tk, call.d);
    };
    auto use = [&](u32 key, u32 stage) {
#pragma unroll 1
        for (u32 n = 0; n < KEYS; n += 16) {
            Sum s[1], ds[1];
            clear(s);
            clear(ds);
            add_scores(s[0], queries, keys[stage], n);
            add_scores(ds[0], grads, values[stage], n);
            bool all = all_seen(call, own, key + n, 16);
#pragma unroll
            for (int i = 0; i < ITEMS; i++) {
                bool seen = all || call.sees(own + line_of(i), key + n + column_of(i));
                float p = weight(s[0].at[i], lse[slot_of(i)], seen, call.scale);
                ds[0].at[i] = call.scale * p * (ds[0].at[i] - inner[slot_of(i)]);
            }
            add_weighed(to_q, rounded(ds[0]), keys[stage], n);
        }
    };
    walk(0, call.keys(first, ROWS), KEYS, fetch, use);
    put(dq + (u64)head * call.tq * call.d, to_q, own, call.tq, call.d);
}

// Blocks that share a multiprocessor: on NVIDIA, the registers of four blocks of narrow heads fit; from compute capability 9.0 on the
// compiler needs a few more than that leaves. (On 9.0 itself, attention_warpgroup.cu takes the place of these kernels.)
#if defined(__HIP_PLATFORM_AMD__)
#define BLOCKS(WIDTH) 1
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BLOCKS(WIDTH) ((WIDTH) <= 64 ? 3 : 1)
#else
#define BLOCKS(WIDTH) ((WIDTH) <= 64 ? 4 : 1)
#endif

#define ATTENTION(WIDTH)                                                                                              \
    extern "C" __global__ void __launch_bounds__(WAVES* WAVE, BLOCKS(WIDTH))                                          \
        attention_bf16_##WIDTH(float* out, float* lse, const u16* q, const u16* k, const u16* v, u32 tq, u32 tk,      \
                               u32 d, u32 causal, float scale) {                                                      \
        Call call = {tq, tk, d, causal, scale};                                                                       \
        forward<WIDTH>(out, lse, q, k, v, call);                                                                      \
    }                                                                                                                 \
    LARGE_KERNEL attention_bf16_keys_##WIDTH(float* dk, float* dv, const u16* q, const u16* k, const u16* v,          \
                                             const u16* grad, const float* lse, const float* inner, u32 tq, u32 tk,   \
                                             u32 d, u32 causal, float scale) {                                        \
        Call call = {tq, tk, d, causal, scale};                                                                       \
        Saved saved = {q, k, v, grad, lse, inner};                                                                    \
        backward_keys<WIDTH>(dk, dv, saved, call);                                                                    \
    }                                                                                                                 \
    LARGE_KERNEL attention_bf16_queries_##WIDTH(float* dq, const u16* q, const u16* k, const u16* v, const u16* grad, \
                                                const float* lse, const float* inner, u32 tq, u32 tk, u32 d,          \
                                                u32 causal, float scale) {                                            \
        Call call = {tq, tk, d, causal, scale};                                                                       \
        Saved saved = {q, k, v, grad, lse, inner};                                                                    \
        backward_queries<WIDTH>(dq, saved, call);                                                                     \
    }

ATTENTION(32)
ATTENTION(64)
ATTENTION(128)

// The gradient of the result rounded to bf16, and sum g o of each row with it; ROW_LANES neighbours share a row.
#define ROW_LANES 16
KERNEL attention_bf16_inner(float* __restrict__ inner, u16* __restrict__ rounded_grad, const float* __restrict__ grad,
                            const float* __restrict__ out, u64 rows, u64 width) {
    u64 row = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / ROW_LANES;
    u32 lane = threadIdx.x % ROW_LANES;
    float total = 0.0f;
    if (row < rows && width % 4 == 0) {
        for (u64 quad = row * width / 4 + lane; quad < (row + 1) * width / 4; quad += ROW_LANES) {
            Four g = load4(grad, quad), o = load4(out, quad);
            Pack<u16, 4> narrow;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                narrow.v[i] = as_bf16(g.v[i]);
                total = fmaf(of_bf16(narrow.v[i]), o.v[i], total);
            }
            ((Pack<u16, 4>*)rounded_grad)[quad] = narrow;
        }
    } else if (row < rows) {
        for (u64 i = row * width + lane; i < (row + 1) * width; i += ROW_LANES) {
            u16 g = as_bf16(grad[i]);
            rounded_grad[i] = g;
            total = fmaf(of_bf16(g), out[i], total);
        }
    }
#pragma unroll
    for (int by = ROW_LANES / 2; by > 0; by /= 2) total += exchanged(total, by);
    if (row < rows && lane == 0) inner[row] = total;
}
