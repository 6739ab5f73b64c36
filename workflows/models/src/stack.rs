//! Blocks one after the other, as every family has them: [`Layer`] and [`stack`]; and running a part of a network a
//! second time in the backward pass instead of keeping what it computed.

use std::sync::{Arc, OnceLock};

use assay_tensor::{Tensor, TensorError};

use crate::carry::{Carry, State};
use crate::config::Checkpoint;
use crate::error::ModelError;
use crate::mode::Mode;
use crate::precision::Precision;

/// One block of a network.
pub(crate) trait Layer: Clone + Send + Sync + 'static {
    /// The beginning of the names of everything that it puts into the carry, such as `blocks.0.`.
    fn prefix(&self) -> &str;

    /// `x` `[B, T, D]` to the same shape; puts what it remembers into `next_state`. It depends on nothing but its arguments
    /// and its parameters.
    fn forward(&self, x: &Tensor, carry: &Carry, next_state: &mut State, mode: &Mode) -> Result<Tensor, ModelError>;
}

/// Runs `x` through the layers, each of them in a checkpoint if the config says so and gradients are wanted. What a layer
/// is given is rounded to `precision`, in a checkpoint or not, so that checkpoints change no result.
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

/// Runs `run` on `inputs` and a carry so that the tape keeps these alone; the backward pass runs it again. It must be a
/// pure function. Returns what it returns.
pub(crate) fn recompute(
    inputs: &[&Tensor],
    carry: &Carry,
    run: impl Fn(&[Tensor], &Carry) -> Result<(Vec<Tensor>, State), ModelError> + Send + Sync + 'static,
) -> Result<(Vec<Tensor>, State), ModelError> {
    let (position, count) = (carry.position, inputs.len());
    let names: Vec<Arc<str>> = carry.state.names().cloned().collect();
    let all: Vec<&Tensor> = inputs.iter().copied().chain(carry.state.parts()).collect();
    // The tensors of the new state travel as a list; their names, the same at each run, go beside it.
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
