//! The CPU backend: our own kernels where the time goes, and memory that is used again.
//!
//! [`device`] gives a [`Device`] of f32, u32, i8, and bf16 as storage (f64 is the reference backend's). Large arrays live in huge
//! pages, and their memory is kept for the next of their size (`memory.rs`, `pages.rs`). Products are our own where the machine
//! has AVX-512 (`avx512.rs`, `pack512.rs`, `kernel512.rs`); elsewhere, and for a few rows, they are those of the crate `gemm` (`matmul.rs`).
//! Everything else is loops of our own, written once and compiled for AVX-512, for AVX2 with FMA, and for the baseline
//! (`simd.rs`); the scan alone has a second form, in vectors of AVX-512 (`scan512.rs`), and so have products of bytes
//! (`vnni.rs`).
//!
//! # Invariants
//!
//! - The same arguments give the same bits at any number of threads: threads share out independent results. Where
//!   a cut could change a result's bits, it depends on shapes alone; no sum is split between threads.
//! - On every thread that computes, the caller's included, denormal operands count as zero and denormal results become
//!   zero while a kernel runs (`flush.rs`). The caller's own mode is restored before a kernel returns.
//! - A kernel never changes what another handle sees. It writes in place only where its array is the only one on its
//!   elements.
//! - Sums over many rows are added in blocks, and long rows in 64 lanes (`reduce.rs`, `norm.rs`, `simd.rs`).
//! - No kernel panics on the contents of its arguments: ids beyond a table and targets beyond the classes are errors.
//! - `exp` is within 1.5 units of f32's epsilon, `tanh` within 2, `sigmoid` within 3 (`math.rs`, tested over the range).
//!
//! # In reading order
//!
//! `kernels.rs` is the surface; `operands.rs`, `storage.rs`, `memory.rs`, `small.rs`, `scratch.rs`, `pages.rs`, `parallel.rs`, `pool.rs`, `crew.rs`, `flush.rs`, `simd.rs`, `math.rs` and
//! `strides.rs` are what all kernels stand on; the other modules are one kind of kernel each. [`peak`] measures what no
//! kernel can exceed.

pub mod peak;

mod kernels;

mod crew;
mod flush;
mod math;
mod memory;
mod operands;
mod pages;
mod parallel;
mod pool;
mod scratch;
mod simd;
mod small;
mod storage;
mod strides;

mod adamw;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bf16;
mod convert;
mod dots;
mod elementwise;
mod epilogue;
mod feed_forward;
mod gelu;
mod heads;
mod int8;
#[cfg(target_arch = "x86_64")]
mod kernel512;
mod lanes;
mod linear;
mod matmul;
mod movement;
mod norm;
#[cfg(target_arch = "x86_64")]
mod pack512;
mod packed;
mod reduce;
mod rows;
mod scan;
#[cfg(target_arch = "x86_64")]
mod scan512;
mod selection;
mod softmax;
mod token;
mod vnni;

#[cfg(test)]
mod tests;

use assay_tensor::{Device, TensorError};

/// A device that computes on `threads` threads, the calling one included; 0 is taken as 1. With one thread no pool is
/// started. Errors when the system refuses the threads.
///
/// The environment variable `ASSAY_CPU_LEVEL` (`avx512`, `avx2`, `baseline`) limits the instruction sets of the process, so that
/// kernels for other processors can be tested; another value is an error. The products of the crate `gemm` choose for themselves.
///
/// A device's threads and memory are its own: make one and clone it.
pub fn device(threads: usize) -> Result<Device, TensorError> {
    simd::allowed()?;
    let threads = parallel::Threads::new(threads)?;
    Ok(Device::new(kernels::Cpu { threads, memory: storage::Allocator::default() }))
}
