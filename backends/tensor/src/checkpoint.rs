//! Gradient checkpointing: a segment of the tape is not kept, and is recomputed when its gradient is needed.

use std::cell::Cell;
use std::sync::Arc;

use crate::array::Array;
use crate::device::Device;
use crate::error::{Result, TensorError};
use crate::op::Op;
use crate::tape::{Gradients, Input, record_always, walk_backward};
use crate::tensor::Tensor;

/// A function of tensors that can be run again.
type Function = Arc<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync>;

thread_local! {
    static RECORDING: Cell<Recording> = const { Cell::new(Recording::On) };
}

/// Whether operations on tracked tensors record themselves.
#[derive(Clone, Copy, PartialEq)]
enum Recording {
    On,
    /// They do not; `missed` says whether one would have.
    Paused {
        missed: bool,
    },
}

/// Asked by an operation on tracked tensors: whether it shall not record itself.
pub(crate) fn is_recording_paused() -> bool {
    RECORDING.with(|recording| {
        let paused = recording.get() != Recording::On;
        if paused {
            recording.set(Recording::Paused { missed: true });
        }
        paused
    })
}

/// Sets the recording to what it was, also when a function unwinds.
struct RecordingGuard(Recording);

impl RecordingGuard {
    fn switch_to(next: Recording) -> RecordingGuard {
        RecordingGuard(RECORDING.replace(next))
    }
}

impl Drop for RecordingGuard {
    fn drop(&mut self) {
        RECORDING.set(self.0);
    }
}

/// What a checkpoint keeps: the function, and its inputs off the tape.
pub(crate) struct Recompute {
    function: Function,
    inputs: Vec<Tensor>,
}

/// `f(inputs)` without its history: only `inputs` are kept, and the backward pass runs `f` once more to make the history
/// again. It trades a second forward pass for the memory of everything between inputs and outputs.
///
/// `f` must be pure: the second run has to give the same values. It may capture tracked tensors, such as parameters;
/// their gradients flow as if they were inputs. Checkpoints may be nested. Where nothing that `f` touches is tracked,
/// nothing is kept. Errors are those of `f`, and one where there is no input.
pub fn checkpoint(
    inputs: &[&Tensor],
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
) -> Result<Vec<Tensor>> {
    let Some(first) = inputs.first() else {
        return Err(TensorError::new("checkpoint", "there is no input").hint("give what the function depends on"));
    };
    let inner: Vec<Tensor> = inputs.iter().map(|t| t.detach()).collect();
    // As variables, so that an operation on them counts as one that would have been recorded.
    let seen: Vec<Tensor> = inputs.iter().map(|t| if t.is_tracked() { t.variable() } else { t.detach() }).collect();
    let (values, missed) = {
        let _restore = RecordingGuard::switch_to(Recording::Paused { missed: false });
        (f(&seen)?, RECORDING.get() == Recording::Paused { missed: true })
    };
    let node = (missed && !is_recording_paused()).then(|| {
        record_always(inputs, || Op::Checkpoint { again: Recompute { function: Arc::new(f), inputs: inner } })
    });
    Ok(Tensor::from_outputs(first.device(), values.into_iter().map(Tensor::into_array).collect(), node))
}

impl Recompute {
    /// The gradients of the inputs, given those of its values; those of the leaves that the function captured are added
    /// to `leaves`.
    pub(crate) fn segment_gradients(
        &self,
        device: &Device,
        inputs: &[Input],
        gradients: Vec<Option<Array>>,
        leaves: Gradients,
    ) -> Result<(Vec<Option<Array>>, Gradients)> {
        let place =
            |(tensor, input): (&Tensor, &Input)| if input.is_tracked() { tensor.variable() } else { tensor.clone() };
        let variables: Vec<Tensor> = self.inputs.iter().zip(inputs).map(place).collect();
        let values = {
            let _restore = RecordingGuard::switch_to(Recording::On);
            (self.function)(&variables)?
        };
        let mut roots = Vec::new();
        for (value, gradient) in values.iter().zip(gradients) {
            if let (Some(edge), Some(gradient)) = (value.tape_edge(), gradient) {
                roots.push((edge.clone(), gradient));
            }
        }
        let mut found = walk_backward(device, roots, leaves)?;
        let of_inputs = variables.iter().map(|variable| found.take(variable).map(Tensor::into_array)).collect();
        Ok((of_inputs, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_is_paused_inside_and_restored_after() {
        assert!(!is_recording_paused());
        {
            let _restore = RecordingGuard::switch_to(Recording::Paused { missed: false });
            assert!(RECORDING.get() == Recording::Paused { missed: false });
            assert!(is_recording_paused());
            assert!(RECORDING.get() == Recording::Paused { missed: true });
        }
        assert!(RECORDING.get() == Recording::On);
    }
}
