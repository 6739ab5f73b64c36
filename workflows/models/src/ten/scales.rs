//! A layer of a TEN: one block, or several at different scales of time ([`Scales`], "HTEN").
//!
//! At scale s the block sees one vector for every s tokens: the mean of a window that is over. What it makes of a window
//! is repeated from the window's last token on, until the next window is over. So a token sees its past alone, and the
//! tokens before the end of the first window see nothing of this scale. (The published form pools windows that are not
//! over yet, which looks ahead by up to s - 1 tokens.)

use assay_tensor::Tensor;

use super::block::Block;
use crate::carry::{Carry, State};
use crate::config::TenConfig;
use crate::error::ModelError;
use crate::mode::Mode;
use crate::parameters::{Init, Role, Scope, constant};
use crate::stack::Layer;

/// One layer of a TEN.
#[derive(Clone)]
pub enum Level {
    /// One block that sees every token.
    One(Box<Block>),
    /// Several blocks, each at a scale of its own.
    Many(Scales),
}

impl Layer for Level {
    fn prefix(&self) -> &str {
        match self {
            Level::One(block) => block.prefix(),
            Level::Many(scales) => &scales.prefix,
        }
    }

    fn forward(&self, x: &Tensor, carry: &Carry, after: &mut State, mode: Mode) -> Result<Tensor, ModelError> {
        match self {
            Level::One(block) => block.forward(x, carry, after, mode),
            Level::Many(scales) => scales.forward(x, carry, after, mode),
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
            // Where a chunk is no whole number of windows, every window has a mask of its own.
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
    /// Each with its scale, the number of tokens in a window.
    pub blocks: Vec<(usize, Block)>,
    /// Their softmax are the weights, `[scales]`.
    pub weights: Tensor,
    prefix: String,
}

impl Scales {
    fn forward(&self, x: &Tensor, carry: &Carry, after: &mut State, mode: Mode) -> Result<Tensor, ModelError> {
        let weights = self.weights.softmax()?;
        let mut sum: Option<Tensor> = None;
        for (index, (scale, block)) in self.blocks.iter().enumerate() {
            let y = at_scale(*scale, block, x, carry, after, mode)?.mul(&weights.slice(0, index, 1)?)?;
            sum = Some(sum.map_or(Ok(y.clone()), |sum| sum.add(&y))?);
        }
        sum.ok_or_else(|| ModelError::Config("a layer has no scale".into()))
    }
}

/// What `block` makes of the windows of `scale` tokens, for each token of `x` `[B, T, D]` what it knows of it.
fn at_scale(
    scale: usize,
    block: &Block,
    x: &Tensor,
    carry: &Carry,
    after: &mut State,
    mode: Mode,
) -> Result<Tensor, ModelError> {
    if scale == 1 {
        return block.forward(x, carry, after, mode);
    }
    let (batch, length, dim) = (x.dims()[0], x.dims()[1], x.dims()[2]);
    let (pending, held) = (format!("{}pending", block.prefix()), format!("{}held", block.prefix()));
    let nothing = |rows: usize| constant(x.device(), x.dtype(), vec![0.0; batch * rows * dim], &[batch, rows, dim]);
    let remembered = |name: &str| match carry.get(name, &[Some(batch), Some(dim)])? {
        Some(tensor) => Ok(tensor.reshape([batch, 1, dim])?),
        None => nothing(1),
    };
    // The first window has `begun` tokens already, whose sum is pending; it stands in the place of one of them.
    let begun = carry.position % scale;
    let whole = (begun + length) / scale;
    let windows = (begun + length).div_ceil(scale);
    let mut rows = Vec::new();
    if begun > 0 {
        rows.push(remembered(&pending)?);
        rows.push(nothing(begun - 1)?);
    }
    rows.push(x.clone());
    rows.push(nothing(windows * scale - begun - length)?);
    let rows: Vec<&Tensor> = rows.iter().filter(|rows| rows.dims()[1] > 0).collect();
    let sums = Tensor::concat(&rows, 1)?.reshape([batch, windows, scale, dim])?.sum(&[2], false)?;
    let rest = if windows > whole { sums.slice(1, whole, 1)? } else { nothing(1)? };
    after.insert(pending.clone(), rest.reshape([batch, dim])?);

    let inner = Carry { position: carry.position / scale, ..carry.below(block.prefix()) };
    let mut known = vec![remembered(&held)?];
    if whole > 0 {
        let means = sums.slice(1, 0, whole)?.scale(1.0 / scale as f64)?;
        known.push(block.forward(&means, &inner, after, mode)?);
    } else {
        // The block has read nothing: it remembers what it did.
        after.extend(inner.state.into_iter().filter(|(name, _)| ![&pending, &held].contains(&name)));
    }
    let known = Tensor::concat(&known.iter().collect::<Vec<_>>(), 1)?;
    after.insert(held, known.slice(1, whole, 1)?.reshape([batch, dim])?);
    // Row j of `known` holds for `scale` tokens; the first of them for the token that ended its window.
    let repeated = known.reshape([batch, whole + 1, 1, dim])?.broadcast_to([batch, whole + 1, scale, dim])?;
    Ok(repeated.reshape([batch, (whole + 1) * scale, dim])?.slice(1, begun + 1, length)?)
}
