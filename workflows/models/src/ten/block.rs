//! One block of a TEN: mix over time, then over channels.

use assay_tensor::Tensor;

use super::cell::Cell;
use super::mixer::Mixer;
use crate::carry::{Carry, State};
use crate::config::{NormPlace, TenConfig};
use crate::error::ModelError;
use crate::layers::{FeedForward, LayerNorm};
use crate::mode::{Dropout, Mode};
use crate::parameters::Scope;
use crate::stack::Layer;

/// One block: mix over time, then over channels.
#[derive(Clone)]
pub struct Block {
    /// The place of the norms.
    pub place: NormPlace,
    /// The norm of the cells' branch.
    pub norm1: LayerNorm,
    /// Parallel cells; their outputs are averaged.
    pub cells: Vec<Cell>,
    /// All cells as one recurrence, which is used for computations.
    pub mixer: Mixer,
    /// The norm of the feed-forward branch.
    pub norm2: LayerNorm,
    /// The feed-forward network.
    pub ffn: FeedForward,
    prefix: String,
    /// The dropout of the two branches.
    dropout: [Dropout; 2],
}

impl Layer for Block {
    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn forward(&self, x: &Tensor, carry: &Carry, next_state: &mut State, mode: &Mode) -> Result<Tensor, ModelError> {
        let [mix_drop, ffn_drop] = &self.dropout;
        match self.place {
            NormPlace::Pre => {
                let mix = |base: Option<&Tensor>| self.mixer.forward_normed(&self.norm1, base, x, carry, next_state);
                let x = mix_drop.onto(x, carry.position, mode, mix)?;
                ffn_drop.onto(&x, carry.position, mode, |base| self.ffn.forward_normed(&self.norm2, base, &x))
            }
            NormPlace::Post => {
                let mix = |base: Option<&Tensor>| self.mixer.forward(base, x, carry, next_state);
                let x = self.norm1.forward(&mix_drop.onto(x, carry.position, mode, mix)?)?;
                let feed = |base: Option<&Tensor>| self.ffn.forward(base, &x);
                self.norm2.forward(&ffn_drop.onto(&x, carry.position, mode, feed)?)
            }
        }
    }
}

impl Block {
    /// Registers everything below `scope`, which has the path `path`. `drop_chunk` is the length of a chunk in steps of
    /// this block, used by dropout.
    pub(super) fn build(
        scope: &mut Scope,
        path: &str,
        config: &TenConfig,
        drop_chunk: usize,
    ) -> Result<Self, ModelError> {
        let dim = config.dim;
        // Two branches per layer write to the residual stream; with this scale, its variance does not grow with depth.
        let gain = 1.0 / (2.0 * config.layers as f64).sqrt();
        let norm1 = LayerNorm::build(&mut scope.child("norm1"), dim)?;
        let cells = (0..config.cells)
            .map(|index| Cell::build(&mut scope.child(&format!("cell.{index}")), config, gain))
            .collect::<Result<Vec<_>, _>>()?;
        let mixer = Mixer::new(format!("{path}.cells"), &cells, config)?;
        let norm2 = LayerNorm::build(&mut scope.child("norm2"), dim)?;
        let hidden = dim * config.ffn_multiplier;
        let ffn = FeedForward::build(&mut scope.child("ffn"), config.ffn, dim, hidden, gain)?;
        let dropout = ["mix", "ffn"].map(|name| Dropout::new(config.dropout, drop_chunk, &format!("{path}.{name}")));
        Ok(Block { place: config.norm, norm1, cells, mixer, norm2, ffn, prefix: format!("{path}."), dropout })
    }
}
