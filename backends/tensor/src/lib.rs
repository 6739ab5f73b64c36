//! Tensors, the kernels that a backend provides, and the gradient rules.
//!
//! A [`Tensor`] is a value on a [`Device`]; its operations check their arguments, call the device's [`Kernels`], and
//! record themselves on a tape if an input is tracked. [`Tensor::backward`] walks the tape back by the rules in
//! `gradient.rs`, one table for the primitives, and by those of the fused operations.
//!
//! # Invariants
//!
//! - A tensor is contiguous and row-major. Nothing in this crate is generic over the backend.
//! - A kernel never changes its inputs; [`adamw`] changes what it takes by `&mut`, and no other handle on it.
//! - No reduction is split between threads, so a result has the same bits at any number of threads.
//! - No operation panics on its arguments: shapes, types, devices and ids are checked, and refused with a
//!   [`TensorError`] that says what was wrong with which shapes. No memory is changed by a refused operation.
//! - bf16 is storage: an operation reads it as f32, computes in f32 and gives f32 (what moves or reshapes elements gives
//!   bf16 again). bf16 and f32 are operands of one operation; the tape keeps what it was given, so that what was saved as
//!   bf16 takes half the memory. Gradients of bf16 values are f32.
//! - Nothing is recorded where no input is tracked. A node keeps what its rule needs and no more.
//! - Work that is replayed ([`Replayer`]) gives the bits that it gives when it runs operation by operation.
//! - Gradients are added in the reverse order of the operations' creation, and in no other.
//! - Each fused operation has a definition in terms of primitives, which runs where a backend has no kernel for it.
//!
//! # Adding an operation
//!
//! A [`FusedOp`], in this crate (and in [`FUSED_OPS`]) or in the one that needs it: one file with its definition in terms of
//! primitives, its gradient rule, the function that checks its arguments, and examples, on which the suite `assay-conformance`
//! tests it. It runs on every backend at once; a backend that has a faster kernel lists it by name ([`Kernels::fused`]). Only a
//! new primitive needs work in every backend.

mod add_scaled;
mod args;
mod array;
mod attention;
pub mod check;
mod checkpoint;
mod composed;
mod cross_entropy;
mod device;
mod dtype;
mod error;
mod extents;
mod feed_forward;
mod fusion;
mod gradient;
mod heads;
mod int8;
mod kernels;
mod layer_norm;
mod linear;
mod math;
mod op;
mod ops;
mod pending;
mod reduction;
mod replay;
mod scan;
mod selection;
mod shape;
mod softmax;
mod tape;
mod tensor;
mod update;
mod upstream;

pub use add_scaled::{ADD_SCALED, ADD_SCALED_BACKWARD};
pub use args::{AdamW, AttentionKind, AttentionOptions, Binary, Reduce, Unary, Update};
pub use array::{Array, Buffer};
pub use attention::{ATTENTION, ATTENTION_BACKWARD, Attention, AttentionBackward};
pub use checkpoint::checkpoint;
pub use composed::{LEAST_PEAK, clip_factor};
pub use cross_entropy::{CROSS_ENTROPY, CROSS_ENTROPY_BACKWARD, LINEAR_CROSS_ENTROPY, cross_entropy_hits};
pub use device::Device;
pub use dtype::{DType, HostData};
pub use error::{Class, Result, TensorError};
pub use feed_forward::{FEED_FORWARD, FEED_FORWARD_BACKWARD, FeedForward, FeedForwardBackward};
pub use fusion::{
    Arguments, Bf16Operands, Example, ExampleInput, ExampleSize, FUSED_OPS, FusedOp, GradientRule, InputSums, Setting,
    Upstreams, find_kernel,
};
pub use gradient::{GELU_CUBIC, GELU_FACTOR};
pub use half::bf16;
pub use heads::{HEADS, HEADS_BACKWARD, Rotary, head_width};
pub use int8::{Columns, Int8Linear, Norm, Skip};
pub use kernels::{Capabilities, DeviceInfo, Kernels};
pub use layer_norm::{LAYER_NORM, LAYER_NORM_BACKWARD, LAYER_NORM_BF16};
pub use linear::{LINEAR, LINEAR_GELU, LINEAR_GELU_BACKWARD, Linear};
pub use op::operation_names;
pub use reduction::group_axes;
pub use replay::{BackendReplay, EagerWork, Feed, Replay, ReplayBackend, Replayer};
pub use scan::{DIAGONAL_SCAN, DIAGONAL_SCAN_BACKWARD, Scan, ScanArgs, ScanBackward, ScanGradient, diagonal_scan};
pub use selection::{DROPOUT, Dropout, HIDDEN, TOP_K_MASK, dropout_keeps, mix};
pub use shape::Shape;
pub use softmax::{LOG_SOFTMAX, LOG_SOFTMAX_BACKWARD, SOFTMAX, SOFTMAX_BACKWARD};
pub use tape::Gradients;
pub use tensor::Tensor;
pub use update::{adamw, adamw_all, clip};
