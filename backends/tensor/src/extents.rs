//! The extents of a shape, in place where there are few: [`Extents`]. A shape is made with every operation, and memory of
//! its own for each would cost as much as a small operation itself.

use std::ops::{Deref, DerefMut};

/// As many as are kept in place: no operation of ours makes more axes.
const FEW: usize = 6;

/// Some extents, as a slice.
#[derive(Debug, Clone)]
pub(crate) enum Extents {
    /// The first `count` of these.
    Few { count: u8, extents: [usize; FEW] },
    /// More than that.
    Many(Vec<usize>),
}

impl Deref for Extents {
    type Target = [usize];

    #[inline]
    fn deref(&self) -> &[usize] {
        match self {
            Extents::Few { count, extents } => &extents[..usize::from(*count)],
            Extents::Many(extents) => extents,
        }
    }
}

impl DerefMut for Extents {
    #[inline]
    fn deref_mut(&mut self) -> &mut [usize] {
        match self {
            Extents::Few { count, extents } => &mut extents[..usize::from(*count)],
            Extents::Many(extents) => extents,
        }
    }
}

impl From<&[usize]> for Extents {
    #[inline]
    fn from(dims: &[usize]) -> Extents {
        if dims.len() > FEW {
            return Extents::Many(dims.to_vec());
        }
        let mut extents = [0; FEW];
        extents[..dims.len()].copy_from_slice(dims);
        Extents::Few { count: dims.len() as u8, extents }
    }
}

impl FromIterator<usize> for Extents {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> Extents {
        let mut dims = dims.into_iter();
        let (mut count, mut extents) = (0, [0; FEW]);
        while count < FEW {
            let Some(extent) = dims.next() else { return Extents::Few { count: count as u8, extents } };
            extents[count] = extent;
            count += 1;
        }
        match dims.next() {
            None => Extents::Few { count: count as u8, extents },
            Some(next) => Extents::Many(extents.into_iter().chain([next]).chain(dims).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_is_kept_in_order() {
        for count in 0..2 * FEW {
            let dims: Vec<usize> = (1..=count).collect();
            let (mut copied, collected) = (Extents::from(&dims[..]), Extents::from_iter(dims.iter().copied()));
            assert_eq!((&copied[..], &collected[..]), (&dims[..], &dims[..]));
            assert_eq!(matches!(copied, Extents::Few { .. }), count <= FEW);
            if let Some(first) = copied.first_mut() {
                *first = 9;
                assert_eq!((copied[0], &copied[1..]), (9, &dims[1..]));
            }
        }
    }
}
