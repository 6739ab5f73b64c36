// Every load and store of a kernel is checked here: the compiler's instrumentation for thread sanitizers calls these
// functions. In device memory, bounds and initialisation are checked by the byte; in shared memory, also that a barrier
// orders the accesses of several threads.

#include "block.hpp"

namespace assay_emulator {

extern "C" char __ehdr_start __attribute__((visibility("hidden")));
extern "C" char _end __attribute__((visibility("hidden")));

[[noreturn]] static void refuse(Problem problem, uintptr_t address, uint32_t bytes, bool write, const char *text) {
    note(problem, address, bytes, write, text);
    abandon();
}

static bool allocated(uintptr_t address) {
    const Launch *launch = the()->launch;
    uint64_t low = 0, high = launch->extent_count;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (launch->extents[middle].from <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && address < launch->extents[low - 1].to;
}

static void device(uintptr_t address, uint32_t bytes, bool write) {
    uint8_t *shadow = the()->launch->shadow + (address - the()->launch->device);
    for (uint32_t i = 0; i < bytes; i++) {
        if (shadow[i] == INITIALISED) continue;
        if (!allocated(address + i)) refuse(Problem::OutOfBounds, address, bytes, write, "device memory");
        if (!write) refuse(Problem::Uninitialised, address, bytes, write, "device memory");
        shadow[i] = INITIALISED;
    }
}

static bool ordered(const Thread *self, uint32_t epoch, uint16_t who, uint16_t warp, uint32_t step) {
    Engine *e = the();
    if (epoch != e->epoch || who == self->number) return true;
    return warp == self->warp && step < e->steps[self->warp];
}

static void shared(uintptr_t address, Cell *cells, uint32_t bytes, bool write) {
    Engine *e = the();
    const Thread *self = e->current;
    const uint16_t number = static_cast<uint16_t>(self->number), warp = static_cast<uint16_t>(self->warp);
    const uint32_t step = e->steps[warp];
    for (uint32_t i = 0; i < bytes; i++) {
        Cell &cell = cells[i];
        const uint16_t writer_warp = static_cast<uint16_t>(cell.writer / e->launch->wave);
        const bool written = cell.write_epoch >= e->first_epoch;
        if (written && !ordered(self, cell.write_epoch, cell.writer, writer_warp, cell.write_step)) {
            refuse(Problem::Race, address, bytes, write, "written by another thread since the last barrier");
        }
        if (write) {
            if (!ordered(self, cell.read_epoch, cell.reader, cell.reader_warp, cell.read_step)) {
                refuse(Problem::Race, address, bytes, write, "read by another thread since the last barrier");
            }
            cell.write_epoch = e->epoch;
            cell.write_step = step;
            cell.writer = number;
        } else {
            if (!written) refuse(Problem::Uninitialised, address, bytes, write, "shared memory");
            const bool first = cell.read_epoch != e->epoch;
            cell.reader = first || cell.reader == number ? number : MANY;
            cell.reader_warp = first || cell.reader_warp == warp ? warp : MANY;
            cell.read_epoch = e->epoch;
            cell.read_step = step;
        }
    }
}

static void access(const volatile void *pointer, uint32_t bytes, bool write, bool aligned) {
    Engine *e = the();
    if (!e->running || !e->current || bytes == 0) return;
    const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
    const Launch *launch = e->launch;
    const uintptr_t dynamic = reinterpret_cast<uintptr_t>(e->dynamic);
    const bool on_device = address - launch->device < launch->device_bytes;
    const bool declared = address - e->declared < e->declared_bytes;
    const bool added = address - dynamic < DYNAMIC;
    if (!on_device && !declared && !added) {
        const uintptr_t image = reinterpret_cast<uintptr_t>(&__ehdr_start);
        const bool own = e->stacks.contains(address) || address - image < static_cast<size_t>(&_end - &__ehdr_start);
        if (!own) refuse(Problem::OutOfBounds, address, bytes, write, "no memory of the device");
        return;
    }
    if (aligned && address % bytes != 0) refuse(Problem::Misaligned, address, bytes, write, "");
    if (on_device) {
        device(address, bytes, write);
    } else if (declared) {
        if (address + bytes > e->declared + e->declared_bytes) {
            refuse(Problem::OutOfBounds, address, bytes, write, "the declared shared memory");
        }
        shared(address, e->declared_cells + (address - e->declared), bytes, write);
    } else {
        if (address + bytes > dynamic + launch->dynamic_shared) {
            refuse(Problem::OutOfBounds, address, bytes, write, "the dynamic shared memory of the launch");
        }
        shared(address, e->dynamic_cells + (address - dynamic), bytes, write);
    }
    // With a seed, another thread may be scheduled here.
    if (launch->seed != 0 && (e->random.next() & 31) == 0) yield_now();
}

}  // namespace assay_emulator

using assay_emulator::access;
using assay_emulator::the;

extern "C" {

void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}

#define CHECK(BYTES)                                                                               \
    void __tsan_read##BYTES(void *p) { access(p, BYTES, false, true); }                            \
    void __tsan_write##BYTES(void *p) { access(p, BYTES, true, true); }                            \
    void __tsan_volatile_read##BYTES(void *p) { access(p, BYTES, false, true); }                   \
    void __tsan_volatile_write##BYTES(void *p) { access(p, BYTES, true, true); }                   \
    void __tsan_unaligned_read##BYTES(void *p) { access(p, BYTES, false, false); }                 \
    void __tsan_unaligned_write##BYTES(void *p) { access(p, BYTES, true, false); }
CHECK(1)
CHECK(2)
CHECK(4)
CHECK(8)
CHECK(16)
#undef CHECK

void __tsan_read_range(void *p, size_t bytes) { access(p, static_cast<uint32_t>(bytes), false, false); }
void __tsan_write_range(void *p, size_t bytes) { access(p, static_cast<uint32_t>(bytes), true, false); }

// Atomic instructions are ordered, so only bounds and initialisation are checked.
void assay_atomic(volatile void *pointer, unsigned bytes) {
    assay_emulator::Engine *e = the();
    const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
    if (address % bytes != 0) assay_emulator::refuse(assay_emulator::Problem::Misaligned, address, bytes, true, "");
    if (address - e->launch->device < e->launch->device_bytes) {
        assay_emulator::device(address, bytes, false);
        return;
    }
    const uintptr_t dynamic = reinterpret_cast<uintptr_t>(e->dynamic);
    const bool declared = address - e->declared < e->declared_bytes;
    const bool added = address - dynamic < e->launch->dynamic_shared;
    if (!declared && !added) {
        assay_emulator::refuse(assay_emulator::Problem::OutOfBounds, address, bytes, true, "no memory of the device");
    }
    assay_emulator::Cell *cells =
        declared ? e->declared_cells + (address - e->declared) : e->dynamic_cells + (address - dynamic);
    if (cells->write_epoch < e->first_epoch) {
        assay_emulator::refuse(assay_emulator::Problem::Uninitialised, address, bytes, false, "shared memory");
    }
}

}  // extern "C"
