// What the emulator's Rust side, its engine and a compiled kernel agree on. `src/run.rs` mirrors the structs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay_emulator {

struct Index3 {
    uint32_t x, y, z;
};

// A kernel as its module describes it: one entry that takes the arguments as cuLaunchKernel is given them.
struct Kernel {
    void (*call)(void **arguments);
    uint32_t parameters;
    // The size of each parameter in bytes.
    uint32_t sizes[64];
    // What __launch_bounds__ allows; 0 where it says nothing.
    uint32_t threads;
};

// An allocation, from its first address up to `to`.
struct Extent {
    uint64_t from, to;
};

// One launch. The device's memory is one range of addresses; `shadow` has a byte for each of its bytes, and `extents`
// are the allocations in the order of their addresses.
struct Launch {
    void (*call)(void **arguments);
    void **arguments;
    Index3 grid, block;
    uint32_t dynamic_shared;
    uint32_t wave;
    // 0 runs blocks and threads in their order; anything else, in an order that it determines.
    uint64_t seed;
    uintptr_t device;
    uint64_t device_bytes;
    uint8_t *shadow;
    const Extent *extents;
    uint64_t extent_count;
};

// The shadow of a byte that was written; everything else is 0.
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

// What went wrong, where, and in whose hands.
struct Fault {
    Problem problem;
    uint32_t bytes;
    uint64_t address;
    uint32_t write;
    Index3 block, thread;
    char text[160];
};

}  // namespace assay_emulator

// The engine's services to the vocabulary.
extern "C" {
void assay_barrier(void);
// The number of threads of the block for which `predicate` is not zero.
unsigned assay_barrier_count(int predicate);
// Meets the lanes of `mask` and gives back what lane `source` brought. `kind` tells one instruction from another.
uint64_t assay_exchange(int kind, uint64_t mask, uint64_t value, unsigned source);
// Meets the lanes of `mask`; bit i of the answer is lane i's predicate.
uint64_t assay_ballot(uint64_t mask, int predicate);
// Meets all lanes of the wave. `work` is called once, with what each lane brought, and writes into it what it gets.
void assay_together(void *operands, void (*work)(void *const *lanes));
// Whether this is the block's shared memory.
bool assay_is_shared(const void *address);
// Notes a copy of this thread, and gives back the one that was noted first, until there is none.
void assay_copy_later(void *to, const void *from, unsigned bytes);
bool assay_copy_due(void **to, const void **from, unsigned *bytes);
uint64_t assay_active(void);
unsigned assay_lane(void);
void *assay_dynamic_shared(void);
// Says that an atomic instruction reads and writes here.
void assay_atomic(volatile void *address, unsigned bytes);
[[noreturn]] void assay_trap(const char *text);
}
