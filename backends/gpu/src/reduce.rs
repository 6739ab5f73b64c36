//! Reductions over any set of axes, one group of neighbouring axes after the other, each in two passes where one would
//! leave the device idle.

use assay_tensor::{Array, DType, Reduce, Result, Shape, group_axes};

use crate::driver::{Argument, Launch};
use crate::gpu::{Gpu, block_count, count_argument};
use crate::library::Topic;
use crate::storage::Buffer;

/// The blocks that a pass should have before another is worth its launch.
const BLOCKS: usize = 1024;
/// The elements of a row, and the rows of a column, that one block reduces without a second pass.
const ROW: usize = 4096;
const COLUMN: usize = 256;

/// What a kernel makes of many elements: their sum, times a factor, or the largest.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fold {
    Sum(f32),
    Max,
}

impl Fold {
    fn kernel_arguments(self) -> [Argument; 2] {
        match self {
            Fold::Sum(factor) => [Argument::U32(0), Argument::F32(factor)],
            Fold::Max => [Argument::U32(1), Argument::F32(1.0)],
        }
    }

    /// What the pieces are folded with before the whole is.
    fn partial_fold(self) -> Fold {
        match self {
            Fold::Sum(_) => Fold::Sum(1.0),
            Fold::Max => Fold::Max,
        }
    }
}

/// Into how many pieces the middle is cut, where a block has so many columns. It depends on shape and type alone, and so does the
/// order of every sum.
fn split_count([outer, middle, inner]: [usize; 3], columns: usize) -> usize {
    let (blocks, piece) = if inner == 1 { (outer, ROW) } else { (outer * inner.div_ceil(columns), COLUMN) };
    if blocks >= BLOCKS || middle <= 2 * piece {
        return 1;
    }
    middle.div_ceil(piece).min(BLOCKS / blocks.max(1)).max(1)
}

/// The kernel that reduces columns, and how many of them a block has.
fn column_kernel(dtype: DType, inner: usize) -> (&'static str, usize) {
    match dtype {
        DType::Bf16 if inner.is_multiple_of(4) => ("reduce_columns_bf16_by_4", 128),
        DType::Bf16 => ("reduce_columns_bf16", 32),
        _ => ("reduce_columns", 32),
    }
}

impl Gpu {
    pub(crate) fn reduce_axes(&self, op: Reduce, x: &Array, axes: &[usize]) -> Result<Array> {
        let name = op.name();
        let shape = x.shape.reduced(axes, true);
        let mut value: Option<Array> = None;
        for dims in group_axes(x.dims(), axes) {
            let fold = match op {
                Reduce::Sum => Fold::Sum(1.0),
                Reduce::Mean => Fold::Sum((1.0 / dims[1] as f64) as f32),
                Reduce::Max => Fold::Max,
            };
            // A gradient in bf16 is widened as it is summed.
            let from = match &value {
                None if x.dtype == DType::Bf16 => self.buffer_of(name, x)?,
                _ => self.typed_buffer(name, value.as_ref().unwrap_or(x), DType::F32)?,
            };
            value = Some(self.fold_axis(name, fold, from, dims)?.into_array([dims[0], dims[2]]));
        }
        match value {
            Some(value) => Ok(value.viewed(&shape)),
            None => self.typed_buffer(name, x, DType::F32).map(|_| x.viewed(&shape)),
        }
    }

    /// x [outer, middle, inner] to [outer, inner].
    pub(crate) fn fold_axis(&self, name: &'static str, fold: Fold, x: &Buffer, dims: [usize; 3]) -> Result<Buffer> {
        let [outer, middle, inner] = dims;
        let y = self.allocate_f32(name, &Shape::from([outer, inner]))?;
        if outer * inner == 0 {
            return Ok(y);
        }
        if middle == 0 {
            self.zero_buffer(name, &y)?;
            return Ok(y);
        }
        let pieces = split_count(dims, column_kernel(x.dtype(), inner).1);
        if pieces == 1 {
            self.fold_once(name, fold, x, &y, dims, 1)?;
        } else {
            let parts = self.allocate_scratch(name, outer * pieces * inner)?;
            self.fold_once(name, fold.partial_fold(), x, &parts, dims, pieces)?;
            self.fold_once(name, fold, &parts, &y, [outer, pieces, inner], 1)?;
        }
        Ok(y)
    }

    /// x [outer, middle, inner] to y [outer, pieces, inner].
    fn fold_once(
        &self,
        name: &'static str,
        fold: Fold,
        x: &Buffer,
        y: &Buffer,
        [outer, middle, inner]: [usize; 3],
        pieces: usize,
    ) -> Result<()> {
        let [op, factor] = fold.kernel_arguments();
        let (pieces_at, middle_at) = (count_argument(pieces), count_argument(middle));
        if inner == 1 && x.dtype() == DType::F32 {
            let launch = self.row_grid(name, outer * pieces, middle.div_ceil(pieces))?;
            let arguments = [y.pointer(), x.pointer(), op, count_argument(outer), middle_at, pieces_at, factor];
            return self.launch_kernel(name, (Topic::Reduce, "reduce_rows"), launch, &arguments);
        }
        let (kernel, columns) = column_kernel(x.dtype(), inner);
        let blocks = block_count(name, inner.div_ceil(columns) * outer * pieces)?;
        let launch = Launch { grid: [blocks, 1, 1], block: [32, 8, 1], shared: 0 };
        let arguments = [y.pointer(), x.pointer(), op, middle_at, count_argument(inner), pieces_at, factor];
        self.launch_kernel(name, (Topic::Reduce, kernel), launch, &arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sums_are_cut_where_there_are_few() {
        assert_eq!(split_count([1, 8192, 1], 32), 1);
        assert_eq!(split_count([1, 8193, 1], 32), 3);
        assert_eq!(split_count([1, 1 << 30, 1], 32), 1024);
        assert_eq!(split_count([4096, 1 << 20, 1], 32), 1);
        assert_eq!(split_count([1, 32_768, 1024], 32), 32);
        assert_eq!(split_count([1, 500, 32], 32), 1);
        assert_eq!((split_count([1, 8192, 50_000], 32), split_count([1, 8192, 50_000], 128)), (1, 2));
    }
}
