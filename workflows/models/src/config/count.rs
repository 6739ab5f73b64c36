//! Counts the parameters of a model from its config, without building it.
//!
//! Each family's formula follows its `build` function; the tests compare both over the grid of all options.

use super::model::ModelConfig;
use super::pulse::{GateKind, LocalKind, Mixing, PulseConfig, PulsePositions};
use super::shared::{FfnKind, NormPlace};
use super::sparsity::SparsityKind;
use super::task::{Objective, Task};
use super::ten::{Field, Resonance, TenConfig, TenInit, TenPositions};
use super::transformer::{AttentionKind, TransformerConfig, TransformerPositions};
use crate::pulse::TAPS;

impl ModelConfig {
    /// The number of learned values of a model of this config for a task: [`crate::Parameters::count`] of the model.
    #[must_use]
    pub fn parameter_count(&self, task: &Task) -> u64 {
        let common = self.common();
        let (dim, vocabulary) = (common.dim as u64, task.vocabulary as u64);
        let positions = count_if(self.learns_positions(), task.max_length as u64 * dim);
        let blocks = match self {
            ModelConfig::Ten(config) => config.count_blocks(),
            ModelConfig::Pulse(config) => config.count_blocks(),
            ModelConfig::Transformer(config) => config.count_blocks(),
        };
        let head = match task.objective {
            Objective::Classify(classes) => biased(classes as u64, dim),
            Objective::ClassifyPairs(classes) => biased(classes as u64, dim * common.pair_features.count() as u64),
            Objective::Predict if common.tied => 0,
            Objective::Predict => biased(vocabulary, dim),
        };
        vocabulary * dim + positions + blocks + head
    }

    fn learns_positions(&self) -> bool {
        match self {
            ModelConfig::Ten(config) => config.positions == TenPositions::Learned,
            ModelConfig::Pulse(config) => config.positions == PulsePositions::Learned,
            ModelConfig::Transformer(config) => config.positions == TransformerPositions::Learned,
        }
    }
}

impl TenConfig {
    /// Of all blocks, and of the final norm.
    fn count_blocks(&self) -> u64 {
        let (dim, states) = (self.dim as u64, self.states as u64);
        let parts = |field: Field| if field == Field::Complex { 2 * states } else { states };
        // Magnitude and phase, and ln gamma.
        let eigenvalues = 2 * states + count_if(self.init == TenInit::Ring, states);
        let cell = eigenvalues
            + parts(self.input) * dim
            + count_if(self.selective, 2 * states * dim)
            + count_if(self.resonance != Resonance::Off, states * states)
            + dim * parts(self.readout)
            + count_if(self.skip, dim);
        let block =
            2 * norm(dim) + self.cells as u64 * cell + feed_forward(self.ffn, dim, dim * self.ffn_multiplier as u64);
        let scales = self.scales.len() as u64;
        let layer = scales * block + count_if(self.scales != [1], scales);
        self.layers as u64 * layer + count_if(self.norm == NormPlace::Pre, norm(dim))
    }
}

impl PulseConfig {
    fn count_blocks(&self) -> u64 {
        let dim = self.dim as u64;
        let attends = (0..self.layers).filter(|layer| self.attends(*layer)).count() as u64;
        let mixers = attends * attention(dim) + (self.layers as u64 - attends) * self.count_slots();
        let around = 2 * norm(dim) + feed_forward(self.ffn, dim, dim * self.ffn_multiplier as u64);
        mixers + self.layers as u64 * around + norm(dim)
    }

    /// Slots, local mixer and memory of a block.
    fn count_slots(&self) -> u64 {
        let (dim, width) = (self.dim as u64, self.width() as u64);
        let initial = self.states as u64 * width;
        let (initial, gates) = match self.gate {
            GateKind::Gru => (initial, 2),
            GateKind::Lstm => (2 * initial, 3),
        };
        let slots = initial
            + 2 * width * dim
            + 2 * width * width
            + (gates + 1) * width * 2 * width
            + count_if(self.mixing == Mixing::On, attention(width) + norm(width))
            + dim * width;
        let local = match self.local {
            LocalKind::Attention => attention(dim),
            LocalKind::Conv => TAPS as u64 * dim,
        };
        let memory = self.memory.as_ref().map_or(0, |memory| {
            let width = memory.width as u64;
            memory.slots as u64 * width + 2 * width * dim + biased(3 * width, dim)
        });
        slots + local + memory
    }
}

impl TransformerConfig {
    fn count_blocks(&self) -> u64 {
        let dim = self.dim as u64;
        let learned = self.attention == AttentionKind::Sparse && self.sparsity.kind == SparsityKind::Learned;
        let block = 2 * norm(dim)
            + attention(dim)
            + count_if(learned, 2 * dim * dim)
            + feed_forward(FfnKind::Gelu, dim, dim * self.ffn_multiplier as u64);
        self.layers as u64 * block + norm(dim)
    }
}

fn count_if(condition: bool, count: u64) -> u64 {
    if condition { count } else { 0 }
}

/// A linear layer with a bias.
fn biased(out: u64, inp: u64) -> u64 {
    out * inp + out
}

/// A layer norm: gain and bias.
fn norm(dim: u64) -> u64 {
    2 * dim
}

/// Queries, keys and values in one matrix, and the output.
fn attention(dim: u64) -> u64 {
    biased(3 * dim, dim) + biased(dim, dim)
}

fn feed_forward(kind: FfnKind, dim: u64, hidden: u64) -> u64 {
    let up = biased(hidden, dim);
    biased(dim, hidden) + if kind == FfnKind::Swiglu { 2 * up } else { up }
}
