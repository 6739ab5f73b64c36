//! Iteration over several strided operands at once, with axes merged wherever all operands allow it.

use std::ops::Range;

use assay_tensor::Shape;

/// A walk over a box of elements, N operands at once: rows along one innermost axis, which operand i crosses in steps
/// of `inner.1[i]`.
#[derive(Debug)]
pub(crate) struct Walk<const N: usize> {
    /// Extents and strides of the axes around the rows, outermost first.
    outer: Vec<(usize, [usize; N])>,
    /// The length of a row, and the operands' strides along it.
    pub(crate) inner: (usize, [usize; N]),
}

impl<const N: usize> Walk<N> {
    /// A walk over `dims`, where operand i has strides `strides[i]`. There must be no axis of extent 0.
    pub(crate) fn new(dims: &[usize], strides: [&[usize]; N]) -> Walk<N> {
        let mut axes: Vec<(usize, [usize; N])> = Vec::new();
        for (axis, &extent) in dims.iter().enumerate().filter(|&(_, &extent)| extent != 1) {
            let step = strides.map(|s| s[axis]);
            match axes.last_mut() {
                // The last axis steps over exactly one run of this one, for every operand: they are one longer axis.
                Some((length, wide)) if (0..N).all(|i| wide[i] == step[i] * extent) => {
                    *length *= extent;
                    *wide = step;
                }
                _ => axes.push((extent, step)),
            }
        }
        let inner = axes.pop().unwrap_or((1, [0; N]));
        Walk { outer: axes, inner }
    }

    /// The number of rows.
    pub(crate) fn row_count(&self) -> usize {
        self.outer.iter().map(|(extent, _)| extent).product()
    }

    /// The operands' offsets for each row of `range` in order. An iterator rather than a function that calls another one for
    /// each: loops stay inside of what they are compiled for, see [`crate::simd::instructions`].
    pub(crate) fn row_offsets(&self, range: Range<usize>) -> Offsets<'_, N> {
        let mut index = vec![0; self.outer.len()];
        let mut offset = [0; N];
        let mut rest = range.start;
        for (axis, (extent, stride)) in self.outer.iter().enumerate().rev() {
            index[axis] = rest % extent;
            rest /= extent;
            (0..N).for_each(|i| offset[i] += index[axis] * stride[i]);
        }
        Offsets { outer: &self.outer, index, offset, left: range.len() }
    }
}

/// What [`Walk::row_offsets`] gives.
pub(crate) struct Offsets<'a, const N: usize> {
    outer: &'a [(usize, [usize; N])],
    /// Of the next row, its place along each axis, and what the operands' offsets are there.
    index: Vec<usize>,
    offset: [usize; N],
    left: usize,
}

impl<const N: usize> Iterator for Offsets<'_, N> {
    type Item = [usize; N];

    #[inline]
    fn next(&mut self) -> Option<[usize; N]> {
        self.left = self.left.checked_sub(1)?;
        let here = self.offset;
        for ((extent, stride), index) in self.outer.iter().zip(&mut self.index).rev() {
            *index += 1;
            (0..N).for_each(|i| self.offset[i] += stride[i]);
            if *index < *extent {
                break;
            }
            *index = 0;
            (0..N).for_each(|i| self.offset[i] -= extent * stride[i]);
        }
        Some(here)
    }
}

/// For each product of the broadcast batch, which product of this operand it reads.
pub(crate) fn batch_offsets(shape: &Shape, batch: &Shape) -> Vec<usize> {
    let strides = shape.broadcast_strides(batch);
    let place = |mut flat: usize| {
        let mut at = 0;
        for axis in (0..strides.len()).rev() {
            at += flat % batch.dims()[axis] * strides[axis];
            flat /= batch.dims()[axis];
        }
        at
    };
    (0..batch.numel()).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_merge_where_every_operand_allows_it() {
        let walk = Walk::new(&[2, 3, 4], [&[12, 4, 1], &[0, 4, 1]]);
        assert_eq!((walk.outer.clone(), walk.inner), (vec![(2, [12, 0])], (12, [1, 1])));
        let walk = Walk::new(&[5, 1, 4], [&[4, 4, 1]]);
        assert_eq!((walk.row_count(), walk.inner), (1, (20, [1])));
        assert_eq!(Walk::new(&[], [&[]]).inner, (1, [0]));
    }

    #[test]
    fn rows_are_visited_in_order_from_anywhere() {
        let walk = Walk::new(&[2, 3, 2], [&[1, 4, 2]]);
        let offsets = |range| walk.row_offsets(range).map(|[at]| at).collect::<Vec<_>>();
        assert_eq!(walk.row_count(), 2);
        assert_eq!((offsets(0..2), offsets(1..2)), (vec![0, 1], vec![1]));
    }
}
