//! Multi-head self-attention, dense or sparse: [`Attention`], for the transformer and for PULSE.

use assay_tensor::{AttentionOptions, Tensor};

use crate::carry::{Carry, State};
use crate::config::{AttentionKind, SparsityConfig};
use crate::error::ModelError;
use crate::heads::together;
use crate::kv_cache::{KvCache, Names};
use crate::layers::{LayerNorm, Linear};
use crate::parameters::Scope;
use crate::positions::Rotations;
use crate::sparse::Sparse;

/// The parameters of an attention layer.
#[derive(Clone)]
pub struct AttentionShape {
    /// D, a multiple of the heads.
    pub dim: usize,
    /// H.
    pub heads: usize,
    /// The rotary embedding of queries and keys, if any.
    pub rotations: Option<Rotations>,
    /// Whether a token only attends to itself and earlier tokens.
    pub causal: bool,
    /// The algorithm.
    pub kind: AttentionKind,
    /// The kept blocks of sparse attention.
    pub sparsity: SparsityConfig,
}

/// Multi-head self-attention.
#[derive(Clone)]
pub struct Attention {
    /// Its path in the tree of names, which prefixes its names in the carry.
    pub path: String,
    /// H.
    pub heads: usize,
    /// The rotary embedding of queries and keys, if any.
    pub rotations: Option<Rotations>,
    /// Whether a token only attends to itself and earlier tokens.
    pub causal: bool,
    /// D to 3D: all queries, then all keys, then all values.
    pub qkv: Linear,
    /// How queries are combined with keys.
    pub lookup: Lookup,
    /// D to D.
    pub out: Linear,
    names: Names,
}

/// How queries are combined with keys.
#[derive(Clone)]
pub enum Lookup {
    /// With all visible keys.
    Dense(assay_tensor::AttentionKind),
    /// With the keys of some blocks.
    Sparse(Box<Sparse>),
}

impl Attention {
    /// `base`, if given, plus the result of attention, `[B, T, D]` to the same shape; the keys and values of all tokens so far
    /// are added to `next_state`.
    ///
    /// # Errors
    /// If the carry does not fit, or a device fails.
    pub(crate) fn forward(
        &self,
        base: Option<&Tensor>,
        x: &Tensor,
        carry: &Carry,
        next_state: &mut State,
    ) -> Result<Tensor, ModelError> {
        let mixed = self.attend_projected(x, &self.qkv.forward(x)?, carry, next_state)?;
        self.out.onto(base, &mixed)
    }

    /// `base`, if given, plus `self(norm x)`.
    ///
    /// # Errors
    /// As [`Attention::forward`].
    pub(crate) fn forward_normed(
        &self,
        norm: &LayerNorm,
        base: Option<&Tensor>,
        x: &Tensor,
        carry: &Carry,
        next_state: &mut State,
    ) -> Result<Tensor, ModelError> {
        match (&self.lookup, self.qkv.int8()) {
            (Lookup::Dense(_), Some(_)) => {
                let mixed = self.attend_projected(x, &norm.then(&self.qkv, x)?, carry, next_state)?;
                self.out.onto(base, &mixed)
            }
            _ => self.forward(base, &norm.forward(x)?, carry, next_state),
        }
    }

    /// The result of queries, keys and values `[B, T, 3D]` before `out`; sparse attention chooses blocks by `x`, their input.
    fn attend_projected(
        &self,
        x: &Tensor,
        qkv: &Tensor,
        carry: &Carry,
        next_state: &mut State,
    ) -> Result<Tensor, ModelError> {
        let (length, dim) = (x.dims()[1], x.dims()[2]);
        let width = dim / self.heads;
        let tables = self.rotations.as_ref().map(|r| r.tables(qkv, carry.position, length)).transpose()?;
        let rotary = tables.as_ref().map(|tables| tables.from(carry.position));
        if let (Lookup::Dense(_), None, 1, false) =
            (&self.lookup, self.qkv.precision.rounded(), length, qkv.is_tracked())
        {
            let shape = [qkv.dims()[0], self.heads, width];
            if let Some(cache) = KvCache::new(carry, &self.names, carry.position, shape) {
                return cache.attend(qkv, self.heads, rotary, Some(next_state));
            }
        }
        let [q, k, v] = qkv.heads(self.heads, rotary)?;
        let k = carry.extend(&self.names.keys, k, next_state)?;
        let v = carry.extend(&self.names.values, v, next_state)?;
        let mixed = match &self.lookup {
            Lookup::Sparse(sparse) => sparse.forward(x, (&q, &k, &v), self.qkv.precision, carry, next_state)?,
            Lookup::Dense(kind) => {
                // Causal from the end: the queries are the last T of all tokens that have keys.
                let scale = 1.0 / (width as f64).sqrt();
                let kept = |x: &Tensor| self.qkv.precision.round(x);
                let options = AttentionOptions { causal: self.causal, scale, kind: *kind };
                kept(&q)?.attention(&kept(&k)?, &kept(&v)?, options)?
            }
        };
        together(&mixed)
    }

    /// Registers every parameter below `scope`, which has the path `path`. `gain` scales the initial weights of `out`,
    /// which writes to the residual stream.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(scope: &mut Scope, path: String, shape: &AttentionShape, gain: f64) -> Result<Self, ModelError> {
        let &AttentionShape { dim, heads, causal, kind, sparsity, .. } = shape;
        let qkv = Linear::build(&mut scope.child("qkv"), 3 * dim, dim, 1.0)?;
        let lookup = match kind {
            AttentionKind::Full => Lookup::Dense(assay_tensor::AttentionKind::Full),
            AttentionKind::Flash => Lookup::Dense(assay_tensor::AttentionKind::Flash),
            AttentionKind::Sparse => Lookup::Sparse(Box::new(Sparse::build(scope, path.clone(), sparsity, dim)?)),
        };
        let out = Linear::build(&mut scope.child("out"), dim, dim, gain)?;
        let (names, rotations) = (Names::below(&path), shape.rotations.clone());
        Ok(Attention { path, heads, rotations, causal, qkv, lookup, out, names })
    }
}
