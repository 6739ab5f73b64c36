//! What a model should have said, and how far it was from it: targets, cross entropy, [`Score`].

use std::ops::Range;

use assay_tensor::{DType, HostData, Tensor};

use crate::batch::Batch;
use crate::config::Objective;
use crate::error::ModelError;
use crate::model::Model;
use crate::parameters::constant;

/// How well a batch was predicted.
pub struct Score {
    /// The mean cross entropy in nats, a scalar on the tape.
    pub loss: Tensor,
    /// How many predictions were right; among equal logits the lowest index is what was predicted.
    pub correct: usize,
    /// How many predictions were made: sequences of a classifier, tokens of a language model.
    pub count: usize,
}

impl Model {
    /// Scores a batch. `labels` has one class a sequence for a classifier and is empty for a language model, whose
    /// targets are the batch's own tokens, one ahead.
    ///
    /// # Errors
    /// [`ModelError::Input`] if the labels do not fit, or no token has a next one.
    pub fn score(&self, batch: &Batch, labels: &[u32]) -> Result<Score, ModelError> {
        let logits = self.outputs(batch)?;
        let targets = Targets::new(self.task().objective, batch, labels)?;
        let rows = logits.reshape([targets.rows(), logits.dims().last().copied().unwrap_or(1)])?;
        let loss = targets.loss(&rows, 0.0)?;
        Ok(Score { loss, correct: correct(&rows, &targets.ids)?, count: targets.count })
    }
}

/// What each row of logits should say; none where it does not matter.
pub(crate) struct Targets {
    ids: Vec<Option<u32>>,
    /// How many predictions all rows together make: of the whole batch, also where this is a piece of it.
    pub count: usize,
    /// Columns of tokens, T, for a language model; 1 for a classifier.
    width: usize,
}

impl Targets {
    /// # Errors
    /// [`ModelError::Input`] if the labels do not fit, or no token has a next one.
    pub fn new(objective: Objective, batch: &Batch, labels: &[u32]) -> Result<Self, ModelError> {
        let (ids, width) = match objective {
            Objective::Classify(classes) => (class_targets(batch, labels, classes)?, 1),
            Objective::Predict => (next_tokens(batch)?, batch.tokens().dims()[1]),
        };
        let count = ids.iter().flatten().count();
        if count == 0 {
            return Err(ModelError::Input("nothing to predict: no sequence has a second token".into()));
        }
        Ok(Targets { ids, count, width })
    }

    /// Those of the columns `start..start + length`.
    pub fn piece(&self, start: usize, length: usize) -> Targets {
        let rows = self.ids.chunks_exact(self.width);
        let ids = rows.flat_map(|row| row[start..start + length].iter().copied()).collect();
        Targets { ids, count: self.count, width: length }
    }

    /// Those of some of the sequences, in at most `width` columns.
    pub fn part(&self, sequences: Range<usize>, width: usize) -> Targets {
        let width = width.min(self.width);
        let rows = self.ids.chunks_exact(self.width).skip(sequences.start).take(sequences.len());
        Targets { ids: rows.flat_map(|row| row[..width].iter().copied()).collect(), count: self.count, width }
    }

    /// Number of rows of logits.
    pub fn rows(&self) -> usize {
        self.ids.len()
    }

    /// Whether any row matters.
    pub fn any(&self) -> bool {
        self.ids.iter().any(Option::is_some)
    }

    /// The cross entropies of `rows` `[N, V]`, added up and divided by the count: a scalar.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn loss(&self, rows: &Tensor, smoothing: f64) -> Result<Tensor, ModelError> {
        let ids = self.ids.iter().map(|target| target.unwrap_or(0)).collect();
        let losses = rows.cross_entropy(&Tensor::from_u32(rows.device(), ids, [self.rows()])?, smoothing)?;
        let share = 1.0 / self.count as f64;
        Ok(losses.mul(&self.weights(rows.dtype(), rows, share)?)?.sum(&[0], false)?)
    }

    /// How many of `rows` `[N, V]` have no larger logit than the target's: a scalar without a gradient. Unlike
    /// [`Score::correct`] it counts a tie for right, and needs no copy of the logits.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn hits(&self, rows: &Tensor) -> Result<Tensor, ModelError> {
        let rows = rows.detach();
        let (count, width) = (self.rows(), rows.dims().last().copied().unwrap_or(1));
        let place = |(row, target): (usize, &Option<u32>)| u32::try_from(row * width + target.unwrap_or(0) as usize);
        let places = self.ids.iter().enumerate().map(place).collect::<Result<Vec<_>, _>>();
        let places = places.map_err(|_| ModelError::Input("too many logits: give fewer sequences at a time".into()))?;
        let places = Tensor::from_u32(rows.device(), places, [count])?;
        let reached = rows.reshape([count * width, 1])?.rows(&places)?;
        let right = reached.equal(&rows.max(&[1], true)?)?.reshape([count])?;
        Ok(right.mul(&self.weights(rows.dtype(), &rows, 1.0)?)?.sum(&[0], false)?)
    }

    /// `share` where a row matters, 0 elsewhere, `[N]`.
    fn weights(&self, dtype: DType, like: &Tensor, share: f64) -> Result<Tensor, ModelError> {
        let weights = self.ids.iter().map(|target| if target.is_some() { share } else { 0.0 }).collect();
        constant(like.device(), dtype, weights, &[self.rows()])
    }
}

fn class_targets(batch: &Batch, labels: &[u32], classes: usize) -> Result<Vec<Option<u32>>, ModelError> {
    if labels.len() != batch.lengths().len() {
        let message = format!("{} labels for {} sequences", labels.len(), batch.lengths().len());
        return Err(ModelError::Input(message));
    }
    if let Some(label) = labels.iter().find(|label| **label as usize >= classes) {
        return Err(ModelError::Input(format!("label {label} is outside the {classes} classes")));
    }
    Ok(labels.iter().copied().map(Some).collect())
}

/// For each place of `[B, T]` the token that comes next; none at the last place and in the padding.
fn next_tokens(batch: &Batch) -> Result<Vec<Option<u32>>, ModelError> {
    let tokens = batch.tokens().to_u32_vec()?;
    let padded = batch.tokens().dims()[1];
    let next = |(place, _): (usize, &u32)| {
        let (row, t) = (place / padded, place % padded);
        (t + 1 < batch.lengths()[row]).then(|| tokens[place + 1])
    };
    Ok(tokens.iter().enumerate().map(next).collect())
}

/// How many rows of logits are largest at their target; a tie goes to the lower index.
fn correct(rows: &Tensor, targets: &[Option<u32>]) -> Result<usize, ModelError> {
    let width = *rows.dims().last().unwrap_or(&1);
    Ok(match rows.to_host()? {
        HostData::F32(values) => right(&values, width, targets),
        other => right(&other.to_f64(), width, targets),
    })
}

fn right<T: PartialOrd>(values: &[T], width: usize, targets: &[Option<u32>]) -> usize {
    let right = |(row, target): (&[T], &Option<u32>)| {
        let mut best = 0;
        for (index, value) in row.iter().enumerate() {
            if *value > row[best] {
                best = index;
            }
        }
        *target == Some(best as u32)
    };
    values.chunks_exact(width).zip(targets).filter(|pair| right(*pair)).count()
}
