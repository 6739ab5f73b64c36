//! Consecutive blocks, common to all families: [`Layer`] and [`stack`]; and recomputation of a part of a network in the
//! backward pass instead of storing its results.

use std::sync::{Arc, OnceLock};

use assay_tensor::{Tensor, TensorError};

use crate::carry::{Carry, State};
use crate::config::Checkpoint;
use crate::error::ModelError;
use crate::mode::Mode;
use crate::precision::Precision;

/// One block of a network.
pub(crate) trait Layer: Clone + Send + Sync + 'static {
    /// The prefix of all its names in the carry, such as `blocks.0.`.
    fn prefix(&self) -> &str;

    /// `x` `[B, T, D]` to the same shape; adds its state to `next_state`. It depends only on its arguments and its
    /// parameters.
    fn forward(&self, x: &Tensor, carry: &Carry, next_state: &mut State, mode: &Mode) -> Result<Tensor, ModelError>;
}

/// Runs `x` through the layers, each in a checkpoint if the config requires it and gradients are needed. The input of a
/// layer is rounded to `precision`, with or without a checkpoint, so checkpoints change no result.
pub(crate) fn stack<L: Layer>(
    layers: &[L],
    mut x: Tensor,
    carry: &Carry,
    next_state: &mut State,
    mode: &Mode,
    (checkpoint, precision): (Checkpoint, Precision),
) -> Result<Tensor, ModelError> {
    for layer in layers {
        x = precision.round(&x)?;
        x = match (checkpoint, mode) {
            (Checkpoint::Block, Mode::Learn { .. }) => {
                let (carry, owned, mode) = (carry.below(layer.prefix()), layer.clone(), mode.clone());
                let run = move |inputs: &[Tensor], carry: &Carry| {
                    let mut next_state = State::with_room_of(&carry.state);
                    let y = owned.forward(&inputs[0], carry, &mut next_state, &mode)?;
                    Ok((vec![y], next_state))
                };
                let (mut outputs, state) = recompute(&[&x], &carry, run)?;
                next_state.extend(state);
                outputs.swap_remove(0)
            }
            _ => layer.forward(&x, carry, next_state, mode)?,
        };
    }
    Ok(x)
}

/// Runs `run` on `inputs` and a carry such that the tape stores only these; the backward pass runs it again. It must be
/// a pure function. Returns its result.
pub(crate) fn recompute(
    inputs: &[&Tensor],
    carry: &Carry,
    run: impl Fn(&[Tensor], &Carry) -> Result<(Vec<Tensor>, State), ModelError> + Send + Sync + 'static,
) -> Result<(Vec<Tensor>, State), ModelError> {
    let (position, count) = (carry.position, inputs.len());
    let names: Vec<Arc<str>> = carry.state.names().cloned().collect();
    let all: Vec<&Tensor> = inputs.iter().copied().chain(carry.state.parts()).collect();
    // The tensors of the new state are passed as a list; their names, the same in each run, separately.
    let made: Arc<OnceLock<Vec<Arc<str>>>> = Arc::default();
    let found = Arc::clone(&made);
    let outputs = assay_tensor::checkpoint(&all, move |tensors: &[Tensor]| {
        let state = names.iter().cloned().zip(tensors[count..].iter().cloned()).collect();
        let (mut outputs, next_state) = run(&tensors[..count], &Carry { position, state }).map_err(as_tensor_error)?;
        found.get_or_init(|| next_state.names().cloned().collect());
        outputs.extend(next_state.into_iter().map(|(_, part)| part));
        Ok(outputs)
    })?;
    let names = made.get().cloned().unwrap_or_default();
    let mut outputs = outputs;
    let state = outputs.split_off(outputs.len() - names.len());
    Ok((outputs, names.into_iter().zip(state).collect()))
}

fn as_tensor_error(error: ModelError) -> TensorError {
    match error {
        ModelError::Tensor(error) => error,
        other => TensorError::new("checkpoint", other.to_string()),
    }
}
