// Fibers: each thread of a block has a separate stack, and one of them runs at a time.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace assay_emulator {

// Large enough for a kernel with a few hundred local floats; a guard page is below each stack.
constexpr size_t STACK = 128 * 1024;
constexpr size_t PAGE = 4096;

#if defined(__x86_64__)

using Context = void *;

// Saves the callee-saved registers of the System V ABI on the current stack.
extern "C" void assay_switch(Context *from, Context to);
__asm__(R"(
.text
.hidden assay_switch
.type assay_switch, @function
assay_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size assay_switch, .-assay_switch
)");

// A context that starts with `entry` on the stack that ends at `top`.
static inline void context_make(Context *context, char *, char *top, void (*entry)()) {
    // After `ret` the stack must be 8 short of a multiple of 16, as after a call.
    void **sp = reinterpret_cast<void **>(top) - 1;
    *--sp = reinterpret_cast<void *>(entry);
    for (int saved = 0; saved < 6; saved++) *--sp = nullptr;
    *context = sp;
}

static inline void context_switch(Context *from, Context *to) { assay_switch(from, *to); }

#else

using Context = ucontext_t;

static inline void context_make(Context *context, char *bottom, char *top, void (*entry)()) {
    getcontext(context);
    context->uc_stack.ss_sp = bottom;
    context->uc_stack.ss_size = static_cast<size_t>(top - bottom);
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
}

static inline void context_switch(Context *from, Context *to) { swapcontext(from, to); }

#endif

// The stacks of all threads of a block, one after the other.
struct Stacks {
    char *base;
    size_t count;

    // Reserves `wanted` stacks. Memory is allocated on first access.
    bool reserve(size_t wanted) {
        if (wanted <= count) return true;
        if (base) munmap(base, count * STACK);
        void *got = mmap(nullptr, wanted * STACK, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (got == MAP_FAILED) {
            base = nullptr;
            count = 0;
            return false;
        }
        base = static_cast<char *>(got);
        count = wanted;
        for (size_t i = 0; i < count; i++) mprotect(base + i * STACK, PAGE, PROT_NONE);
        return true;
    }
    char *bottom(size_t i) const { return base + i * STACK + PAGE; }
    char *top(size_t i) const { return base + (i + 1) * STACK; }
    bool contains(uintptr_t address) const { return address - reinterpret_cast<uintptr_t>(base) < count * STACK; }
};

}  // namespace assay_emulator
