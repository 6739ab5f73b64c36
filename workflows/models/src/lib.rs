//! The models under test, `ten`, `pulse` and `transformer`, and the small layers that they share.
//!
//! A model is a pure function of three things: a [`ModelConfig`] (choices, from the workflow file), a [`Task`] (sizes, from the
//! data) and [`Parameters`] (values, by name). [`Model`] contains them and the network that they describe; [`checkpoint`]
//! stores them in one safetensors file. A change of a model, such as quantization, creates other parameters and builds the
//! model again, which costs a few pointer copies. Training changes the parameters of a [`Blueprint`], from which each pass
//! builds its network: a [`GradientAccumulator`] adds up the gradients of [`MicroBatch`]es, which contain everything that
//! differs between batches of one shape.
//!
//! | family | what carries the past | grows with the sequence |
//! |---|---|---|
//! | [`ten`] | the eigenstates of a diagonal complex recurrence | no |
//! | [`pulse`] | state slots, written chunk by chunk and read by the next ones | only with `attention_every` |
//! | [`transformer`] | keys and values of all tokens, of which each sees all, or a few blocks | yes |
//!
//! Invariants, each checked over the grid of all options by the tests:
//!
//! - A sequence processed in pieces, down to single tokens, gives the same result as in one piece; so does a carry that
//!   was saved and restored, exactly.
//! - Changing the future of a sequence changes nothing in its past.
//! - Padding, and the other sequences of a batch, change nothing.
//! - Every gradient agrees with central differences in f64 on the reference backend.
//! - The same seed gives the same bits, with any number of threads; equal models are equal bytes on disk.
//! - A config accepts only implemented options; any other option is an unknown key.
//!
//! - Recomputation, pieces of a truncated pass and dropout masks change no gradient: they depend only on the config,
//!   the batch and the seed of the update.
//!
//! A new family needs a module like [`ten`], a variant of [`ModelConfig`], an arm in [`Network`], and its options in the
//! list of `tests/options/grid.rs`.

mod attention;
mod batch;
mod blueprint;
mod carry;
pub mod checkpoint;
mod config;
mod error;
mod file;
mod gradient_pass;
mod head;
mod heads;
mod kv_cache;
pub mod layers;
mod loss;
mod micro_batch;
mod mode;
mod model;
mod parameters;
mod pieces;
mod positions;
mod precision;
pub mod pulse;
mod quantized;
mod shares;
mod sparse;
mod stack;
mod state;
mod telemetry;
pub mod ten;
mod token_attention;
pub mod transformer;
mod whole;

/// The fused operations that models declare.
pub static FUSED_OPS: [&assay_tensor::FusedOp; 2] = [&ATTEND_TOKEN, &pulse::ROUTE_TOKEN];

pub use attention::{Attention, AttentionShape, Lookup};
pub use batch::Batch;
pub use blueprint::Blueprint;
pub use carry::{Carry, SequenceModel, State};
pub use config::{
    AttentionKind, Checkpoint, Common, FfnKind, Field, Finding, GateKind, LocalKind, MemoryConfig, Mixing, ModelChoice,
    ModelConfig, NormPlace, Objective, PairFeatures, Pool, PulseConfig, PulsePositions, Resonance, Routing, SizedModel,
    SparsityConfig, SparsityKind, Task, TenConfig, TenInit, TenPositions, TransformerConfig, TransformerPositions,
};
pub use error::ModelError;
pub use file::{Array, ArrayFile, FileError};
pub use gradient_pass::{GradientAccumulator, Learned, Pass, Timing, Training};
pub use head::Head;
pub use loss::{Predictions, Score};
pub use micro_batch::MicroBatch;
pub use mode::{Dropout, Mode};
pub use model::{Model, Network};
pub use parameters::{Builder, Init, Parameter, Parameters, Role, Scope, Weight};
pub use precision::Precision;
pub use token_attention::ATTEND_TOKEN;
