//! The description of a model: [`ModelConfig`] from the workflow file and [`Task`] from the data.
//!
//! A config contains only choices; sizes that depend on the data (vocabulary, classes, longest sequence) are in
//! [`Task`]. Both are stored in a checkpoint, which is therefore complete.

mod choice;
mod count;
mod finding;
mod model;
mod pulse;
mod shared;
mod sparsity;
mod task;
mod ten;
#[cfg(test)]
mod tests;
mod transformer;

pub use choice::{ModelChoice, SizedModel};
pub use finding::Finding;
pub use model::{Common, ModelConfig};
pub use pulse::{GateKind, LocalKind, MemoryConfig, Mixing, PulseConfig, PulsePositions, Routing};
pub use shared::{Checkpoint, FfnKind, NormPlace, PairFeatures, Pool};
pub use sparsity::{SparsityConfig, SparsityKind};
pub use task::{Objective, Task};
pub use ten::{Field, Resonance, TenConfig, TenInit, TenPositions};
pub use transformer::{AttentionKind, TransformerConfig, TransformerPositions};
