//! The PyTorch backend: every kernel by libtorch, through the crate `tch`, on the processor or a CUDA device.
//!
//! It is there for comparison: a model that trains on `backend: torch` runs the same steps of the same program, with
//! PyTorch's kernels in the place of ours. It holds f32, f64, bf16, i8, and u32, which libtorch keeps as 64-bit integers.
//!
//! The crate is empty unless the feature `libtorch` is on, for which the variable `LIBTORCH` must name a libtorch 2.13;
//! `tests/torch/libtorch.sh` puts one together.
//!
//! # Invariants
//!
//! - Every array has elements of its own: what libtorch would give as a view is copied. So an update in place reaches no
//!   other array.
//! - Nothing here is on libtorch's own tape: gradients are the business of `assay-tensor`.
//! - Ids and targets are checked before libtorch sees them: on a CUDA device it would take the process down.
//! - The same arguments give the same bits on the same device with the same number of threads. Unlike our own backends,
//!   libtorch splits some sums between threads: another number of threads may give other bits. Denormal numbers are
//!   computed with, as it does by default.
//!
//! # In reading order
//!
//! `kernels.rs` is the surface, `store.rs` what an array points to; the others are one kind of kernel each.

#[cfg(feature = "libtorch")]
mod attention;
#[cfg(feature = "libtorch")]
mod elementwise;
#[cfg(feature = "libtorch")]
mod kernels;
#[cfg(feature = "libtorch")]
mod loss;
#[cfg(feature = "libtorch")]
mod norm;
#[cfg(feature = "libtorch")]
mod optimizer;
#[cfg(feature = "libtorch")]
mod place;
#[cfg(feature = "libtorch")]
mod scan;
#[cfg(feature = "libtorch")]
mod store;

#[cfg(feature = "libtorch")]
pub use place::{Place, device, places};
