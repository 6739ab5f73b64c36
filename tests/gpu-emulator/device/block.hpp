// A block at work: its threads, what they wait for, and the shared memory between them.
#pragma once

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "engine.hpp"
#include "fibers.hpp"

namespace assay_emulator {

enum class State : uint8_t { Ready, AtBarrier, AtExchange, Ended };

// A copy that has not arrived.
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
    // What it brought to the meeting that it waits at, and what it takes from there.
    int kind;
    uint64_t mask, value, answer;
    uint32_t source;
    // Of a meeting of the whole wave: what it brought, and what is done with what all brought.
    void *operands;
    void (*work)(void *const *lanes);
    // Copies that it has asked for, and how many of them have arrived.
    uint32_t asked, arrived;
};

// Who last wrote and read a byte of shared memory. Epochs count barriers, over all blocks; steps count the meetings of
// a warp. Two accesses with neither between them have no order.
struct Cell {
    uint32_t write_epoch, read_epoch;
    uint32_t write_step, read_step;
    uint16_t writer, reader, reader_warp;
};

constexpr uint16_t MANY = 0xffff;
constexpr uint32_t THREADS = 1024;
// Copies that a thread may have on their way.
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

// All of the engine's state. It must not lie in .bss, which belongs to the kernel's shared memory.
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
    // Shared memory: what the kernel declares, and what the launch adds.
    uintptr_t declared;
    size_t declared_bytes;
    char *dynamic;
    Cell *declared_cells, *dynamic_cells;
    sigjmp_buf escape;
};

extern Engine engine;

static inline Engine *the() { return &engine; }

// Notes a problem of the thread at work, the first one only.
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

// Leaves the thread at work for good.
[[noreturn]] static inline void abandon() {
    Engine *e = the();
    Thread *self = e->current;
    context_switch(&self->context, &e->scheduler);
    __builtin_unreachable();
}

void yield_now();

}  // namespace assay_emulator
