// Attention and its gradient, tile by tile, with an online softmax (Dao et al., 2022).
//
// A block of 256 threads, 16 by 16, has a tile of 64 queries (or, for the gradients of keys and values, of 64 keys) and walks
// the tiles of the other side. Scores are products over the width d, taken 32 columns at a time; what is summed over
// keys (or queries) is taken 64 columns at a time. A thread has four by four of either. The width is at most 64 CHUNKS.
// No sum is shared between blocks, so the order of each is decided by the shape; scores are computed again where they are needed.
//
// Everything here is f32 arithmetic on the plain cores, which bounds it at their rate (on an H200 67 of the 989 TFLOP/s that
// its data sheet gives for bf16 on tensor cores). attention_bf16.cu does the same on tensor cores, for operands that are bf16.
#include "attention.h"

#define TILE 64
// The distance between rows in shared memory, of 32 and of 64 columns: rows of one warp start on different banks.
#define NARROW 36
#define WIDE 68

// What a block keeps in shared memory: scores or weights, and the operands of a product.
struct Shared {
    Quad weights[TILE * WIDE / 4];
    Quad operands[2 * TILE * NARROW / 4];
    float parts[TILE][4];
    float factors[TILE];
};

DEVICE u32 thread_of() { return threadIdx.y * 16 + threadIdx.x; }

// Rows `first` and on of x [rows, d], from column `column` on, to shared memory; zeros beyond either end.
template <int COLUMNS, int STRIDE>
DEVICE void fetch(float* tile, const float* __restrict__ x, u32 first, u32 rows, u32 column, u32 d) {
    for (u32 i = thread_of(); i < TILE * COLUMNS; i += THREADS) {
        u32 row = i / COLUMNS, at = column + i % COLUMNS;
        bool there = first + row < rows && at < d;
        tile[row * STRIDE + i % COLUMNS] = there ? x[(u64)(first + row) * d + at] : 0.0f;
    }
}

DEVICE Quad four(const float* x) { return *(const Quad*)x; }

// s[i][j] += left row (y + 16 i) . right row (x + 16 j), over 32 columns
DEVICE void add_scores(float (&s)[4][4], const float* left, const float* right) {
#pragma unroll
    for (int c = 0; c < 32; c += 4) {
        Quad a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i] = four(left + (threadIdx.y + 16 * i) * NARROW + c);
            b[i] = four(right + (threadIdx.x + 16 * i) * NARROW + c);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = fmaf(a[i].x, b[j].x, s[i][j]);
                s[i][j] = fmaf(a[i].y, b[j].y, s[i][j]);
                s[i][j] = fmaf(a[i].z, b[j].z, s[i][j]);
                s[i][j] = fmaf(a[i].w, b[j].w, s[i][j]);
            }
        }
    }
}

// s = rows of left . rows of right over all d columns
DEVICE void scores(float (&s)[4][4], Shared& shared, const float* left, u32 first_left, u32 rows_left,
                   const float* right, u32 first_right, u32 rows_right, u32 d) {
    float *a = (float*)shared.operands, *b = a + TILE * NARROW;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) s[i][j] = 0.0f;
    }
    for (u32 column = 0; column < d; column += 32) {
        __syncthreads();
        fetch<32, NARROW>(a, left, first_left, rows_left, column, d);
        fetch<32, NARROW>(b, right, first_right, rows_right, column, d);
        __syncthreads();
        add_scores(s, a, b);
    }
    // Whoever writes to the operands or the weights next finds that all have read them.
    __syncthreads();
}

DEVICE void keep(Shared& shared, const float (&s)[4][4]) {
    float* weights = (float*)shared.weights;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 4; j++) weights[(threadIdx.y + 16 * i) * WIDE + threadIdx.x + 16 * j] = s[i][j];
    }
}

DEVICE void add_scaled(float (&o)[4], float by, const Quad& v) {
    o[0] = fmaf(by, v.x, o[0]);
    o[1] = fmaf(by, v.y, o[1]);
    o[2] = fmaf(by, v.z, o[2]);
    o[3] = fmaf(by, v.w, o[3]);
}

// o[i] += sum over k of weights[y + 16 i][k] x[k], for the columns 4 threadIdx.x and on of each 64 of x [rows, d].
template <int CHUNKS>
DEVICE void add_rows(float (&o)[CHUNKS][4][4], Shared& shared, const float* x, u32 first, u32 rows, u32 d) {
    float *weights = (float*)shared.weights, *tile = (float*)shared.operands;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        fetch<64, WIDE>(tile, x, first, rows, chunk * 64, d);
        __syncthreads();
        for (u32 k = 0; k < TILE; k += 4) {
            Quad v[4];
#pragma unroll
            for (int j = 0; j < 4; j++) v[j] = four(tile + (k + j) * WIDE + 4 * threadIdx.x);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                Quad w = four(weights + (threadIdx.y + 16 * i) * WIDE + k);
                add_scaled(o[chunk][i], w.x, v[0]);
                add_scaled(o[chunk][i], w.y, v[1]);
                add_scaled(o[chunk][i], w.z, v[2]);
                add_scaled(o[chunk][i], w.w, v[3]);
            }
        }
        __syncthreads();
    }
}

// o[i] += sum over k of weights[k][4 y + i] x[k]: the transpose.
template <int CHUNKS>
DEVICE void add_columns(float (&o)[CHUNKS][4][4], Shared& shared, const float* x, u32 first, u32 rows, u32 d) {
    float *weights = (float*)shared.weights, *tile = (float*)shared.operands;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        fetch<64, WIDE>(tile, x, first, rows, chunk * 64, d);
        __syncthreads();
#pragma unroll 4
        for (u32 k = 0; k < TILE; k++) {
            Quad v = four(tile + k * WIDE + 4 * threadIdx.x), w = four(weights + k * WIDE + 4 * threadIdx.y);
            add_scaled(o[chunk][0], w.x, v);
            add_scaled(o[chunk][1], w.y, v);
            add_scaled(o[chunk][2], w.z, v);
            add_scaled(o[chunk][3], w.w, v);
        }
        __syncthreads();
    }
}

// Writes a thread's part of rows `first` and on of y [rows, d]; row(i) is the row of o[i].
template <int CHUNKS>
DEVICE void put(float* y, const float (&o)[CHUNKS][4][4], u32 first, u32 rows, u32 d, bool transposed) {
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        for (int i = 0; i < 4; i++) {
            u32 row = first + (transposed ? 4 * threadIdx.y + i : threadIdx.y + 16 * i);
            for (u32 j = 0; j < 4; j++) {
                u32 column = chunk * 64 + 4 * threadIdx.x + j;
                if (row < rows && column < d) y[(u64)row * d + column] = o[chunk][i][j];
            }
        }
    }
}

template <int CHUNKS>
DEVICE void clear(float (&o)[CHUNKS][4][4]) {
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < 4; j++) o[chunk][i][j] = 0.0f;
        }
    }
}

// The running softmax of a row, which four neighbouring threads share: each has every fourth of its scores.
struct Running {
    float peak, sum;
};

// Turns the tile's scores into e^(score - peak), and gives the factor that scales what was summed below the old peak.
DEVICE void absorb(Running& running, Shared& shared) {
    u32 row = thread_of() / 4, part = thread_of() % 4;
    float* scores = (float*)shared.weights + row * WIDE + part;
    float best = running.peak;
    for (int i = 0; i < 64; i += 4) best = Larger::of(best, scores[i]);
    shared.parts[row][part] = best;
    __syncthreads();
    for (int i = 0; i < 4; i++) best = Larger::of(best, shared.parts[row][i]);
    // At the first tile the old peak is minus infinity, and the factor 0.
    float factor = expf(running.peak - best), total = 0.0f;
    for (int i = 0; i < 64; i += 4) {
        float weight = expf(scores[i] - best);
        scores[i] = weight;
        total += weight;
    }
    running.sum = fmaf(running.sum, factor, total);
    running.peak = best;
    if (part == 0) shared.factors[row] = factor;
    __syncthreads();
}

template <int CHUNKS>
DEVICE void forward(float* out, float* lse, const float* q, const float* k, const float* v, Call call) {
    __shared__ Shared shared;
    u32 tiles = (call.tq + TILE - 1) / TILE, head = blockIdx.x / tiles;
    // The tiles that see the most keys come first, so that the last blocks to start are short.
    u32 first = (tiles - 1 - blockIdx.x % tiles) * TILE;
    u64 queries = (u64)head * call.tq, keys = (u64)head * call.tk;
    q += queries * call.d;
    k += keys * call.d;
    v += keys * call.d;
    float o[CHUNKS][4][4], s[4][4];
    clear(o);
    Running running = {MINUS_INFINITY, 0.0f};
    for (u32 key = 0; key < call.keys(first, TILE); key += TILE) {
        scores(s, shared, q, first, call.tq, k, key, call.tk, call.d);
        for (u32 i = 0; i < 4; i++) {
            for (u32 j = 0; j < 4; j++) {
                // Rows behind the last query see key 0, so that their sums are numbers; nothing of them is stored.
                bool seen = call.sees(first + threadIdx.y + 16 * i, key + threadIdx.x + 16 * j);
                bool spare = first + threadIdx.y + 16 * i >= call.tq;
                s[i][j] = seen ? s[i][j] * call.scale : (spare ? 0.0f : MINUS_INFINITY);
            }
        }
        keep(shared, s);
        __syncthreads();
        absorb(running, shared);
        for (int i = 0; i < 4; i++) {
            float factor = shared.factors[threadIdx.y + 16 * i];
            for (int chunk = 0; chunk < CHUNKS; chunk++) {
                for (int j = 0; j < 4; j++) o[chunk][i][j] *= factor;
            }
        }
        add_rows(o, shared, v, key, call.tk, call.d);
    }
    u32 row = thread_of() / 4, part = thread_of() % 4;
    shared.parts[row][part] = running.sum;
    __syncthreads();
    float total = shared.parts[row][0] + shared.parts[row][1] + shared.parts[row][2] + shared.parts[row][3];
    if (part == 0) {
        shared.factors[row] = 1.0f / total;
        if (first + row < call.tq) lse[queries + first + row] = running.peak + logf(total);
    }
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        float factor = shared.factors[threadIdx.y + 16 * i];
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            for (int j = 0; j < 4; j++) o[chunk][i][j] *= factor;
        }
    }
    put(out + queries * call.d, o, first, call.tq, call.d, false);
}

// The operands of the gradient, of one head.
struct Saved {
    const float *q, *k, *v, *grad, *lse;
    const float* inner;

    DEVICE Saved at(u32 head, const Call& call) const {
        u64 queries = (u64)head * call.tq, keys = (u64)head * call.tk, d = call.d;
        Saved s = {q + queries * d, k + keys * d, v + keys * d, grad + queries * d, lse + queries, inner + queries};
        return s;
    }
};

// The weights p = e^(scale q k - lse) of a tile, and ds = scale p (grad v - inner).
DEVICE void weigh(float (&p)[4][4], float (&ds)[4][4], Shared& shared, const Saved& saved, u32 query, u32 key,
                  const Call& call) {
    scores(p, shared, saved.q, query, call.tq, saved.k, key, call.tk, call.d);
    scores(ds, shared, saved.grad, query, call.tq, saved.v, key, call.tk, call.d);
    for (u32 i = 0; i < 4; i++) {
        u32 row = query + threadIdx.y + 16 * i;
        float lse = row < call.tq ? saved.lse[row] : 0.0f, inner = row < call.tq ? saved.inner[row] : 0.0f;
        for (u32 j = 0; j < 4; j++) {
            bool seen = call.sees(row, key + threadIdx.x + 16 * j);
            p[i][j] = seen ? expf(fmaf(p[i][j], call.scale, -lse)) : 0.0f;
            ds[i][j] = call.scale * p[i][j] * (ds[i][j] - inner);
        }
    }
}

// dV = P^T G and dK = dS^T Q of a tile of keys.
template <int CHUNKS>
DEVICE void backward_keys(float* dk, float* dv, Saved all, Call call) {
    __shared__ Shared shared;
    u32 tiles = (call.tk + TILE - 1) / TILE, head = blockIdx.x / tiles, first = blockIdx.x % tiles * TILE;
    Saved saved = all.at(head, call);
    float to_k[CHUNKS][4][4], to_v[CHUNKS][4][4], p[4][4], ds[4][4];
    clear(to_k);
    clear(to_v);
    for (u32 query = call.queries(first, TILE); query < call.tq; query += TILE) {
        weigh(p, ds, shared, saved, query, first, call);
        keep(shared, p);
        add_columns(to_v, shared, saved.grad, query, call.tq, call.d);
        keep(shared, ds);
        add_columns(to_k, shared, saved.q, query, call.tq, call.d);
    }
    u64 keys = (u64)head * call.tk * call.d;
    put(dk + keys, to_k, first, call.tk, call.d, true);
    put(dv + keys, to_v, first, call.tk, call.d, true);
}

// dQ = dS K of a tile of queries.
template <int CHUNKS>
DEVICE void backward_queries(float* dq, Saved all, Call call) {
    __shared__ Shared shared;
    u32 tiles = (call.tq + TILE - 1) / TILE, head = blockIdx.x / tiles;
    u32 first = (tiles - 1 - blockIdx.x % tiles) * TILE;
    Saved saved = all.at(head, call);
    float to_q[CHUNKS][4][4], p[4][4], ds[4][4];
    clear(to_q);
    for (u32 key = 0; key < call.keys(first, TILE); key += TILE) {
        weigh(p, ds, shared, saved, first, key, call);
        keep(shared, ds);
        add_rows(to_q, shared, saved.k, key, call.tk, call.d);
    }
    put(dq + (u64)head * call.tq * call.d, to_q, first, call.tq, call.d, false);
}

#define ATTENTION(WIDTH, CHUNKS)                                                               \
    LARGE_KERNEL attention_##WIDTH(float* out, float* lse, const float* q, const float* k, const float* v, u32 tq, \
                             u32 tk, u32 d, u32 causal, float scale) {                         \
        Call call = {tq, tk, d, causal, scale};                                                \
        forward<CHUNKS>(out, lse, q, k, v, call);                                              \
    }                                                                                          \
    LARGE_KERNEL attention_keys_##WIDTH(float* dk, float* dv, const float* q, const float* k, const float* v, \
                                  const float* grad, const float* lse, const float* inner, u32 tq, u32 tk, u32 d, \
                                  u32 causal, float scale) {                                   \
        Call call = {tq, tk, d, causal, scale};                                                \
        Saved saved = {q, k, v, grad, lse, inner};                                             \
        backward_keys<CHUNKS>(dk, dv, saved, call);                                            \
    }                                                                                          \
    LARGE_KERNEL attention_queries_##WIDTH(float* dq, const float* q, const float* k, const float* v, \
                                     const float* grad, const float* lse, const float* inner, u32 tq, u32 tk, u32 d, \
                                     u32 causal, float scale) {                                \
        Call call = {tq, tk, d, causal, scale};                                                \
        Saved saved = {q, k, v, grad, lse, inner};                                             \
        backward_queries<CHUNKS>(dq, saved, call);                                             \
    }

ATTENTION(64, 1)
ATTENTION(128, 2)
ATTENTION(256, 4)

// sum x y of each row; the lanes of a block share a row.
KERNEL row_products(float* __restrict__ y, const float* __restrict__ a, const float* __restrict__ b, u64 rows, u64 width) {
    __shared__ float shared[THREADS];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y;
    float total = 0.0f;
    if (row < rows) {
        for (u64 i = threadIdx.x; i < width; i += blockDim.x) {
            total = fmaf(a[row * width + i], b[row * width + i], total);
        }
    }
    total = over_lanes<Plus>(total, shared);
    if (row < rows && threadIdx.x == 0) y[row] = total;
}

// The kernels of materialised scores [heads tq, tk].

// How many keys the query of this row sees.
DEVICE u64 seen_by(u64 row, u64 tq, u64 tk, u32 causal) { return causal ? row % tq + 1 + tk - tq : tk; }

// s becomes softmax(scale s) over the keys that are seen, 0 at the others; and the log-sum-exp of each row.
KERNEL weights_of_scores(float* __restrict__ s, float* __restrict__ lse, u64 rows, u64 tq, u64 tk, u32 causal, float scale) {
    __shared__ float shared[THREADS];
    u64 row = (u64)blockIdx.x * blockDim.y + threadIdx.y, start = row * tk;
    u64 seen = row < rows ? seen_by(row, tq, tk, causal) : 0;
    float peak = MINUS_INFINITY, total = 0.0f;
    for (u64 i = threadIdx.x; i < seen; i += blockDim.x) peak = Larger::of(peak, s[start + i] * scale);
    peak = over_lanes<Larger>(peak, shared);
    for (u64 i = threadIdx.x; i < seen; i += blockDim.x) total += expf(fmaf(s[start + i], scale, -peak));
    total = over_lanes<Plus>(total, shared);
    if (row >= rows) return;
    float factor = 1.0f / total;
    for (u64 i = threadIdx.x; i < tk; i += blockDim.x) {
        s[start + i] = i < seen ? expf(fmaf(s[start + i], scale, -peak)) * factor : 0.0f;
    }
    if (threadIdx.x == 0) lse[row] = peak + logf(total);
}

// s becomes the weights p = e^(scale s - lse), and dp becomes ds = scale p (dp - inner).
KERNEL gradient_of_scores(float* __restrict__ s, float* __restrict__ dp, const float* __restrict__ lse,
                          const float* __restrict__ inner, u64 rows, u64 tq, u64 tk, u32 causal, float scale) {
    u64 column = line_start();
    if (column >= tk) return;
    for (u64 row = (u64)blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += (u64)gridDim.y * blockDim.y) {
        u64 i = row * tk + column;
        float p = column < seen_by(row, tq, tk, causal) ? expf(fmaf(s[i], scale, -lse[row])) : 0.0f;
        s[i] = p;
        dp[i] = scale * p * (dp[i] - inner[row]);
    }
}
