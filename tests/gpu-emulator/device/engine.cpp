// Runs a launch: one block after the other, each thread of it on a fiber, until the barriers and warp operations at
// which they wait release them. A deadlock, a fault and a trap end the launch.

#include "block.hpp"

#include <csignal>

namespace assay_emulator {

// In .data, because .bss is the kernel's shared memory.
__attribute__((section(".data"))) Engine engine = {};

extern "C" char __bss_start __attribute__((visibility("hidden")));
extern "C" char _end __attribute__((visibility("hidden")));

extern "C" {
// The variables that a kernel reads under these names.
__attribute__((section(".data"))) Index3 threadIdx = {}, blockIdx = {}, blockDim = {}, gridDim = {};
}

static void thread_main() {
    Engine *e = the();
    e->launch->call(e->launch->arguments);
    if (e->current->asked != e->current->arrived) {
        note(Problem::Barrier, 0, 0, false, "a thread ends before its copies to shared memory have arrived");
    }
    e->current->state = State::Ended;
    abandon();
}

void yield_now() {
    Engine *e = the();
    context_switch(&e->current->context, &e->scheduler);
}

static void wait(State state) {
    the()->current->state = state;
    yield_now();
}

// The order in which the threads are scheduled.
static void order(uint32_t *turns, uint32_t count) {
    Engine *e = the();
    for (uint32_t i = 0; i < count; i++) turns[i] = i;
    if (e->launch->seed == 0) return;
    for (uint32_t i = count; i > 1; i--) {
        const uint32_t j = e->random.below(i);
        const uint32_t kept = turns[i - 1];
        turns[i - 1] = turns[j];
        turns[j] = kept;
    }
}

// If all lanes of the wave have arrived, performs their operation. Unlike a shuffle, this does not order memory accesses.
static bool meet_all(Thread *waiting) {
    Engine *e = the();
    const uint32_t wave = e->launch->wave;
    Thread *warp = e->threads + waiting->warp * wave;
    void *lanes[64];
    for (uint32_t i = 0; i < wave; i++) {
        if (waiting->warp * wave + i >= e->count || warp[i].state == State::Ended) {
            e->current = waiting;
            note(Problem::Barrier, 0, 0, false, "a product of matrices needs all lanes of the wave");
            return true;
        }
        if (warp[i].state != State::AtExchange || warp[i].work != waiting->work) return false;
        lanes[i] = warp[i].operands;
    }
    waiting->work(lanes);
    for (uint32_t i = 0; i < wave; i++) warp[i].state = State::Ready;
    return true;
}

// If all lanes that a waiting lane names have arrived, releases them with their results.
static bool meet(Thread *waiting) {
    if (waiting->work) return meet_all(waiting);
    Engine *e = the();
    const uint32_t wave = e->launch->wave;
    Thread *warp = e->threads + waiting->warp * wave;
    const uint32_t lanes = e->count - waiting->warp * wave < wave ? e->count - waiting->warp * wave : wave;
    const uint64_t mask = waiting->mask;
    uint64_t ballot = 0, present = 0;
    for (uint32_t i = 0; i < lanes; i++) {
        if (!(mask >> i & 1)) continue;
        if (warp[i].state == State::Ended) continue;
        const bool shuffles = warp[i].state == State::AtExchange && !warp[i].work;
        const bool here = shuffles && warp[i].kind == waiting->kind && warp[i].mask == mask;
        if (!here) return false;
        present |= uint64_t{1} << i;
        if (warp[i].value) ballot |= uint64_t{1} << i;
    }
    for (uint32_t i = 0; i < lanes; i++) {
        if (!(present >> i & 1)) continue;
        Thread &lane = warp[i];
        if (lane.kind < 0) {
            lane.answer = ballot;
        } else if (lane.source < lanes && (present >> lane.source & 1)) {
            lane.answer = warp[lane.source].value;
        } else {
            e->current = &lane;
            note(Problem::Barrier, lane.source, 0, false, "a shuffle takes from a lane that does not take part");
            return true;
        }
    }
    for (uint32_t i = 0; i < lanes; i++) {
        if (present >> i & 1) warp[i].state = State::Ready;
    }
    e->steps[waiting->warp]++;
    return true;
}

// Releases threads that have waited for each other. False if no thread can continue.
static bool release() {
    Engine *e = the();
    uint32_t waiting = 0, ended = 0;
    bool met = false;
    for (uint32_t i = 0; i < e->count && !e->failed; i++) {
        Thread &thread = e->threads[i];
        if (thread.state == State::AtExchange) met |= meet(&thread);
        waiting += thread.state == State::AtBarrier;
        ended += thread.state == State::Ended;
    }
    if (met || e->failed) return true;
    if (waiting == 0 || waiting + ended != e->count) return false;
    e->epoch++;
    unsigned counted = 0;
    for (uint32_t i = 0; i < e->count; i++) counted += e->threads[i].state == State::AtBarrier && e->threads[i].value;
    e->counted = counted;
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->threads[i].state == State::AtBarrier) e->threads[i].state = State::Ready;
    }
    return true;
}

static void begin_block(Index3 block) {
    Engine *e = the();
    const Index3 size = e->launch->block;
    blockIdx = e->block = block;
    blockDim = size;
    gridDim = e->launch->grid;
    e->first_epoch = ++e->epoch;
    for (uint32_t i = 0; i < e->count; i++) {
        Thread &thread = e->threads[i];
        thread.state = State::Ready;
        thread.asked = thread.arrived = 0;
        thread.number = i;
        thread.lane = i % e->launch->wave;
        thread.warp = i / e->launch->wave;
        thread.index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
        context_make(&thread.context, e->stacks.bottom(i), e->stacks.top(i), thread_main);
    }
}

static void run_block(Index3 block) {
    Engine *e = the();
    begin_block(block);
    uint32_t turns[THREADS];
    for (;;) {
        bool worked = false;
        order(turns, e->count);
        for (uint32_t i = 0; i < e->count; i++) {
            Thread &thread = e->threads[turns[i]];
            if (thread.state != State::Ready) continue;
            worked = true;
            e->current = &thread;
            threadIdx = thread.index;
            context_switch(&e->scheduler, &thread.context);
            if (e->failed) return;
        }
        if (worked) continue;
        uint32_t ended = 0;
        for (uint32_t i = 0; i < e->count; i++) ended += e->threads[i].state == State::Ended;
        if (ended == e->count) return;
        if (!release()) {
            for (uint32_t i = 0; i < e->count; i++) {
                if (e->threads[i].state != State::Ended) e->current = &e->threads[i];
            }
            note(Problem::Barrier, 0, 0, false, "threads wait for each other at different barriers or shuffles");
        }
        if (e->failed) return;
    }
}

static void on_signal(int number, siginfo_t *info, void *) {
    Engine *e = the();
    char text[64];
    snprintf(text, sizeof text, "signal %d", number);
    note(Problem::Signal, reinterpret_cast<uintptr_t>(info->si_addr), 0, false, text);
    siglongjmp(e->escape, 1);
}

// While a kernel runs, signals that it causes count as its faults.
struct Signals {
    static constexpr int NUMBERS[4] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction before[4];
    stack_t stack_before;
    void *stack;

    void take() {
        stack_t own = {};
        own.ss_size = 64 * 1024;
        own.ss_sp = stack = malloc(own.ss_size);
        sigaltstack(&own, &stack_before);
        struct sigaction action = {};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (int i = 0; i < 4; i++) sigaction(NUMBERS[i], &action, &before[i]);
    }
    void give_back() {
        for (int i = 0; i < 4; i++) sigaction(NUMBERS[i], &before[i], nullptr);
        sigaltstack(&stack_before, nullptr);
        free(stack);
    }
};

static bool prepare(const Launch *launch, Fault *fault) {
    Engine *e = the();
    e->launch = launch;
    e->fault = fault;
    e->failed = false;
    e->current = nullptr;
    e->count = launch->block.x * launch->block.y * launch->block.z;
    e->warps = (e->count + launch->wave - 1) / launch->wave;
    e->random.state = launch->seed * 0x2545f4914f6cdd1du + 1;
    e->declared = reinterpret_cast<uintptr_t>(&__bss_start);
    e->declared_bytes = static_cast<size_t>(&_end - &__bss_start);
    if (!e->threads) {
        e->threads = static_cast<Thread *>(calloc(THREADS, sizeof(Thread)));
        e->steps = static_cast<uint32_t *>(calloc(THREADS, sizeof(uint32_t)));
        e->copies = static_cast<Copy *>(calloc(THREADS * COPIES, sizeof(Copy)));
        e->declared_cells = static_cast<Cell *>(calloc(e->declared_bytes + 1, sizeof(Cell)));
        e->dynamic_cells = static_cast<Cell *>(calloc(DYNAMIC, sizeof(Cell)));
        e->dynamic = static_cast<char *>(aligned_alloc(PAGE, DYNAMIC));
    }
    const bool room = e->threads && e->steps && e->copies && e->declared_cells && e->dynamic_cells && e->dynamic;
    return room && e->stacks.reserve(e->count);
}

static void run_grid() {
    Engine *e = the();
    const Index3 grid = e->launch->grid;
    const uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    // Any order of blocks is allowed: with a seed, the start and the direction vary.
    const uint64_t start = e->launch->seed ? e->random.next() % blocks : 0;
    const bool backwards = e->launch->seed != 0 && (e->random.next() & 1);
    for (uint64_t n = 0; n < blocks && !e->failed; n++) {
        const uint64_t at = backwards ? (start + blocks - n) % blocks : (start + n) % blocks;
        run_block({static_cast<uint32_t>(at % grid.x), static_cast<uint32_t>(at / grid.x % grid.y),
                   static_cast<uint32_t>(at / grid.x / grid.y)});
    }
}

}  // namespace assay_emulator

using assay_emulator::the;

// Runs a launch to its end. False if it failed; `fault` then has the reason.
extern "C" __attribute__((visibility("default"))) bool assay_run(const assay_emulator::Launch *launch,
                                                                 assay_emulator::Fault *fault) {
    if (!assay_emulator::prepare(launch, fault)) {
        assay_emulator::note(assay_emulator::Problem::Signal, 0, 0, false, "the emulator has no memory for threads");
        return false;
    }
    assay_emulator::Signals signals;
    signals.take();
    if (sigsetjmp(the()->escape, 1) == 0) {
        the()->running = true;
        assay_emulator::run_grid();
    }
    the()->running = false;
    signals.give_back();
    return !the()->failed;
}

extern "C" {

unsigned assay_wave(void) { return the()->launch->wave; }
unsigned assay_lane(void) { return the()->current->lane; }
void *assay_dynamic_shared(void) { return the()->dynamic; }

void assay_barrier(void) {
    the()->current->value = 0;
    assay_emulator::wait(assay_emulator::State::AtBarrier);
}

unsigned assay_barrier_count(int predicate) {
    the()->current->value = predicate != 0;
    assay_emulator::wait(assay_emulator::State::AtBarrier);
    return the()->counted;
}

static uint64_t exchange(int kind, uint64_t mask, uint64_t value, unsigned source) {
    assay_emulator::Thread *self = the()->current;
    const uint64_t everybody = the()->launch->wave == 64 ? ~uint64_t{0} : 0xffffffffu;
    self->kind = kind;
    self->work = nullptr;
    self->mask = mask & everybody;
    self->value = value;
    self->source = source;
    if (!(self->mask >> self->lane & 1)) {
        assay_emulator::note(assay_emulator::Problem::Barrier, mask, 0, false, "a lane is not in its own mask");
        assay_emulator::abandon();
    }
    assay_emulator::wait(assay_emulator::State::AtExchange);
    return self->answer;
}

uint64_t assay_exchange(int kind, uint64_t mask, uint64_t value, unsigned source) {
    return exchange(kind, mask, value, source);
}

uint64_t assay_ballot(uint64_t mask, int predicate) { return exchange(-1, mask, predicate != 0, 0); }

void assay_together(void *operands, void (*work)(void *const *lanes)) {
    assay_emulator::Thread *self = the()->current;
    self->operands = operands;
    self->work = work;
    assay_emulator::wait(assay_emulator::State::AtExchange);
}

void assay_copy_later(void *to, const void *from, unsigned bytes) {
    assay_emulator::Thread *self = the()->current;
    if (self->asked == assay_emulator::COPIES) assay_trap("the emulator has no room for so many copies of a thread");
    the()->copies[self->number * assay_emulator::COPIES + self->asked++] = {to, from, bytes};
}

bool assay_copy_due(void **to, const void **from, unsigned *bytes) {
    assay_emulator::Thread *self = the()->current;
    if (self->arrived == self->asked) {
        self->arrived = self->asked = 0;
        return false;
    }
    const assay_emulator::Copy &copy = the()->copies[self->number * assay_emulator::COPIES + self->arrived++];
    *to = copy.to;
    *from = copy.from;
    *bytes = copy.bytes;
    return true;
}

bool assay_is_shared(const void *address) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(address);
    const uintptr_t dynamic = reinterpret_cast<uintptr_t>(the()->dynamic);
    return at - the()->declared < the()->declared_bytes || at - dynamic < the()->launch->dynamic_shared;
}

uint64_t assay_active(void) {
    const assay_emulator::Thread *self = the()->current;
    const uint32_t wave = the()->launch->wave, first = self->warp * wave;
    uint64_t lanes = 0;
    for (uint32_t i = 0; i < wave && first + i < the()->count; i++) {
        if (the()->threads[first + i].state != assay_emulator::State::Ended) lanes |= uint64_t{1} << i;
    }
    return lanes;
}

void assay_trap(const char *text) {
    assay_emulator::note(assay_emulator::Problem::Trap, 0, 0, false, text);
    assay_emulator::abandon();
}

}  // extern "C"
