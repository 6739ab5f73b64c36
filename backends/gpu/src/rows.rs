//! What is done row by row: softmax and cross entropy, layer normalisation, and the largest elements.

use assay_tensor::{Array, LayerNorm, LayerNormGradient, Result, Shape};

use crate::driver::{Argument, Launch};
use crate::gpu::{Gpu, block_count, count};
use crate::library::Topic;
use crate::reduce::Fold;

/// The rows whose contributions to the gradients of gain and bias are added first.
const AFFINE: usize = 128;

impl Gpu {
    /// A row-wise kernel of `Topic::Softmax` with one result in the shape of `x`, `operands` being what it reads.
    pub(crate) fn by_rows(&self, name: &'static str, kernel: &str, x: &Array, operands: &[Argument]) -> Result<Array> {
        let y = self.take(name, &x.shape)?;
        if x.numel() > 0 {
            let (rows, width) = (x.shape.rows(), x.shape.last());
            let arguments = [&[y.pointer()], operands, &[count(rows), count(width)]].concat();
            self.launch(name, (Topic::Softmax, kernel), self.rows(name, rows, width)?, &arguments)?;
        }
        Ok(y.shaped(&x.shape))
    }

    /// 1 at the k largest elements of each row.
    pub(crate) fn largest(&self, x: &Array, k: usize) -> Result<Array> {
        let name = "top_k_mask";
        let (from, y) = (self.f32s(name, x)?, self.take(name, &x.shape)?);
        if x.numel() > 0 {
            let arguments = [y.pointer(), from, count(k), count(x.shape.last()), count(x.numel())];
            self.launch(name, (Topic::Softmax, name), self.line(4 * x.numel()), &arguments)?;
        }
        Ok(y.shaped(&x.shape))
    }

    pub(crate) fn entropies(&self, logits: &Array, targets: &Array, smoothing: f64) -> Result<(Array, Array)> {
        let name = "cross_entropy";
        let classes = logits.shape.last();
        let list = self.checked_ids(name, targets, classes, &logits.shape)?;
        let (x, shape) = (self.f32s(name, logits)?, &targets.shape);
        let (loss, lse) = (self.take(name, shape)?, self.take(name, shape)?);
        let rows = targets.numel();
        if rows > 0 {
            let smoothing = Argument::F32(smoothing as f32);
            let arguments = [loss.pointer(), lse.pointer(), x, list, smoothing, count(rows), count(classes)];
            self.launch(name, (Topic::Softmax, name), self.rows(name, rows, classes)?, &arguments)?;
        }
        Ok((loss.shaped(shape), lse.shaped(shape)))
    }

    pub(crate) fn entropies_backward(
        &self,
        logits: &Array,
        targets: &Array,
        lse: &Array,
        grad: &Array,
        smoothing: f64,
    ) -> Result<Array> {
        let name = "cross_entropy";
        let classes = logits.shape.last();
        let list = self.checked_ids(name, targets, classes, &logits.shape)?;
        let (x, lse, g) = (self.f32s(name, logits)?, self.f32s(name, lse)?, self.f32s(name, grad)?);
        let dx = self.take(name, &logits.shape)?;
        if logits.numel() > 0 {
            let (rows, smoothing) = (logits.shape.rows(), Argument::F32(smoothing as f32));
            let arguments = [dx.pointer(), x, list, lse, g, smoothing, count(rows), count(classes)];
            let launch = self.plane(name, rows, classes)?;
            self.launch(name, (Topic::Softmax, "cross_entropy_backward"), launch, &arguments)?;
        }
        Ok(dx.shaped(&logits.shape))
    }

    pub(crate) fn normalised(&self, x: &Array, gain: &Array, bias: &Array, eps: f64) -> Result<LayerNorm> {
        let name = "layer_norm";
        let (rows, width) = (x.shape.rows(), x.shape.last());
        let one_each = Shape::from(rows);
        let operands = [self.f32s(name, x)?, self.f32s(name, gain)?, self.f32s(name, bias)?];
        let (y, mean, rstd) = (self.take(name, &x.shape)?, self.take(name, &one_each)?, self.take(name, &one_each)?);
        if x.numel() > 0 {
            let results = [y.pointer(), mean.pointer(), rstd.pointer()];
            let sizes = [Argument::F32(eps as f32), count(rows), count(width)];
            let arguments = [results, operands, sizes].concat();
            self.launch(name, (Topic::Norm, name), self.rows(name, rows, width)?, &arguments)?;
        }
        Ok(LayerNorm { y: y.shaped(&x.shape), mean: mean.shaped(&one_each), rstd: rstd.shaped(&one_each) })
    }

    pub(crate) fn normalised_backward(
        &self,
        x: &Array,
        gain: &Array,
        mean: &Array,
        rstd: &Array,
        grad: &Array,
    ) -> Result<LayerNormGradient> {
        let name = "layer_norm";
        let (rows, width) = (x.shape.rows(), x.shape.last());
        let (from, w, g) = (self.f32s(name, x)?, self.f32s(name, gain)?, self.f32s(name, grad)?);
        let (mean, rstd) = (self.f32s(name, mean)?, self.f32s(name, rstd)?);
        let dx = self.take(name, &x.shape)?;
        if x.numel() == 0 {
            let zeros = || self.zeros(name, &gain.shape).map(|zeros| zeros.shaped(&gain.shape));
            return Ok(LayerNormGradient { x: dx.shaped(&x.shape), gain: zeros()?, bias: zeros()? });
        }
        let sizes = [count(rows), count(width)];
        let arguments = [&[dx.pointer(), from, w, mean, rstd, g], &sizes[..]].concat();
        self.launch(name, (Topic::Norm, "layer_norm_backward"), self.rows(name, rows, width)?, &arguments)?;
        // Sums over all rows, in pieces: [pieces, 2, width].
        let pieces = rows.div_ceil(AFFINE);
        let parts = self.scratch(name, pieces * 2 * width)?;
        let blocks = block_count(name, width.div_ceil(32) * pieces)?;
        let launch = Launch { grid: [blocks, 1, 1], block: [32, 8, 1], shared: 0 };
        let arguments = [&[parts.pointer(), from, mean, rstd, g], &sizes[..], &[count(AFFINE)]].concat();
        self.launch(name, (Topic::Norm, "layer_norm_affine"), launch, &arguments)?;
        let both = self.folded(name, Fold::Sum(1.0), &parts, [1, pieces, 2 * width])?.shaped([2, width]);
        let half = |i: usize| Ok::<_, assay_tensor::TensorError>(self.piece(&both, 0, i, 1)?.viewed(&gain.shape));
        Ok(LayerNormGradient { x: dx.shaped(&x.shape), gain: half(0)?, bias: half(1)? })
    }
}
