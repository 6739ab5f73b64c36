//! Heads: convert hidden vectors into predictions, of classes or of next tokens.

use assay_tensor::{DType, Feed, Tensor};

use crate::batch::Batch;
use crate::config::{Common, Objective, PairFeatures, Pool, Task};
use crate::error::ModelError;
use crate::layers::{Embedding, Linear};
use crate::loss::LossTargets;
use crate::parameters::{Scope, Weight};

/// The last layer. Parameters `head.weight` and `head.bias`; a tied language model has none.
#[derive(Clone)]
pub enum Head {
    /// Pools the sequence and predicts a class.
    Classifier {
        /// The pooling.
        pool: Pool,
        /// The features of a pair; `None` if a sample is one sequence.
        pairs: Option<PairFeatures>,
        /// D, or of pairs 4 D or 2 D, to the number of classes.
        linear: Linear,
    },
    /// Predicts the next token with a separate matrix.
    Untied(Linear),
    /// Predicts the next token with the embedding table.
    Tied(Linear),
}

impl Head {
    /// Registers its parameters below `scope`.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(
        scope: &mut Scope,
        task: &Task,
        &Common { pool, pair_features, tied, .. }: &Common,
        embedding: &Embedding,
    ) -> Result<Self, ModelError> {
        let dim = embedding.table.dims()[1];
        Ok(match task.objective {
            Objective::Classify(classes) => {
                Head::Classifier { pool, pairs: None, linear: Linear::build(scope, classes, dim, 1.0)? }
            }
            Objective::ClassifyPairs(classes) => {
                let linear = Linear::build(scope, classes, dim * pair_features.count(), 1.0)?;
                Head::Classifier { pool, pairs: Some(pair_features), linear }
            }
            Objective::Predict if tied => {
                Head::Tied(Linear::new(Weight::Dense(embedding.table.clone()), scope.precision())?)
            }
            Objective::Predict => Head::Untied(Linear::build(scope, task.vocabulary, dim, 1.0)?),
        })
    }

    /// From hidden vectors `[B, T, D]` to logits: `[B, classes]` for a classifier (of pairs, `[B / 2, classes]`), `[B, T, V]` for a
    /// language model.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(&self, hidden: &Tensor, batch: &Batch) -> Result<Tensor, ModelError> {
        match self {
            Head::Classifier { pool, .. } => {
                let padded = hidden.dims().get(1).copied().unwrap_or(1);
                let table = pool.table(batch.lengths(), 0, padded, hidden.dtype()).upload(hidden.device())?;
                self.read(&pool.part(hidden, &table)?)
            }
            Head::Untied(_) | Head::Tied(_) => self.read(hidden),
        }
    }

    /// The loss of vectors `[.., D]`, already pooled for a classifier, and the number of correct predictions: two scalars, see
    /// [`LossTargets`].
    pub(crate) fn measure(
        &self,
        vectors: &Tensor,
        loss_targets: &LossTargets<Tensor>,
        smoothing: f64,
    ) -> Result<(Tensor, Tensor), ModelError> {
        match self {
            Head::Classifier { linear, .. } | Head::Untied(linear) | Head::Tied(linear) => {
                let (losses, hits) = linear.cross_entropy(&self.features(vectors)?, &loss_targets.ids, smoothing)?;
                Ok((loss_targets.mean(&losses)?, loss_targets.count(&hits)?))
            }
        }
    }

    /// The input of the last layer: of pairs `[B / 2, 4 D]` or `[B / 2, 2 D]`, given the pooled vectors `[B, D]`; otherwise the vectors.
    fn features(&self, vectors: &Tensor) -> Result<Tensor, ModelError> {
        let Head::Classifier { pairs: Some(pairs), .. } = self else { return Ok(vectors.clone()) };
        let &[sequences, dim] = vectors.dims() else {
            return Err(ModelError::Input(format!("pooled vectors have shape {:?}, not [B, D]", vectors.dims())));
        };
        if !sequences.is_multiple_of(2) {
            return Err(ModelError::Input(format!("{sequences} sequences are not pairs")));
        }
        let both = vectors.reshape([sequences / 2, 2, dim])?;
        let of = |place: usize| Ok::<_, ModelError>(both.slice(1, place, 1)?.reshape([sequences / 2, dim])?);
        let (first, second) = (of(0)?, of(1)?);
        Ok(match pairs {
            PairFeatures::Interaction => {
                Tensor::concat(&[&first, &second, &first.mul(&second)?, &first.sub(&second)?], 1)?
            }
            PairFeatures::Concatenation => vectors.reshape([sequences / 2, 2 * dim])?,
        })
    }

    /// From vectors `[.., D]` to logits; the vectors of a classifier are already pooled.
    pub(crate) fn read(&self, vectors: &Tensor) -> Result<Tensor, ModelError> {
        match self {
            Head::Classifier { linear, .. } | Head::Untied(linear) | Head::Tied(linear) => {
                linear.forward(&self.features(vectors)?)
            }
        }
    }
}

/// How pieces of hidden vectors contribute to a classifier's vector of a sequence: with a table that weighs or masks each
/// position. Joining the parts of all pieces gives the result of the whole sequence. Padding is ignored.
impl Pool {
    /// The table of `padded` positions from `start` on for sequences of these lengths: weights `[B, 1, T]`, or for the
    /// maximum the added mask, `[B, T, 1]`, in the type of computations for `dtype`.
    pub(crate) fn table(self, lengths: &[usize], start: usize, padded: usize, dtype: DType) -> Feed {
        let count = lengths.len();
        let table = |value: &dyn Fn(usize, usize) -> f64, shape: [usize; 3]| {
            let row = |length: &usize| (start..start + padded).map(|t| value(t, *length)).collect::<Vec<_>>();
            Feed::numbers(&lengths.iter().flat_map(row).collect::<Vec<_>>(), dtype, shape)
        };
        match self {
            Pool::Mean => table(&|t, length| if t < length { 1.0 / length as f64 } else { 0.0 }, [count, 1, padded]),
            Pool::Last => table(&|t, length| if t + 1 == length { 1.0 } else { 0.0 }, [count, 1, padded]),
            Pool::Max => table(&|t, length| if t < length { 0.0 } else { -1e30 }, [count, padded, 1]),
        }
    }

    /// `[B, T, D]` to `[B, D]`, with the table of these positions.
    ///
    /// # Errors
    /// If the shape is different.
    pub(crate) fn part(self, hidden: &Tensor, table: &Tensor) -> Result<Tensor, ModelError> {
        let &[sequences, _, dim] = hidden.dims() else {
            return Err(ModelError::Input(format!("hidden vectors have shape {:?}, not [B, T, D]", hidden.dims())));
        };
        Ok(match self {
            Pool::Mean | Pool::Last => table.matmul(hidden)?.reshape([sequences, dim])?,
            Pool::Max => hidden.add(table)?.max(&[1], false)?,
        })
    }

    /// Joins the part of the next piece to the earlier parts.
    ///
    /// # Errors
    /// If the shapes differ.
    pub(crate) fn join(self, before: Option<Tensor>, part: &Tensor) -> Result<Tensor, ModelError> {
        let Some(before) = before else { return Ok(part.clone()) };
        match self {
            Pool::Max => Ok(before.maximum(part)?),
            Pool::Mean | Pool::Last => Ok(before.add(part)?),
        }
    }
}
