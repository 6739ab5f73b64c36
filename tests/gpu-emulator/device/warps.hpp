// Collective operations of threads: barriers, shuffles, votes, atomics.
#pragma once

static inline void __syncthreads() { assay_barrier(); }
static inline int __syncthreads_count(int predicate) { return static_cast<int>(assay_barrier_count(predicate)); }
static inline int __syncthreads_or(int predicate) { return assay_barrier_count(predicate) != 0; }
static inline int __syncthreads_and(int predicate) { return assay_barrier_count(!predicate) == 0; }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}

namespace assay_emulator {
enum Kind { SHUFFLE = 1, UP = 2, DOWN = 3, XOR = 4, MEET = 5 };

template <class T>
static inline T exchange(int kind, uint64_t mask, T value, unsigned source) {
    static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = assay_exchange(kind, mask, bits, source);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

// The source lane of each form of shuffle; the lane itself if the source is outside of its group of `width` lanes.
static inline unsigned from_lane(int lane, int width) {
    const unsigned self = assay_lane(), base = self - self % static_cast<unsigned>(width);
    return base + static_cast<unsigned>(lane) % static_cast<unsigned>(width);
}
static inline unsigned from_up(unsigned by, int width) {
    const unsigned self = assay_lane();
    return self % static_cast<unsigned>(width) >= by ? self - by : self;
}
static inline unsigned from_down(unsigned by, int width) {
    const unsigned self = assay_lane();
    return self % static_cast<unsigned>(width) + by < static_cast<unsigned>(width) ? self + by : self;
}
static inline unsigned from_xor(int by, int width) {
    const unsigned self = assay_lane(), other = self ^ static_cast<unsigned>(by);
    const unsigned end = self - self % static_cast<unsigned>(width) + static_cast<unsigned>(width);
    return other < end ? other : self;
}
}  // namespace assay_emulator

template <class T>
static inline T __shfl_sync(uint64_t mask, T value, int lane, int width = warpSize) {
    return assay_emulator::exchange(assay_emulator::SHUFFLE, mask, value, assay_emulator::from_lane(lane, width));
}
template <class T>
static inline T __shfl_up_sync(uint64_t mask, T value, unsigned by, int width = warpSize) {
    return assay_emulator::exchange(assay_emulator::UP, mask, value, assay_emulator::from_up(by, width));
}
template <class T>
static inline T __shfl_down_sync(uint64_t mask, T value, unsigned by, int width = warpSize) {
    return assay_emulator::exchange(assay_emulator::DOWN, mask, value, assay_emulator::from_down(by, width));
}
template <class T>
static inline T __shfl_xor_sync(uint64_t mask, T value, int by, int width = warpSize) {
    return assay_emulator::exchange(assay_emulator::XOR, mask, value, assay_emulator::from_xor(by, width));
}
static inline void __syncwarp(uint64_t mask = ~uint64_t{0}) {
    assay_emulator::exchange(assay_emulator::MEET, mask, 0, assay_lane());
}

#if defined(__HIP_PLATFORM_AMD__)
// AMD's lanes run in lockstep: no mask, and 64-bit votes.
template <class T>
static inline T __shfl(T value, int lane, int width = warpSize) { return __shfl_sync(~uint64_t{0}, value, lane, width); }
template <class T>
static inline T __shfl_up(T value, unsigned by, int width = warpSize) {
    return __shfl_up_sync(~uint64_t{0}, value, by, width);
}
template <class T>
static inline T __shfl_down(T value, unsigned by, int width = warpSize) {
    return __shfl_down_sync(~uint64_t{0}, value, by, width);
}
template <class T>
static inline T __shfl_xor(T value, int by, int width = warpSize) {
    return __shfl_xor_sync(~uint64_t{0}, value, by, width);
}
static inline unsigned long long __ballot(int predicate) { return assay_ballot(~uint64_t{0}, predicate); }
static inline int __any(int predicate) { return __ballot(predicate) != 0; }
static inline int __all(int predicate) { return __ballot(!predicate) == 0; }
#else
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return static_cast<unsigned>(assay_ballot(mask, predicate));
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
static inline unsigned __activemask() { return static_cast<unsigned>(assay_active()); }
#endif

// Atomics. One thread runs at a time, and none is interrupted here.
#define ASSAY_ATOMIC(T, NAME, VALUE)                                          \
    ASSAY_NO_CHECK static T atomic##NAME(T *p, T x) {                         \
        assay_atomic(p, sizeof(T));                                           \
        const T old = *p;                                                     \
        *p = VALUE;                                                           \
        return old;                                                           \
    }
#define ASSAY_ATOMICS(T)                                                      \
    ASSAY_ATOMIC(T, Add, old + x)                                             \
    ASSAY_ATOMIC(T, Max, old < x ? x : old)                                   \
    ASSAY_ATOMIC(T, Min, x < old ? x : old)                                   \
    ASSAY_ATOMIC(T, Exch, x)
ASSAY_ATOMICS(int)
ASSAY_ATOMICS(unsigned)
ASSAY_ATOMICS(unsigned long long)
ASSAY_ATOMIC(int, Or, old | x)
ASSAY_ATOMIC(unsigned, Or, old | x)
ASSAY_ATOMIC(int, And, old & x)
ASSAY_ATOMIC(unsigned, And, old & x)
ASSAY_ATOMIC(float, Add, old + x)
ASSAY_ATOMIC(float, Exch, x)
ASSAY_ATOMIC(double, Add, old + x)
#undef ASSAY_ATOMICS
#undef ASSAY_ATOMIC
template <class T>
ASSAY_NO_CHECK static T atomicCAS(T *p, T expected, T x) {
    assay_atomic(p, sizeof(T));
    const T old = *p;
    if (old == expected) *p = x;
    return old;
}

static inline void __trap() { assay_trap("__trap() was called"); }
#undef assert
#define assert(CONDITION) ((CONDITION) ? (void)0 : assay_trap("assertion failed: " #CONDITION))
