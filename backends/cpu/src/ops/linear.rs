//! Linear layers: products with weights, with a bias, a base to add to, and GELU in the same pass.

use assay_tensor::{Arguments, Array, LINEAR, LINEAR_GELU, LINEAR_GELU_BACKWARD, Linear, Result, Shape, TensorError};

use crate::device::Cpu;
use crate::matmul::epilogue::Destination;
use crate::matmul::epilogue::{Finish, Start};
use crate::matmul::matrix::{Extent, Matrix};
use crate::matmul::packed::Right;
use crate::matmul::product::multiply_batch_at;
use crate::matmul::weights::WeightUse;
use crate::memory::storage::f32s;
use crate::simd::rows::RowPointers;
use crate::simd::rows::STRIP;
use crate::threads::denormals::FlushGuard;

impl Cpu {
    /// A weight [N, K] as the right side of a product of m rows: packed, or as it lies in `wide`.
    fn right_side<'a>(
        &self,
        weight: &'a Array,
        m: usize,
        way: WeightUse,
        wide: &'a mut Option<Array>,
    ) -> Result<Right<'a>> {
        if let Some(strips) = self.packed_weight(weight, m, way) {
            return Ok(Right::Packed(strips));
        }
        let wide = wide.insert(self.widen_operand(weight)?);
        let matrix = Matrix::new(f32s("linear", wide)?, weight.shape.last());
        Ok(Right::Matrix(matrix.transposed_if(way == WeightUse::Forward)))
    }

    /// The product of the rows of x with a weight in a way, `y` having the shape of the result.
    ///
    /// # Safety
    ///
    /// The finish points to as many elements as the result has, which nothing else uses.
    unsafe fn weight_product(
        &self,
        (x, weight, way): (&Array, &Array, WeightUse),
        start: Start<'_>,
        finish: Finish,
        y: &mut [f32],
    ) -> Result<()> {
        let &[rows, columns] = weight.dims() else {
            return Err(TensorError::new("linear", "the weight should be [N, K]").shapes([&weight.shape]));
        };
        let (n, k) = if way == WeightUse::Forward { (rows, columns) } else { (columns, rows) };
        let (m, mut wide) = (x.shape.rows(), None);
        let right = self.right_side(weight, m, way, &mut wide)?;
        let x = self.widen_operand(x)?;
        let left = Matrix::new(f32s("linear", &x)?, k);
        assert!(y.len() >= m * n, "the result has {} elements for {m} x {n}", y.len());
        let place = Destination { finish, ..Destination::new(y.as_mut_ptr(), n, start) };
        // SAFETY: the slice holds the result; the caller vouches for the finish, and a base is as long, which was checked
        // where it was taken.
        unsafe { multiply_batch_at(&self.threads, 1, Extent { m, n, k }, |_| (left, right), place) };
        Ok(())
    }

    /// base + x W^T + bias.
    pub(crate) fn linear_layer(&self, Linear { x, weight, bias, base }: Linear<'_>) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let name = LINEAR.name;
        let shape = layer_shape(x, weight);
        let mut y = self.take_block(name, &shape)?;
        let bias = bias.map(|bias| f32s(name, bias)).transpose()?;
        let start = match (base, bias) {
            (None, None) => Start::Zero,
            (None, Some(bias)) => Start::Bias(bias),
            (Some(base), bias) => {
                let base = f32s(name, base)?;
                assert!(base.len() >= y.len(), "a base of {} elements for {shape}", base.len());
                Start::Base { bias, base: base.as_ptr() }
            }
        };
        // SAFETY: nothing is finished.
        unsafe { self.weight_product((x, weight, WeightUse::Forward), start, Finish::Nothing, &mut y)? };
        Ok(self.f32_array(y, &shape))
    }

    /// z = x W^T + bias, and GELU of it.
    pub(crate) fn affine_gelu(&self, [x, weight, bias]: [&Array; 3]) -> Result<[Array; 2]> {
        let _flushed = FlushGuard::here();
        let name = LINEAR_GELU.name;
        let shape = layer_shape(x, weight);
        let (mut z, mut y) = (self.take_block(name, &shape)?, self.take_block(name, &shape)?);
        let finish = Finish::Gelu(RowPointers { at: y.as_mut_ptr(), stride: shape.last() });
        // SAFETY: both blocks have the shape of the result.
        unsafe {
            self.weight_product((x, weight, WeightUse::Forward), Start::Bias(f32s(name, bias)?), finish, &mut z)?
        };
        Ok([self.f32_array(z, &shape), self.f32_array(y, &shape)])
    }

    /// The gradient of z, from that of the product of GELU(z) with a weight; and GELU(z).
    pub(crate) fn affine_gelu_backward(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let ([grad, weight, z], name) = (call.operands()?, LINEAR_GELU_BACKWARD.name);
        // The product reads z, and writes GELU(z), in rows as wide as its own.
        if (z.shape.rows(), z.shape.last()) != (grad.shape.rows(), weight.shape.last()) {
            return Err(TensorError::new(
                name,
                "z should have a row for each of the gradient, as wide as the weight's",
            )
            .shapes([&grad.shape, &weight.shape, &z.shape]));
        }
        let (mut dz, mut y) = (self.take_block(name, &z.shape)?, self.take_block(name, &z.shape)?);
        let stride = z.shape.last();
        let argument = RowPointers { at: f32s(name, z)?.as_ptr(), stride };
        let finish = Finish::GeluBack { argument, value: RowPointers { at: y.as_mut_ptr(), stride }, strips: STRIP };
        // SAFETY: all three have the rows of the result, which was checked, and `f32s` has checked the length of z.
        unsafe { self.weight_product((grad, weight, WeightUse::Back), Start::Zero, finish, &mut dz)? };
        Ok(vec![self.f32_array(dz, &z.shape), self.f32_array(y, &z.shape)])
    }
}

/// The shape of what a layer with this weight gives.
fn layer_shape(x: &Array, weight: &Array) -> Shape {
    x.shape.with(x.shape.rank().saturating_sub(1), weight.dims().first().copied().unwrap_or(0))
}
