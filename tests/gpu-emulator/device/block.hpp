// A running block: its threads, what they wait for, and their shared memory.
#pragma once

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "engine.hpp"
#include "fibers.hpp"

namespace assay_emulator {

enum class State : uint8_t { Ready, AtBarrier, AtExchange, Ended };

// A copy that has not completed.
struct Copy {
    void *to;
    const void *from;
    unsigned bytes;
};

struct Thread {
    Context context;
    State state;
    uint32_t number, lane, warp;
    Index3 index;
    // The operand and the result of the operation at which it waits.
    int kind;
    uint64_t mask, value, answer;
    uint32_t source;
    // An operation of the whole wave: this lane's operand, and the function for all operands.
    void *operands;
    void (*work)(void *const *lanes);
    // Asynchronous copies, and how many of them have completed.
    uint32_t asked, arrived;
};

// The last writer and readers of a byte of shared memory. Epochs count barriers, over all blocks; steps count the
// synchronising operations of a warp. Two accesses with neither between them are unordered.
struct Cell {
    uint32_t write_epoch, read_epoch;
    uint32_t write_step, read_step;
    uint16_t writer, reader, reader_warp;
};

constexpr uint16_t MANY = 0xffff;
constexpr uint32_t THREADS = 1024;
// The maximum number of outstanding copies of a thread.
constexpr uint32_t COPIES = 256;
constexpr uint32_t DYNAMIC = 256 * 1024;

struct Random {
    uint64_t state;
    // SplitMix64 (Steele, Lea and Flood, 2014).
    uint64_t next() {
        state += 0x9e3779b97f4a7c15u;
        uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    uint32_t below(uint32_t limit) { return static_cast<uint32_t>(next() % limit); }
};

// The state of the engine. It must not be in .bss, which contains the kernel's shared memory.
struct Engine {
    const Launch *launch;
    Fault *fault;
    bool failed, running;
    Random random;
    Stacks stacks;
    Context scheduler;
    Thread *threads, *current;
    uint32_t count, warps;
    Index3 block;
    uint32_t epoch, first_epoch;
    uint32_t *steps;
    Copy *copies;
    unsigned counted;
    // Shared memory: static from the kernel, and dynamic from the launch.
    uintptr_t declared;
    size_t declared_bytes;
    char *dynamic;
    Cell *declared_cells, *dynamic_cells;
    sigjmp_buf escape;
};

extern Engine engine;

static inline Engine *the() { return &engine; }

// Records a problem of the current thread; only the first one is kept.
static inline void note(Problem problem, uintptr_t address, uint32_t bytes, bool write, const char *text) {
    Engine *e = the();
    if (e->failed) return;
    e->failed = true;
    Fault *f = e->fault;
    f->problem = problem;
    f->address = address;
    f->bytes = bytes;
    f->write = write;
    f->block = e->block;
    f->thread = e->current ? e->current->index : Index3{0, 0, 0};
    snprintf(f->text, sizeof f->text, "%s", text);
}

// Ends the current thread.
[[noreturn]] static inline void abandon() {
    Engine *e = the();
    Thread *self = e->current;
    context_switch(&self->context, &e->scheduler);
    __builtin_unreachable();
}

void yield_now();

}  // namespace assay_emulator
