//! Elementwise operations, their gradients and dropout.

use assay_tensor::{Array, Binary, DType, Result, Shape, Unary};

use crate::driver::{Argument, Launch};
use crate::gpu::{Gpu, block_count, count_argument};
use crate::library::{Topic, has_slope};
use crate::reduce::Fold;
use crate::storage::Buffer;
use crate::strides::Walk;

const ADD_SCALED: &str = "add_scaled";
/// The rows whose contributions to the gradient of a scale are added first.
const PIECE: usize = 32;

impl Gpu {
    fn launch_elementwise(
        &self,
        operation: &'static str,
        kernel: &str,
        n: usize,
        arguments: &[Argument],
    ) -> Result<()> {
        self.launch_kernel(operation, (Topic::Elementwise, kernel), self.line_grid(n), arguments)
    }

    /// y = op(x)
    pub(crate) fn apply_unary(&self, op: Unary, x: &Array) -> Result<Array> {
        let name = op.name();
        let (from, y) = (self.f32_pointer(name, x)?, self.allocate_f32(name, &x.shape)?);
        if x.numel() > 0 {
            let constant = match op {
                Unary::Scale(c) | Unary::Offset(c) => c as f32,
                _ => 0.0,
            };
            let arguments = [y.pointer(), from, Argument::F32(constant), count_argument(x.numel())];
            self.launch_elementwise(name, &format!("unary_{name}"), x.numel(), &arguments)?;
        }
        Ok(y.into_array(&x.shape))
    }

    /// GELU of bf16 numbers, rounded to bf16.
    pub(crate) fn gelu_bf16(&self, x: &Array) -> Result<Array> {
        let name = Unary::Gelu.name();
        let (from, y) = (self.typed_buffer(name, x, DType::Bf16)?, self.allocate_buffer(name, &x.shape, DType::Bf16)?);
        if x.numel() > 0 {
            self.launch_elementwise(
                name,
                "gelu_bf16",
                x.numel(),
                &[y.pointer(), from.pointer(), count_argument(x.numel())],
            )?;
        }
        Ok(y.into_array(&x.shape))
    }

    /// The gradient of `op`'s argument from what was saved and the gradient of its value.
    pub(crate) fn unary_gradient(&self, op: Unary, saved: &Array, grad: &Array) -> Result<Array> {
        let name = op.name();
        match op {
            Unary::Offset(_) => return Ok(grad.clone()),
            Unary::Round => return self.allocate_zeros(name, &grad.shape).map(|dx| dx.into_array(&grad.shape)),
            _ if !has_slope(op) => return self.apply_unary(op, grad),
            _ => {}
        }
        let (s, g, dx) =
            (self.f32_pointer(name, saved)?, self.f32_pointer(name, grad)?, self.allocate_f32(name, &grad.shape)?);
        if grad.numel() > 0 {
            let arguments = [dx.pointer(), s, g, count_argument(grad.numel())];
            self.launch_elementwise(name, &format!("slope_{name}"), grad.numel(), &arguments)?;
        }
        Ok(dx.into_array(&grad.shape))
    }

    /// y = op(a, b), the operands broadcasting.
    pub(crate) fn apply_binary(&self, op: Binary, a: &Array, b: &Array) -> Result<Array> {
        let name = op.name();
        let shape = Shape::broadcast(name, &a.shape, &b.shape)?;
        let (left, right) = (self.typed_buffer(name, a, DType::F32)?, self.typed_buffer(name, b, DType::F32)?);
        let y = self.allocate_f32(name, &shape)?;
        if shape.numel() > 0 {
            let (in_a, in_b) = (a.shape.broadcast_strides(&shape), b.shape.broadcast_strides(&shape));
            self.launch_strided(op, &y, left, right, Walk::new(shape.dims(), [&in_a, &in_b]))?;
        }
        Ok(y.into_array(&shape))
    }

    /// One of the three forms of a binary kernel: a line, a plane, or up to six axes at a time.
    fn launch_strided(&self, op: Binary, y: &Buffer, a: &Buffer, b: &Buffer, walk: Walk<2>) -> Result<()> {
        let name = op.name();
        let pointers = [y.pointer(), a.pointer(), b.pointer()];
        let [in_a, in_b] = &walk.strides;
        match (walk.dims.as_slice(), in_a.as_slice(), in_b.as_slice()) {
            (&[n], &[step_a], &[step_b]) => {
                let rest = [Argument::U32(step_a as u32), Argument::U32(step_b as u32), count_argument(n)];
                self.launch_elementwise(name, &format!("binary_{name}"), n, &[&pointers[..], &rest].concat())
            }
            ([], ..) => {
                let rest = [Argument::U32(1), Argument::U32(1), count_argument(1)];
                self.launch_elementwise(name, &format!("binary_{name}"), 1, &[&pointers[..], &rest].concat())
            }
            (&[rows, columns], &[row_a, column_a], &[row_b, column_b]) => {
                let rest = [rows, columns, row_a, column_a, row_b, column_b].map(count_argument);
                let launch = self.plane_grid(name, rows, columns)?;
                let kernel = format!("plane_{name}");
                self.launch_kernel(name, (Topic::Elementwise, &kernel), launch, &[&pointers[..], &rest].concat())
            }
            _ => {
                let (starts, walk) = walk.split_outer();
                let (n, kernel) = (walk.numel(), format!("strided_{name}"));
                for (piece, [from_a, from_b]) in starts.into_iter().enumerate() {
                    let mut arguments =
                        vec![y.pointer_at(piece * n), a.pointer_at(from_a), b.pointer_at(from_b), count_argument(n)];
                    arguments.extend(walk.inner_extents().map(count_argument));
                    arguments.extend(walk.all_strides(0).map(count_argument));
                    arguments.extend(walk.all_strides(1).map(count_argument));
                    self.launch_elementwise(name, &kernel, n, &arguments)?;
                }
                Ok(())
            }
        }
    }

    /// a + b scale for rows as wide as the scale; a and b are f32 or bf16, the result is f32.
    pub(crate) fn scaled_sum(&self, [a, b, scale]: [&Array; 3]) -> Result<Array> {
        let y = self.allocate_f32(ADD_SCALED, &a.shape)?;
        if a.numel() > 0 {
            let operands = [self.buffer_of(ADD_SCALED, a)?.pointer(), self.buffer_of(ADD_SCALED, b)?.pointer()];
            let sizes =
                [self.f32_pointer(ADD_SCALED, scale)?, count_argument(a.shape.rows()), count_argument(a.shape.last())];
            let arguments = [&[y.pointer()], &operands[..], &sizes].concat();
            self.launch_elementwise(ADD_SCALED, &format!("add_scaled_{}_{}", a.dtype, b.dtype), a.numel(), &arguments)?;
        }
        Ok(y.into_array(&a.shape))
    }

    /// The gradients of b and of the scale.
    pub(crate) fn scaled_sum_backward(&self, [b, scale, grad]: [&Array; 3]) -> Result<Vec<Array>> {
        let (rows, width) = (b.shape.rows(), b.shape.last());
        let db = self.allocate_f32(ADD_SCALED, &b.shape)?;
        if b.numel() == 0 {
            let zeros = self.allocate_zeros(ADD_SCALED, &scale.shape)?;
            return Ok(vec![db.into_array(&b.shape), zeros.into_array(&scale.shape)]);
        }
        let pieces = rows.div_ceil(PIECE);
        let sums = self.allocate_scratch(ADD_SCALED, pieces * width)?;
        let columns = if width.is_multiple_of(4) { 128 } else { 32 };
        let blocks = block_count(ADD_SCALED, width.div_ceil(columns) * pieces)?;
        let launch = Launch { grid: [blocks, 1, 1], block: [32, 8, 1], shared: 0 };
        let operands = [
            self.buffer_of(ADD_SCALED, b)?.pointer(),
            self.f32_pointer(ADD_SCALED, scale)?,
            self.f32_pointer(ADD_SCALED, grad)?,
        ];
        let sizes = [count_argument(rows), count_argument(width), count_argument(PIECE)];
        let arguments = [&[db.pointer(), sums.pointer()], &operands[..], &sizes].concat();
        let kernel = format!("add_scaled_backward_{}", b.dtype);
        self.launch_kernel(ADD_SCALED, (Topic::Elementwise, &kernel), launch, &arguments)?;
        let total = self.fold_axis(ADD_SCALED, Fold::Sum(1.0), &sums, [1, pieces, width])?;
        Ok(vec![db.into_array(&b.shape), total.into_array(&scale.shape)])
    }

    /// sum += x, in the memory of `sum`, which nothing else may use.
    pub(crate) fn add_to(&self, sum: &Array, x: &Array) -> Result<()> {
        let name = "accumulate";
        let arguments = [self.f32_pointer(name, sum)?, self.f32_pointer(name, x)?, count_argument(x.numel())];
        if x.numel() == 0 { Ok(()) } else { self.launch_elementwise(name, name, x.numel(), &arguments) }
    }

    /// y = x / (1 - p) where the hash of key and index keeps it, else 0.
    pub(crate) fn drop_out(&self, x: &Array, p: f64, key: u64) -> Result<Array> {
        self.apply_dropout("dropout", x, p, &[Argument::U64(key)])
    }

    /// The same with the key that follows from a seed on the device and a place.
    pub(crate) fn drop_out_at(&self, x: &Array, p: f64, seed: &Array, place: u64) -> Result<Array> {
        let seed = self.typed_buffer("dropout", seed, DType::U32)?.pointer();
        self.apply_dropout("dropout_at", x, p, &[seed, Argument::U64(place)])
    }

    fn apply_dropout(&self, kernel: &str, x: &Array, p: f64, key: &[Argument]) -> Result<Array> {
        let name = "dropout";
        let (from, y) = (self.f32_pointer(name, x)?, self.allocate_f32(name, &x.shape)?);
        if x.numel() > 0 {
            // As `assay_tensor::dropout_keeps` has it.
            let limit = Argument::U32((p * 4_294_967_296.0) as u32);
            let factor = Argument::F32((1.0 / (1.0 - p)) as f32);
            let arguments = [&[y.pointer(), from], key, &[limit, factor, count_argument(x.numel())]].concat();
            self.launch_elementwise(name, kernel, x.numel(), &arguments)?;
        }
        Ok(y.into_array(&x.shape))
    }
}
