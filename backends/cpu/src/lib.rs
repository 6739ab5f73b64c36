//! The CPU backend: kernels of our own for most operations, on a pool of threads and in memory that is used again.
//!
//! [`device`] makes a [`Device`] of f32, u32, i8, and bf16 as storage (f64 is the reference backend's). Loops are written once and
//! compiled for AVX-512, for AVX2 with FMA, and for the baseline (`simd/instructions.rs`). Matrix products, GELU and
//! int8 products have forms in AVX-512 and in AVX2 intrinsics, the scan one in AVX-512 intrinsics. At the baseline, and for a few rows,
//! matrix products are those of the crate `gemm`.
//!
//! `README.md` says which part owns which memory and which threads.
//!
//! # Invariants
//!
//! - The same arguments give the same bits at any number of threads: threads share out independent results. Where
//!   a cut could change a result's bits, it depends on shapes alone; no sum is split between threads.
//! - On every thread that computes, the caller's included, denormal operands count as zero and denormal results become
//!   zero while a kernel runs (`threads/denormals.rs`). The caller's own mode is restored before a kernel returns.
//! - A kernel never changes what another handle sees. It writes in place only where its array is the only one on its
//!   elements.
//! - Sums over many rows are added in blocks, and long rows in 64 lanes (`ops/reduce.rs`, `ops/norm.rs`, `simd/reduction.rs`).
//! - No kernel panics on the contents of its arguments: ids beyond a table and targets beyond the classes are errors.
//! - `exp` is within 1.5 units of f32's epsilon, `tanh` within 2, `sigmoid` within 3 (`simd/math.rs`, tested over the range).
//! - Modules import each other in one direction: a folder below uses only folders above it (`tests/tidy/modules.rs`).

// What all kernels stand on: vector arithmetic, threads, memory.
mod simd;
mod threads;

mod memory;

mod device;

// The operations.
mod matmul;

mod ops;

// The surface: `assay_tensor::Kernels`, and the list of fused operations that have a kernel.
mod fused;
mod kernels;

// What no kernel can exceed on this machine.
pub mod peak;

#[cfg(test)]
mod tests;

use assay_tensor::{Device, TensorError};
pub use fused::fused_kernel_names;
pub use simd::instructions::supported_levels;

/// A device that computes on `threads` threads, the calling one included; 0 is taken as 1. With one thread no pool is
/// started. Errors when the system refuses the threads.
///
/// The environment variable `ASSAY_ISA` (`avx512`, `avx2`, `baseline`) selects the instruction set of the process, so that kernels for
/// other processors can be tested ([`supported_levels`]). An unknown one is an error, and so is one that the machine does not have. The
/// products of the crate `gemm` choose for themselves.
///
/// A device's threads and memory are its own: make one and clone it.
pub fn device(threads: usize) -> Result<Device, TensorError> {
    simd::instructions::chosen_level()?;
    let threads = threads::split::Threads::new(threads)?;
    Ok(Device::new(device::Cpu { threads, memory: memory::storage::Allocator::default() }))
}
