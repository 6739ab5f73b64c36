//! Products of matrices with leading axes that broadcast.

use assay_tensor::Shape;
use candle_core::Tensor;

use crate::store::Made;

/// One side of a product.
pub(crate) struct Side {
    /// [.., rows, columns], contiguous.
    pub(crate) of: Tensor,
    /// Whether rows and columns are exchanged first.
    pub(crate) transposed: bool,
}

impl Side {
    /// The leading axes.
    fn batch(&self) -> Shape {
        Shape::from(&self.of.dims()[..self.of.rank() - 2])
    }

    /// Rows and columns, after the exchange.
    fn matrix(&self) -> [usize; 2] {
        let [.., rows, columns] = *self.of.dims() else { return [1, 1] };
        if self.transposed { [columns, rows] } else { [rows, columns] }
    }

    /// The leading axes repeated to `batch` and joined: [count, rows, columns], or a matrix where there are none.
    fn flattened(&self, batch: &Shape) -> Made {
        let [.., rows, columns] = *self.of.dims() else { return Ok(self.of.clone()) };
        let wide: Vec<usize> = batch.dims().iter().copied().chain([rows, columns]).collect();
        let x = if self.of.dims() == wide { self.of.clone() } else { self.of.broadcast_as(wide)?.contiguous()? };
        let x = if batch.rank() == 0 { x } else { x.reshape((batch.numel(), rows, columns))? };
        let last = x.rank() - 1;
        if self.transposed { x.transpose(last - 1, last) } else { Ok(x) }
    }
}

/// The shape of a b. The leading axes broadcast.
pub(crate) fn product_shape(a: &Side, b: &Side) -> assay_tensor::Result<Shape> {
    let batch = Shape::broadcast("matmul", &a.batch(), &b.batch())?;
    let extents: Vec<usize> = batch.dims().iter().copied().chain([a.matrix()[0], b.matrix()[1]]).collect();
    Ok(Shape::from(extents))
}

/// a b, of the shape that [`product_shape`] gives.
pub(crate) fn matmul(a: &Side, b: &Side, shape: &Shape) -> Made {
    let batch = Shape::from(&shape.dims()[..shape.rank() - 2]);
    a.flattened(&batch)?.matmul(&b.flattened(&batch)?)?.reshape(shape.dims())
}
