//! What a workflow file says of a model, and what the data says: [`ModelConfig`] and [`Task`].
//!
//! A config holds only choices; sizes that follow from the data (vocabulary, classes, longest sequence) are in
//! [`Task`]. Both are stored in a checkpoint, which is thereby complete.

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
pub use shared::{Checkpoint, FfnKind, NormPlace, Pool};
pub use sparsity::{SparsityConfig, SparsityKind};
pub use task::{Objective, Task};
pub use ten::{Field, Resonance, TenConfig, TenInit, TenPositions};
pub use transformer::{AttentionKind, TransformerConfig, TransformerPositions};
