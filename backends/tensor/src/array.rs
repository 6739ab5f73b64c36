//! [`Array`]: an untracked value, the operand and result of kernels.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::dtype::DType;
use crate::shape::Shape;

/// What a backend keeps a tensor's elements in. Each backend downcasts to its own type, and to no other's.
pub type Buffer = Arc<dyn Any + Send + Sync>;

/// A contiguous row-major array in a device's memory. Cloning shares the elements.
#[derive(Clone)]
pub struct Array {
    /// The elements, in the form of the backend that made it.
    pub buffer: Buffer,
    /// The extents; their product is the number of elements in the buffer.
    pub shape: Shape,
    /// The type of the elements.
    pub dtype: DType,
}

impl Array {
    /// An array around a backend's own buffer, which must hold `shape.numel()` elements of `dtype`.
    #[inline]
    pub fn new(buffer: impl Any + Send + Sync, shape: impl Into<Shape>, dtype: DType) -> Array {
        Array { buffer: Arc::new(buffer), shape: shape.into(), dtype }
    }

    /// The same elements seen in another shape of as many elements.
    pub fn viewed(&self, shape: impl Into<Shape>) -> Array {
        let shape = shape.into();
        debug_assert_eq!(shape.numel(), self.shape.numel(), "a view has as many elements as its array");
        Array { buffer: self.buffer.clone(), shape, dtype: self.dtype }
    }

    /// The extents.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    /// The number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} {})", self.dtype, self.shape)
    }
}
