//! The CPU backend: candle-core for storage and matmul, our own kernels where the time goes.
//!
//! Elements lie in candle's `CpuStorage`; candle moves them (permute, slice, concat) and multiplies small matrices,
//! and the crate that it multiplies with, `gemm` with its AVX-512 kernels, large ones. The rest are loops that the
//! compiler vectorises, compiled for AVX-512, AVX2 and the baseline, of which the best is chosen at run time.
//!
//! It computes in f32 and holds u32 and i8; f64 is refused with an error.
//!
//! # Invariants
//!
//! - A kernel never changes its inputs, except the `&mut` state of AdamW and of accumulation, and that only where no
//!   other handle shares it.
//! - **No reduction is split between threads**: what is split are independent outputs. Results have the same bits at
//!   any number of threads.
//! - **Denormals are flushed to zero**, operands and results, on every thread that computes: on the pool's threads for
//!   good, on the calling thread while a kernel runs (see `flush.rs`). The caller's own arithmetic is not affected.
//! - Sums are in an order that the code fixes; no loop relies on the compiler to reorder floating-point arithmetic.
//! - Buffers are used again, up to half a GiB of free ones for each device. No kernel reads one before it has written it.

mod attention;
mod cpu;
mod elementwise;
mod flush;
mod int8;
mod loss;
mod math;
mod matmul;
mod movement;
mod norm;
mod optimizer;
mod parallel;
mod reduce;
mod scan;
mod simd;
mod store;

/// A CPU device that computes on `threads` threads, the caller's included; 0 is taken as 1. The other threads belong
/// to the device and end with it. Where the system gives no more threads there is only the caller's; `info()` tells.
pub fn device(threads: usize) -> assay_tensor::Device {
    assay_tensor::Device::new(cpu::Cpu::new(threads))
}
