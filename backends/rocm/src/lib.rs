//! The ROCm backend: AMD's runtime (HIP), runtime compiler (hipRTC) and matrix products (rocBLAS).
//!
//! Nothing of ROCm is needed to build this crate, and nothing of it is linked: libamdhip64, libhiprtc and librocblas are
//! loaded when a device is opened, and [`probe`] names in one line what is missing. ROCm 6.0 and later will do.
//!
//! The functions that are called, two dozen, are declared here. The bindings that there are for Rust (rocm-rs) leave
//! their symbols to the linker, so that a program with them does not start where ROCm is missing, and build bindgen
//! along.
//!
//! # Invariants
//!
//! - No function is called that was not found before (`library.rs`): all are looked up when the libraries are loaded.
//! - A device has one stream. Calls may come from any thread.
//! - The same product gives the same bits: atomics are off, and the workspace is fixed.
//!
//! # In reading order
//!
//! `library.rs` finds the libraries, `error.rs` sorts their errors, `device.rs` says what a device is, `driver.rs` is
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
pub use driver::Rocm;

/// Opens the device of this index. What is compiled for it is kept in the folder `images`, if there is one. A device's
/// memory is its own: open one and clone it.
///
/// # Errors
/// A lower-case fragment, one line long, that says what is missing and why, or what the driver refused.
pub fn device(index: usize, images: Option<PathBuf>) -> Result<Device, String> {
    Ok(assay_gpu::device(Arc::new(Rocm::open(index, images)?)))
}
