//! How elements are read in another order: axes, merged where one stride does.

/// The axes that a kernel walks by itself.
pub(crate) const AXES: usize = 6;

/// Extents, and for each of `N` operands the distance between neighbours along each axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walk<const N: usize> {
    pub(crate) dims: Vec<usize>,
    pub(crate) strides: [Vec<usize>; N],
}

impl<const N: usize> Walk<N> {
    /// The walk over `dims` with as few axes as possible: those of extent 1 are left out, and neighbours are merged where
    /// every operand has the outer one right behind the inner one.
    pub(crate) fn new(dims: &[usize], strides: [&[usize]; N]) -> Walk<N> {
        let mut walk = Walk { dims: Vec::new(), strides: std::array::from_fn(|_| Vec::new()) };
        for (axis, &extent) in dims.iter().enumerate().filter(|(_, extent)| **extent != 1) {
            let merges =
                (0..N).all(|i| walk.strides[i].last().is_some_and(|&outer| outer == strides[i][axis] * extent));
            if let Some(last) = walk.dims.last_mut().filter(|_| merges) {
                *last *= extent;
            } else {
                walk.dims.push(extent);
                walk.strides.iter_mut().for_each(|strides| strides.push(0));
            }
            for (all, strides) in walk.strides.iter_mut().zip(strides) {
                if let Some(last) = all.last_mut() {
                    *last = strides[axis];
                }
            }
        }
        walk
    }

    /// Elements of the result.
    pub(crate) fn numel(&self) -> usize {
        self.dims.iter().product()
    }

    /// Splits off the axes beyond the inner [`AXES`]: where each operand starts for each index along them, and what is
    /// left to walk from there.
    pub(crate) fn split_outer(mut self) -> (Vec<[usize; N]>, Walk<N>) {
        let mut starts = vec![[0; N]];
        while self.dims.len() > AXES {
            let extent = self.dims.remove(0);
            let strides: [usize; N] = std::array::from_fn(|i| self.strides[i].remove(0));
            let step = |start: &[usize; N], index: usize| std::array::from_fn(|i| start[i] + index * strides[i]);
            starts = starts.iter().flat_map(|start| (0..extent).map(move |index| step(start, index))).collect();
        }
        (starts, self)
    }

    /// Extents of the inner five of six axes, as kernels take them.
    pub(crate) fn inner_extents(&self) -> [usize; AXES - 1] {
        let mut extents = [1; AXES - 1];
        for (extent, dim) in extents.iter_mut().rev().zip(self.dims.iter().rev()) {
            *extent = *dim;
        }
        extents
    }

    /// Operand `i`'s strides along all six axes.
    pub(crate) fn all_strides(&self, i: usize) -> [usize; AXES] {
        let mut strides = [0; AXES];
        for (stride, given) in strides.iter_mut().rev().zip(self.strides[i].iter().rev()) {
            *stride = *given;
        }
        strides
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_merged_where_every_operand_allows_it() {
        let walk = |dims: &[usize], a: &[usize], b: &[usize]| Walk::new(dims, [a, b]);
        assert_eq!(walk(&[2, 3, 4], &[12, 4, 1], &[12, 4, 1]), walk(&[24], &[1], &[1]));
        assert_eq!(walk(&[2, 3, 4], &[12, 4, 1], &[0, 0, 1]), walk(&[6, 4], &[4, 1], &[0, 1]));
        assert_eq!(walk(&[2, 1, 4], &[4, 9, 1], &[4, 7, 1]).dims, [8]);
        assert_eq!(walk(&[2, 3], &[1, 2], &[3, 1]).dims, [2, 3]);
        assert_eq!(walk(&[], &[], &[]).numel(), 1);
    }

    #[test]
    fn axes_beyond_six_become_starts() {
        let dims = [2usize; 8];
        // Backwards, so that nothing merges.
        let strides: Vec<usize> = (0..8).map(|axis| 1 << axis).collect();
        let (starts, rest) = Walk::new(&dims, [&strides]).split_outer();
        assert_eq!(starts, [[0], [2], [1], [3]]);
        assert_eq!((rest.dims.len(), rest.all_strides(0)), (6, [4, 8, 16, 32, 64, 128]));
        assert_eq!(rest.inner_extents(), [2; 5]);
        let (starts, rest) = Walk::new(&[3, 2], [&[1, 3]]).split_outer();
        assert_eq!((starts, rest.inner_extents()), (vec![[0]], [1, 1, 1, 3, 2]));
        assert_eq!(rest.all_strides(0), [0, 0, 0, 0, 1, 3]);
    }
}
