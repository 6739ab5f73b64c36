//! Self-attention with several heads, dense or sparse: [`Attention`], for the transformer and for PULSE.

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

/// What a layer of attention is.
#[derive(Clone)]
pub struct AttentionShape {
    /// D, a multiple of the heads.
    pub dim: usize,
    /// H.
    pub heads: usize,
    /// How queries and keys are turned by their position, if they are.
    pub rotations: Option<Rotations>,
    /// Whether a token sees only what came before it.
    pub causal: bool,
    /// How it is computed.
    pub kind: AttentionKind,
    /// Which blocks are kept, where the kind is sparse.
    pub sparsity: SparsityConfig,
}

/// Self-attention with several heads.
#[derive(Clone)]
pub struct Attention {
    /// Its place in the tree of names, and so in the carry.
    pub path: String,
    /// H.
    pub heads: usize,
    /// How queries and keys are turned by their position, if they are.
    pub rotations: Option<Rotations>,
    /// Whether a token sees only what came before it.
    pub causal: bool,
    /// D to 3D: all queries, then all keys, then all values.
    pub qkv: Linear,
    /// How queries meet keys.
    pub lookup: Lookup,
    /// D to D.
    pub out: Linear,
    names: Names,
}

/// How queries meet keys.
#[derive(Clone)]
pub enum Lookup {
    /// All of those that may be seen.
    Dense(assay_tensor::AttentionKind),
    /// Those of a few blocks.
    Sparse(Box<Sparse>),
}

impl Attention {
    /// `base`, if there is one, plus the attention's result, `[B, T, D]` to the same shape; the keys and values of all that was
    /// read go into `next_state`.
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

    /// `base`, if there is one, plus `self(norm x)`.
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

    /// What queries, keys and values `[B, T, 3D]` give before `out`; sparse attention chooses by `x`, of which they are.
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
                // Causal from the end: the queries are the last T of all the tokens that have keys.
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
