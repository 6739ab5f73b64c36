// Where CUDA, HIP and a host compiler differ, and nowhere else.
#pragma once

#define DEVICE __device__ __forceinline__
// A kernel that the host finds by its name. A block has 256 threads at most, which the compiler may rely on.
#define KERNEL extern "C" __global__ void __launch_bounds__(256)
// One that may take all registers: what it keeps there is worth more than a second block on the multiprocessor.
#define LARGE_KERNEL extern "C" __global__ void __launch_bounds__(256, 1)

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The float of these bits, and the bits of a float. Every one of the compilers makes a register move of them.
union Bits {
    u32 word;
    float number;
};

DEVICE float from_bits(u32 word) {
    Bits bits;
    bits.word = word;
    return bits.number;
}

DEVICE u32 to_bits(float number) {
    Bits bits;
    bits.number = number;
    return bits.word;
}

// sum + the products of the four signed bytes of a and b.
DEVICE int dot4(int a, int b, int sum) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
    return __dp4a(a, b, sum);
#else
    for (int i = 0; i < 32; i += 8) sum += (int)(i8)(a >> i) * (int)(i8)(b >> i);
    return sum;
#endif
}

// 16 bytes from global to shared memory, or 16 zeros where there is nothing. On NVIDIA (sm_80 and later) they are on their way
// while the thread goes on: after `arrived` it has its own, and after a barrier those of the others.
DEVICE void copy16(void* to, const void* from, bool there) {
#if defined(__HIP_PLATFORM_AMD__)
    u64 low = 0, high = 0;
    if (there) low = ((const u64*)from)[0], high = ((const u64*)from)[1];
    ((u64*)to)[0] = low;
    ((u64*)to)[1] = high;
#elif defined(ASSAY_GPU_EMULATOR)
    assay_cp_async_16(to, from, there ? 16 : 0);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
#endif
}

DEVICE void arrived() {
#if defined(ASSAY_GPU_EMULATOR) && !defined(__HIP_PLATFORM_AMD__)
    assay_cp_async_wait_all();
#elif !defined(__HIP_PLATFORM_AMD__)
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
