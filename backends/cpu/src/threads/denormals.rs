//! Denormal numbers are flushed to zero while a kernel runs.
//!
//! Arithmetic on denormals is some fifty times slower on x86, and the states of a decaying recurrence pass through
//! them all the time. So the MXCSR register's flush-to-zero (results) and denormals-are-zero (operands) bits are set
//! on every thread that computes: on the pool's threads for good, on a calling thread for the length of a kernel, so
//! that the caller's own arithmetic stays as Rust defines it. On other architectures nothing is changed.
//!
//! # Formal status
//!
//! Rust does not specify programs that run with another MXCSR than the default: the compiler assumes the default floating-point
//! environment, and the intrinsics `_mm_setcsr` and `_mm_getcsr` are deprecated for this reason (see their documentation in
//! `std::arch`, which points to inline assembly instead). So this module relies on how the compiler behaves, not on what the
//! language promises:
//!
//! - The compiler may evaluate an operation on constants in advance, with denormals kept. Kernels work on data that are known at
//!   run time only; and they give right results either way, which differ by less than the smallest normal number.
//! - The compiler may move floating-point operations across the assembly, since it does not know that these depend on MXCSR. The
//!   assembly is volatile and may access memory, so loads and stores of results stay between the two changes of the mode; an
//!   operation between a load and a store that moved would flush or keep one denormal, with the same bound.
//! - No exception is unmasked and the rounding mode is unchanged, so no operation traps and no normal result differs.
//!
//! The alternative, a test of each result, costs more than the arithmetic. `tests/sanitize` compares every kernel with the
//! reference on one to three threads, bit by bit between thread counts.

/// Flush-to-zero and denormals-are-zero in MXCSR.
#[cfg(target_arch = "x86_64")]
const BITS: u32 = 1 << 15 | 1 << 6;

#[cfg(target_arch = "x86_64")]
fn read_mxcsr() -> u32 {
    let mut value = 0u32;
    // SAFETY: SSE is part of x86-64; the instruction stores MXCSR to the place given.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut value, options(nostack, preserves_flags)) };
    value
}

#[cfg(target_arch = "x86_64")]
fn write_mxcsr(value: u32) {
    // SAFETY: the value is one that was read from MXCSR, with two architectural bits set or not; no exception is
    // unmasked. The bits change the results of denormal arithmetic only, which no code in this crate relies on. The option
    // `preserves_flags` is absent, as it would promise that the floating-point environment is unchanged. What that means
    // formally stands at the head of this file.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &value, options(nostack)) };
}

/// While it lives, denormals are flushed on this thread; then the thread's mode is as it was.
#[derive(Debug)]
pub(crate) struct FlushGuard {
    #[cfg(target_arch = "x86_64")]
    before: u32,
    /// The register belongs to the thread, so the guard stays on it.
    _here: std::marker::PhantomData<*const ()>,
}

impl FlushGuard {
    /// Flushes from here to the end of the guard's scope.
    pub(crate) fn here() -> FlushGuard {
        #[cfg(target_arch = "x86_64")]
        let before = read_mxcsr();
        flush_thread();
        FlushGuard {
            #[cfg(target_arch = "x86_64")]
            before,
            _here: std::marker::PhantomData,
        }
    }
}

impl Drop for FlushGuard {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        write_mxcsr(self.before);
    }
}

/// Flushes denormals on this thread from now on.
pub(crate) fn flush_thread() {
    #[cfg(target_arch = "x86_64")]
    write_mxcsr(read_mxcsr() | BITS);
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn denormals_are_flushed_inside_and_kept_outside() {
        let product = || black_box(1e-39f32) * black_box(1.0);
        {
            let _flushed = FlushGuard::here();
            assert_eq!(product(), 0.0);
        }
        assert_ne!(product(), 0.0);
    }
}
