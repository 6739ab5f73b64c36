//! Attention and its gradient: tile by tile, or with the scores materialised.
//!
//! The tiled kernels take heads of up to 256 columns. Wider ones, and `AttentionKind::Full`, go by way of all scores,
//! whose products are the driver's library's.

use assay_tensor::{Array, AttentionGradient, AttentionKind, AttentionOptions, Result, Shape, TensorError};

use crate::driver::{Argument, Launch};
use crate::gpu::{Gpu, block_count, count, extent};
use crate::library::Topic;
use crate::product::{Side, Sizes};
use crate::storage::Buffer;

pub(crate) const NAME: &str = "attention";
/// Queries, and keys, of a tile.
const TILE: usize = 64;

/// The extents of a call: heads of all sequences together, queries, keys, and width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) heads: usize,
    pub(crate) tq: usize,
    pub(crate) tk: usize,
    pub(crate) d: usize,
    pub(crate) options: AttentionOptions,
}

impl Call {
    pub(crate) fn of(q: &Array, k: &Array, options: AttentionOptions) -> Result<Call> {
        let ([b, h, tq, d], [_, _, tk, _]) = (q.dims(), k.dims()) else {
            return Err(TensorError::new(NAME, "operands should be [B, H, T, Dh]").shapes([&q.shape, &k.shape]));
        };
        if *tk == 0 || (options.causal && tq > tk) {
            return Err(TensorError::new(NAME, "some query sees no key").shapes([&q.shape, &k.shape]));
        }
        Ok(Call { heads: b * h, tq: *tq, tk: *tk, d: *d, options })
    }

    /// The width that the tiled kernels are compiled for, where there is one.
    fn tiled(&self) -> Option<usize> {
        match self.options.kind {
            AttentionKind::Flash if self.d > 0 => [64, 128, 256].into_iter().find(|&width| self.d <= width),
            _ => None,
        }
    }

    fn causal(&self) -> Argument {
        Argument::U32(u32::from(self.options.causal))
    }

    fn scale(&self) -> Argument {
        Argument::F32(self.options.scale as f32)
    }

    /// The last arguments of the tiled kernels.
    pub(crate) fn sizes(&self) -> Result<[Argument; 5]> {
        let [tq, tk, d] = [extent(NAME, self.tq)?, extent(NAME, self.tk)?, extent(NAME, self.d)?].map(Argument::U32);
        Ok([tq, tk, d, self.causal(), self.scale()])
    }

    /// A block for each tile of `length` rows of each head.
    fn tiles(&self, length: usize) -> Result<Launch> {
        let blocks = block_count(NAME, self.heads * length.div_ceil(TILE))?;
        Ok(Launch { grid: [blocks, 1, 1], block: [16, 16, 1], shared: 0 })
    }

    /// The last arguments of the kernels of materialised scores.
    fn score_sizes(&self) -> [Argument; 5] {
        [count(self.heads * self.tq), count(self.tq), count(self.tk), self.causal(), self.scale()]
    }

    fn queries<'a>(&self, buffer: &'a Buffer) -> Side<'a> {
        Side { buffer, columns: self.d, transposed: false, batch_stride: self.tq * self.d }
    }

    fn keys<'a>(&self, buffer: &'a Buffer) -> Side<'a> {
        Side { buffer, columns: self.d, transposed: false, batch_stride: self.tk * self.d }
    }

    fn scores<'a>(&self, buffer: &'a Buffer) -> Side<'a> {
        Side { buffer, columns: self.tk, transposed: false, batch_stride: self.tq * self.tk }
    }
}

fn transposed(side: Side<'_>) -> Side<'_> {
    Side { transposed: true, ..side }
}

/// The operands of the gradient.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saved<'a> {
    pub(crate) q: &'a Array,
    pub(crate) k: &'a Array,
    pub(crate) v: &'a Array,
    pub(crate) out: &'a Array,
    pub(crate) lse: &'a Array,
    pub(crate) grad: &'a Array,
}

impl Gpu {
    pub(crate) fn attend(&self, q: &Array, k: &Array, v: &Array, options: AttentionOptions) -> Result<(Array, Array)> {
        let call = Call::of(q, k, options)?;
        let rows = Shape::from(&q.dims()[..3]);
        let (out, lse) = (self.take(NAME, &q.shape)?, self.take(NAME, &rows)?);
        if rows.numel() > 0 {
            match call.tiled() {
                Some(width) => {
                    let operands = [self.f32s(NAME, q)?, self.f32s(NAME, k)?, self.f32s(NAME, v)?];
                    let arguments = [&[out.pointer(), lse.pointer()], &operands[..], &call.sizes()?[..]].concat();
                    let kernel = format!("attention_{width}");
                    self.launch(NAME, (Topic::Attention, &kernel), call.tiles(call.tq)?, &arguments)?;
                }
                None => self.attend_whole(call, [q, k, v], &out, &lse)?,
            }
        }
        Ok((out.shaped(&q.shape), lse.shaped(&rows)))
    }

    /// scale Q K^T of all queries and keys, without the scale.
    fn all_scores(&self, call: Call, q: &Array, k: &Array) -> Result<Buffer> {
        let scores = self.take(NAME, &Shape::from([call.heads, call.tq, call.tk]))?;
        let (queries, keys) = (self.floats(q)?, self.floats(k)?);
        let sizes = Sizes { m: call.tq, n: call.tk, k: call.d, batch: call.heads };
        self.multiplied(NAME, sizes, call.queries(queries), transposed(call.keys(keys)), &scores)?;
        Ok(scores)
    }

    fn floats<'a>(&self, x: &'a Array) -> Result<&'a Buffer> {
        self.typed(NAME, x, assay_tensor::DType::F32)
    }

    fn attend_whole(&self, call: Call, [q, k, v]: [&Array; 3], out: &Buffer, lse: &Buffer) -> Result<()> {
        let scores = self.all_scores(call, q, k)?;
        let arguments = [&[scores.pointer(), lse.pointer()], &call.score_sizes()[..]].concat();
        let launch = self.rows(NAME, call.heads * call.tq, call.tk)?;
        self.launch(NAME, (Topic::Attention, "weights_of_scores"), launch, &arguments)?;
        let sizes = Sizes { m: call.tq, n: call.d, k: call.tk, batch: call.heads };
        self.multiplied(NAME, sizes, call.scores(&scores), call.keys(self.floats(v)?), out)
    }

    pub(crate) fn attend_backward(&self, saved: Saved<'_>, options: AttentionOptions) -> Result<AttentionGradient> {
        let Saved { q, k, v, .. } = saved;
        let call = Call::of(q, k, options)?;
        let [dq, dk, dv] = [q, k, v].map(|x| self.take(NAME, &x.shape));
        let (dq, dk, dv) = (dq?, dk?, dv?);
        if call.heads * call.tq == 0 {
            self.clear(NAME, &dk)?;
            self.clear(NAME, &dv)?;
        } else {
            let inner = self.inner(&call, saved)?;
            match call.tiled() {
                Some(width) => self.backward_tiled(call, width, saved, &inner, [&dq, &dk, &dv])?,
                None => self.backward_whole(call, saved, &inner, [&dq, &dk, &dv])?,
            }
        }
        Ok(AttentionGradient { q: dq.shaped(&q.shape), k: dk.shaped(&k.shape), v: dv.shaped(&v.shape) })
    }

    /// What the weights of a row have in common: sum g o.
    fn inner(&self, call: &Call, Saved { out, grad, .. }: Saved<'_>) -> Result<Buffer> {
        let rows = call.heads * call.tq;
        let inner = self.scratch(NAME, rows)?;
        let operands = [self.f32s(NAME, grad)?, self.f32s(NAME, out)?, count(rows), count(call.d)];
        let arguments = [&[inner.pointer()], &operands[..]].concat();
        self.launch(NAME, (Topic::Attention, "row_products"), self.rows(NAME, rows, call.d)?, &arguments)?;
        Ok(inner)
    }

    fn backward_tiled(
        &self,
        call: Call,
        width: usize,
        saved: Saved<'_>,
        inner: &Buffer,
        [dq, dk, dv]: [&Buffer; 3],
    ) -> Result<()> {
        let mut operands = Vec::with_capacity(11);
        for x in [saved.q, saved.k, saved.v, saved.grad, saved.lse] {
            operands.push(self.f32s(NAME, x)?);
        }
        operands.push(inner.pointer());
        operands.extend(call.sizes()?);
        let keys = format!("attention_keys_{width}");
        let arguments = [&[dk.pointer(), dv.pointer()], &operands[..]].concat();
        self.launch(NAME, (Topic::Attention, &keys), call.tiles(call.tk)?, &arguments)?;
        let queries = format!("attention_queries_{width}");
        let arguments = [&[dq.pointer()], &operands[..]].concat();
        self.launch(NAME, (Topic::Attention, &queries), call.tiles(call.tq)?, &arguments)
    }

    fn backward_whole(&self, call: Call, saved: Saved<'_>, inner: &Buffer, [dq, dk, dv]: [&Buffer; 3]) -> Result<()> {
        let (q, k) = (self.floats(saved.q)?, self.floats(saved.k)?);
        let (v, grad) = (self.floats(saved.v)?, self.floats(saved.grad)?);
        let weights = self.all_scores(call, saved.q, saved.k)?;
        let dp = self.take(NAME, &Shape::from([call.heads, call.tq, call.tk]))?;
        let all = Sizes { m: call.tq, n: call.tk, k: call.d, batch: call.heads };
        self.multiplied(NAME, all, call.queries(grad), transposed(call.keys(v)), &dp)?;
        let pointers = [weights.pointer(), dp.pointer(), self.f32s(NAME, saved.lse)?, inner.pointer()];
        let launch = self.plane(NAME, call.heads * call.tq, call.tk)?;
        let arguments = [&pointers[..], &call.score_sizes()].concat();
        self.launch(NAME, (Topic::Attention, "gradient_of_scores"), launch, &arguments)?;
        let to_keys = Sizes { m: call.tk, n: call.d, k: call.tq, batch: call.heads };
        self.multiplied(NAME, to_keys, transposed(call.scores(&weights)), call.queries(grad), dv)?;
        self.multiplied(NAME, to_keys, transposed(call.scores(&dp)), call.queries(q), dk)?;
        let to_queries = Sizes { m: call.tq, n: call.d, k: call.tk, batch: call.heads };
        self.multiplied(NAME, to_queries, call.scores(&dp), call.keys(k), dq)
    }
}
