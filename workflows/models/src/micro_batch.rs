//! The inputs of a pass, prepared on the host before it starts: [`MicroBatch`].
//!
//! It contains everything that differs between batches of one shape, as [`Feed`]s in a fixed order: the tokens, the targets,
//! the pooling of a classifier, and the seed of dropout. All other operations of a pass depend only on the model and on a
//! micro-batch's [outline](MicroBatch::outline), so a device may replay them (see `assay_tensor::Replayer`).

use std::ops::Range;

use assay_tensor::{Device, Feed, HostData, Tensor};

use crate::batch::Batch;
use crate::blueprint::Blueprint;
use crate::config::{Checkpoint, Objective};
use crate::error::ModelError;
use crate::gradient_pass::Training;
use crate::loss::{LossTargets, Targets};
use crate::mode::of_share;
use crate::pieces::Pieces;
use crate::shares::Shares;

/// A truncated classifier stores all activations of up to this many times the tokens that a device takes at once, instead
/// of running pieces twice.
const KEPT_AT_ONCE: usize = 4;

/// A batch, or a part of one, for training. `T` is [`Feed`] on the host, [`Tensor`] on a device, and `()` for an outline.
#[derive(Debug, Clone)]
pub struct MicroBatch<T> {
    pub(crate) shards: Vec<Shard<T>>,
    count: usize,
}

/// The sequences that one share of a device processes.
#[derive(Debug, Clone)]
pub(crate) struct Shard<T> {
    pub plan: Plan,
    /// The number of sequences, and the tokens of the longest.
    pub dims: [usize; 2],
    /// The length of each sequence, if the network needs it; `None` if padding cannot affect it.
    pub lengths: Option<Vec<usize>>,
    /// U32, `[B, T]`.
    pub tokens: T,
    /// U32, `[2]`, if dropout is enabled.
    pub seed: Option<T>,
    /// The pooling of a classifier, for each piece.
    pub pooling: Vec<T>,
    /// For each piece of a language model, `None` if it predicts nothing; one for a classifier.
    pub loss_targets: Vec<Option<LossTargets<T>>>,
}

/// How a shard is processed. See the table at the top of `gradient_pass.rs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// All at once.
    Whole,
    /// A language model whose gradients end between pieces of these lengths.
    Truncated(Vec<usize>),
    /// Pieces of these lengths, each of which is recomputed in the backward pass.
    Chunks(Vec<usize>),
}

impl Plan {
    /// Pieces have as many tokens as the device takes at once, but at least one chunk.
    fn new(model: &Blueprint, [sequences, length]: [usize; 2]) -> Plan {
        let common = model.config().common();
        let predict = model.task().objective == Objective::Predict;
        let cuts = |chunk: usize| Pieces::new(0, length, chunk).lengths();
        let at_once = model.device().kernels().capabilities().tokens_at_once;
        let together = at_once / (sequences * common.chunk).max(1);
        let piece = common.chunk.saturating_mul(together.max(1));
        match common.checkpoint {
            _ if predict && common.truncate => Plan::Truncated(cuts(piece)),
            Checkpoint::Chunk => Plan::Chunks(cuts(common.chunk)),
            _ if common.truncate && sequences.saturating_mul(length) > KEPT_AT_ONCE * at_once => {
                Plan::Chunks(cuts(piece))
            }
            Checkpoint::None | Checkpoint::Block => Plan::Whole,
        }
    }

    /// The start and length of each piece.
    pub fn pieces(&self, length: usize) -> Vec<(usize, usize)> {
        let lengths = match self {
            Plan::Whole => &vec![length],
            Plan::Truncated(lengths) | Plan::Chunks(lengths) => lengths,
        };
        lengths
            .iter()
            .scan(0, |end, length| {
                *end += length;
                Some((*end - length, *length))
            })
            .collect()
    }
}

/// Padded sequences on the host.
struct Rows {
    tokens: Vec<u32>,
    padded: usize,
    lengths: Vec<usize>,
}

impl Rows {
    /// Some of the sequences, with only the padding that they need.
    fn part(&self, sequences: Range<usize>) -> Rows {
        let lengths = self.lengths[sequences.clone()].to_vec();
        let padded = lengths.iter().copied().max().unwrap_or(0);
        let rows = self.tokens.chunks_exact(self.padded.max(1)).skip(sequences.start).take(sequences.len());
        Rows { tokens: rows.flat_map(|row| &row[..padded]).copied().collect(), padded, lengths }
    }
}

impl MicroBatch<Feed> {
    /// A micro-batch of sequences, as a part of a batch with `whole` predictions, over which the loss is a mean;
    /// `labels` as in [`crate::Model::score`].
    ///
    /// # Errors
    /// [`ModelError::Input`] if there are no sequences, one has no tokens, or the labels do not fit.
    pub fn new(
        model: &Blueprint,
        sequences: &[&[u32]],
        labels: &[u32],
        training: &Training,
        whole: usize,
    ) -> Result<Self, ModelError> {
        let (tokens, padded) = Batch::padded(sequences)?;
        let lengths = sequences.iter().map(|sequence| sequence.len()).collect();
        Self::from_rows(model, &Rows { tokens, padded, lengths }, labels, training, Some(whole))
    }

    /// A micro-batch of a batch on a device.
    ///
    /// # Errors
    /// As [`MicroBatch::new`], and if the device cannot be read.
    pub(crate) fn from_batch(
        model: &Blueprint,
        batch: &Batch,
        labels: &[u32],
        training: &Training,
    ) -> Result<Self, ModelError> {
        let (tokens, padded) = (batch.tokens().to_u32_vec()?, batch.tokens().dims()[1]);
        let lengths = batch.lengths().to_vec();
        Self::from_rows(model, &Rows { tokens, padded, lengths }, labels, training, None)
    }

    fn from_rows(
        model: &Blueprint,
        rows: &Rows,
        labels: &[u32],
        training: &Training,
        whole: Option<usize>,
    ) -> Result<Self, ModelError> {
        let objective = model.task().objective;
        let mut targets = Targets::new(objective, &rows.tokens, &rows.lengths, labels)?;
        let count = targets.count;
        targets.count = whole.unwrap_or(count);
        let mut shards = Vec::new();
        for (share, sequences) in
            Shares::new(model.device(), &rows.lengths, objective.sequences()).ranges().iter().enumerate()
        {
            let part = rows.part(sequences.clone());
            let targets = targets.part(sequences.clone(), part.padded);
            let seed = training.dropout.map(|key| of_share(key, share));
            shards.push(Shard::new(model, &part, &targets, seed)?);
        }
        Ok(MicroBatch { shards, count })
    }

    /// Everything that differs between batches of one shape, in order; and the outline.
    #[must_use]
    pub fn outline(self) -> (MicroBatch<()>, Vec<Feed>) {
        let mut feeds = Vec::new();
        let outline = self.map(&mut |feed| {
            feeds.push(feed);
            Ok(())
        });
        (outline.unwrap_or(MicroBatch { shards: Vec::new(), count: 0 }), feeds)
    }

    /// Copies it to a device.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub(crate) fn upload(self, device: &Device) -> Result<MicroBatch<Tensor>, ModelError> {
        self.map(&mut |feed| Ok(feed.upload(device)?))
    }
}

impl MicroBatch<()> {
    /// Everything that determines the operations of a pass, except the model and the shapes of its inputs.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{:?}", self.shards)
    }

    /// The outline with the tensors of the feeds that [`MicroBatch::outline`] returned; takes them from `inputs`.
    ///
    /// # Errors
    /// [`ModelError::Input`] if there are too few.
    pub fn filled<'a>(self, inputs: &mut impl Iterator<Item = &'a Tensor>) -> Result<MicroBatch<Tensor>, ModelError> {
        let missing = || ModelError::Input("a micro-batch lacks an input".into());
        self.map(&mut |()| inputs.next().cloned().ok_or_else(missing))
    }
}

impl<T> MicroBatch<T> {
    /// The number of predictions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    fn map<U>(self, change: &mut dyn FnMut(T) -> Result<U, ModelError>) -> Result<MicroBatch<U>, ModelError> {
        let shards = self.shards.into_iter().map(|shard| shard.map(change));
        Ok(MicroBatch { shards: shards.collect::<Result<_, _>>()?, count: self.count })
    }
}

impl Shard<Feed> {
    fn new(model: &Blueprint, rows: &Rows, targets: &Targets, seed: Option<u64>) -> Result<Self, ModelError> {
        let dims = [rows.lengths.len(), rows.padded];
        let (plan, dtype) = (Plan::new(model, dims), model.dtype());
        let pieces = plan.pieces(rows.padded);
        let vocabulary = model.task().vocabulary;
        let seed = seed.map(|seed| Feed::new(HostData::U32(vec![seed as u32, (seed >> 32) as u32]), 2));
        let (mut pooling, mut loss_targets) = (Vec::new(), Vec::new());
        match model.task().objective {
            Objective::Classify(classes) | Objective::ClassifyPairs(classes) => {
                let pool = model.config().common().pool;
                let table = |&(start, length): &(usize, usize)| pool.table(&rows.lengths, start, length, dtype);
                pooling.extend(pieces.iter().map(table));
                loss_targets.push(Some(targets.loss_targets(classes, dtype)));
            }
            Objective::Predict => {
                for &(start, length) in &pieces {
                    let piece = targets.piece(start, length);
                    loss_targets.push(piece.any().then(|| piece.loss_targets(vocabulary, dtype)));
                }
            }
        }
        let lengths = (!model.config().causal()).then(|| rows.lengths.clone());
        let tokens = Feed::ids(rows.tokens.clone(), dims, vocabulary);
        Ok(Shard { plan, dims, lengths, tokens, seed, pooling, loss_targets })
    }
}

impl<T> Shard<T> {
    fn map<U>(self, change: &mut dyn FnMut(T) -> Result<U, ModelError>) -> Result<Shard<U>, ModelError> {
        let Shard { plan, dims, lengths, tokens, seed, pooling, loss_targets } = self;
        let tokens = change(tokens)?;
        let seed = seed.map(&mut *change).transpose()?;
        let pooling = pooling.into_iter().map(&mut *change).collect::<Result<_, _>>()?;
        let loss_targets = loss_targets
            .into_iter()
            .map(|loss_targets| loss_targets.map(|loss_targets| loss_targets.map(change)).transpose());
        Ok(Shard { plan, dims, lengths, tokens, seed, pooling, loss_targets: loss_targets.collect::<Result<_, _>>()? })
    }
}

impl Shard<Tensor> {
    /// The tokens as a batch; if padding cannot affect the network, as a batch without padding.
    pub fn batch(&self) -> Batch {
        let [sequences, length] = self.dims;
        Batch::of_tensor(self.tokens.clone(), self.lengths.clone().unwrap_or_else(|| vec![length; sequences]))
    }
}
