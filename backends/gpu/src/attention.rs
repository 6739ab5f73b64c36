//! Attention and its gradient: tile by tile, or with the scores materialised.
//!
//! The tiled kernels take heads of up to 256 columns. Wider ones, and `AttentionKind::Full`, go by way of all scores,
//! whose products are the driver's library's.

use assay_tensor::{Array, Attention, AttentionKind, AttentionOptions, Result, Shape, TensorError};

use crate::driver::{Argument, Launch};
use crate::gpu::{Gpu, block_count, checked_extent, count_argument};
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
    pub(crate) fn from_operands(q: &Array, k: &Array, options: AttentionOptions) -> Result<Call> {
        let ([b, h, tq, d], [_, _, tk, _]) = (q.dims(), k.dims()) else {
            return Err(TensorError::new(NAME, "operands should be [B, H, T, Dh]").shapes([&q.shape, &k.shape]));
        };
        if *tk == 0 || (options.causal && tq > tk) {
            return Err(TensorError::new(NAME, "some query sees no key").shapes([&q.shape, &k.shape]));
        }
        Ok(Call { heads: b * h, tq: *tq, tk: *tk, d: *d, options })
    }

    /// The width that the tiled kernels are compiled for, where there is one.
    fn tile_width(&self) -> Option<usize> {
        match self.options.kind {
            AttentionKind::Flash if self.d > 0 => [64, 128, 256].into_iter().find(|&width| self.d <= width),
            _ => None,
        }
    }

    fn causal_argument(&self) -> Argument {
        Argument::U32(u32::from(self.options.causal))
    }

    fn scale_argument(&self) -> Argument {
        Argument::F32(self.options.scale as f32)
    }

    /// The last arguments of the tiled kernels.
    pub(crate) fn size_arguments(&self) -> Result<[Argument; 5]> {
        let [tq, tk, d] =
            [checked_extent(NAME, self.tq)?, checked_extent(NAME, self.tk)?, checked_extent(NAME, self.d)?]
                .map(Argument::U32);
        Ok([tq, tk, d, self.causal_argument(), self.scale_argument()])
    }

    /// A block for each tile of `length` rows of each head.
    fn tile_grid(&self, length: usize) -> Result<Launch> {
        let blocks = block_count(NAME, self.heads * length.div_ceil(TILE))?;
        Ok(Launch { grid: [blocks, 1, 1], block: [16, 16, 1], shared: 0 })
    }

    /// The last arguments of the kernels of materialised scores.
    fn score_sizes(&self) -> [Argument; 5] {
        [
            count_argument(self.heads * self.tq),
            count_argument(self.tq),
            count_argument(self.tk),
            self.causal_argument(),
            self.scale_argument(),
        ]
    }

    fn query_side<'a>(&self, buffer: &'a Buffer) -> Side<'a> {
        Side { buffer, columns: self.d, transposed: false, batch_stride: self.tq * self.d }
    }

    fn key_side<'a>(&self, buffer: &'a Buffer) -> Side<'a> {
        Side { buffer, columns: self.d, transposed: false, batch_stride: self.tk * self.d }
    }

    fn score_side<'a>(&self, buffer: &'a Buffer) -> Side<'a> {
        Side { buffer, columns: self.tk, transposed: false, batch_stride: self.tq * self.tk }
    }
}

fn transpose_side(side: Side<'_>) -> Side<'_> {
    Side { transposed: true, ..side }
}

/// The operands of the gradient.
pub(crate) use assay_tensor::AttentionBackward as Saved;

impl Gpu {
    pub(crate) fn compute_attention(&self, Attention { q, k, v, options }: Attention<'_>) -> Result<Vec<Array>> {
        let call = Call::from_operands(q, k, options)?;
        let rows = Shape::from(&q.dims()[..3]);
        let (out, lse) = (self.allocate_f32(NAME, &q.shape)?, self.allocate_f32(NAME, &rows)?);
        if rows.numel() > 0 {
            match call.tile_width() {
                Some(width) => {
                    let operands = [self.f32_pointer(NAME, q)?, self.f32_pointer(NAME, k)?, self.f32_pointer(NAME, v)?];
                    let arguments =
                        [&[out.pointer(), lse.pointer()], &operands[..], &call.size_arguments()?[..]].concat();
                    let kernel = format!("attention_{width}");
                    self.launch_kernel(NAME, (Topic::Attention, &kernel), call.tile_grid(call.tq)?, &arguments)?;
                }
                None => self.attend_whole(call, [q, k, v], &out, &lse)?,
            }
        }
        Ok(vec![out.into_array(&q.shape), lse.into_array(&rows)])
    }

    /// scale Q K^T of all queries and keys, without the scale.
    fn all_scores(&self, call: Call, q: &Array, k: &Array) -> Result<Buffer> {
        let scores = self.allocate_f32(NAME, &Shape::from([call.heads, call.tq, call.tk]))?;
        let (queries, keys) = (self.f32_buffer(q)?, self.f32_buffer(k)?);
        let sizes = Sizes { m: call.tq, n: call.tk, k: call.d, batch: call.heads };
        self.multiply_matrices(NAME, sizes, call.query_side(queries), transpose_side(call.key_side(keys)), &scores)?;
        Ok(scores)
    }

    fn f32_buffer<'a>(&self, x: &'a Array) -> Result<&'a Buffer> {
        self.typed_buffer(NAME, x, assay_tensor::DType::F32)
    }

    fn attend_whole(&self, call: Call, [q, k, v]: [&Array; 3], out: &Buffer, lse: &Buffer) -> Result<()> {
        let scores = self.all_scores(call, q, k)?;
        let arguments = [&[scores.pointer(), lse.pointer()], &call.score_sizes()[..]].concat();
        let launch = self.row_grid(NAME, call.heads * call.tq, call.tk)?;
        self.launch_kernel(NAME, (Topic::Attention, "weights_of_scores"), launch, &arguments)?;
        let sizes = Sizes { m: call.tq, n: call.d, k: call.tk, batch: call.heads };
        self.multiply_matrices(NAME, sizes, call.score_side(&scores), call.key_side(self.f32_buffer(v)?), out)
    }

    pub(crate) fn attend_backward(&self, saved: Saved<'_>) -> Result<Vec<Array>> {
        let Attention { q, k, v, options } = saved.of;
        let call = Call::from_operands(q, k, options)?;
        let [dq, dk, dv] = [q, k, v].map(|x| self.allocate_f32(NAME, &x.shape));
        let (dq, dk, dv) = (dq?, dk?, dv?);
        if call.heads * call.tq == 0 {
            self.zero_buffer(NAME, &dk)?;
            self.zero_buffer(NAME, &dv)?;
        } else {
            let inner = self.inner_products(&call, saved)?;
            match call.tile_width() {
                Some(width) => self.backward_tiled(call, width, saved, &inner, [&dq, &dk, &dv])?,
                None => self.backward_whole(call, saved, &inner, [&dq, &dk, &dv])?,
            }
        }
        Ok(vec![dq.into_array(&q.shape), dk.into_array(&k.shape), dv.into_array(&v.shape)])
    }

    /// What the weights of a row have in common: sum g o.
    fn inner_products(&self, call: &Call, Saved { out, grad, .. }: Saved<'_>) -> Result<Buffer> {
        let rows = call.heads * call.tq;
        let inner = self.allocate_scratch(NAME, rows)?;
        let operands =
            [self.f32_pointer(NAME, grad)?, self.f32_pointer(NAME, out)?, count_argument(rows), count_argument(call.d)];
        let arguments = [&[inner.pointer()], &operands[..]].concat();
        self.launch_kernel(NAME, (Topic::Attention, "row_products"), self.row_grid(NAME, rows, call.d)?, &arguments)?;
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
        for x in [saved.of.q, saved.of.k, saved.of.v, saved.grad, saved.lse] {
            operands.push(self.f32_pointer(NAME, x)?);
        }
        operands.push(inner.pointer());
        operands.extend(call.size_arguments()?);
        let keys = format!("attention_keys_{width}");
        let arguments = [&[dk.pointer(), dv.pointer()], &operands[..]].concat();
        self.launch_kernel(NAME, (Topic::Attention, &keys), call.tile_grid(call.tk)?, &arguments)?;
        let queries = format!("attention_queries_{width}");
        let arguments = [&[dq.pointer()], &operands[..]].concat();
        self.launch_kernel(NAME, (Topic::Attention, &queries), call.tile_grid(call.tq)?, &arguments)
    }

    fn backward_whole(&self, call: Call, saved: Saved<'_>, inner: &Buffer, [dq, dk, dv]: [&Buffer; 3]) -> Result<()> {
        let (q, k) = (self.f32_buffer(saved.of.q)?, self.f32_buffer(saved.of.k)?);
        let (v, grad) = (self.f32_buffer(saved.of.v)?, self.f32_buffer(saved.grad)?);
        let weights = self.all_scores(call, saved.of.q, saved.of.k)?;
        let dp = self.allocate_f32(NAME, &Shape::from([call.heads, call.tq, call.tk]))?;
        let all = Sizes { m: call.tq, n: call.tk, k: call.d, batch: call.heads };
        self.multiply_matrices(NAME, all, call.query_side(grad), transpose_side(call.key_side(v)), &dp)?;
        let pointers = [weights.pointer(), dp.pointer(), self.f32_pointer(NAME, saved.lse)?, inner.pointer()];
        let launch = self.plane_grid(NAME, call.heads * call.tq, call.tk)?;
        let arguments = [&pointers[..], &call.score_sizes()].concat();
        self.launch_kernel(NAME, (Topic::Attention, "gradient_of_scores"), launch, &arguments)?;
        let to_keys = Sizes { m: call.tk, n: call.d, k: call.tq, batch: call.heads };
        self.multiply_matrices(NAME, to_keys, transpose_side(call.score_side(&weights)), call.query_side(grad), dv)?;
        self.multiply_matrices(NAME, to_keys, transpose_side(call.score_side(&dp)), call.query_side(q), dk)?;
        let to_queries = Sizes { m: call.tq, n: call.d, k: call.tk, batch: call.heads };
        self.multiply_matrices(NAME, to_queries, call.score_side(&dp), call.key_side(k), dq)
    }
}
