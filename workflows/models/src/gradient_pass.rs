//! Gradients of a batch: [`Model::learn`], one forward and backward pass; or of several micro-batches:
//! [`GradientAccumulator`].
//!
//! ```text
//! task              config                        how it runs                              activations kept
//! next token        truncate                      piece by piece, backward after each      O(C)
//! next token        checkpoint: chunk             chunk by chunk, each run twice           O(C), and O(T / C) carries
//! classifier        checkpoint: chunk             the same, pooled chunk by chunk          O(C), and O(T / C) carries
//! classifier        truncate, above some tokens   the same, in pieces                      O(C), and O(T / C) carries
//! either            else                          the whole sequence at once               O(T)
//! ```
//!
//! A classifier cannot run the backward pass of a piece before the forward pass of the last one: its pooled vector, and
//! therefore every piece's gradient, depends on all pieces. So its pieces are run twice, if there are enough of them.
//!
//! A piece consists of as many whole chunks as fit into the tokens that the device takes at once (`Capabilities::tokens_at_once`),
//! at least one: with short chunks, weights are then read less often. Between pieces the carry is detached from the tape;
//! inside a piece the network cuts its memory at each chunk boundary. The result does not depend on the size of a piece.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use assay_tensor::{Gradients, Tensor};

use crate::batch::Batch;
use crate::blueprint::Blueprint;
use crate::carry::{Carry, GROWING, SequenceModel, State, is_piece, piece};
use crate::config::Pool;
use crate::error::ModelError;
use crate::head::Head;
use crate::loss::LossTargets;
use crate::micro_batch::{MicroBatch, Plan, Shard};
use crate::mode::Mode;
use crate::model::Model;
use crate::parameters::Weight;
use crate::precision::Precision;
use crate::shares::each;
use crate::stack::recompute;

/// The options of training beyond evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Training {
    /// The fraction of each target that is spread evenly over all classes, in [0, 1].
    pub label_smoothing: f64,
    /// The key of this update's dropout masks; `None` disables dropout.
    pub dropout: Option<u64>,
    /// The precision of activations and products. The gradients are f32.
    pub precision: Precision,
}

/// One forward and backward pass over a batch.
pub struct Pass {
    /// The mean of the objective over `count` predictions, label smoothing included, in nats.
    pub loss: f64,
    /// The number of correct predictions. If several logits are the largest, each of them counts as predicted.
    pub correct: usize,
    /// The number of predictions: sequences for a classifier, tokens for a language model.
    pub count: usize,
    /// The gradients of `loss`, by parameter name. A parameter that the loss does not depend on has none.
    pub gradients: BTreeMap<String, Tensor>,
    /// The times of each piece's forward and backward pass.
    pub timings: Vec<Timing>,
}

/// The time of a part of a pass. An asynchronous device may still be working when the part has ended.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// `forward` or `backward`.
    pub name: &'static str,
    /// The share of the batch, counted from 0; shares may run at the same time.
    pub share: usize,
    /// When it started.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
}

impl Model {
    /// Runs a batch forward and backward; `labels` as in [`Model::score`]. If the model's parameters are not leaves of
    /// the tape, the pass makes them leaves internally, and nothing of its tape outlives it.
    ///
    /// # Errors
    /// [`ModelError::Input`] if the labels do not fit, no token has a next one, or the smoothing is not a fraction;
    /// [`ModelError::Parameter`] if the model is quantized, or is f64 and the precision is lower.
    pub fn learn(&self, batch: &Batch, labels: &[u32], training: &Training) -> Result<Pass, ModelError> {
        let mut accumulator = GradientAccumulator::of(self.track_parameters(training.precision)?, training)?;
        let micro_batch = MicroBatch::from_batch(self.blueprint(), batch, labels, training)?;
        let count = micro_batch.count();
        accumulator.accumulate(micro_batch.upload(self.device())?)?;
        let Learned { values, gradients, timings } = accumulator.finish();
        let (mut loss, mut hits) = (0.0, 0.0);
        for (piece, right) in &values {
            loss += piece.item()?;
            hits += right.item()?;
        }
        Ok(Pass { loss, correct: hits as usize, count, gradients, timings })
    }

    /// The model with every parameter as a leaf of the tape, in this precision: the same model if that is already the case.
    fn track_parameters(&self, precision: Precision) -> Result<Model, ModelError> {
        let leaf = |weight: &Weight| matches!(weight, Weight::Dense(tensor) if tensor.is_tracked());
        let all = self.parameters().iter().all(|(_, parameter)| leaf(&parameter.value));
        if all && precision == Precision::F32 { Ok(self.clone()) } else { self.blueprint().leaves(precision) }
    }
}

/// Adds up the gradients of a model over micro-batches, one after another.
pub struct GradientAccumulator {
    /// Its parameters are leaves of the tape.
    model: Model,
    smoothing: f64,
    sums: Sums,
}

/// The sums over the micro-batches.
pub struct Learned {
    /// The loss and the number of correct predictions of each piece: scalars that have not been read yet.
    pub values: Vec<(Tensor, Tensor)>,
    /// See [`Pass`].
    pub gradients: BTreeMap<String, Tensor>,
    /// See [`Pass`].
    pub timings: Vec<Timing>,
}

impl GradientAccumulator {
    /// An accumulator for a blueprint. The options are the same for all micro-batches.
    ///
    /// # Errors
    /// [`ModelError::Input`] if the smoothing is not a fraction; [`ModelError::Parameter`] as for [`Model::learn`].
    pub fn new(blueprint: &Blueprint, training: &Training) -> Result<Self, ModelError> {
        Self::of(blueprint.leaves(training.precision)?, training)
    }

    /// An accumulator for a model whose parameters are leaves of the tape.
    fn of(model: Model, training: &Training) -> Result<Self, ModelError> {
        let smoothing = training.label_smoothing;
        if !(0.0..=1.0).contains(&smoothing) {
            return Err(ModelError::Input(format!("label smoothing {smoothing} is outside [0, 1]")));
        }
        Ok(GradientAccumulator { model, smoothing, sums: Sums::default() })
    }

    /// Runs a micro-batch forward and backward, and adds its gradients.
    ///
    /// # Errors
    /// If the device fails.
    pub fn accumulate(&mut self, micro_batch: MicroBatch<Tensor>) -> Result<(), ModelError> {
        let (model, smoothing) = (&self.model, self.smoothing);
        let shares = each(model.device(), micro_batch.shards.len(), |share| {
            let shard = &micro_batch.shards[share];
            let mode = Mode::Learn { dropout: shard.seed.clone(), part: 0 };
            Learner { model, shard, mode, smoothing, share }.learn()
        })?;
        let before = std::mem::take(&mut self.sums);
        self.sums = Sums::of(std::iter::once(before).chain(shares))?;
        Ok(())
    }

    /// The accumulated results. No reference to the model remains.
    #[must_use]
    pub fn finish(self) -> Learned {
        let GradientAccumulator { model, mut sums, .. } = self;
        let mut gradients = BTreeMap::new();
        for (name, parameter) in model.parameters().iter() {
            if let Weight::Dense(leaf) = &parameter.value
                && let Some(gradient) = sums.gradients.take(leaf)
            {
                gradients.insert(name.to_string(), gradient);
            }
        }
        Learned { values: sums.values, gradients, timings: sums.timings }
    }
}

/// The sums of a pass.
#[derive(Default)]
struct Sums {
    /// The loss and the correct predictions of each piece, read at the end: until then nothing waits for the device.
    values: Vec<(Tensor, Tensor)>,
    gradients: Gradients,
    timings: Vec<Timing>,
}

impl Sums {
    /// The sums of all shares, in their order.
    fn of(shares: impl IntoIterator<Item = Sums>) -> Result<Sums, ModelError> {
        let (mut values, mut timings, mut gradients) = (Vec::new(), Vec::new(), Vec::new());
        for share in shares {
            values.extend(share.values);
            timings.extend(share.timings);
            gradients.push(share.gradients);
        }
        Ok(Sums { values, timings, gradients: Gradients::sum(gradients)? })
    }
}

/// A pass over a share of the batch, in progress.
struct Learner<'a> {
    model: &'a Model,
    shard: &'a Shard<Tensor>,
    mode: Mode,
    smoothing: f64,
    share: usize,
}

impl Learner<'_> {
    fn learn(&self) -> Result<Sums, ModelError> {
        match (&self.shard.plan, self.model.head()) {
            (Plan::Whole, _) => self.learn_at_once(),
            (Plan::Truncated(lengths), _) => self.learn_truncated(lengths),
            (Plan::Chunks(_), Head::Classifier { pool, .. }) => self.classify_by_chunks(*pool),
            (Plan::Chunks(_), _) => self.predict_by_chunks(),
        }
    }

    /// Runs the backward pass of a part of the loss, whose forward pass started at `began`.
    fn run_backward(&self, sums: &mut Sums, began: Instant, (loss, hits): (Tensor, Tensor)) -> Result<(), ModelError> {
        let turned = Instant::now();
        sums.gradients = loss.backward_onto(std::mem::take(&mut sums.gradients))?;
        sums.values.push((loss.detach(), hits));
        let timing = |name, began, ended| Timing { name, share: self.share, began, ended };
        sums.timings.extend([timing("forward", began, turned), timing("backward", turned, Instant::now())]);
        Ok(())
    }

    /// The loss and the correct predictions of the head's input, for a classifier or a whole share.
    fn measure(&self, vectors: &Tensor) -> Result<(Tensor, Tensor), ModelError> {
        let nothing = || ModelError::Input("a share without a prediction".into());
        self.model.head().measure(vectors, self.loss_targets(0).ok_or_else(nothing)?, self.smoothing)
    }

    /// The targets of a piece; `None` if it predicts nothing.
    fn loss_targets(&self, piece: usize) -> Option<&LossTargets<Tensor>> {
        self.shard.loss_targets.get(piece).and_then(Option::as_ref)
    }

    fn learn_at_once(&self) -> Result<Sums, ModelError> {
        let (mut sums, began) = (Sums::default(), Instant::now());
        // All sequences of a share may consist of one token, for which a language model predicts nothing.
        if self.loss_targets(0).is_none() {
            return Ok(sums);
        }
        let hidden = self.model.hidden(&self.shard.batch(), &self.mode)?;
        let vectors = match (self.model.head(), self.shard.pooling.first()) {
            (Head::Classifier { pool, .. }, Some(table)) => pool.part(&hidden, table)?,
            _ => hidden,
        };
        let measured = self.measure(&vectors)?;
        drop(vectors);
        self.run_backward(&mut sums, began, measured)?;
        Ok(sums)
    }

    /// A language model whose gradients end at the chunk boundaries.
    fn learn_truncated(&self, lengths: &[usize]) -> Result<Sums, ModelError> {
        let (mut sums, mut carry) = (Sums::default(), Carry::default());
        for (piece, length) in lengths.iter().enumerate() {
            let Some(loss_targets) = self.loss_targets(piece) else { break };
            let began = Instant::now();
            let tokens = self.shard.tokens.slice(1, carry.position, *length)?;
            let (hidden, next_carry) = self.model.network().run(&tokens, &carry, &self.mode)?;
            let measured = self.model.head().measure(&hidden, loss_targets, self.smoothing)?;
            drop(hidden);
            self.run_backward(&mut sums, began, measured)?;
            carry = next_carry.detach();
        }
        Ok(sums)
    }

    /// A language model whose gradients flow through all chunks, each of which is recomputed in the backward pass.
    fn predict_by_chunks(&self) -> Result<Sums, ModelError> {
        let (mut memory, mut total, began) = (Memory::default(), None::<(Tensor, Tensor)>, Instant::now());
        for (piece, (_, length)) in self.pieces().into_iter().enumerate() {
            let Some(loss_targets) = self.loss_targets(piece).cloned() else { break };
            let (model, smoothing) = (self.model.clone(), self.smoothing);
            let of_hidden = move |hidden: &Tensor| {
                let (loss, hits) = model.head().measure(hidden, &loss_targets, smoothing)?;
                Ok(vec![loss, hits])
            };
            let outputs = self.run_chunk(&mut memory, length, of_hidden)?;
            total = Some(match total {
                None => (outputs[0].clone(), outputs[1].clone()),
                Some((loss, hits)) => (loss.add(&outputs[0])?, hits.add(&outputs[1])?),
            });
        }
        let mut sums = Sums::default();
        if let Some(measured) = total {
            self.run_backward(&mut sums, began, measured)?;
        }
        Ok(sums)
    }

    /// A classifier, pooled chunk by chunk.
    fn classify_by_chunks(&self, pool: Pool) -> Result<Sums, ModelError> {
        let (mut memory, mut pooled, began) = (Memory::default(), None::<Tensor>, Instant::now());
        for ((_, length), table) in self.pieces().into_iter().zip(self.shard.pooling.iter().cloned()) {
            let part = self.run_chunk(&mut memory, length, move |hidden| Ok(vec![pool.part(hidden, &table)?]))?;
            pooled = Some(pool.join(pooled, &part[0])?);
            if self.model.config().common().truncate {
                memory.detach();
            }
        }
        let pooled = pooled.ok_or_else(|| ModelError::Input("a batch without tokens".into()))?;
        let measured = self.measure(&pooled)?;
        let mut sums = Sums::default();
        self.run_backward(&mut sums, began, measured)?;
        Ok(sums)
    }

    /// The start and length of each piece.
    fn pieces(&self) -> Vec<(usize, usize)> {
        self.shard.plan.pieces(self.shard.dims[1])
    }

    /// Runs the network on the next `length` tokens and `of_hidden` on the result, keeping only the carry.
    fn run_chunk(
        &self,
        memory: &mut Memory,
        length: usize,
        of_hidden: impl Fn(&Tensor) -> Result<Vec<Tensor>, ModelError> + Send + Sync + 'static,
    ) -> Result<Vec<Tensor>, ModelError> {
        let tokens = self.shard.tokens.slice(1, memory.position, length)?;
        let (network, mode, position) = (self.model.network().clone(), self.mode.clone(), memory.position);
        let run = move |inputs: &[Tensor], carry: &Carry| {
            let (hidden, next_carry) = network.run(&inputs[0], carry, &mode)?;
            Ok((of_hidden(&hidden)?, next_carry.state))
        };
        let carry = Carry { position, state: memory.state.clone() };
        let (outputs, state) = recompute(&[&tokens], &carry, run)?;
        memory.take(state, position + length);
        Ok(outputs)
    }
}

/// A carry between recomputed chunks. State that grows with the sequence, such as the keys of attention (`[B, H, T,
/// P]`, one entry for each token), is stored in the pieces that the chunks added: if each chunk kept the whole past,
/// the memory would grow with the square of the length.
#[derive(Default)]
struct Memory {
    position: usize,
    state: State,
    /// The names of its pieces.
    pieces: BTreeSet<Arc<str>>,
}

impl Memory {
    /// Adds the state of a chunk that ended at `position`: for state in pieces, the new piece.
    fn take(&mut self, news: State, position: usize) {
        self.state.retain(|name| self.pieces.contains(name));
        for (name, tensor) in news {
            let first = self.position == 0 && tensor.rank() == 4 && tensor.dims()[GROWING] == position;
            let name = if first { piece(&name, 0).into() } else { name };
            if first || is_piece(&name) {
                self.pieces.insert(name.clone());
            }
            self.state.insert(name, tensor);
        }
        self.position = position;
    }

    fn detach(&mut self) {
        self.state.parts_mut().for_each(|tensor| *tensor = tensor.detach());
    }
}

#[cfg(test)]
mod tests {
    use assay_tensor::{DType, Device};
    use serde_json::json;

    use super::*;
    use crate::batch::Batch;
    use crate::config::{ModelConfig, Objective, Task};

    /// The loss and gradients of a truncated classifier of 2100 tokens, more than are kept at once.
    fn learned(device: &Device, pool: &str, checkpoint: &str) -> Pass {
        let config = json!({
            "family": "ten", "dim": 4, "states": 3, "layers": 1, "chunk": 150, "pool": pool, "checkpoint": checkpoint,
            "dropout": 0.2,
        });
        let config: ModelConfig = serde_json::from_value(config).unwrap();
        let task = Task { vocabulary: 5, max_length: 2000, objective: Objective::Classify(3) };
        let model = Model::fresh(device, &config, &task, 4, DType::F64).unwrap();
        let ids: Vec<u32> = (0..1050).map(|i| i * i % 5).collect();
        let batch = Batch::new(device, &[&ids, &ids[3..900]]).unwrap();
        let training = Training { dropout: Some(8), label_smoothing: 0.1, ..Training::default() };
        model.learn(&batch, &[2, 0], &training).unwrap()
    }

    #[test]
    fn a_truncated_classifier_learns_the_same_in_pieces_of_any_size() {
        let device = assay_reference::device();
        for pool in ["mean", "last", "max"] {
            let (pieces, chunks) = (learned(&device, pool, "none"), learned(&device, pool, "chunk"));
            assert!((pieces.loss - chunks.loss).abs() < 1e-12 && pieces.gradients.len() == chunks.gradients.len());
            for (name, gradient) in &pieces.gradients {
                let difference = gradient.sub(&chunks.gradients[name]).unwrap().abs().unwrap();
                let difference = difference.sum_all().unwrap().item().unwrap();
                assert!(difference < 1e-10, "{name}, {pool}: {difference}");
            }
        }
    }
}
