// The keywords and functions of CUDA C++ and HIP that kernels use, for the host's compiler. It is prepended to each
// kernel's source; `src/compile.rs` handles `__global__`, `__launch_bounds__` and dynamic shared memory.
#pragma once

#include <math.h>

#include <utility>

#include "engine.hpp"

// Kernels that use an instruction of a device test this macro, and call an equivalent function.
#define ASSAY_GPU_EMULATOR 1
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
// Per block: blocks run one after the other, so one copy is sufficient.
#define __shared__ static

struct dim3 {
    unsigned x, y, z;
};

extern "C" {
// The engine sets these before a thread runs.
extern assay_emulator::Index3 threadIdx, blockIdx, blockDim, gridDim;
unsigned assay_wave(void);
}

// The arguments are in the caller's memory, not on the device.
#define ASSAY_NO_CHECK __attribute__((no_sanitize("thread"), noinline))

namespace assay_emulator {
template <class... P>
struct Entry {
    template <void (*KERNEL)(P...), size_t... I>
    ASSAY_NO_CHECK static void call(void **arguments, std::index_sequence<I...>) {
        KERNEL(*static_cast<std::remove_cv_t<P> *>(arguments[I])...);
    }
    template <void (*KERNEL)(P...)>
    ASSAY_NO_CHECK static void entry(void **arguments) {
        call<KERNEL>(arguments, std::index_sequence_for<P...>{});
    }
};

template <auto KERNEL, class... P>
constexpr Kernel describe(void (*)(P...), uint32_t threads) {
    static_assert(sizeof...(P) <= 64, "the emulator takes 64 parameters at most");
    return Kernel{Entry<P...>::template entry<KERNEL>, static_cast<uint32_t>(sizeof...(P)), {sizeof(P)...}, threads};
}
}  // namespace assay_emulator

#define warpSize (static_cast<int>(assay_wave()))

#include "numbers.hpp"
#include "warps.hpp"
#include "copies.hpp"
#include "matrices.hpp"
