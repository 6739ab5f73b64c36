//! [`Kernels`]: the boundary between tensors and backends, with the methods that a backend must provide and those it may.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::args::{AdamW, AttentionOptions, Binary, Reduce, Unary, Update};
use crate::array::Array;
use crate::composed;
use crate::dtype::{DType, HostData};
use crate::error::Result;
use crate::fusion::Arguments;
use crate::gradient;
use crate::int8::{self, Columns, Int8Linear};
use crate::math::Math;
use crate::replay::ReplayBackend;
use crate::shape::Shape;

/// What a device is, for people and for the records of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// The backend's name, such as `cpu`.
    pub name: String,
    /// One line about the hardware and the libraries.
    pub description: String,
    /// How many threads compute.
    pub threads: usize,
    /// The element types that it holds.
    pub dtypes: Vec<DType>,
    /// Instruction sets and the like that change which kernels run.
    pub features: Vec<String>,
}

/// How work is best cut for a device. None of it depends on the number of threads, so that neither do results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The tokens of a shard of a micro-batch: as many as are worth a thread of their own in a forward and backward pass. None where
    /// one operation fills the device.
    pub tokens_a_thread: Option<usize>,
    /// The tokens of a batch that a truncated pass sends through a model at once: as few as keep the device busy, since they
    /// bound the memory of activations.
    pub tokens_at_once: usize,
    /// Weight gradients g^T x with fewer rows than this are deferred and batched: the time of such a product is that of reading
    /// and writing its sum.
    pub few_rows: usize,
    /// Whether products of bf16 are worth a gradient rounded to it: on the way back through linear layers of bf16, `matmul`,
    /// `matmul_onto` and `linear_gelu_backward` are then given gradients in bf16 beside other operands of a product, all with
    /// two axes, in bf16. Products are added in f32, which their results are. The way back through `layer_norm_bf16` is given
    /// its input as it was kept, and `reduce` a gradient in bf16 to be summed over rows.
    pub multiplies_bf16: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Capabilities { tokens_a_thread: None, tokens_at_once: 512, few_rows: 0, multiplies_bf16: false }
    }
}

/// The value of layer normalisation and what its gradient needs.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    /// The normalised, scaled and shifted input, in its shape [.., D].
    pub y: Array,
    /// The mean of each row, [rows].
    pub mean: Array,
    /// 1 / sqrt(variance + eps) of each row, [rows].
    pub rstd: Array,
}

/// The gradients of [`LayerNorm`]'s inputs.
#[derive(Debug, Clone)]
pub struct LayerNormGradient {
    /// In the shape of the input.
    pub x: Array,
    /// \[D\]
    pub gain: Array,
    /// \[D\]
    pub bias: Array,
}

/// The cross entropy of rows of logits, and what belongs to it: each \[N\].
#[derive(Debug, Clone)]
pub struct CrossEntropy {
    /// In nats.
    pub losses: Array,
    /// The log-sum-exp of each row.
    pub lse: Array,
    /// 1 where no logit is larger than the target's.
    pub hits: Array,
}

/// The gradients of attention's inputs, each in the shape of its input.
#[derive(Debug, Clone)]
pub struct AttentionGradient {
    /// With respect to the queries.
    pub q: Array,
    /// With respect to the keys.
    pub k: Array,
    /// With respect to the values.
    pub v: Array,
}

/// The operands of the gradient of [`crate::Tensor::feed_forward`].
#[derive(Debug, Clone, Copy)]
pub struct FeedForward<'a> {
    /// The input [.., K].
    pub x: &'a Array,
    /// The first weight, U [H, K], as it was saved: it may be bf16, and so may the second.
    pub up: &'a Array,
    /// What GELU was applied to [.., H], as it was kept. In bf16, what D multiplied was rounded so too.
    pub argument: &'a Array,
    /// The second weight, D [N, H].
    pub down: &'a Array,
    /// The gradient of the result [.., N].
    pub grad: &'a Array,
}

/// What gradients of the feed-forward layer's inputs are added to, where there is something: the memory may be used again.
#[derive(Debug, Default)]
pub struct FeedForwardSums {
    /// For that of x.
    pub x: Option<Array>,
    /// For that of U.
    pub up: Option<Array>,
    /// For that of D.
    pub down: Option<Array>,
}

/// The gradients of the feed-forward layer's inputs. That of the second bias is the sum of the rows of what comes from above.
#[derive(Debug, Clone)]
pub struct FeedForwardGradient {
    /// With respect to x.
    pub x: Array,
    /// With respect to U.
    pub up: Array,
    /// With respect to the first bias.
    pub up_bias: Array,
    /// With respect to D.
    pub down: Array,
}

/// What a backend provides: primitives grouped by kind, and fused operations that default to their composed form.
///
/// Invariants that every implementation keeps and every caller may rely on:
///
/// - A kernel never changes its inputs. The exceptions say so by taking `&mut`, and even they leave any other handle
///   on the same elements as it was.
/// - The result of a kernel depends on its arguments alone: not on the number of threads, not on what ran before.
///   No reduction is split between threads; what is split are independent outputs.
/// - Arrays are contiguous and row-major, and come from this backend. Shapes and types have been checked by the
///   caller ([`crate::Tensor`]'s methods, or the composed forms); the contents of arrays have not.
/// - Floating-point arguments of one call have one type, and accumulation is in f32 at least.
/// - That type is never bf16, which is storage: only what moves elements, `upload`, `download`, `full`, `cast`, `linear`,
///   `linear_onto`, `linear_gelu`, `feed_forward` and the way back through the last are given it; and, if
///   [`Capabilities::multiplies_bf16`], what that names. A backend without it refuses `upload`, `full` and `cast`, and is then never given any.
pub trait Kernels: fmt::Debug + Send + Sync + 'static {
    /// What this device is.
    fn info(&self) -> DeviceInfo;

    /// The f32 operations a second that the device can do at most, measured now, in a few milliseconds: a
    /// multiplication and an addition count as two. None where there is no such measurement.
    fn arithmetic_rate(&self) -> Option<f64> {
        None
    }

    /// The most bytes of the device's own memory that arrays took at once, so far. None where arrays lie in the memory of the
    /// process.
    fn peak_memory(&self) -> Option<u64> {
        None
    }

    /// How work is best cut for this device.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Calls `job` with each of 0..count, several at a time where the device has threads for it. The operations of a job stay on its
    /// thread while there are other jobs; then idle threads steal parts of the remaining jobs.
    fn concurrently(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(job);
    }

    /// The cache of captured work of one user of this device; see [`crate::Replayer`]. `None` where replaying
    /// gains nothing.
    fn replay_backend(&self) -> Option<Box<dyn ReplayBackend>> {
        None
    }

    // Memory.

    /// Copies elements in. Errors on a type that the backend does not hold, and when memory is exhausted.
    fn upload(&self, data: HostData, shape: &Shape) -> Result<Array>;
    /// Copies elements out.
    fn download(&self, x: &Array) -> Result<HostData>;
    /// An array of one repeated value, converted as [`HostData::from_f64`] does.
    fn full(&self, shape: &Shape, dtype: DType, value: f64) -> Result<Array>;
    /// The conversion to another type, with the rules of [`HostData::from_f64`].
    fn cast(&self, x: &Array, dtype: DType) -> Result<Array>;

    // Elementwise, on floats.

    /// `op` of each element.
    fn unary(&self, op: Unary, x: &Array) -> Result<Array>;
    /// `op` of pairs of elements, the operands broadcasting to a common shape.
    fn binary(&self, op: Binary, a: &Array, b: &Array) -> Result<Array>;

    // Reductions and products, on floats.

    /// Reduces over `axes` (ascending, distinct), which stay with extent 1. The mean and the maximum are asked for
    /// only where there are elements.
    fn reduce(&self, op: Reduce, x: &Array, axes: &[usize]) -> Result<Array>;
    /// a b over the last two axes, either side transposed first; leading axes broadcast.
    fn matmul(&self, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array>;

    // Movement of elements of any type.

    /// Reorders axes: axis i of the result is axis `axes[i]` of `x`.
    fn permute(&self, x: &Array, axes: &[usize]) -> Result<Array>;
    /// `length` elements from `start` on along `axis`.
    fn slice(&self, x: &Array, axis: usize, start: usize, length: usize) -> Result<Array>;
    /// One after the other along `axis`. There is at least one.
    fn concat(&self, xs: &[&Array], axis: usize) -> Result<Array>;
    /// The rows of `table` [V, D] that `ids` (u32, any shape) name: shape ids.shape + \[D\]. Errors on an id beyond V.
    fn gather_rows(&self, table: &Array, ids: &Array) -> Result<Array>;
    /// The transpose of [`Kernels::gather_rows`]: a table [rows, D] of sums of the rows of `x` that have each id,
    /// added in the order of `x`.
    fn scatter_add_rows(&self, x: &Array, ids: &Array, rows: usize) -> Result<Array>;

    // Fused operations.

    /// The backend's own kernel for the operation of this name, see [`crate::FusedOp`]; none if it has no kernel, so that the
    /// definition runs. A backend has a list from names to kernels, which [`crate::find_kernel`] searches.
    fn fused(&self, name: &str, call: Arguments<'_>) -> Option<Result<Vec<Array>>> {
        let _ = (name, call);
        None
    }

    // Fused operations that are methods. Each default is the composed form, which is also the definition.

    /// `x` repeated to a shape that it broadcasts to.
    fn broadcast(&self, x: &Array, shape: &Shape) -> Result<Array> {
        composed::broadcast(self, x, shape)
    }
    /// `sum` + `x`, which have one shape; the memory of `sum` may be used again.
    fn accumulate(&self, sum: Array, x: &Array) -> Result<Array> {
        self.binary(Binary::Add, &sum, x)
    }
    /// [`Kernels::accumulate`] of each of `xs` in order.
    fn accumulate_all(&self, sum: Array, xs: &[&Array]) -> Result<Array> {
        xs.iter().try_fold(sum, |sum, x| self.accumulate(sum, x))
    }
    /// `sum` + a b, of matrices with two axes, either side transposed first; the memory of `sum` may be used again.
    fn matmul_onto(&self, sum: Array, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
        self.accumulate(sum, &self.matmul(a, b, trans_a, trans_b)?)
    }
    /// `sum` + [`Kernels::scatter_add_rows`]; the memory of `sum` may be used again.
    fn scatter_add_rows_onto(&self, sum: Array, x: &Array, ids: &Array) -> Result<Array> {
        let rows = sum.dims().first().copied().unwrap_or(0);
        self.accumulate(sum, &self.scatter_add_rows(x, ids, rows)?)
    }
    /// The gradient of `op`'s argument, given that of its value. `saved` is the value where
    /// [`Unary::gradient_needs_value`], else the argument.
    fn unary_backward(&self, op: Unary, saved: &Array, grad: &Array) -> Result<Array> {
        gradient::unary_gradient(self, op, saved, grad)
    }
    /// Each element kept with probability 1 - p, by [`crate::dropout_keeps`] of the key and its index, and divided by
    /// that; the others zero. 0 < p < 1.
    fn dropout(&self, x: &Array, p: f64, key: u64) -> Result<Array> {
        composed::dropout(self, x, p, key)
    }
    /// [`Kernels::dropout`] with the key [`crate::mix`](seed ^ place). The seed (u32, \[2\], its low word first) is in the
    /// device's memory, where it may change while all else stays the same.
    fn dropout_at(&self, x: &Array, p: f64, seed: &Array, place: u64) -> Result<Array> {
        composed::dropout_at(self, x, p, seed, place)
    }
    /// 1 at the k largest elements of each row, 0 elsewhere; ties to the lower index, NaN least.
    fn top_k_mask(&self, x: &Array, k: usize) -> Result<Array> {
        composed::top_k_mask(self, x, k)
    }
    /// (x - mean) / sqrt(variance + eps) gain + bias over the last axis; gain and bias \[D\].
    fn layer_norm(&self, x: &Array, gain: &Array, bias: &Array, eps: f64) -> Result<LayerNorm> {
        composed::layer_norm(self, x, gain, bias, eps)
    }
    /// [`Kernels::layer_norm`] of x rounded to bf16, which is given first, with a value that is rounded to bf16 too. x may be
    /// bf16 already.
    fn layer_norm_bf16(&self, x: &Array, gain: &Array, bias: &Array, eps: f64) -> Result<(Array, LayerNorm)> {
        composed::layer_norm_bf16(self, x, gain, bias, eps)
    }
    /// The gradient of [`Kernels::layer_norm`], with the mean and rstd that it gave.
    fn layer_norm_backward(
        &self,
        x: &Array,
        gain: &Array,
        mean: &Array,
        rstd: &Array,
        grad: &Array,
    ) -> Result<LayerNormGradient> {
        composed::layer_norm_backward(self, x, gain, mean, rstd, grad)
    }
    /// [`Kernels::layer_norm_backward`], with the gradient of x added to `sum`, whose memory may be used again.
    fn layer_norm_backward_onto(
        &self,
        sum: Array,
        x: &Array,
        gain: &Array,
        mean: &Array,
        rstd: &Array,
        grad: &Array,
    ) -> Result<LayerNormGradient> {
        let gradient = self.layer_norm_backward(x, gain, mean, rstd, grad)?;
        Ok(LayerNormGradient { x: self.accumulate(sum, &gradient.x)?, ..gradient })
    }
    /// The cross entropy of each row of `logits` [N, V] with `targets` (u32, \[N\]), in nats, and the log-sum-exp of
    /// each row. With smoothing s the target distribution is 1 - s on the target plus s / V on every class.
    /// Errors on a target beyond V.
    fn cross_entropy(&self, logits: &Array, targets: &Array, smoothing: f64) -> Result<(Array, Array)> {
        composed::cross_entropy(self, logits, targets, smoothing)
    }
    /// The gradient of the logits, given that of each row's loss and the log-sum-exp.
    fn cross_entropy_backward(
        &self,
        logits: &Array,
        targets: &Array,
        lse: &Array,
        grad: &Array,
        smoothing: f64,
    ) -> Result<Array> {
        composed::cross_entropy_backward(self, logits, targets, lse, grad, smoothing)
    }
    /// [`Kernels::cross_entropy_backward`], rounded to bf16.
    fn cross_entropy_backward_bf16(
        &self,
        logits: &Array,
        targets: &Array,
        lse: &Array,
        grad: &Array,
        smoothing: f64,
    ) -> Result<Array> {
        self.cast(&self.cross_entropy_backward(logits, targets, lse, grad, smoothing)?, DType::Bf16)
    }
    /// [`Kernels::cross_entropy`], and 1 for each row in which no logit is larger than the target's, else 0: \[N\], of the
    /// logits' type. A row with NaN may have either.
    fn cross_entropy_hits(&self, logits: &Array, targets: &Array, smoothing: f64) -> Result<CrossEntropy> {
        composed::cross_entropy_hits(self, logits, targets, smoothing)
    }
    /// x W^T + bias: x [.., K], weight [N, K], bias \[N\] -> [.., N]. Each of x and the weight may be bf16 instead of f32:
    /// then the result is that for their values in f32.
    fn linear(&self, x: &Array, weight: &Array, bias: Option<&Array>) -> Result<Array> {
        composed::linear(self, x, weight, bias)
    }
    /// base + x W^T + bias, as [`Kernels::linear`]; the base has the shape of the result, and is never bf16.
    fn linear_onto(&self, base: &Array, x: &Array, weight: &Array, bias: Option<&Array>) -> Result<Array> {
        self.accumulate(self.linear(x, weight, bias)?, base)
    }
    /// z = x W^T + bias, as [`Kernels::linear`], and GELU of z.
    fn linear_gelu(&self, x: &Array, weight: &Array, bias: &Array) -> Result<(Array, Array)> {
        composed::linear_gelu(self, x, weight, bias)
    }
    /// The way back through [`Kernels::linear_gelu`] from y = GELU(z) to z, where y was multiplied by a weight [N, K]:
    /// the gradient of `z` [.., K] from that of the product, `grad` [.., N]; and y, made again.
    fn linear_gelu_backward(&self, grad: &Array, weight: &Array, z: &Array) -> Result<(Array, Array)> {
        composed::linear_gelu_backward(self, grad, weight, z)
    }
    /// z = x U^T + u, and base + GELU(z) D^T + d: `up` is U and u, `down` is D and d, and the base, if there is one, has the shape
    /// of the result. As [`Kernels::linear_onto`] after [`Kernels::linear_gelu`]; z, and what D multiplies, are rounded to
    /// `kept`, if that is a type, and z is given in it.
    fn feed_forward(
        &self,
        base: Option<&Array>,
        x: &Array,
        up: (&Array, &Array),
        down: (&Array, &Array),
        kept: Option<DType>,
    ) -> Result<(Array, Array)> {
        composed::feed_forward(self, base, x, up, down, kept)
    }
    /// The gradients of x, U, u and D, the sums added to theirs.
    fn feed_forward_backward(&self, call: FeedForward<'_>, sums: FeedForwardSums) -> Result<FeedForwardGradient> {
        composed::feed_forward_backward(self, call, sums)
    }
    /// a + b scale: a and b [.., D], scale \[D\]. Where [`Capabilities::multiplies_bf16`], each of a and b may be bf16 instead of
    /// f32, here and on the way back; results are f32.
    fn add_scaled(&self, a: &Array, b: &Array, scale: &Array) -> Result<Array> {
        composed::add_scaled(self, a, b, scale)
    }
    /// The gradients of b and of the scale in [`Kernels::add_scaled`]; that of a is `grad`.
    fn add_scaled_backward(&self, b: &Array, scale: &Array, grad: &Array) -> Result<(Array, Array)> {
        composed::add_scaled_backward(self, b, scale, grad)
    }
    /// x W^T with int8 weights: x [.., K] (f32), q [N, K] (i8), scale \[N\] (f32), W = q scale. Each row of x is
    /// quantized symmetrically, in f32: s = max|x| / 127, xq = round(x (127 / max|x|)) with ties to even, and
    /// y = (sum xq q) s scale, the sum over integers and exact. A row whose largest magnitude is not above
    /// [`crate::LEAST_PEAK`] gives zeros; one that is not finite gives NaN.
    fn linear_int8(&self, x: &Array, q: &Array, scale: &Array) -> Result<Array> {
        composed::linear_int8(self, x, q, scale)
    }
    /// Layers one after the other, each with what stands around its product, see [`Int8Linear`]; the first of some columns,
    /// joined, and each other of what comes before it. There is at least one input and one layer; all inputs have the same
    /// rows, and their columns are as many as the first weights have.
    fn int8_linear(&self, inputs: &[Columns<'_, Array>], layers: &[Int8Linear<'_, Array>]) -> Result<Array> {
        int8::int8_linear_composed(self, inputs, layers)
    }
    /// Attention, and the log-sum-exp of the scaled scores of each query, [B, H, Tq].
    fn attention(&self, q: &Array, k: &Array, v: &Array, options: AttentionOptions) -> Result<(Array, Array)> {
        composed::attention(self, q, k, v, options)
    }
    /// The gradient of [`Kernels::attention`], with the value and log-sum-exp that it gave.
    #[allow(clippy::too_many_arguments)]
    fn attention_backward(
        &self,
        q: &Array,
        k: &Array,
        v: &Array,
        out: &Array,
        lse: &Array,
        grad: &Array,
        options: AttentionOptions,
    ) -> Result<AttentionGradient> {
        composed::attention_backward(self, q, k, v, out, lse, grad, options)
    }
    /// [`Kernels::attention`] of bf16 operands, whose value and log-sum-exp are f32. A backend that multiplies bf16 rounds the
    /// softmax's weights too; by default it is the attention of the same values in f32.
    fn attention_bf16(&self, q: &Array, k: &Array, v: &Array, options: AttentionOptions) -> Result<(Array, Array)> {
        let m = Math(self);
        self.attention(&m.to_wide_type(q)?, &m.to_wide_type(k)?, &m.to_wide_type(v)?, options)
    }
    /// The gradient of [`Kernels::attention_bf16`], in f32. `out`, `lse` and `grad` are f32.
    #[allow(clippy::too_many_arguments)]
    fn attention_bf16_backward(
        &self,
        q: &Array,
        k: &Array,
        v: &Array,
        out: &Array,
        lse: &Array,
        grad: &Array,
        options: AttentionOptions,
    ) -> Result<AttentionGradient> {
        let m = Math(self);
        self.attention_backward(&m.to_wide_type(q)?, &m.to_wide_type(k)?, &m.to_wide_type(v)?, out, lse, grad, options)
    }
    /// One update of a parameter and its moments, see [`AdamW`]. What other handles see does not change.
    fn adamw(&self, param: &mut Array, grad: &Array, m: &mut Array, v: &mut Array, args: AdamW) -> Result<()> {
        composed::adamw(self, param, grad, m, v, args)
    }
    /// The Euclidean norm of all `gradients` together, summed in f64 in a fixed order; and the factor that brings it down to
    /// `limit`, which is 1 where it is not above that: \[2\], of the gradients' type, and read by nobody on the way.
    fn clip(&self, gradients: &[&Array], limit: Option<f64>) -> Result<Array> {
        composed::clip(self, gradients, limit)
    }
    /// [`Kernels::adamw`] of several parameters, whose gradients are multiplied with the second of `clip`, as
    /// [`Kernels::clip`] gives it, and not with `args.grad_scale`. `factors` (f32, \[4\]) is [`AdamW::factors`] of `args`: a
    /// backend that replays captured work (see [`Kernels::replay_backend`]) reads there what has changed since.
    fn adamw_all(&self, updates: Vec<Update<'_, Array>>, args: AdamW, factors: &Array, clip: &Array) -> Result<()> {
        let _ = factors;
        composed::adamw_all(self, updates, args, clip)
    }
}
