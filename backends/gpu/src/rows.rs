//! What is done row by row: softmax and cross entropy, layer normalisation, and the largest elements.

use assay_tensor::{Array, CrossEntropy, DType, LayerNorm, LayerNormGradient, Result, Shape};

use crate::driver::{Argument, Launch};
use crate::gpu::{Gpu, block_count, count};
use crate::library::Topic;
use crate::reduce::Fold;

const ENTROPY: &str = "cross_entropy";
const NORM: &str = "layer_norm";
/// The rows whose contributions to the gradients of gain and bias are added first.
const AFFINE: usize = 32;
/// Elements of a row that a lane normalises.
const NORM_ELEMENTS: usize = 16;

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
        let shape = &targets.shape;
        let [loss, lse] = [self.take(ENTROPY, shape)?, self.take(ENTROPY, shape)?];
        let results = [loss.pointer(), lse.pointer(), Argument::Pointer(None)];
        self.start_entropies(logits, targets, smoothing, results)?;
        Ok((loss.shaped(shape), lse.shaped(shape)))
    }

    pub(crate) fn entropies_and_hits(&self, logits: &Array, targets: &Array, smoothing: f64) -> Result<CrossEntropy> {
        let shape = &targets.shape;
        let [loss, lse, hits] = [self.take(ENTROPY, shape)?, self.take(ENTROPY, shape)?, self.take(ENTROPY, shape)?];
        self.start_entropies(logits, targets, smoothing, [loss.pointer(), lse.pointer(), hits.pointer()])?;
        Ok(CrossEntropy { losses: loss.shaped(shape), lse: lse.shaped(shape), hits: hits.shaped(shape) })
    }

    fn start_entropies(&self, logits: &Array, targets: &Array, smoothing: f64, results: [Argument; 3]) -> Result<()> {
        let (rows, classes) = (targets.numel(), logits.shape.last());
        let list = self.checked_ids(ENTROPY, targets, classes, &logits.shape)?;
        let x = self.f32s(ENTROPY, logits)?;
        if rows == 0 {
            return Ok(());
        }
        let smoothing = Argument::F32(smoothing as f32);
        let arguments = [&results[..], &[x, list, smoothing, count(rows), count(classes)]].concat();
        self.launch(ENTROPY, (Topic::Softmax, ENTROPY), self.rows(ENTROPY, rows, classes)?, &arguments)
    }

    /// The gradient of the logits, in f32 or bf16.
    pub(crate) fn entropies_backward(
        &self,
        logits: &Array,
        targets: &Array,
        lse: &Array,
        (grad, smoothing): (&Array, f64),
        dtype: DType,
    ) -> Result<Array> {
        let classes = logits.shape.last();
        let list = self.checked_ids(ENTROPY, targets, classes, &logits.shape)?;
        let (x, lse, g) = (self.f32s(ENTROPY, logits)?, self.f32s(ENTROPY, lse)?, self.f32s(ENTROPY, grad)?);
        let dx = self.empty(ENTROPY, &logits.shape, dtype)?;
        if logits.numel() > 0 {
            let (rows, smoothing) = (logits.shape.rows(), Argument::F32(smoothing as f32));
            let arguments = [dx.pointer(), x, list, lse, g, smoothing, count(rows), count(classes)];
            let kernel = match dtype {
                DType::Bf16 => "cross_entropy_backward_bf16",
                _ => "cross_entropy_backward",
            };
            self.launch(ENTROPY, (Topic::Softmax, kernel), self.rows(ENTROPY, rows, classes)?, &arguments)?;
        }
        Ok(dx.shaped(&logits.shape))
    }

    /// Lanes that share a row of `width` elements which is normalised: few, so that each has several accesses under way and
    /// barriers are rare.
    fn norm_rows(&self, name: &'static str, rows: usize, width: usize) -> Result<Launch> {
        self.rows(name, rows, width.div_ceil(NORM_ELEMENTS))
    }

    pub(crate) fn normalised(&self, x: &Array, gain: &Array, bias: &Array, eps: f64) -> Result<LayerNorm> {
        self.f32s(NORM, x)?;
        let y = self.take(NORM, &x.shape)?;
        let (mean, rstd) = self.normalise(x, (gain, bias), eps, "layer_norm", &[y.pointer()])?;
        Ok(LayerNorm { y: y.shaped(&x.shape), mean, rstd })
    }

    /// The same of x rounded to bf16, if it is not bf16 already, which comes first; with a value in bf16.
    pub(crate) fn normalised_bf16(
        &self,
        x: &Array,
        gain: &Array,
        bias: &Array,
        eps: f64,
    ) -> Result<(Array, LayerNorm)> {
        let y = self.empty(NORM, &x.shape, DType::Bf16)?;
        if x.dtype == DType::Bf16 {
            let (mean, rstd) = self.normalise(x, (gain, bias), eps, "layer_norm_of_bf16", &[y.pointer()])?;
            return Ok((x.clone(), LayerNorm { y: y.shaped(&x.shape), mean, rstd }));
        }
        let kept = self.empty(NORM, &x.shape, DType::Bf16)?;
        let results = [y.pointer(), kept.pointer()];
        let (mean, rstd) = self.normalise(x, (gain, bias), eps, "layer_norm_bf16", &results)?;
        Ok((kept.shaped(&x.shape), LayerNorm { y: y.shaped(&x.shape), mean, rstd }))
    }

    /// Starts a kernel that normalises rows; gives the mean and rstd of each.
    fn normalise(
        &self,
        x: &Array,
        (gain, bias): (&Array, &Array),
        eps: f64,
        kernel: &str,
        results: &[Argument],
    ) -> Result<(Array, Array)> {
        let (rows, width) = (x.shape.rows(), x.shape.last());
        let one_each = Shape::from(rows);
        let operands = [self.buffer(NORM, x)?.pointer(), self.f32s(NORM, gain)?, self.f32s(NORM, bias)?];
        let (mean, rstd) = (self.take(NORM, &one_each)?, self.take(NORM, &one_each)?);
        if x.numel() > 0 {
            let sizes = [Argument::F32(eps as f32), count(rows), count(width)];
            let arguments = [results, &[mean.pointer(), rstd.pointer()], &operands, &sizes].concat();
            self.launch(NORM, (Topic::Norm, kernel), self.norm_rows(NORM, rows, width)?, &arguments)?;
        }
        Ok((mean.shaped(&one_each), rstd.shaped(&one_each)))
    }

    /// The gradient, that of x added to `sum` if there is one, whose memory nothing else may use. x is f32, or bf16 as it was
    /// kept.
    pub(crate) fn normalised_backward(
        &self,
        sum: Option<Array>,
        x: &Array,
        gain: &Array,
        (mean, rstd): (&Array, &Array),
        grad: &Array,
    ) -> Result<LayerNormGradient> {
        let (rows, width) = (x.shape.rows(), x.shape.last());
        let (from, suffix) = match x.dtype {
            DType::Bf16 => (self.typed(NORM, x, DType::Bf16)?.pointer(), "_bf16"),
            _ => (self.f32s(NORM, x)?, ""),
        };
        let (w, g) = (self.f32s(NORM, gain)?, self.f32s(NORM, grad)?);
        let (mean, rstd) = (self.f32s(NORM, mean)?, self.f32s(NORM, rstd)?);
        let onto = Argument::U32(u32::from(sum.is_some()));
        let dx = match sum {
            Some(sum) => sum,
            None => self.take(NORM, &x.shape)?.shaped(&x.shape),
        };
        if x.numel() == 0 {
            let zeros = || self.zeros(NORM, &gain.shape).map(|zeros| zeros.shaped(&gain.shape));
            return Ok(LayerNormGradient { x: dx, gain: zeros()?, bias: zeros()? });
        }
        let sizes = [count(rows), count(width)];
        let arguments = [&[self.f32s(NORM, &dx)?, from, w, mean, rstd, g, onto], &sizes[..]].concat();
        let kernel = format!("layer_norm_backward{suffix}");
        self.launch(NORM, (Topic::Norm, &kernel), self.norm_rows(NORM, rows, width)?, &arguments)?;
        // Sums over all rows, in pieces: [pieces, 2, width].
        let pieces = rows.div_ceil(AFFINE);
        let parts = self.scratch(NORM, pieces * 2 * width)?;
        let columns = if width.is_multiple_of(4) { 128 } else { 32 };
        let blocks = block_count(NORM, width.div_ceil(columns) * pieces)?;
        let launch = Launch { grid: [blocks, 1, 1], block: [32, 8, 1], shared: 0 };
        let arguments = [&[parts.pointer(), from, mean, rstd, g], &sizes[..], &[count(AFFINE)]].concat();
        self.launch(NORM, (Topic::Norm, &format!("layer_norm_affine{suffix}")), launch, &arguments)?;
        let both = self.folded(NORM, Fold::Sum(1.0), &parts, [1, pieces, 2 * width])?.shaped([2, width]);
        let half = |i: usize| Ok::<_, assay_tensor::TensorError>(self.piece(&both, 0, i, 1)?.viewed(&gain.shape));
        Ok(LayerNormGradient { x: dx, gain: half(0)?, bias: half(1)? })
    }
}
