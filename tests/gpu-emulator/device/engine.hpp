// The interface between the emulator's Rust side, its engine and a compiled kernel. `src/run.rs` mirrors the structs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay_emulator {

struct Index3 {
    uint32_t x, y, z;
};

// A kernel as described by its module: one entry, with the arguments of cuLaunchKernel.
struct Kernel {
    void (*call)(void **arguments);
    uint32_t parameters;
    // The size of each parameter in bytes.
    uint32_t sizes[64];
    // The limit in __launch_bounds__; 0 if it is not given.
    uint32_t threads;
};

// An allocation, from its first address up to `to`.
struct Extent {
    uint64_t from, to;
};

// One launch. The device's memory is one range of addresses; `shadow` has a byte for each of its bytes, and `extents`
// contains the allocations in the order of their addresses.
struct Launch {
    void (*call)(void **arguments);
    void **arguments;
    Index3 grid, block;
    uint32_t dynamic_shared;
    uint32_t wave;
    // 0 runs blocks and threads in their order; any other seed determines a different order.
    uint64_t seed;
    uintptr_t device;
    uint64_t device_bytes;
    uint8_t *shadow;
    const Extent *extents;
    uint64_t extent_count;
};

// The shadow of a byte that was written; the default is 0.
constexpr uint8_t INITIALISED = 2;

enum class Problem : uint32_t {
    None = 0,
    OutOfBounds = 1,
    Uninitialised = 2,
    Misaligned = 3,
    Race = 4,
    Barrier = 5,
    Trap = 6,
    Signal = 7,
};

// A fault: its kind, its address, and its thread.
struct Fault {
    Problem problem;
    uint32_t bytes;
    uint64_t address;
    uint32_t write;
    Index3 block, thread;
    char text[160];
};

}  // namespace assay_emulator

// The functions of the engine for the vocabulary.
extern "C" {
void assay_barrier(void);
// The number of threads of the block with a nonzero `predicate`.
unsigned assay_barrier_count(int predicate);
// Synchronises the lanes of `mask` and returns the value of lane `source`. `kind` distinguishes instructions.
uint64_t assay_exchange(int kind, uint64_t mask, uint64_t value, unsigned source);
// Synchronises the lanes of `mask`; bit i of the result is lane i's predicate.
uint64_t assay_ballot(uint64_t mask, int predicate);
// Synchronises all lanes of the wave. `work` is called once, with each lane's operand, and writes the results into it.
void assay_together(void *operands, void (*work)(void *const *lanes));
// Whether this is the block's shared memory.
bool assay_is_shared(const void *address);
// Records a copy of this thread, and returns the oldest one, until there is none.
void assay_copy_later(void *to, const void *from, unsigned bytes);
bool assay_copy_due(void **to, const void **from, unsigned *bytes);
uint64_t assay_active(void);
unsigned assay_lane(void);
void *assay_dynamic_shared(void);
// Declares that an atomic instruction reads and writes here.
void assay_atomic(volatile void *address, unsigned bytes);
[[noreturn]] void assay_trap(const char *text);
}
