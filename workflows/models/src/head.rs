//! Heads: what turns hidden vectors into predictions, a classifier or a language model.

use assay_tensor::Tensor;

use crate::batch::Batch;
use crate::config::{Objective, Pool, Task};
use crate::error::ModelError;
use crate::layers::{Embedding, Linear};
use crate::parameters::{Scope, Weight, constant};

/// The last layer. Parameters `head.weight` and `head.bias`; a tied language model has none.
#[derive(Clone)]
pub enum Head {
    /// Pools the sequence and names a class.
    Classifier {
        /// How the sequence becomes one vector.
        pool: Pool,
        /// D to the number of classes.
        linear: Linear,
    },
    /// Names the next token, by a matrix of its own.
    Untied(Linear),
    /// Names the next token by the embedding table.
    Tied(Linear),
}

impl Head {
    /// Registers what it needs below `scope`.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(
        scope: &mut Scope,
        task: &Task,
        pool: Pool,
        tied: bool,
        embedding: &Embedding,
    ) -> Result<Self, ModelError> {
        let dim = embedding.table.dims()[1];
        Ok(match task.objective {
            Objective::Classify(classes) => Head::Classifier { pool, linear: Linear::build(scope, classes, dim, 1.0)? },
            Objective::Predict if tied => {
                Head::Tied(Linear::new(Weight::Dense(embedding.table.clone()), scope.precision())?)
            }
            Objective::Predict => Head::Untied(Linear::build(scope, task.vocabulary, dim, 1.0)?),
        })
    }

    /// From hidden vectors `[B, T, D]` to logits: `[B, classes]` of a classifier, `[B, T, V]` of a language model.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(&self, hidden: &Tensor, batch: &Batch) -> Result<Tensor, ModelError> {
        match self {
            Head::Classifier { .. } => self.read(&Pooling::new(self, batch, 0)?.part(hidden)?),
            Head::Untied(_) | Head::Tied(_) => self.read(hidden),
        }
    }

    /// From vectors `[.., D]` to logits; a classifier's are pooled already.
    pub(crate) fn read(&self, vectors: &Tensor) -> Result<Tensor, ModelError> {
        match self {
            Head::Classifier { linear, .. } | Head::Untied(linear) | Head::Tied(linear) => linear.forward(vectors),
        }
    }
}

/// How a piece of hidden vectors, from the place `start` on, enters a classifier's one vector a sequence. The parts of
/// all pieces, joined, are what the whole gives. Padding counts for nothing.
pub(crate) struct Pooling {
    pool: Pool,
    lengths: Vec<usize>,
    start: usize,
}

impl Pooling {
    /// # Errors
    /// [`ModelError::Input`] if the head is no classifier.
    pub fn new(head: &Head, batch: &Batch, start: usize) -> Result<Self, ModelError> {
        let Head::Classifier { pool, .. } = head else {
            return Err(ModelError::Input("only a classifier pools".into()));
        };
        Ok(Pooling { pool: *pool, lengths: batch.lengths().to_vec(), start })
    }

    /// `[B, T, D]` to `[B, D]`.
    ///
    /// # Errors
    /// If the shape is another.
    pub fn part(&self, hidden: &Tensor) -> Result<Tensor, ModelError> {
        let &[sequences, padded, dim] = hidden.dims() else {
            return Err(ModelError::Input(format!("hidden vectors have shape {:?}, not [B, T, D]", hidden.dims())));
        };
        let table = |value: &dyn Fn(usize, usize) -> f64, shape: &[usize]| {
            let places = self.start..self.start + padded;
            let rows = self.lengths.iter();
            let values = rows.flat_map(|length| places.clone().map(move |t| value(t, *length))).collect();
            constant(hidden.device(), hidden.dtype(), values, shape)
        };
        let weighted = |value: &dyn Fn(usize, usize) -> f64| -> Result<Tensor, ModelError> {
            let weights = table(value, &[sequences, 1, padded])?;
            Ok(weights.matmul(hidden)?.reshape([sequences, dim])?)
        };
        match self.pool {
            Pool::Mean => weighted(&|t, length| if t < length { 1.0 / length as f64 } else { 0.0 }),
            Pool::Last => weighted(&|t, length| if t + 1 == length { 1.0 } else { 0.0 }),
            Pool::Max => {
                let mask = table(&|t, length| if t < length { 0.0 } else { -1e30 }, &[sequences, padded, 1])?;
                Ok(hidden.add(&mask)?.max(&[1], false)?)
            }
        }
    }

    /// The part of the next piece joined to those before.
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn join(head: &Head, before: Option<Tensor>, part: &Tensor) -> Result<Tensor, ModelError> {
        let Some(before) = before else { return Ok(part.clone()) };
        match head {
            Head::Classifier { pool: Pool::Max, .. } => Ok(before.maximum(part)?),
            _ => Ok(before.add(part)?),
        }
    }
}
