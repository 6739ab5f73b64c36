//! The mixer of tokens within a chunk: [`Local`]. No kind uses tokens of earlier chunks.

use assay_tensor::{AttentionKind, AttentionOptions, Tensor};

use crate::carry::{Carry, State};
use crate::config::{LocalKind, PulseConfig};
use crate::error::ModelError;
use crate::heads::together;
use crate::kv_cache::{KvCache, Names};
use crate::layers::Linear;
use crate::parameters::{Init, Role, Scope, constant};
use crate::pieces::Pieces;
use crate::positions::Rotations;

/// The number of tokens in a convolution: the token itself and three before it.
pub const TAPS: usize = 4;

/// The local mixer of a block.
#[derive(Clone)]
pub struct Local {
    /// Its path in the tree of names, which prefixes its names in the carry.
    pub path: String,
    /// Its kind.
    pub kind: Kind,
}

/// The kinds of local mixers.
#[derive(Clone)]
pub enum Kind {
    /// Causal attention to the tokens of the chunk.
    Attention(Box<Window>),
    /// y_t = sum_j w_j * x_{t-j}.
    Conv {
        /// w, `[4, D]`.
        taps: Tensor,
    },
}

/// Causal attention within chunks.
#[derive(Clone)]
pub struct Window {
    /// A divisor of D.
    pub heads: usize,
    /// The rotary embedding of queries and keys by their position in the chunk, if any.
    pub rotations: Option<Rotations>,
    /// D to 3D: all queries, then all keys, then all values.
    pub qkv: Linear,
    /// D to D.
    pub out: Linear,
    names: Names,
}

/// A part of the tokens: B' rows of equal length, all starting at the same position in a chunk.
struct Part {
    /// `[B', T', ..]`
    x: Tensor,
    /// The number of tokens of the chunk before them.
    before: usize,
}

impl Local {
    /// `base` plus the mixed values, `[B, T, D]`: of queries, keys and values `[B, T, 3D]`, or for a convolution of its
    /// input, `[B, T, D]`.
    ///
    /// # Errors
    /// If the carry does not fit, or a device fails.
    pub fn forward(
        &self,
        base: &Tensor,
        x: &Tensor,
        pieces: &Pieces,
        carry: &Carry,
        next_state: &mut State,
    ) -> Result<Tensor, ModelError> {
        match &self.kind {
            Kind::Attention(window) => {
                let attend = |part: Part, open: bool| window.attend(&part, carry, open.then_some(&mut *next_state));
                window.out.onto(Some(base), &by_part(x, pieces, attend)?)
            }
            Kind::Conv { taps } => {
                let name = format!("{}.inputs", self.path);
                let mixed = by_part(x, pieces, |part, open| {
                    let (y, last) = convolve(taps, &part, &name, carry)?;
                    if open {
                        next_state.insert(name.clone(), last);
                    }
                    Ok(y)
                })?;
                Ok(base.add(&mixed)?)
            }
        }
    }

    /// Registers every parameter below `scope`, which has the path `path`.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(
        scope: &mut Scope,
        path: String,
        config: &PulseConfig,
        gain: f64,
        rotations: &Option<Rotations>,
    ) -> Result<Self, ModelError> {
        let dim = config.dim;
        let kind = match config.local {
            LocalKind::Attention => Kind::Attention(Box::new(Window {
                heads: config.heads,
                rotations: rotations.clone(),
                names: Names::below(&path),
                qkv: Linear::build(&mut scope.child("qkv"), 3 * dim, dim, 1.0)?,
                out: Linear::build(&mut scope.child("out"), dim, dim, gain)?,
            })),
            LocalKind::Conv => {
                let init = Init::Deviation(gain / (TAPS as f64).sqrt());
                Kind::Conv { taps: scope.tensor("taps", &[TAPS, dim], init, Role::Plain)? }
            }
        };
        Ok(Local { path, kind })
    }
}

/// Runs `mix` on the head, on all whole chunks together, and on the tail of `x` `[B, T, E]`; joins the results, `[B',
/// T', D]` for `[B', T', E]`, to `[B, T, D]`. `mix` also receives whether the part ends inside a chunk.
fn by_part(
    x: &Tensor,
    pieces: &Pieces,
    mut mix: impl FnMut(Part, bool) -> Result<Tensor, ModelError>,
) -> Result<Tensor, ModelError> {
    let (batch, width) = (x.dims()[0], x.dims()[2]);
    let lengths = [pieces.head, pieces.whole * pieces.chunk, pieces.tail];
    let present: Vec<usize> = (0..3).filter(|part| lengths[*part] > 0).collect();
    let parts = x.split(1, &present.iter().map(|part| lengths[*part]).collect::<Vec<_>>())?;
    let mut mixed = Vec::with_capacity(parts.len());
    for (kind, part) in present.iter().zip(parts) {
        let last = Some(kind) == present.last();
        mixed.push(match kind {
            0 => mix(Part { x: part, before: pieces.before }, last && pieces.open())?,
            1 => {
                let chunks = part.reshape([batch * pieces.whole, pieces.chunk, width])?;
                let mixed = mix(Part { x: chunks, before: 0 }, false)?;
                let width = mixed.dims()[2];
                mixed.reshape([batch, pieces.whole * pieces.chunk, width])?
            }
            _ => mix(Part { x: part, before: 0 }, true)?,
        });
    }
    match mixed.as_slice() {
        [all] => Ok(all.clone()),
        _ => Ok(Tensor::concat(&mixed.iter().collect::<Vec<_>>(), 1)?),
    }
}

impl Window {
    /// Attention for queries, keys and values `[B', T', 3D]`, with the result `[B', T', D]`. Keys and values are added to
    /// `next_state` if the chunk continues.
    fn attend(&self, part: &Part, carry: &Carry, next_state: Option<&mut State>) -> Result<Tensor, ModelError> {
        let (batch, length, dim) = (part.x.dims()[0], part.x.dims()[1], part.x.dims()[2] / 3);
        let width = dim / self.heads;
        let tables = self.rotations.as_ref().map(|r| r.tables(&part.x, part.before, length)).transpose()?;
        let rotary = tables.as_ref().map(|tables| tables.from(part.before));
        if let (1, None, false) = (length, self.qkv.precision.rounded(), part.x.is_tracked())
            && let Some(cache) = KvCache::new(carry, &self.names, part.before, [batch, self.heads, width])
        {
            return cache.attend(&part.x, self.heads, rotary, next_state);
        }
        let [q, k, v] = part.x.heads(self.heads, rotary)?;
        let k = carry.behind(&self.names.keys, k, part.before)?;
        let v = carry.behind(&self.names.values, v, part.before)?;
        let options = AttentionOptions { causal: true, scale: 1.0 / (width as f64).sqrt(), kind: AttentionKind::Flash };
        let kept = |x: &Tensor| self.qkv.precision.round(x);
        let mixed = together(&kept(&q)?.attention(&kept(&k)?, &kept(&v)?, options)?)?;
        if let Some(next_state) = next_state {
            next_state.insert(self.names.keys.clone(), k);
            next_state.insert(self.names.values.clone(), v);
        }
        Ok(mixed)
    }
}

/// The convolution of a part, and its last inputs `[B', 3, D]`; inputs before the start of the chunk are zeros.
fn convolve(taps: &Tensor, part: &Part, name: &str, carry: &Carry) -> Result<(Tensor, Tensor), ModelError> {
    let &[batch, length, dim] = part.x.dims() else {
        return Err(ModelError::Input(format!("hidden vectors have shape {:?}, not [B, T, D]", part.x.dims())));
    };
    let past = TAPS - 1;
    let kept = match part.before {
        0 => None,
        _ => carry.get(name, &[Some(batch), Some(past), Some(dim)])?.cloned(),
    };
    let before = match kept {
        Some(inputs) => inputs,
        None => constant(part.x.device(), part.x.dtype(), vec![0.0; batch * past * dim], &[batch, past, dim])?,
    };
    let padded = Tensor::concat(&[&before, &part.x], 1)?;
    let mut y = part.x.mul(&taps.slice(0, 0, 1)?)?;
    for back in 1..TAPS {
        let shifted = padded.slice(1, past - back, length)?;
        y = y.add(&shifted.mul(&taps.slice(0, back, 1)?)?)?;
    }
    Ok((y, padded.slice(1, length, past)?))
}
