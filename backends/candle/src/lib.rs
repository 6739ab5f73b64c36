//! The candle backend: every kernel by candle-core, on the processor, on Apple's GPUs (`metal`) or on a CUDA device (`cuda`).
//!
//! It serves two purposes: Macs compute on their GPU, and any sweep can be repeated with kernels that share no code with `cpu`. It
//! holds f32, f64 (not on Metal), bf16, u32, and i8, which candle does not have and which is kept as f32.
//!
//! The crate is empty unless the feature `candle` is on. The features `mkl` and `accelerate` select other matrix products on the
//! processor, `metal` and `cuda` add devices. Each of these four turns `candle` on.
//!
//! # Invariants
//!
//! - No tensor is changed in place: arrays may share memory, and an update replaces the arrays that it changes.
//! - Nothing here is on candle's own tape: gradients are computed by `assay-tensor`.
//! - Ids and targets are checked before candle gets them: candle skips the largest id instead of refusing it.
//! - candle reads the number of threads from the environment, once. The first [`device`] of a process decides.
//!
//! # In reading order
//!
//! `kernels.rs` is the surface, `store.rs` what an array points to, `place.rs` the devices; the others are one kind of kernel each.

#[cfg(feature = "candle")]
mod attention;
#[cfg(feature = "candle")]
mod elementwise;
#[cfg(feature = "candle")]
mod kernels;
#[cfg(feature = "candle")]
mod place;
#[cfg(feature = "candle")]
mod product;
#[cfg(feature = "candle")]
mod store;

#[cfg(feature = "candle")]
pub use place::{Place, describe_products, device, places};
