//! Runs a batch from the start of each sequence, also through a model that would use the padding.

use std::collections::BTreeMap;

use assay_tensor::Tensor;

use crate::batch::Batch;
use crate::carry::{Carry, SequenceModel};
use crate::error::ModelError;
use crate::mode::Mode;
use crate::model::Model;
use crate::parameters::constant;

impl Model {
    /// The hidden vectors `[B, T, D]` of a batch; those at padded positions are meaningless.
    ///
    /// A model that is not causal would use the padding, so it processes the sequences of each length separately.
    ///
    /// # Errors
    /// See [`SequenceModel::run`].
    pub(crate) fn hidden(&self, batch: &Batch, mode: &Mode) -> Result<Tensor, ModelError> {
        let read = |tokens: &Tensor, mode: &Mode| Ok(self.network().run(tokens, &Carry::default(), mode)?.0);
        let padded = batch.tokens().dims()[1];
        if self.config().causal() || batch.lengths().iter().all(|length| *length == padded) {
            return read(batch.tokens(), mode);
        }
        let ids = batch.tokens().to_u32_vec()?;
        let mut lengths: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (row, length) in batch.lengths().iter().enumerate() {
            lengths.entry(*length).or_default().push(row);
        }
        let mut groups = Vec::with_capacity(lengths.len());
        for (group, (length, rows)) in lengths.iter().enumerate() {
            let tokens = rows.iter().flat_map(|row| &ids[row * padded..][..*length]).copied().collect();
            let tokens = Tensor::from_u32(self.device(), tokens, [rows.len(), *length])?;
            let hidden = read(&tokens, &mode.of_part(group))?;
            groups.push(pad_to_length(hidden, padded)?);
        }
        // The position of each row of the batch among the groups.
        let mut place = vec![0; batch.lengths().len()];
        for (at, row) in lengths.values().flatten().enumerate() {
            place[*row] = at as u32;
        }
        let all = Tensor::concat(&groups.iter().collect::<Vec<_>>(), 0)?;
        let (count, dim) = (place.len(), all.dims()[2]);
        let place = Tensor::from_u32(self.device(), place, [count])?;
        Ok(all.reshape([count, padded * dim])?.rows(&place)?.reshape([count, padded, dim])?)
    }
}

/// `[B, T, D]` padded with zeros to `[B, length, D]`.
fn pad_to_length(hidden: Tensor, length: usize) -> Result<Tensor, ModelError> {
    let (rows, known, dim) = (hidden.dims()[0], hidden.dims()[1], hidden.dims()[2]);
    if known == length {
        return Ok(hidden);
    }
    let missing = [rows, length - known, dim];
    let zeros = constant(hidden.device(), hidden.dtype(), vec![0.0; missing.iter().product()], &missing)?;
    Ok(Tensor::concat(&[&hidden, &zeros], 1)?)
}

#[cfg(test)]
mod tests {
    use assay_tensor::DType;
    use serde_json::json;

    use super::*;
    use crate::{ModelConfig, Objective, Task};

    #[test]
    fn sequences_that_are_read_apart_have_masks_of_their_own() {
        let config = json!({"family": "transformer", "dim": 4, "layers": 1, "causal": false, "dropout": 0.5});
        let config: ModelConfig = serde_json::from_value(config).unwrap();
        let task = Task { vocabulary: 5, max_length: 8, objective: Objective::Classify(3) };
        let model = Model::fresh(&assay_reference::device(), &config, &task, 3, DType::F64).unwrap();
        let seed = Tensor::from_u32(model.device(), vec![7, 0], 2).unwrap();
        let mode = Mode::Learn { dropout: Some(seed), part: 0 };
        let numbers = |x: &Tensor| x.to_f64_vec().unwrap();
        let alone = |ids: &[u32], part: usize| {
            let batch = Batch::new(model.device(), &[ids]).unwrap();
            numbers(&model.network().run(batch.tokens(), &Carry::default(), &mode.of_part(part)).unwrap().0)
        };
        let (long, short): (&[u32], &[u32]) = (&[1, 2, 3], &[4, 1]);
        let hidden = numbers(&model.hidden(&Batch::new(model.device(), &[long, short]).unwrap(), &mode).unwrap());
        // The shorter sequences come first.
        assert_eq!((&hidden[..12], &hidden[12..20]), (&alone(long, 1)[..], &alone(short, 0)[..]));
        assert_ne!(alone(long, 1), alone(long, 0));
    }
}
