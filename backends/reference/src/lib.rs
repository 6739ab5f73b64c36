//! The reference backend: plain loops in f64, the specification of every kernel.
//!
//! # Invariants
//!
//! - Everything is computed in f64 and rounded once, when the result is stored; the exception is the quantization of
//!   activations, which is specified in f32.
//! - A kernel never changes its inputs, except those that it takes by `&mut`, and those only through this handle.
//! - One thread, no order but that of the loops: the same arguments give the same bits.
//! - Slow and obvious is right here. Other backends are tested against this one; it is tested against central
//!   differences and against the composed forms of the fused operations.

mod attention;
mod elementwise;
mod heads;
mod kernels;
mod layers;
mod loss;
mod movement;
mod product;
mod scan;
mod store;
mod token;

pub use kernels::{Reference, fused_kernel_names};

/// The reference device. It holds every type of element.
pub fn device() -> assay_tensor::Device {
    assay_tensor::Device::new(Reference)
}
