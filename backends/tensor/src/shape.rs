//! Shapes: the extents of a contiguous row-major tensor, and the rules of broadcasting.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Result, TensorError};
use crate::extents::Extents;

/// The extents of a tensor, outermost first. A scalar has none; an extent may be 0.
#[derive(Clone)]
pub struct Shape(Extents);

impl Shape {
    /// The shape of a scalar.
    pub fn scalar() -> Shape {
        Shape(Extents::from(&[][..]))
    }

    /// The extents.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// The number of axes.
    #[inline]
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The number of elements, 1 for a scalar. Saturates where it would overflow; see [`Shape::check_size`].
    #[inline]
    pub fn numel(&self) -> usize {
        product_of_extents(&self.0)
    }

    /// The number of elements, or an error where the extents are too large. A shape without elements is refused too if the
    /// product of its other extents cannot be addressed: kernels compute strides and numbers of rows from them.
    #[inline]
    pub fn check_size(&self, operation: &'static str) -> Result<usize> {
        let spanned = self.0.iter().fold(1, |n: usize, &extent| n.saturating_mul(extent.max(1)));
        if spanned > isize::MAX as usize / 8 {
            return Err(too_large(operation, self));
        }
        Ok(self.numel())
    }

    /// The last extent, 1 for a scalar.
    #[inline]
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// The number of rows when all axes but the last are flattened into one.
    #[inline]
    pub fn rows(&self) -> usize {
        product_of_extents(&self.0[..self.rank().saturating_sub(1)])
    }

    /// The distance in elements between neighbours along each axis.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.rank()];
        for axis in (1..self.rank()).rev() {
            strides[axis - 1] = strides[axis] * self.0[axis].max(1);
        }
        strides
    }

    /// The strides with which a tensor of this shape is read as if it had shape `wide`: 0 along repeated axes.
    /// Call it only where `self` broadcasts to `wide`.
    pub fn broadcast_strides(&self, wide: &Shape) -> Vec<usize> {
        let missing = wide.rank() - self.rank();
        let strides = self.strides();
        (0..wide.rank())
            .map(|axis| if axis < missing || self.0[axis - missing] == 1 { 0 } else { strides[axis - missing] })
            .collect()
    }

    /// The shape with `axis` changed to `extent`.
    #[inline]
    pub fn with(&self, axis: usize, extent: usize) -> Shape {
        let mut dims = self.0.clone();
        if let Some(d) = dims.get_mut(axis) {
            *d = extent;
        }
        Shape(dims)
    }

    /// The common shape of `a` and `b` under NumPy's rule: aligned at the right, extents are equal or one is 1.
    pub fn broadcast(operation: &'static str, a: &Shape, b: &Shape) -> Result<Shape> {
        let rank = a.rank().max(b.rank());
        let extent = |s: &Shape, axis: usize| (axis + s.rank()).checked_sub(rank).map_or(1, |i| s.0[i]);
        let dims = (0..rank).map(|axis| match (extent(a, axis), extent(b, axis)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        });
        dims.collect::<Option<Extents>>().map(Shape).ok_or_else(|| {
            TensorError::new(operation, "the shapes do not broadcast together")
                .shapes([a, b])
                .hint("aligned at the right, each pair of extents must be equal or one of them 1")
        })
    }

    /// The axes along which a tensor of this shape is repeated when it broadcasts to `wide`, as axes of `wide`.
    pub fn repeated_axes(&self, wide: &Shape) -> Vec<usize> {
        let missing = wide.rank().saturating_sub(self.rank());
        (0..wide.rank()).filter(|&axis| axis < missing || (self.0[axis - missing] == 1 && wide.0[axis] != 1)).collect()
    }

    /// This shape with `axes` reduced to extent 1 (`keep`) or taken out.
    pub fn reduced(&self, axes: &[usize], keep: bool) -> Shape {
        let kept = self.0.iter().enumerate();
        match keep {
            true => Shape(kept.map(|(i, &d)| if axes.contains(&i) { 1 } else { d }).collect()),
            false => Shape(kept.filter(|(i, _)| !axes.contains(i)).map(|(_, &d)| d).collect()),
        }
    }
}

/// The refusal of a shape whose elements cannot be addressed.
#[cold]
fn too_large(operation: &'static str, shape: &Shape) -> TensorError {
    let problem = match shape.numel() {
        0 => "the tensor has no elements, but extents that cannot be addressed",
        _ => "the tensor has more elements than can be addressed",
    };
    TensorError::new(operation, problem).shapes([shape])
}

/// The product of the extents, saturating; 0 if one of them is.
#[inline]
fn product_of_extents(extents: &[usize]) -> usize {
    extents.iter().fold(1, |n: usize, &d| n.saturating_mul(d))
}

impl Default for Shape {
    fn default() -> Shape {
        Shape::scalar()
    }
}

impl PartialEq for Shape {
    fn eq(&self, other: &Shape) -> bool {
        self.dims() == other.dims()
    }
}

impl Eq for Shape {}

impl PartialOrd for Shape {
    fn partial_cmp(&self, other: &Shape) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Shape {
    fn cmp(&self, other: &Shape) -> Ordering {
        self.dims().cmp(other.dims())
    }
}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.dims().hash(state);
    }
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.dims().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Shape, D::Error> {
        Vec::deserialize(deserializer).map(|dims: Vec<usize>| dims.into())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<()> for Shape {
    fn from((): ()) -> Shape {
        Shape::scalar()
    }
}

impl From<usize> for Shape {
    fn from(length: usize) -> Shape {
        Shape(Extents::from(&[length][..]))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape(Extents::from(&dims[..]))
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        Shape(Extents::from(dims))
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Shape {
        Shape(Extents::from(&dims[..]))
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Shape {
        shape.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_numpy() {
        let check = |a: &[usize], b: &[usize], expected: Option<&[usize]>| {
            let found = Shape::broadcast("add", &a.into(), &b.into()).ok();
            assert_eq!(found, expected.map(Shape::from), "{a:?} with {b:?}");
        };
        check(&[2, 3], &[3], Some(&[2, 3]));
        check(&[2, 1], &[1, 4], Some(&[2, 4]));
        check(&[], &[5], Some(&[5]));
        check(&[0, 1], &[3], Some(&[0, 3]));
        check(&[2, 3], &[2], None);
        check(&[0], &[2], None);
    }

    #[test]
    fn repeated_axes_are_those_that_a_gradient_is_summed_over() {
        let wide = Shape::from([4, 2, 3]);
        assert_eq!(Shape::from([2, 1]).repeated_axes(&wide), [0, 2]);
        assert_eq!(Shape::from([4, 2, 3]).repeated_axes(&wide), [0usize; 0]);
        assert_eq!(Shape::from([1, 2, 1]).broadcast_strides(&wide), [0, 1, 0]);
    }

    #[test]
    fn sizes_that_cannot_be_addressed_are_refused() {
        assert!(Shape::from([usize::MAX, 2]).check_size("zeros").is_err());
        for dims in [[usize::MAX, 0, 2], [0, usize::MAX, 2], [1 << 40, 1 << 40, 0], [0, 1 << 60, 1]] {
            let error = Shape::from(dims).check_size("zeros").unwrap_err().to_string();
            assert!(error.starts_with("zeros: the tensor has no elements, but extents"), "{error}");
        }
        assert_eq!(Shape::from([1 << 30, 0, 1 << 20]).check_size("zeros"), Ok(0));
    }
}
