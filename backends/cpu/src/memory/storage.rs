//! The storage of an [`Array`] of this backend.
//!
//! f32 elements are in blocks of a [`Memory`], those of other types in vectors. i8 is stored by its bits, as u8.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use assay_tensor::{Array, DType, Result, Shape, TensorError, bf16};
use half::slice::HalfFloatSliceExt;

use crate::memory::blocks::{Block, Memory};
use crate::memory::packed::Prepared;
use crate::memory::pages::no_memory;

/// The elements of an array.
#[derive(Debug)]
pub(crate) enum Elements {
    F32(Block),
    Bf16(Vec<bf16>),
    U32(Vec<u32>),
    I8(Vec<u8>),
}

impl Elements {
    fn len(&self) -> usize {
        match self {
            Elements::F32(v) => v.len(),
            Elements::Bf16(v) => v.len(),
            Elements::U32(v) => v.len(),
            Elements::I8(v) => v.len(),
        }
    }
}

/// Vectors of this many elements come as pages that are zero already.
const PAGES: usize = 16 * 1024;

/// Elements that are 0; pages are not touched before they are used. Errors where there is no memory for them.
pub(crate) fn zeros<T: Clone + Default>(operation: &'static str, length: usize) -> Result<Vec<T>> {
    let mut elements = Vec::new();
    // `vec!` ends the process when there is no memory, so that is asked for first.
    elements.try_reserve_exact(length).map_err(|_| no_memory::<T>(operation, length))?;
    if length >= PAGES {
        drop(elements);
        return Ok(vec![T::default(); length]);
    }
    elements.resize(length, T::default());
    Ok(elements)
}

/// The elements of an array, and what else is known of them.
struct Buffer {
    elements: Elements,
    /// How many there are.
    length: usize,
    /// Of few arrays, so that the many others stay small.
    prepared: OnceLock<Box<Prepared>>,
}

/// Makes arrays of a device's memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allocator(Arc<Memory>);

impl Allocator {
    /// Elements with arbitrary contents: every one of them must be written.
    pub(crate) fn take_block(&self, operation: &'static str, length: usize) -> Result<Block> {
        self.0.take_block(operation, length)
    }

    /// Elements that are 0.
    pub(crate) fn zeroed_block(&self, operation: &'static str, length: usize) -> Result<Block> {
        let mut block = self.0.take_block(operation, length)?;
        block.fill(0.0);
        Ok(block)
    }

    /// These elements.
    pub(crate) fn block_of(&self, operation: &'static str, elements: Vec<f32>) -> Result<Block> {
        self.0.block_of(operation, elements)
    }

    /// An array of these f32 elements.
    pub(crate) fn f32_array(&self, elements: impl Into<Block>, shape: impl Into<Shape>) -> Array {
        self.array_of(Elements::F32(elements.into()), shape, DType::F32)
    }

    /// An array of these elements.
    pub(crate) fn array_of(&self, elements: Elements, shape: impl Into<Shape>, dtype: DType) -> Array {
        let length = elements.len();
        Array::new(Buffer { elements, length, prepared: OnceLock::new() }, shape, dtype)
    }
}

/// The elements of an array, as many as its shape says.
pub(crate) fn elements_of<'a>(operation: &'static str, x: &'a Array) -> Result<&'a Elements> {
    match x.buffer.downcast_ref::<Buffer>() {
        Some(buffer) if buffer.length == x.numel() => Ok(&buffer.elements),
        other => Err(foreign_array_error(operation, x, other)),
    }
}

/// What is wrong with an array that another backend made, or whose shape does not fit its elements.
#[cold]
fn foreign_array_error(operation: &'static str, x: &Array, found: Option<&Buffer>) -> TensorError {
    match found {
        None => TensorError::new(operation, "the array belongs to another backend").hint("move it with to_device()"),
        Some(buffer) => TensorError::new(operation, format!("the array holds {} elements", buffer.length)),
    }
    .shapes([&x.shape])
}

/// The elements of an f32 array.
pub(crate) fn f32s<'a>(operation: &'static str, x: &'a Array) -> Result<&'a [f32]> {
    match elements_of(operation, x)? {
        Elements::F32(v) => Ok(v),
        _ => Err(type_error(operation, x, DType::F32)),
    }
}

/// The bits of a bf16 array.
pub(crate) fn bf16s<'a>(operation: &'static str, x: &'a Array) -> Result<&'a [u16]> {
    match elements_of(operation, x)? {
        Elements::Bf16(v) => Ok(v.reinterpret_cast()),
        _ => Err(type_error(operation, x, DType::Bf16)),
    }
}

/// The elements of a u32 array.
pub(crate) fn u32s<'a>(operation: &'static str, x: &'a Array) -> Result<&'a [u32]> {
    match elements_of(operation, x)? {
        Elements::U32(v) => Ok(v),
        _ => Err(type_error(operation, x, DType::U32)),
    }
}

/// The elements of an i8 array, each in the bits of a u8.
pub(crate) fn i8s<'a>(operation: &'static str, x: &'a Array) -> Result<&'a [u8]> {
    match elements_of(operation, x)? {
        Elements::I8(v) => Ok(v),
        _ => Err(type_error(operation, x, DType::I8)),
    }
}

/// The elements of an f32 array for change in place: only where nothing else holds on to them.
pub(crate) fn f32s_mut(x: &mut Array) -> Option<&mut [f32]> {
    let length = x.numel();
    let buffer: &mut (dyn Any + Send + Sync) = Arc::get_mut(&mut x.buffer)?;
    let Buffer { elements, prepared, .. } = buffer.downcast_mut::<Buffer>()?;
    prepared.take();
    match elements {
        Elements::F32(v) if v.len() == length => Some(v),
        _ => None,
    }
}

/// What is packed of an array's elements; where nothing was prepared so far, a place for it if `make`.
pub(crate) fn prepared_of(x: &Array, make: bool) -> Option<&Prepared> {
    let Buffer { prepared, .. } = x.buffer.downcast_ref()?;
    match make {
        true => Some(prepared.get_or_init(Box::default)),
        false => Some(prepared.get()?),
    }
}

#[cold]
fn type_error(operation: &'static str, x: &Array, wanted: DType) -> TensorError {
    TensorError::new(operation, format!("needs elements of type {wanted}, not {}", x.dtype)).shapes([&x.shape])
}

#[cfg(test)]
mod tests {
    use assay_tensor::Class;

    use super::*;

    #[test]
    fn shared_elements_cannot_be_changed() {
        let memory = Allocator::default();
        let mut x = memory.f32_array(vec![1.0, 2.0], 2);
        let other = x.clone();
        assert!(f32s_mut(&mut x).is_none());
        drop(other);
        assert!(f32s_mut(&mut x).is_some());
    }

    #[test]
    fn foreign_arrays_and_wrong_types_are_refused() {
        let memory = Allocator::default();
        assert!(f32s("add", &Array::new(vec![0f32], 1, DType::F32)).is_err());
        let ids = memory.array_of(Elements::U32(vec![1]), 1, DType::U32);
        assert!(f32s("add", &ids).is_err() && i8s("add", &ids).is_err() && u32s("add", &ids).is_ok());
        assert!(u32s("add", &Array { shape: Shape::from(2), ..ids }).is_err());
    }

    #[test]
    fn memory_that_does_not_exist_is_an_error() {
        let error = zeros::<f32>("full", isize::MAX as usize / 8).unwrap_err();
        assert_eq!(error.class(), Class::OutOfMemory);
    }
}
