//! The CUDA backend: NVIDIA's driver, runtime compiler and matrix products.
//!
//! Nothing of CUDA is needed to build this crate, and nothing of it is linked: libcuda, libnvrtc and libcublasLt are
//! loaded when a device is opened, and [`probe`] names in one line what is missing. CUDA 12.4 and later will do.
//!
//! # Invariants
//!
//! - No call reaches a library before `library.rs` has seen that all three are there, with every function that is
//!   called: cudarc, which binds them, panics otherwise.
//! - A device has one context (its primary one) and one stream. Calls may come from any thread.
//! - The same product gives the same bits: one workspace, one algorithm for each shape, no sums by atomics.
//!
//! # In reading order
//!
//! `library.rs` finds the libraries, `error.rs` sorts their errors, `device.rs` opens a device, `driver.rs` is
//! [`assay_gpu::Driver`] on it, `compile.rs` and `product.rs` are its two large parts.

mod compile;
mod device;
mod driver;
mod error;
mod library;
mod product;

use std::path::PathBuf;
use std::sync::Arc;

use assay_tensor::Device;

pub use device::{count, probe};
pub use driver::Cuda;

/// Opens the device of this index. What is compiled for it is kept in the folder `images`, if there is one. A device's
/// memory is its own: open one and clone it.
///
/// # Errors
/// A lower-case fragment, one line long, that says what is missing and why, or what the driver refused.
pub fn device(index: usize, images: Option<PathBuf>) -> Result<Device, String> {
    Ok(assay_gpu::device(Arc::new(Cuda::open(index, images)?)))
}
