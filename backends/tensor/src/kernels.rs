//! [`Kernels`]: the boundary between tensors and backends, with the methods that a backend must provide and those it may.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::args::{AdamW, Binary, Reduce, Unary, Update};
use crate::array::Array;
use crate::composed;
use crate::dtype::{DType, HostData};
use crate::error::Result;
use crate::fusion::Arguments;
use crate::gradient;
use crate::int8::{Columns, Int8Linear};
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
    /// `matmul_onto` and the operation `linear_gelu_backward` are then given gradients in bf16 beside other operands of a product, all
    /// with two axes, in bf16. Products are added in f32, which their results are. The operation `layer_norm_backward` is given its
    /// input as it was kept, and `reduce` a gradient in bf16 to be summed over rows. See also [`crate::Bf16Operands::Multiplied`].
    pub multiplies_bf16: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Capabilities { tokens_a_thread: None, tokens_at_once: 512, few_rows: 0, multiplies_bf16: false }
    }
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
/// - That type is never bf16, which is storage: only what moves elements, `upload`, `download`, `full`, `cast` and the fused operations
///   that say so ([`crate::FusedOp::bf16`]) are given it; and, if [`Capabilities::multiplies_bf16`], what that names. A backend without
///   bf16 refuses `upload`, `full` and `cast`, and is then never given any.
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

    // Primitives that follow from others. Each default is what the primitive means.

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
    /// x W^T with int8 weights: x [.., K] (f32), q [N, K] (i8), scale \[N\] (f32), W = q scale. Each row of x is
    /// quantized symmetrically, in f32: s = max|x| / 127, xq = round(x (127 / max|x|)) with ties to even, and
    /// y = (sum xq q) s scale, the sum over integers and exact. A row whose largest magnitude is not above
    /// [`crate::LEAST_PEAK`] gives zeros; one that is not finite gives NaN.
    fn linear_int8(&self, x: &Array, q: &Array, scale: &Array) -> Result<Array> {
        composed::linear_int8(self, x, q, scale)
    }
    /// Layers one after the other, each with what stands around its product, see [`Int8Linear`]; the first of some columns,
    /// joined, and each other of what comes before it. There is at least one input and one layer; all inputs have the same
    /// rows, and their columns are as many as the first weights have. None if the backend has no kernel for it, so that the parts run.
    fn int8_linear(&self, inputs: &[Columns<'_, Array>], layers: &[Int8Linear<'_, Array>]) -> Option<Result<Array>> {
        let _ = (inputs, layers);
        None
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
