// What the kernels of attention have in common: the extents of a call, and which query sees which key.
#pragma once
#include "common.h"

struct Call {
    u32 tq, tk, d, causal;
    float scale;

    DEVICE bool sees(u32 query, u32 key) const {
        return query < tq && key < tk && (!causal || key + tq <= query + tk);
    }
    // How many keys are seen by the `rows` queries from this one on.
    DEVICE u32 keys(u32 first_query, u32 rows) const {
        u32 last = first_query + rows < tq ? first_query + rows : tq;
        return causal ? last + tk - tq : tk;
    }
    // The first query of the first tile of `rows` queries in which this key is seen.
    DEVICE u32 queries(u32 key, u32 rows) const { return causal && key + tq > tk ? (key + tq - tk) / rows * rows : 0; }
};
