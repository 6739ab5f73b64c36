//! Learning from a batch: [`Model::learn`], one forward and backward pass.
//!
//! ```text
//! task              config                        how it runs                              activations kept
//! next token        truncate                      piece by piece, backward after each      O(C)
//! next token        checkpoint: chunk             chunk by chunk, each run twice           O(C), and O(T / C) carries
//! classifier        checkpoint: chunk             the same, pooled chunk by chunk          O(C), and O(T / C) carries
//! either            else                          the whole sequence at once               O(T)
//! ```
//!
//! A piece of the first kind is as many whole chunks as have [`PIECE_TOKENS`] tokens together, at least one: where
//! chunks are short, weights are read less often. Between pieces the carry is cut off the tape; inside
//! one the network cuts its memory at each chunk boundary. The result is the same for every size of a piece.

use std::collections::BTreeMap;
use std::time::Instant;

use assay_tensor::{DType, Gradients, Tensor};

use crate::batch::Batch;
use crate::carry::{Carry, SequenceModel, State};
use crate::config::{Checkpoint, Objective};
use crate::error::ModelError;
use crate::head::Pooling;
use crate::loss::Targets;
use crate::mode::{Mode, of_share};
use crate::model::Model;
use crate::parameters::Weight;
use crate::pieces::Pieces;
use crate::precision::Precision;
use crate::shares::Shares;
use crate::stack::recompute;

/// The tokens of a batch that a truncated pass takes at once, unless one chunk has more.
const PIECE_TOKENS: usize = 512;

/// What training asks beyond evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Training {
    /// Share of each target that is spread evenly over all classes, in [0, 1].
    pub label_smoothing: f64,
    /// The key of this update's dropout masks; none: no dropout.
    pub dropout: Option<u64>,
    /// What the pass keeps, and multiplies. The gradients are f32.
    pub precision: Precision,
}

/// One forward and backward pass over a batch.
pub struct Pass {
    /// The mean over `count` predictions of what is optimised, label smoothing included, in nats.
    pub loss: f64,
    /// How many predictions were right. Where several logits are the largest, each of them counts as predicted.
    pub correct: usize,
    /// How many predictions were made: sequences of a classifier, tokens of a language model.
    pub count: usize,
    /// Of `loss`, by parameter name. A parameter that the loss does not depend on has none.
    pub gradients: BTreeMap<String, Tensor>,
    /// When each piece went forward and back.
    pub timings: Vec<Timing>,
}

/// When a part of a pass ran. A device that works on its own may still be at it when the part has ended.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// `forward` or `backward`.
    pub name: &'static str,
    /// Which share of the batch, counted from 0; shares may run at the same time.
    pub share: usize,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
}

impl Model {
    /// Runs a batch forward and backward; `labels` as in [`Model::score`]. The model's parameters need not be leaves of
    /// the tape: if they are not, the pass makes them leaves for itself, and nothing of the tape outlives it.
    ///
    /// # Errors
    /// [`ModelError::Input`] if the labels do not fit, no token has a next one, or the smoothing is no share;
    /// [`ModelError::Parameter`] if the model is quantized, or is f64 and the precision is lower.
    pub fn learn(&self, batch: &Batch, labels: &[u32], training: &Training) -> Result<Pass, ModelError> {
        let smoothing = training.label_smoothing;
        if !(0.0..=1.0).contains(&smoothing) {
            return Err(ModelError::Input(format!("label smoothing {smoothing} is outside [0, 1]")));
        }
        let targets = Targets::new(self.task().objective, batch, labels)?;
        let model = self.tracked(training.precision)?;
        let device = batch.tokens().device();
        let shares = Shares::new(device, batch).each(device, |share, sequences| {
            let batch = &batch.part(sequences.clone())?;
            let targets = targets.part(sequences.clone(), batch.tokens().dims()[1]);
            let mode = Mode::Learn { dropout: training.dropout.map(|key| of_share(key, share)) };
            Learner { model: &model, batch, targets, mode, smoothing, share }.learn()
        })?;
        let mut sums = Sums::default();
        for share in shares {
            sums.join(share)?;
        }
        model.finish(sums, targets.count)
    }

    fn finish(&self, mut sums: Sums, count: usize) -> Result<Pass, ModelError> {
        let mut gradients = BTreeMap::new();
        for (name, parameter) in self.parameters().iter() {
            if let Weight::Dense(leaf) = &parameter.value
                && let Some(gradient) = sums.gradients.take(leaf)
            {
                gradients.insert(name.to_string(), gradient);
            }
        }
        let (mut loss, mut hits) = (0.0, 0.0);
        for (piece, right) in &sums.values {
            loss += piece.item()?;
            hits += right.item()?;
        }
        Ok(Pass { loss, correct: hits as usize, count, gradients, timings: sums.timings })
    }

    /// The model with every parameter a leaf of the tape, in this precision: itself if it is so already. Weights are rounded
    /// here, once for the whole pass.
    fn tracked(&self, precision: Precision) -> Result<Model, ModelError> {
        let mut all = true;
        for (name, parameter) in self.parameters().iter() {
            match &parameter.value {
                Weight::Dense(tensor) if precision != Precision::F32 && tensor.dtype() != DType::F32 => {
                    return Err(ModelError::parameter(name, "is not f32, which another precision begins with"));
                }
                Weight::Dense(tensor) => all &= tensor.is_tracked(),
                Weight::Int8 { .. } => return Err(ModelError::parameter(name, "is int8, which cannot be trained")),
            }
        }
        if all && precision == Precision::F32 {
            return Ok(self.clone());
        }
        let leaf = |_: &str, value: &Tensor| Ok(if value.is_tracked() { value.clone() } else { value.variable() });
        self.in_precision(&self.parameters().map(leaf)?, precision)
    }
}

/// What a pass adds up.
#[derive(Default)]
struct Sums {
    /// The loss and the hits of each piece, read at the end: until then nothing waits for the device.
    values: Vec<(Tensor, Tensor)>,
    gradients: Gradients,
    timings: Vec<Timing>,
}

impl Sums {
    fn join(&mut self, other: Sums) -> Result<(), ModelError> {
        self.values.extend(other.values);
        self.timings.extend(other.timings);
        Ok(self.gradients.add(other.gradients)?)
    }
}

/// A pass over a share of the batch, under way.
struct Learner<'a> {
    model: &'a Model,
    batch: &'a Batch,
    targets: Targets,
    mode: Mode,
    smoothing: f64,
    share: usize,
}

impl Learner<'_> {
    fn learn(&self) -> Result<Sums, ModelError> {
        let common = self.model.config().common();
        let predict = self.model.task().objective == Objective::Predict;
        match common.checkpoint {
            _ if predict && common.truncate => self.truncated(common.chunk),
            Checkpoint::Chunk if predict => self.predict_by_chunks(common.chunk),
            Checkpoint::Chunk => self.classify_by_chunks(common.chunk, common.truncate),
            Checkpoint::None | Checkpoint::Block => self.at_once(),
        }
    }

    /// Goes back from a part of the loss, whose way forward `began` then.
    fn back(&self, sums: &mut Sums, began: Instant, (loss, hits): (Tensor, Tensor)) -> Result<(), ModelError> {
        let turned = Instant::now();
        sums.gradients = loss.backward_onto(std::mem::take(&mut sums.gradients))?;
        sums.values.push((loss.detach(), hits));
        let timing = |name, began, ended| Timing { name, share: self.share, began, ended };
        sums.timings.extend([timing("forward", began, turned), timing("backward", turned, Instant::now())]);
        Ok(())
    }

    /// Loss and hits of hidden vectors whose targets are these.
    fn measure(&self, logits: &Tensor, targets: &Targets) -> Result<(Tensor, Tensor), ModelError> {
        measure(logits, targets, self.smoothing)
    }

    fn at_once(&self) -> Result<Sums, ModelError> {
        let (mut sums, began) = (Sums::default(), Instant::now());
        let hidden = self.model.hidden(self.batch, self.mode)?;
        let measured = self.measure(&self.model.head().forward(&hidden, self.batch)?, &self.targets)?;
        drop(hidden);
        self.back(&mut sums, began, measured)?;
        Ok(sums)
    }

    /// A language model whose gradients end at the chunk boundaries.
    fn truncated(&self, chunk: usize) -> Result<Sums, ModelError> {
        let (mut sums, mut carry) = (Sums::default(), Carry::default());
        let together = PIECE_TOKENS / (self.batch.lengths().len() * chunk).max(1);
        for length in self.cuts(chunk.saturating_mul(together.max(1))) {
            let targets = self.targets.piece(carry.position, length);
            if !targets.any() {
                break;
            }
            let began = Instant::now();
            let tokens = self.batch.tokens().slice(1, carry.position, length)?;
            let (hidden, after) = self.model.network().run(&tokens, &carry, self.mode)?;
            let measured = self.measure(&self.model.head().read(&hidden)?, &targets)?;
            drop(hidden);
            self.back(&mut sums, began, measured)?;
            carry = after.detach();
        }
        Ok(sums)
    }

    /// A language model whose gradients flow through all chunks, each of which is run again on the way back.
    fn predict_by_chunks(&self, chunk: usize) -> Result<Sums, ModelError> {
        let (mut memory, mut total, began) = (Memory::default(), None::<(Tensor, Tensor)>, Instant::now());
        for length in self.cuts(chunk) {
            let targets = self.targets.piece(memory.position, length);
            if !targets.any() {
                break;
            }
            let (model, smoothing) = (self.model.clone(), self.smoothing);
            let of_hidden = move |hidden: &Tensor| {
                let (loss, hits) = measure(&model.head().read(hidden)?, &targets, smoothing)?;
                Ok(vec![loss, hits])
            };
            let outputs = self.chunk(&mut memory, length, of_hidden)?;
            total = Some(match total {
                None => (outputs[0].clone(), outputs[1].clone()),
                Some((loss, hits)) => (loss.add(&outputs[0])?, hits.add(&outputs[1])?),
            });
        }
        let mut sums = Sums::default();
        if let Some(measured) = total {
            self.back(&mut sums, began, measured)?;
        }
        Ok(sums)
    }

    /// A classifier, pooled chunk by chunk.
    fn classify_by_chunks(&self, chunk: usize, truncate: bool) -> Result<Sums, ModelError> {
        let (mut memory, mut pooled, began) = (Memory::default(), None::<Tensor>, Instant::now());
        for length in self.cuts(chunk) {
            let pooling = Pooling::new(self.model.head(), self.batch, memory.position)?;
            let part = self.chunk(&mut memory, length, move |hidden| Ok(vec![pooling.part(hidden)?]))?;
            pooled = Some(Pooling::join(self.model.head(), pooled, &part[0])?);
            if truncate {
                memory.detach();
            }
        }
        let pooled = pooled.ok_or_else(|| ModelError::Input("a batch without tokens".into()))?;
        let measured = self.measure(&self.model.head().read(&pooled)?, &self.targets)?;
        let mut sums = Sums::default();
        self.back(&mut sums, began, measured)?;
        Ok(sums)
    }

    /// The lengths of the pieces of the whole batch.
    fn cuts(&self, chunk: usize) -> Vec<usize> {
        Pieces::new(0, self.batch.tokens().dims()[1], chunk).lengths()
    }

    /// Runs the network on the next `length` tokens and `of_hidden` on what comes out, keeping only the memory.
    fn chunk(
        &self,
        memory: &mut Memory,
        length: usize,
        of_hidden: impl Fn(&Tensor) -> Result<Vec<Tensor>, ModelError> + Send + Sync + 'static,
    ) -> Result<Vec<Tensor>, ModelError> {
        let tokens = self.batch.tokens().slice(1, memory.position, length)?;
        let (network, mode, position) = (self.model.network().clone(), self.mode, memory.position);
        let counts: Vec<(String, usize)> = memory.grown.iter().map(|(name, all)| (name.clone(), all.len())).collect();
        let run = move |inputs: &[Tensor], carry: &Carry| {
            let carry = Memory::joined(carry, &counts, &inputs[1..])?;
            let (hidden, after) = network.run(&inputs[0], &carry, mode)?;
            Ok((of_hidden(&hidden)?, Memory::news(after, position)?))
        };
        let inputs: Vec<&Tensor> = std::iter::once(&tokens).chain(memory.grown.values().flatten()).collect();
        let carry = Carry { position, state: memory.state.clone() };
        let (outputs, state) = recompute(&inputs, &carry, run)?;
        memory.take(state, position + length);
        Ok(outputs)
    }
}

fn measure(logits: &Tensor, targets: &Targets, smoothing: f64) -> Result<(Tensor, Tensor), ModelError> {
    let rows = logits.reshape([targets.rows(), logits.dims().last().copied().unwrap_or(1)])?;
    Ok((targets.loss(&rows, smoothing)?, targets.hits(&rows)?))
}

/// A carry between chunks that are run again. What grows with the sequence, such as the keys of attention (`[B, H, T,
/// P]`, one place for each token read), is held in the pieces that the chunks added: were each chunk to keep the whole
/// past, the memory would grow with the square of the length.
#[derive(Default)]
struct Memory {
    position: usize,
    state: State,
    grown: BTreeMap<String, Vec<Tensor>>,
}

/// The axis of time in what grows.
const GROWING: usize = 2;
/// Marks the name of a piece that is to be put behind the earlier ones.
const PIECE: char = '+';

impl Memory {
    /// The carry as the network knows it.
    fn joined(carry: &Carry, counts: &[(String, usize)], mut pieces: &[Tensor]) -> Result<Carry, ModelError> {
        let mut carry = carry.clone();
        for (name, count) in counts {
            let (these, rest) = pieces.split_at(*count);
            let joined = Tensor::concat(&these.iter().collect::<Vec<_>>(), GROWING)?;
            carry.state.insert(name.clone(), joined);
            pieces = rest;
        }
        Ok(carry)
    }

    /// What a chunk that began at `position` leaves: of what grows, only its own piece.
    fn news(after: Carry, position: usize) -> Result<State, ModelError> {
        let length = after.position - position;
        let mut news = State::new();
        for (name, tensor) in after.state {
            let grows = tensor.rank() == 4 && tensor.dims()[GROWING] == after.position;
            match grows {
                true => news.insert(format!("{PIECE}{name}"), tensor.slice(GROWING, position, length)?),
                false => news.insert(name, tensor),
            };
        }
        Ok(news)
    }

    fn take(&mut self, news: State, position: usize) {
        self.position = position;
        self.state.clear();
        let mut grown = BTreeMap::new();
        for (name, tensor) in news {
            match name.strip_prefix(PIECE) {
                None => drop(self.state.insert(name, tensor)),
                Some(name) => {
                    let mut all = self.grown.remove(name).unwrap_or_default();
                    all.push(tensor);
                    grown.insert(name.to_string(), all);
                }
            }
        }
        self.grown = grown;
    }

    fn detach(&mut self) {
        let all = self.state.values_mut().chain(self.grown.values_mut().flatten());
        all.for_each(|tensor| *tensor = tensor.detach());
    }
}
