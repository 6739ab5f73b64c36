//! What is done row by row: softmax and cross entropy, layer normalisation, and the largest elements.

use assay_tensor::{Arguments, Array, DType, Result, Shape};

use crate::driver::{Argument, Launch};
use crate::gpu::{Gpu, block_count, count_argument};
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
    fn by_rows(&self, name: &'static str, kernel: &str, x: &Array, operands: &[Argument]) -> Result<Array> {
        let y = self.allocate_f32(name, &x.shape)?;
        if x.numel() > 0 {
            let (rows, width) = (x.shape.rows(), x.shape.last());
            let arguments = [&[y.pointer()], operands, &[count_argument(rows), count_argument(width)]].concat();
            self.launch_kernel(name, (Topic::Softmax, kernel), self.row_grid(name, rows, width)?, &arguments)?;
        }
        Ok(y.into_array(&x.shape))
    }

    /// A fused operation of operands of one shape by the row-wise kernel of its name.
    pub(crate) fn normalise_by(&self, name: &'static str, call: Arguments<'_>) -> Result<Vec<Array>> {
        let operands = call.inputs.iter().map(|x| self.f32_pointer(name, x)).collect::<Result<Vec<_>>>()?;
        Ok(vec![self.by_rows(name, name, call.input(0)?, &operands)?])
    }

    /// 1 at the k largest elements of each row.
    pub(crate) fn mark_largest(&self, x: &Array, k: usize) -> Result<Array> {
        let name = "top_k_mask";
        let (from, y) = (self.f32_pointer(name, x)?, self.allocate_f32(name, &x.shape)?);
        if x.numel() > 0 {
            let arguments =
                [y.pointer(), from, count_argument(k), count_argument(x.shape.last()), count_argument(x.numel())];
            self.launch_kernel(name, (Topic::Softmax, name), self.line_grid(4 * x.numel()), &arguments)?;
        }
        Ok(y.into_array(&x.shape))
    }

    /// Losses, log-sum-exps and, if they are wanted, hits.
    pub(crate) fn compute_cross_entropies(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let ([logits, targets], smoothing) = (call.operands()?, call.required("smoothing")?);
        let shape = &targets.shape;
        let [loss, lse] = [self.allocate_f32(ENTROPY, shape)?, self.allocate_f32(ENTROPY, shape)?];
        let hits = if call.is_set("hits") { Some(self.allocate_f32(ENTROPY, shape)?) } else { None };
        let hits_at = hits.as_ref().map_or(Argument::Pointer(None), |hits| hits.pointer());
        self.start_entropies(logits, targets, smoothing, [loss.pointer(), lse.pointer(), hits_at])?;
        Ok([loss, lse].into_iter().chain(hits).map(|value| value.into_array(shape)).collect())
    }

    fn start_entropies(&self, logits: &Array, targets: &Array, smoothing: f64, results: [Argument; 3]) -> Result<()> {
        let (rows, classes) = (targets.numel(), logits.shape.last());
        let list = self.checked_ids(ENTROPY, targets, classes, &logits.shape)?;
        let x = self.f32_pointer(ENTROPY, logits)?;
        if rows == 0 {
            return Ok(());
        }
        let smoothing = Argument::F32(smoothing as f32);
        let arguments = [&results[..], &[x, list, smoothing, count_argument(rows), count_argument(classes)]].concat();
        self.launch_kernel(ENTROPY, (Topic::Softmax, ENTROPY), self.row_grid(ENTROPY, rows, classes)?, &arguments)
    }

    /// The gradient of the logits, in f32 or bf16.
    pub(crate) fn entropies_backward(&self, call: Arguments<'_>) -> Result<Array> {
        let ([logits, targets, lse, grad], smoothing) = (call.operands()?, call.required("smoothing")?);
        let dtype = if call.is_set("bf16") { DType::Bf16 } else { DType::F32 };
        let classes = logits.shape.last();
        let list = self.checked_ids(ENTROPY, targets, classes, &logits.shape)?;
        let (x, lse, g) =
            (self.f32_pointer(ENTROPY, logits)?, self.f32_pointer(ENTROPY, lse)?, self.f32_pointer(ENTROPY, grad)?);
        let dx = self.allocate_buffer(ENTROPY, &logits.shape, dtype)?;
        if logits.numel() > 0 {
            let (rows, smoothing) = (logits.shape.rows(), Argument::F32(smoothing as f32));
            let arguments = [dx.pointer(), x, list, lse, g, smoothing, count_argument(rows), count_argument(classes)];
            let kernel = match dtype {
                DType::Bf16 => "cross_entropy_backward_bf16",
                _ => "cross_entropy_backward",
            };
            self.launch_kernel(ENTROPY, (Topic::Softmax, kernel), self.row_grid(ENTROPY, rows, classes)?, &arguments)?;
        }
        Ok(dx.into_array(&logits.shape))
    }

    /// Lanes that share a row of `width` elements which is normalised: few, so that each has several accesses under way and
    /// barriers are rare.
    fn norm_rows(&self, name: &'static str, rows: usize, width: usize) -> Result<Launch> {
        self.row_grid(name, rows, width.div_ceil(NORM_ELEMENTS))
    }

    pub(crate) fn normalise_rows(&self, [x, gain, bias]: [&Array; 3], eps: f64) -> Result<Vec<Array>> {
        self.f32_pointer(NORM, x)?;
        let y = self.allocate_f32(NORM, &x.shape)?;
        let (mean, rstd) = self.launch_layer_norm(x, (gain, bias), eps, "layer_norm", &[y.pointer()])?;
        Ok(vec![y.into_array(&x.shape), mean, rstd])
    }

    /// The same of x rounded to bf16, if it is not bf16 already, which comes last; with a value in bf16.
    pub(crate) fn normalised_bf16(&self, [x, gain, bias]: [&Array; 3], eps: f64) -> Result<Vec<Array>> {
        let y = self.allocate_buffer(NORM, &x.shape, DType::Bf16)?;
        if x.dtype == DType::Bf16 {
            let (mean, rstd) = self.launch_layer_norm(x, (gain, bias), eps, "layer_norm_of_bf16", &[y.pointer()])?;
            return Ok(vec![y.into_array(&x.shape), mean, rstd, x.clone()]);
        }
        let kept = self.allocate_buffer(NORM, &x.shape, DType::Bf16)?;
        let results = [y.pointer(), kept.pointer()];
        let (mean, rstd) = self.launch_layer_norm(x, (gain, bias), eps, "layer_norm_bf16", &results)?;
        Ok(vec![y.into_array(&x.shape), mean, rstd, kept.into_array(&x.shape)])
    }

    /// Starts a kernel that normalises rows; gives the mean and rstd of each.
    fn launch_layer_norm(
        &self,
        x: &Array,
        (gain, bias): (&Array, &Array),
        eps: f64,
        kernel: &str,
        results: &[Argument],
    ) -> Result<(Array, Array)> {
        let (rows, width) = (x.shape.rows(), x.shape.last());
        let one_each = Shape::from(rows);
        let operands =
            [self.buffer_of(NORM, x)?.pointer(), self.f32_pointer(NORM, gain)?, self.f32_pointer(NORM, bias)?];
        let (mean, rstd) = (self.allocate_f32(NORM, &one_each)?, self.allocate_f32(NORM, &one_each)?);
        if x.numel() > 0 {
            let sizes = [Argument::F32(eps as f32), count_argument(rows), count_argument(width)];
            let arguments = [results, &[mean.pointer(), rstd.pointer()], &operands, &sizes].concat();
            self.launch_kernel(NORM, (Topic::Norm, kernel), self.norm_rows(NORM, rows, width)?, &arguments)?;
        }
        Ok((mean.into_array(&one_each), rstd.into_array(&one_each)))
    }

    /// The gradient, that of x added to `sum` if there is one, whose memory nothing else may use. x is f32, or bf16 as it was
    /// kept.
    pub(crate) fn normalised_backward(
        &self,
        sum: Option<Array>,
        [x, gain, mean, rstd, grad]: [&Array; 5],
    ) -> Result<Vec<Array>> {
        let (rows, width) = (x.shape.rows(), x.shape.last());
        let (from, suffix) = match x.dtype {
            DType::Bf16 => (self.typed_buffer(NORM, x, DType::Bf16)?.pointer(), "_bf16"),
            _ => (self.f32_pointer(NORM, x)?, ""),
        };
        let (w, g) = (self.f32_pointer(NORM, gain)?, self.f32_pointer(NORM, grad)?);
        let (mean, rstd) = (self.f32_pointer(NORM, mean)?, self.f32_pointer(NORM, rstd)?);
        let onto = Argument::U32(u32::from(sum.is_some()));
        let dx = match sum {
            Some(sum) => sum,
            None => self.allocate_f32(NORM, &x.shape)?.into_array(&x.shape),
        };
        if x.numel() == 0 {
            let zeros = || self.allocate_zeros(NORM, &gain.shape).map(|zeros| zeros.into_array(&gain.shape));
            return Ok(vec![dx, zeros()?, zeros()?]);
        }
        let sizes = [count_argument(rows), count_argument(width)];
        let arguments = [&[self.f32_pointer(NORM, &dx)?, from, w, mean, rstd, g, onto], &sizes[..]].concat();
        let kernel = format!("layer_norm_backward{suffix}");
        self.launch_kernel(NORM, (Topic::Norm, &kernel), self.norm_rows(NORM, rows, width)?, &arguments)?;
        // Sums over all rows, in pieces: [pieces, 2, width].
        let pieces = rows.div_ceil(AFFINE);
        let parts = self.allocate_scratch(NORM, pieces * 2 * width)?;
        let columns = if width.is_multiple_of(4) { 128 } else { 32 };
        let blocks = block_count(NORM, width.div_ceil(columns) * pieces)?;
        let launch = Launch { grid: [blocks, 1, 1], block: [32, 8, 1], shared: 0 };
        let arguments = [&[parts.pointer(), from, mean, rstd, g], &sizes[..], &[count_argument(AFFINE)]].concat();
        self.launch_kernel(NORM, (Topic::Norm, &format!("layer_norm_affine{suffix}")), launch, &arguments)?;
        let both = self.fold_axis(NORM, Fold::Sum(1.0), &parts, [1, pieces, 2 * width])?.into_array([2, width]);
        let half = |i: usize| Ok::<_, assay_tensor::TensorError>(self.copy_slice(&both, 0, i, 1)?.viewed(&gain.shape));
        Ok(vec![dx, half(0)?, half(1)?])
    }
}
