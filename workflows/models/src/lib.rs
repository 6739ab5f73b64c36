//! The models under test, `ten` and `transformer`, and the small layers that they share.
//!
//! A model is a pure function of three things: a [`ModelConfig`] (choices, from the workflow file), a [`Task`] (sizes,
//! from the data) and [`Parameters`] (values, by name). [`Model`] holds them with the network that they describe;
//! [`checkpoint`] stores them in one safetensors file. To change a model (an optimizer step, quantization) is to make
//! other parameters and to build again, which costs a few pointer copies.
//!
//! Invariants, each checked over the grid of all options by the tests:
//!
//! - A sequence read in pieces, down to single tokens, gives what it gives in one piece; so does a carry that was saved
//!   and restored, exactly.
//! - Changing the future of a sequence changes nothing in its past.
//! - Padding, and the other sequences of a batch, change nothing.
//! - Every gradient agrees with central differences in f64 on the reference backend.
//! - The same seed gives the same bits, with any number of threads; equal models are equal bytes on disk.
//! - A config accepts only what is implemented; an option that does not exist yet is an unknown key.
//!
//! Adding a family is a file like [`ten`], a variant of [`ModelConfig`] and an arm in [`Network`].

mod batch;
mod carry;
pub mod checkpoint;
mod config;
mod error;
mod file;
mod head;
pub mod layers;
mod model;
mod parameters;
mod positions;
pub mod ten;
pub mod transformer;

pub use batch::Batch;
pub use carry::{Carry, SequenceModel};
pub use config::{
    AttentionKind, FfnKind, Field, Finding, ModelConfig, NormPlace, Objective, Pool, Task, TenConfig, TenInit,
    TenPositions, TransformerConfig, TransformerPositions,
};
pub use error::ModelError;
pub use file::{Array, ArrayFile, FileError};
pub use head::Head;
pub use model::{Model, Network, Score};
pub use parameters::{Builder, Init, Parameter, Parameters, Role, Scope, Weight};
