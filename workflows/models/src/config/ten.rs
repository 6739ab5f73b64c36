//! The config of the family `ten`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::finding::{Finding, even, fraction, in_range};
use super::model::Common;
use super::shared::{Checkpoint, FfnKind, NormPlace, PairFeatures, Pool, four, one, sixty_four, yes};

/// The choices of the family `ten`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenConfig {
    /// Width D of the residual stream.
    #[schemars(range(min = 1, max = 8192))]
    pub dim: usize,
    /// Number of blocks L.
    #[schemars(range(min = 1, max = 256))]
    pub layers: usize,
    /// Eigenstates K of each cell: the memory of the model.
    #[schemars(range(min = 1, max = 8192))]
    pub states: usize,
    /// Length C in tokens of a backpropagation segment. The forward result does not depend on it.
    #[serde(default = "sixty_four")]
    #[schemars(range(min = 1, max = 65536))]
    pub chunk: usize,
    /// Cut the gradient of the state at the chunk boundaries (truncated backpropagation through time).
    #[serde(default = "yes")]
    pub truncate: bool,
    /// Parallel cells in a block; their outputs are averaged.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    pub cells: usize,
    /// Where a learned matrix R mixes the eigenstates of a cell.
    #[serde(default)]
    pub resonance: Resonance,
    /// Strength of the mixing: R = I + strength * M / |M|, with M learned and |M| its Frobenius norm.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0.0, max = 10.0))]
    pub resonance_strength: f64,
    /// Each token changes the eigenvalues with which it is read.
    #[serde(default)]
    pub selective: bool,
    /// Time scales, increasing from 1: at scale s, a separate block sees the mean of every s tokens once all of them
    /// are read.
    #[serde(default = "single")]
    #[schemars(length(min = 1, max = 16))]
    pub scales: Vec<usize>,
    /// Initial eigenvalues: on a ring near the unit circle, or as in the published code.
    #[serde(default)]
    pub init: TenInit,
    /// The largest initial phase of `init: ring`, in radians.
    #[serde(default = "default_max_phase")]
    #[schemars(range(min = 0.0, max = std::f64::consts::TAU))]
    pub max_phase: f64,
    /// Whether the projection into the states is real or complex.
    #[serde(default = "real")]
    pub input: Field,
    /// Whether the readout uses only the real part of the states or both parts.
    #[serde(default = "complex")]
    pub readout: Field,
    /// Add `d * x` to each cell's output, with one learned factor per channel.
    #[serde(default = "yes")]
    pub skip: bool,
    /// Where each block normalises.
    #[serde(default)]
    pub norm: NormPlace,
    /// The feed-forward network of each block.
    #[serde(default)]
    pub ffn: FfnKind,
    /// Hidden width of the feed-forward network, in multiples of `dim`.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 16))]
    pub ffn_multiplier: usize,
    /// How positions are encoded.
    #[serde(default)]
    pub positions: TenPositions,
    /// How a classifier reduces a sequence to one vector.
    #[serde(default)]
    pub pool: Pool,
    /// What a classifier of pairs computes from the vectors of the two sequences.
    #[serde(default, skip_serializing_if = "PairFeatures::is_default")]
    pub pair_features: PairFeatures,
    /// A language model uses the embedding table as its output matrix instead of a separate one.
    #[serde(default)]
    pub tied: bool,
    /// Share of the values that training sets to zero after the embedding and on each branch; none in evaluation.
    #[serde(default)]
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    pub dropout: f64,
    /// Which activations the backward pass recomputes instead of keeping them.
    #[serde(default)]
    pub checkpoint: Checkpoint,
}

/// How a TEN's eigenvalues begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TenInit {
    /// Magnitudes uniform in area on [0.9, 0.999], phases uniform on [0, `max_phase`].
    #[default]
    Ring,
    /// As in the published code: states decay within about one step. Kept so that the published claims can be tested.
    Seed,
}

/// Where the eigenstates of a cell act on one another, by a matrix R near the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resonance {
    /// Nowhere.
    #[default]
    Off,
    /// In the readout. It costs nothing: R is multiplied into the readout's matrix.
    Readout,
    /// At every step of the recurrence, which then needs a matrix product per step: slow.
    Recurrent,
    /// Once at the beginning of each chunk, as in the published code. The result then depends on `chunk`; kept for
    /// comparison.
    ChunkCarry,
}

/// Real or complex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// One number per eigenstate.
    Real,
    /// A real and an imaginary part.
    Complex,
}

/// How a TEN encodes positions. The recurrence alone preserves the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TenPositions {
    /// Only by the recurrence.
    #[default]
    None,
    /// A learned vector for each position up to the longest sequence of the data.
    Learned,
    /// Fixed sines and cosines of geometric frequencies.
    Sinusoidal,
}

impl TenConfig {
    pub(super) fn common(&self) -> Common {
        let &TenConfig { dim, pool, pair_features, tied, dropout, checkpoint, chunk, truncate, .. } = self;
        Common { dim, pool, pair_features, tied, dropout, checkpoint, chunk, truncate }
    }

    pub(super) fn validate(&self, found: &mut Vec<Finding>) {
        in_range(found, "dim", self.dim, 8192);
        in_range(found, "layers", self.layers, 256);
        in_range(found, "states", self.states, 8192);
        in_range(found, "chunk", self.chunk, 65536);
        in_range(found, "cells", self.cells, 64);
        in_range(found, "ffn_multiplier", self.ffn_multiplier, 16);
        fraction(found, "dropout", self.dropout);
        self.validate_resonance(found);
        self.validate_scales(found);
        if !(0.0..=std::f64::consts::TAU).contains(&self.max_phase) {
            found.push(Finding {
                key: "max_phase",
                message: format!("max_phase {} is outside [0, 2 pi]", self.max_phase),
                hint: "phases are angles in radians: give a value between 0 and 6.2832".into(),
            });
        }
        if self.positions == TenPositions::Sinusoidal && self.dim % 2 == 1 {
            found.push(even("positions", "sinusoidal positions need an even dim", self.dim));
        }
    }

    fn validate_resonance(&self, found: &mut Vec<Finding>) {
        if !(0.0..=10.0).contains(&self.resonance_strength) {
            let message = format!("resonance_strength {} is outside [0, 10]", self.resonance_strength);
            found.push(Finding::new("resonance_strength", message, "R = I + strength * M / |M|: 0.1 is usual"));
        }
        if self.selective && self.resonance == Resonance::Recurrent {
            let message = "selective eigenvalues with resonance `recurrent` would need another matrix for every token";
            found.push(Finding::new("resonance", message, "choose `readout`, or selective: false"));
        }
    }

    fn validate_scales(&self, found: &mut Vec<Finding>) {
        let hint = "begin with 1 and rise, as in [1, 2, 4, 8]";
        if self.scales.first() != Some(&1) {
            let message = "without scale 1 a token would not see itself";
            found.push(Finding::new("scales", format!("scales {:?}: {message}", self.scales), hint));
        } else if !self.scales.is_sorted_by(|a, b| a < b) || self.scales.len() > 16 {
            let message = format!("scales {:?} do not rise, or are more than 16", self.scales);
            found.push(Finding::new("scales", message, hint));
        } else if let Some(scale) = self.scales.iter().find(|scale| **scale > 65536) {
            found.push(Finding::new("scales", format!("scale {scale} is more than 65536"), hint));
        }
    }
}

fn default_max_phase() -> f64 {
    std::f64::consts::TAU
}
fn tenth() -> f64 {
    0.1
}
fn single() -> Vec<usize> {
    vec![1]
}
fn real() -> Field {
    Field::Real
}
fn complex() -> Field {
    Field::Complex
}
