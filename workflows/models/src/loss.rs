//! Targets and losses of predictions: targets, cross entropy, [`Score`].

use std::ops::Range;

use assay_tensor::{DType, Feed, HostData, Tensor};

use crate::batch::Batch;
use crate::config::Objective;
use crate::error::ModelError;
use crate::model::Model;

/// The score of a batch.
pub struct Score {
    /// The mean cross entropy in nats, a scalar on the tape.
    pub loss: Tensor,
    /// Whether each prediction was correct, in the order of the batch. Of equal logits, the prediction is the lowest index.
    pub hits: Vec<bool>,
}

/// The individual predictions of a batch, in the order of [`Score::hits`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Predictions {
    /// The correct class of each prediction, N numbers.
    pub targets: Vec<u32>,
    /// The logits, `[N, classes]`.
    pub logits: Vec<f32>,
    /// Number of classes.
    pub classes: usize,
}

impl Score {
    /// The number of correct predictions.
    #[must_use]
    pub fn correct(&self) -> usize {
        self.hits.iter().filter(|hit| **hit).count()
    }

    /// The number of predictions: sequences for a classifier, tokens for a language model.
    #[must_use]
    pub fn count(&self) -> usize {
        self.hits.len()
    }
}

impl Model {
    /// Scores a batch. `labels` has one class per sequence (or pair) for a classifier and is empty for a language model, whose
    /// targets are the batch's own next tokens.
    ///
    /// # Errors
    /// [`ModelError::Input`] if the labels do not fit, or no token has a next one.
    pub fn score(&self, batch: &Batch, labels: &[u32]) -> Result<Score, ModelError> {
        Ok(self.score_logits(batch, labels)?.0)
    }

    /// As [`Model::score`], with the individual predictions.
    ///
    /// # Errors
    /// As [`Model::score`].
    pub fn score_predictions(&self, batch: &Batch, labels: &[u32]) -> Result<(Score, Predictions), ModelError> {
        let (score, logits, targets) = self.score_logits(batch, labels)?;
        let classes = logits.dims().last().copied().unwrap_or(1);
        let mut predictions = Predictions { classes, ..Predictions::default() };
        for (row, target) in logits.to_f32_vec()?.chunks_exact(classes).zip(targets.ids) {
            if let Some(target) = target {
                predictions.targets.push(target);
                predictions.logits.extend(row);
            }
        }
        Ok((score, predictions))
    }

    fn score_logits(&self, batch: &Batch, labels: &[u32]) -> Result<(Score, Tensor, Targets), ModelError> {
        let logits = self.outputs(batch)?;
        let tokens = batch.tokens().to_u32_vec()?;
        let targets = Targets::new(self.task().objective, &tokens, batch.lengths(), labels)?;
        let loss_targets = targets.loss_targets(logits.dims().last().copied().unwrap_or(1), logits.dtype());
        let loss_targets = loss_targets.map(&mut |feed| Ok(feed.upload(logits.device())?))?;
        let score = Score { loss: loss_targets.loss(&logits, 0.0)?, hits: find_hits(&logits, &targets.ids)? };
        Ok((score, logits, targets))
    }
}

/// The target of each row of logits; `None` for ignored rows.
pub(crate) struct Targets {
    ids: Vec<Option<u32>>,
    /// The number of predictions in the mean: of the whole batch, even if this is a piece of it.
    pub count: usize,
    /// Columns of tokens, T, for a language model; 1 for a classifier.
    width: usize,
    /// The number of sequences of a sample.
    sequences: usize,
}

/// The targets of N rows of logits. `T` as in [`crate::MicroBatch`].
#[derive(Debug, Clone)]
pub(crate) struct LossTargets<T> {
    /// The class of each row, 0 for ignored rows: U32, `[N]`.
    pub ids: T,
    /// 1 / count for each row, 0 for ignored rows: `[N]`.
    shares: T,
    /// 1 for each row, 0 for ignored rows: `[N]`.
    ones: T,
}

impl Targets {
    /// The targets of sequences of these lengths, whose padded tokens are given.
    ///
    /// # Errors
    /// [`ModelError::Input`] if the labels do not fit, or no token has a next one.
    pub fn new(objective: Objective, tokens: &[u32], lengths: &[usize], labels: &[u32]) -> Result<Self, ModelError> {
        let padded = tokens.len() / lengths.len().max(1);
        let (ids, width) = match objective {
            Objective::Classify(classes) => (class_targets(lengths.len(), labels, classes)?, 1),
            Objective::ClassifyPairs(_) if !lengths.len().is_multiple_of(2) => {
                return Err(ModelError::Input(format!("{} sequences are not pairs", lengths.len())));
            }
            Objective::ClassifyPairs(classes) => (class_targets(lengths.len() / 2, labels, classes)?, 1),
            Objective::Predict => (next_tokens(tokens, padded, lengths), padded),
        };
        let count = ids.iter().flatten().count();
        if count == 0 {
            return Err(ModelError::Input("nothing to predict: no sequence has a second token".into()));
        }
        Ok(Targets { ids, count, width, sequences: objective.sequences() })
    }

    /// The targets of the columns `start..start + length`.
    pub fn piece(&self, start: usize, length: usize) -> Targets {
        let rows = self.ids.chunks_exact(self.width);
        let ids = rows.flat_map(|row| row[start..start + length].iter().copied()).collect();
        Targets { ids, count: self.count, width: length, sequences: self.sequences }
    }

    /// The targets of some of the sequences, which are whole samples, in at most `width` columns.
    pub fn part(&self, sequences: Range<usize>, width: usize) -> Targets {
        let width = width.min(self.width);
        let (first, count) = (sequences.start / self.sequences, sequences.len() / self.sequences);
        let rows = self.ids.chunks_exact(self.width).skip(first).take(count);
        let ids = rows.flat_map(|row| row[..width].iter().copied()).collect();
        Targets { ids, count: self.count, width, sequences: self.sequences }
    }

    /// Whether any row is not ignored.
    pub fn any(&self) -> bool {
        self.ids.iter().any(Option::is_some)
    }

    /// The targets for the loss of rows of logits of `classes` classes, computed in `dtype`.
    pub fn loss_targets(&self, classes: usize, dtype: DType) -> LossTargets<Feed> {
        let count = self.ids.len();
        let ids: Vec<u32> = self.ids.iter().map(|target| target.unwrap_or(0)).collect();
        let weights = |share: f64| -> Feed {
            let weight = |target: &Option<u32>| if target.is_some() { share } else { 0.0 };
            Feed::numbers(&self.ids.iter().map(weight).collect::<Vec<_>>(), dtype, count)
        };
        LossTargets {
            ids: Feed::ids(ids, count, classes),
            shares: weights(1.0 / self.count as f64),
            ones: weights(1.0),
        }
    }
}

impl<T> LossTargets<T> {
    /// The same with each part changed, in order.
    pub fn map<U>(self, change: &mut dyn FnMut(T) -> Result<U, ModelError>) -> Result<LossTargets<U>, ModelError> {
        let LossTargets { ids, shares, ones } = self;
        Ok(LossTargets { ids: change(ids)?, shares: change(shares)?, ones: change(ones)? })
    }
}

impl LossTargets<Tensor> {
    /// The cross entropies of `logits` (whose last axis is that of classes), summed and divided by the count: a scalar.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn loss(&self, logits: &Tensor, smoothing: f64) -> Result<Tensor, ModelError> {
        self.mean(&self.rows(logits)?.cross_entropy(&self.ids, smoothing)?)
    }

    /// The losses of the rows, summed and divided by the count: a scalar.
    ///
    /// # Errors
    /// If their number is not N.
    pub fn mean(&self, losses: &Tensor) -> Result<Tensor, ModelError> {
        Ok(losses.mul(&self.shares)?.sum(&[0], false)?)
    }

    /// The number of correct rows that are not ignored, each 1 or 0: a scalar. Unlike [`Score::hits`], a tie of the target's
    /// logit with another counts as correct.
    ///
    /// # Errors
    /// If their number is not N.
    pub fn count(&self, hits: &Tensor) -> Result<Tensor, ModelError> {
        Ok(hits.mul(&self.ones)?.sum(&[0], false)?)
    }

    /// `[N, V]`
    fn rows(&self, logits: &Tensor) -> Result<Tensor, ModelError> {
        Ok(logits.reshape([self.ids.numel(), logits.dims().last().copied().unwrap_or(1)])?)
    }
}

fn class_targets(sequences: usize, labels: &[u32], classes: usize) -> Result<Vec<Option<u32>>, ModelError> {
    if labels.len() != sequences {
        return Err(ModelError::Input(format!("{} labels for {sequences} samples", labels.len())));
    }
    if let Some(label) = labels.iter().find(|label| **label as usize >= classes) {
        return Err(ModelError::Input(format!("label {label} is outside the {classes} classes")));
    }
    Ok(labels.iter().copied().map(Some).collect())
}

/// For each position of `[B, T]` the next token; `None` at the last position and in the padding.
fn next_tokens(tokens: &[u32], padded: usize, lengths: &[usize]) -> Vec<Option<u32>> {
    let next = |place: usize| {
        let (row, t) = (place / padded, place % padded);
        (t + 1 < lengths[row]).then(|| tokens[place + 1])
    };
    (0..tokens.len()).map(next).collect()
}

/// For each row of logits with a target, whether the target's logit is the largest; a tie goes to the lower index.
fn find_hits(rows: &Tensor, targets: &[Option<u32>]) -> Result<Vec<bool>, ModelError> {
    let width = *rows.dims().last().unwrap_or(&1);
    Ok(match rows.to_host()? {
        HostData::F32(values) => find_hits_in_rows(&values, width, targets),
        other => find_hits_in_rows(&other.to_f64(), width, targets),
    })
}

fn find_hits_in_rows<T: PartialOrd>(values: &[T], width: usize, targets: &[Option<u32>]) -> Vec<bool> {
    let right = |(row, target): (&[T], &Option<u32>)| {
        let target = (*target)?;
        let mut best = 0;
        for (index, value) in row.iter().enumerate() {
            if *value > row[best] {
                best = index;
            }
        }
        Some(target == best as u32)
    };
    values.chunks_exact(width).zip(targets).filter_map(right).collect()
}
