// Vectors, and arithmetic functions with the names of both vendors.
#pragma once

#include <climits>
#include <cstring>

#define ASSAY_VECTORS(T, N, A2, A4)                                  \
    struct alignas(A2) N##2 {                                        \
        T x, y;                                                      \
    };                                                               \
    struct N##3 {                                                    \
        T x, y, z;                                                   \
    };                                                               \
    struct alignas(A4) N##4 {                                        \
        T x, y, z, w;                                                \
    };                                                               \
    static inline N##2 make_##N##2(T x, T y) { return {x, y}; }      \
    static inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; } \
    static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }

ASSAY_VECTORS(float, float, 8, 16)
ASSAY_VECTORS(int, int, 8, 16)
ASSAY_VECTORS(unsigned, uint, 8, 16)
ASSAY_VECTORS(short, short, 4, 8)
ASSAY_VECTORS(unsigned short, ushort, 4, 8)
ASSAY_VECTORS(signed char, char, 2, 4)
ASSAY_VECTORS(unsigned char, uchar, 2, 4)
ASSAY_VECTORS(double, double, 16, 16)
ASSAY_VECTORS(long long, longlong, 16, 16)
ASSAY_VECTORS(unsigned long long, ulonglong, 16, 16)
#undef ASSAY_VECTORS

#define ASSAY_ORDER(T)                                        \
    static inline T min(T a, T b) { return b < a ? b : a; }   \
    static inline T max(T a, T b) { return a < b ? b : a; }
ASSAY_ORDER(int)
ASSAY_ORDER(unsigned)
ASSAY_ORDER(long)
ASSAY_ORDER(unsigned long)
ASSAY_ORDER(long long)
ASSAY_ORDER(unsigned long long)
#undef ASSAY_ORDER
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

template <class To, class From>
static inline To assay_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
static inline int __float_as_int(float x) { return assay_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return assay_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return assay_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return assay_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return assay_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return assay_bits<double>(x); }

// The fast forms are as exact as the others here. Different rounding on a device must be tested on a device.
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
// glibc has its own functions with these names.
#define __expf expf
#define __exp10f(x) powf(10.0f, x)
#define __logf logf
#define __log2f log2f
#define __sinf sinf
#define __cosf cosf
#define __powf powf
#define __tanhf tanhf
static inline float __fdividef(float a, float b) { return a / b; }
static inline float fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// A conversion out of range gives the nearest limit, and NaN gives 0.
template <class To>
static inline To assay_rounded(float x, double low, double high) {
    if (x != x) return 0;
    const double y = x;
    return y <= low ? static_cast<To>(low) : y >= high ? static_cast<To>(high) : static_cast<To>(y);
}
static inline int __float2int_rn(float x) { return assay_rounded<int>(rintf(x), INT_MIN, INT_MAX); }
static inline int __float2int_rz(float x) { return assay_rounded<int>(truncf(x), INT_MIN, INT_MAX); }
static inline int __float2int_rd(float x) { return assay_rounded<int>(floorf(x), INT_MIN, INT_MAX); }
static inline int __float2int_ru(float x) { return assay_rounded<int>(ceilf(x), INT_MIN, INT_MAX); }
static inline unsigned __float2uint_rn(float x) { return assay_rounded<unsigned>(rintf(x), 0, UINT_MAX); }
static inline unsigned __float2uint_rz(float x) { return assay_rounded<unsigned>(truncf(x), 0, UINT_MAX); }
static inline float __int2float_rn(int x) { return static_cast<float>(x); }
static inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (x >> i & 1u) << (31 - i);
    return reversed;
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
static inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    by &= 31;
    return by ? high << by | low >> (32 - by) : high;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    by &= 31;
    return by ? low >> by | high << (32 - by) : low;
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) {
        c += static_cast<signed char>(a >> 8 * i) * static_cast<signed char>(b >> 8 * i);
    }
    return c;
}

// Loads and stores with cache hints.
template <class T>
static inline T __ldg(const T *p) { return *p; }
template <class T>
static inline T __ldcs(const T *p) { return *p; }
template <class T>
static inline T __ldcg(const T *p) { return *p; }
template <class T>
static inline void __stcs(T *p, T x) { *p = x; }
template <class T>
static inline void __stcg(T *p, T x) { *p = x; }
