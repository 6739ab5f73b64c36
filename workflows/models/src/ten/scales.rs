//! A layer of a TEN: one block, or several at different scales of time ([`Scales`], "HTEN").
//!
//! At scale s the block processes one vector for every s tokens: the mean of a complete window. Its output for a window
//! is repeated from the window's last token on, until the next window is complete. So a token only depends on its past,
//! and tokens before the end of the first window receive nothing from this scale. (The published form pools incomplete
//! windows, which looks ahead by up to s - 1 tokens.)

use assay_tensor::Tensor;

use super::block::Block;
use super::mixer::concat;
use crate::carry::{Carry, State};
use crate::config::TenConfig;
use crate::error::ModelError;
use crate::mode::Mode;
use crate::parameters::{Init, Role, Scope, constant};
use crate::pieces::Pieces;
use crate::stack::Layer;

/// One layer of a TEN.
#[derive(Clone)]
pub enum Level {
    /// One block that processes every token.
    One(Box<Block>),
    /// Several blocks, each at a separate scale.
    Many(Scales),
}

impl Layer for Level {
    fn prefix(&self) -> &str {
        match self {
            Level::One(block) => block.prefix(),
            Level::Many(scales) => &scales.prefix,
        }
    }

    fn forward(&self, x: &Tensor, carry: &Carry, next_state: &mut State, mode: &Mode) -> Result<Tensor, ModelError> {
        match self {
            Level::One(block) => block.forward(x, carry, next_state, mode),
            Level::Many(scales) => scales.forward(x, carry, next_state, mode),
        }
    }
}

impl Level {
    /// The blocks, each with its scale.
    #[must_use]
    pub fn scaled(&self) -> Vec<(usize, &Block)> {
        match self {
            Level::One(block) => vec![(1, block)],
            Level::Many(scales) => scales.blocks.iter().map(|(scale, block)| (*scale, block)).collect(),
        }
    }

    pub(super) fn build(scope: &mut Scope, path: &str, config: &TenConfig) -> Result<Self, ModelError> {
        if config.scales == [1] {
            return Ok(Level::One(Box::new(Block::build(&mut scope.child(path), path, config, config.chunk)?)));
        }
        let mut blocks = Vec::new();
        for &scale in &config.scales {
            let path = format!("{path}.scale.{scale}");
            // If a chunk is not a whole number of windows, every window has a separate mask.
            let drop_chunk = if config.chunk.is_multiple_of(scale) { config.chunk / scale } else { 1 };
            blocks.push((scale, Block::build(&mut scope.child(&path), &path, config, drop_chunk)?));
        }
        let mut scope = scope.child(path);
        let weights = scope.tensor("scale_weights", &[blocks.len()], Init::Constant(0.0), Role::Plain)?;
        Ok(Level::Many(Scales { blocks, weights, prefix: format!("{path}.") }))
    }
}

/// Blocks at different scales of time; their outputs are added with learned weights.
#[derive(Clone)]
pub struct Scales {
    /// The blocks with their scales, the numbers of tokens in a window.
    pub blocks: Vec<(usize, Block)>,
    /// The softmax of these are the weights, `[scales]`.
    pub weights: Tensor,
    prefix: String,
}

impl Scales {
    fn forward(&self, x: &Tensor, carry: &Carry, next_state: &mut State, mode: &Mode) -> Result<Tensor, ModelError> {
        let weights = self.weights.softmax()?;
        let mut sum: Option<Tensor> = None;
        for (index, (scale, block)) in self.blocks.iter().enumerate() {
            let y = at_scale(*scale, block, x, carry, next_state, mode)?.mul(&weights.slice(0, index, 1)?)?;
            sum = Some(sum.map_or(Ok(y.clone()), |sum| sum.add(&y))?);
        }
        sum.ok_or_else(|| ModelError::Config("a layer has no scale".into()))
    }
}

/// The output of `block` for the windows of `scale` tokens, repeated for each token of `x` `[B, T, D]`.
fn at_scale(
    scale: usize,
    block: &Block,
    x: &Tensor,
    carry: &Carry,
    next_state: &mut State,
    mode: &Mode,
) -> Result<Tensor, ModelError> {
    if scale == 1 {
        return block.forward(x, carry, next_state, mode);
    }
    let (batch, dim) = (x.dims()[0], x.dims()[2]);
    let (pending, held) = (format!("{}pending", block.prefix()), format!("{}held", block.prefix()));
    let remembered = |name: &str| match carry.get(name, &[Some(batch), Some(dim)])? {
        Some(tensor) => Ok(tensor.reshape([batch, 1, dim])?),
        None => constant(x.device(), x.dtype(), vec![0.0; batch * dim], &[batch, 1, dim]),
    };
    let (sums, rest) = sum_windows(x, scale, carry.position, &remembered(&pending)?)?;
    next_state.insert(pending.clone(), rest.reshape([batch, dim])?);

    let inner = Carry { position: carry.position / scale, ..carry.below(block.prefix()) };
    let mut known = remembered(&held)?;
    if let Some(sums) = sums {
        let made = block.forward(&sums.scale(1.0 / scale as f64)?, &inner, next_state, mode)?;
        known = Tensor::concat(&[&known, &made], 1)?;
    } else {
        // The block has processed nothing: its state is unchanged.
        next_state.extend(inner.state.into_iter().filter(|(name, _)| **name != *pending && **name != *held));
    }
    let last = known.dims()[1] - 1;
    next_state.insert(held, known.slice(1, last, 1)?.reshape([batch, dim])?);
    repeat_outputs(&known, scale, carry.position, x.dims()[1])
}

/// The sums of the windows of `x` `[B, T, D]` that end here, `[B, windows, D]` or `None`, and the sum of the incomplete
/// window, `[B, 1, D]`. The first window includes `pending`.
fn sum_windows(
    x: &Tensor,
    scale: usize,
    position: usize,
    pending: &Tensor,
) -> Result<(Option<Tensor>, Tensor), ModelError> {
    let (batch, length, dim) = (x.dims()[0], x.dims()[1], x.dims()[2]);
    let pieces = Pieces::new(position, length, scale);
    let (mut sums, mut rest) = (Vec::new(), pending.clone());
    if pieces.head > 0 {
        rest = rest.add(&x.slice(1, 0, pieces.head)?.sum(&[1], true)?)?;
        if pieces.closes(0) {
            sums.push(rest.clone());
        }
    }
    if pieces.whole > 0 {
        let whole = x.slice(1, pieces.head, pieces.whole * scale)?;
        sums.push(whole.reshape([batch, pieces.whole, scale, dim])?.sum(&[2], false)?);
    }
    if pieces.tail > 0 {
        rest = x.slice(1, length - pieces.tail, pieces.tail)?.sum(&[1], true)?;
    } else if !pieces.open() {
        rest = constant(x.device(), x.dtype(), vec![0.0; batch * dim], &[batch, 1, dim])?;
    }
    Ok((if sums.is_empty() { None } else { Some(concat(&sums, 1)?) }, rest))
}

/// For each of `length` tokens from `position` on, its row of `known` `[B, rows, D]`: the first row until the next window
/// ends, each other row from the last token of its window on.
fn repeat_outputs(known: &Tensor, scale: usize, position: usize, length: usize) -> Result<Tensor, ModelError> {
    let (batch, rows, dim) = (known.dims()[0], known.dims()[1], known.dims()[2]);
    let times = |row: usize, count: usize| known.slice(1, row, 1)?.broadcast_to([batch, count, dim]);
    let first = length.min(scale - 1 - position % scale);
    let mut parts = Vec::new();
    if first > 0 {
        parts.push(times(0, first)?);
    }
    if rows > 2 {
        let middle = known.slice(1, 1, rows - 2)?.reshape([batch, rows - 2, 1, dim])?;
        let middle = middle.broadcast_to([batch, rows - 2, scale, dim])?;
        parts.push(middle.reshape([batch, (rows - 2) * scale, dim])?);
    }
    if rows > 1 {
        parts.push(times(rows - 1, length - first - (rows - 2) * scale)?);
    }
    concat(&parts, 1)
}
