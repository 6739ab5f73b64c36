//! What the backends of two GPU vendors share.
//!
//! A vendor is a [`Driver`]: memory, kernels compiled at run time, launches, matrix products, graphs. All else is here
//! once: the kernels, in `kernels/*.cu`, which both vendors' compilers take, and what calls them. [`device`] makes a
//! device of a driver.
//!
//! # Invariants
//!
//! - Everything is deterministic: no kernel uses atomics, and no sum's order depends on which block runs when. How work
//!   is cut depends on the shape alone.
//! - Nothing waits for the device but `download`, and ids that were computed there, which are read once to be checked.
//! - A block of memory that is dropped is reused, see `arena.rs`: a training step with the shapes of the last one allocates
//!   nothing from the driver.
//! - Repeated work, such as a training step, is launched as one graph from its third run on, with the same bits as without: see
//!   `graph_cache.rs` and `recorder.rs`.
//! - Only [`Driver`] knows a vendor.
//!
//! `gpu.rs` holds what all operations stand on: memory, checked operands, launches. `library.rs` lists the sources and
//! their kernels; `kernels.rs` is the table of operations; the other modules are one kind of operation each.
#![doc = include_str!("../README.md")]

mod driver;
mod error;
mod fused;
mod images;

mod arena;
mod gpu;
mod graph_cache;
mod kernels;
mod library;
mod recorder;
mod staging;
mod storage;
mod strides;

mod attention;
mod attention_bf16;
mod elementwise;
mod movement;
mod optimizer;
mod product;
mod reduce;
mod rows;
mod scan;

use std::sync::Arc;

use assay_tensor::Device;

pub use driver::{
    Address, Architecture, Argument, DeviceProperties, Driver, DriverError, Element, Epilogue, Function, Graph, Launch,
    Operand, Product,
};
pub use images::Source;
pub use staging::{PinnedBlock, Staging};

/// The device that a driver drives. Its memory is its own: make one and clone it.
pub fn device(driver: Arc<dyn Driver>) -> Device {
    Device::new(gpu::Gpu::new(driver))
}
