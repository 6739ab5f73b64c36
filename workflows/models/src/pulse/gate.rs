//! The update of a slot by a chunk: [`Gate`].

use assay_tensor::Tensor;

use crate::config::GateKind;
use crate::error::ModelError;
use crate::layers::Linear;
use crate::parameters::Scope;

/// The state of a block's slots.
#[derive(Clone)]
pub struct SlotState {
    /// s, `[B, S, P]`: used for reading and routing.
    pub slots: Tensor,
    /// c, `[B, S, P]`; only for LSTM.
    pub cell: Option<Tensor>,
}

/// The update of all slots, with the same weights. No matrix has a bias.
#[derive(Clone)]
pub enum Gate {
    /// z, f = sigmoid(W_z [s; u]), sigmoid(W_f [s; u]); h = tanh(W_h [f * s; u]); s' = (1 - z) s + z h.
    Gru {
        /// 2P to 2P: W_z above W_f.
        gates: Linear,
        /// W_h: 2P to P.
        candidate: Linear,
    },
    /// i, f, o = sigmoid(W_g [s; u]); c' = f c + i tanh(W_h [s; u]); s' = o tanh(c').
    Lstm {
        /// W_g: 2P to 3P.
        gates: Linear,
        /// W_h: 2P to P.
        candidate: Linear,
    },
}

impl Gate {
    /// Registers `gates` and `candidate` below `scope`.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(scope: &mut Scope, kind: GateKind, width: usize) -> Result<Self, ModelError> {
        let candidate = Linear::without_bias(&mut scope.child("candidate"), width, 2 * width, 1.0)?;
        let mut gates = |count| Linear::without_bias(&mut scope.child("gates"), count * width, 2 * width, 1.0);
        Ok(match kind {
            GateKind::Gru => Gate::Gru { gates: gates(2)?, candidate },
            GateKind::Lstm => Gate::Lstm { gates: gates(3)?, candidate },
        })
    }

    /// The slots after a chunk that wrote `update`, `[B, S, P]`.
    ///
    /// # Errors
    /// If the shapes do not fit, or an LSTM's state has no cell.
    pub fn forward(&self, state: &SlotState, update: &Tensor) -> Result<SlotState, ModelError> {
        let slots = &state.slots;
        let width = update.dims()[2];
        match self {
            Gate::Gru { gates, candidate } => {
                let gates = gates.forward(&Tensor::concat(&[slots, update], 2)?)?.sigmoid()?;
                let gates = gates.split(2, &[width, width])?;
                let reset = gates[1].mul(slots)?;
                let next = candidate.forward(&Tensor::concat(&[&reset, update], 2)?)?.tanh()?;
                // (1 - z) s + z h, with one product fewer.
                let slots = slots.add(&gates[0].mul(&next.sub(slots)?)?)?;
                Ok(SlotState { slots, cell: None })
            }
            Gate::Lstm { gates, candidate } => {
                let cell =
                    state.cell.as_ref().ok_or_else(|| ModelError::Input("the slots have no LSTM cell".into()))?;
                let both = Tensor::concat(&[slots, update], 2)?;
                let gates = gates.forward(&both)?.sigmoid()?.split(2, &[width, width, width])?;
                let next = gates[0].mul(&candidate.forward(&both)?.tanh()?)?;
                let cell = gates[1].mul(cell)?.add(&next)?;
                Ok(SlotState { slots: gates[2].mul(&cell.tanh()?)?, cell: Some(cell) })
            }
        }
    }
}
