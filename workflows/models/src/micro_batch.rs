//! What a pass reads of its batch, worked out on the host before it begins: [`MicroBatch`].
//!
//! All that differs between batches of one shape is here, as [`Feed`]s in a fixed order: the tokens, what should come out
//! at each place, how a classifier pools, and the seed of dropout. What a pass does beyond them follows from the model and
//! from a micro-batch's [outline](MicroBatch::outline) alone, so that a device may replay it (see `assay_tensor::Replayer`).

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

/// A truncated classifier keeps all activations of up to so many times the tokens that a device takes at once, instead of
/// running pieces twice.
const KEPT_AT_ONCE: usize = 4;

/// A batch, or a part of one, to learn from. `T` is [`Feed`] on the host, [`Tensor`] on a device, and `()` where only the
/// outline is left.
#[derive(Debug, Clone)]
pub struct MicroBatch<T> {
    pub(crate) shards: Vec<Shard<T>>,
    count: usize,
}

/// The sequences that one share of a device learns from.
#[derive(Debug, Clone)]
pub(crate) struct Shard<T> {
    pub plan: Plan,
    /// Sequences, and tokens of the longest.
    pub dims: [usize; 2],
    /// The length of each sequence, where the network asks for it; none where padding cannot reach it.
    pub lengths: Option<Vec<usize>>,
    /// U32, `[B, T]`.
    pub tokens: T,
    /// U32, `[2]`, if anything is dropped.
    pub seed: Option<T>,
    /// Of a classifier, for each piece.
    pub pooling: Vec<T>,
    /// For each piece of a language model, none where nothing is predicted; one for a classifier.
    pub loss_targets: Vec<Option<LossTargets<T>>>,
}

/// How a shard is gone through. See the table at the head of `gradient_pass.rs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// All at once.
    Whole,
    /// A language model whose gradients end between pieces of these lengths.
    Truncated(Vec<usize>),
    /// Pieces of these lengths, each of which is run again on the way back.
    Chunks(Vec<usize>),
}

impl Plan {
    /// Pieces have as many tokens as the device takes at once, but one chunk at least.
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

    /// Where each piece starts, and its length.
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

/// Sequences side by side on the host.
struct Rows {
    tokens: Vec<u32>,
    padded: usize,
    lengths: Vec<usize>,
}

impl Rows {
    /// Some of the sequences, padded no further than they need.
    fn part(&self, sequences: Range<usize>) -> Rows {
        let lengths = self.lengths[sequences.clone()].to_vec();
        let padded = lengths.iter().copied().max().unwrap_or(0);
        let rows = self.tokens.chunks_exact(self.padded.max(1)).skip(sequences.start).take(sequences.len());
        Rows { tokens: rows.flat_map(|row| &row[..padded]).copied().collect(), padded, lengths }
    }
}

impl MicroBatch<Feed> {
    /// Of sequences, as a part of a batch that makes `whole` predictions, over which the loss is a mean; `labels` as in
    /// [`crate::Model::score`].
    ///
    /// # Errors
    /// [`ModelError::Input`] if there is no sequence, one has no token, or the labels do not fit.
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

    /// Of a batch on a device.
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
        for (share, sequences) in Shares::new(model.device(), &rows.lengths).ranges().iter().enumerate() {
            let part = rows.part(sequences.clone());
            let targets = targets.part(sequences.clone(), part.padded);
            let seed = training.dropout.map(|key| of_share(key, share));
            shards.push(Shard::new(model, &part, &targets, seed)?);
        }
        Ok(MicroBatch { shards, count })
    }

    /// Everything that differs between batches of one shape, in order; and what is left.
    #[must_use]
    pub fn outline(self) -> (MicroBatch<()>, Vec<Feed>) {
        let mut feeds = Vec::new();
        let outline = self.map(&mut |feed| {
            feeds.push(feed);
            Ok(())
        });
        (outline.unwrap_or(MicroBatch { shards: Vec::new(), count: 0 }), feeds)
    }

    /// On a device.
    ///
    /// # Errors
    /// If the device has no room.
    pub(crate) fn upload(self, device: &Device) -> Result<MicroBatch<Tensor>, ModelError> {
        self.map(&mut |feed| Ok(feed.upload(device)?))
    }
}

impl MicroBatch<()> {
    /// All that decides what a pass asks of a device, beside the model and the shapes of what it is fed.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{:?}", self.shards)
    }

    /// With the tensors of what [`MicroBatch::outline`] gave; takes them from `inputs`.
    ///
    /// # Errors
    /// [`ModelError::Input`] if there are too few.
    pub fn filled<'a>(self, inputs: &mut impl Iterator<Item = &'a Tensor>) -> Result<MicroBatch<Tensor>, ModelError> {
        let missing = || ModelError::Input("a micro-batch lacks an input".into());
        self.map(&mut |()| inputs.next().cloned().ok_or_else(missing))
    }
}

impl<T> MicroBatch<T> {
    /// How many predictions are made.
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
            Objective::Classify(classes) => {
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
    /// The tokens as a batch; where padding cannot reach the network, as one without any.
    pub fn batch(&self) -> Batch {
        let [sequences, length] = self.dims;
        Batch::of_tensor(self.tokens.clone(), self.lengths.clone().unwrap_or_else(|| vec![length; sequences]))
    }
}
