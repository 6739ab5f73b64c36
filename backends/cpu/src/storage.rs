//! What an [`Array`] of this backend points to: candle-core's CPU storage, whose memory is used again.
//!
//! | type | candle's storage |
//! |---|---|
//! | f32 | `CpuStorage::F32` |
//! | bf16 | `CpuStorage::BF16` |
//! | u32 | `CpuStorage::U32` |
//! | i8 | `CpuStorage::U8`, the same bits: candle has no signed bytes |
//!
//! Large blocks of f32 are used again, see [`crate::memory`].

use std::any::Any;
use std::sync::{Arc, OnceLock};

use assay_tensor::{Array, Class, DType, Result, Shape, TensorError};
use candle_core::CpuStorage;

use crate::memory::Memory;
use crate::packed::Pair;
use crate::vnni::Packed;

/// Blocks of this many elements (256 MiB) are asked for in a way that can fail.
pub(crate) const LARGE: usize = 64 * 1024 * 1024;

/// Blocks of this many elements come as pages that are zero already.
const PAGES: usize = 16 * 1024;

/// Zeroed elements. Pages are not touched before they are used.
pub(crate) fn zeros<T: Clone + Default>(operation: &'static str, length: usize) -> Result<Vec<T>> {
    if length >= LARGE {
        // `vec!` ends the process when there is no memory, so that is asked for first.
        let mut probe: Vec<T> = Vec::new();
        probe.try_reserve_exact(length).map_err(|_| {
            let bytes = length.saturating_mul(size_of::<T>()) as f64 / (1u64 << 30) as f64;
            TensorError::new(operation, format!("there is no memory for {length} elements, {bytes:.1} GiB"))
                .of_class(Class::OutOfMemory)
                .hint("use a smaller batch, model or sequence")
        })?;
    }
    if length >= PAGES {
        return Ok(vec![T::default(); length]);
    }
    // `vec!` would ask for zeroed memory, which the system's allocator has no quick way to for small blocks.
    let mut elements = Vec::with_capacity(length);
    elements.resize(length, std::hint::black_box(T::default()));
    Ok(elements)
}

/// The elements of an array, which return to the memory when the last array that shares them is dropped.
struct Buffer {
    storage: CpuStorage,
    memory: Arc<Memory>,
    /// The elements as products read them, where they are a weight's.
    packed: Pair,
    /// Of int8 weights what products take, made when the first one asks for it.
    bytes: OnceLock<Box<Packed>>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let CpuStorage::F32(block) = std::mem::replace(&mut self.storage, CpuStorage::U8(Vec::new())) {
            self.memory.end(block);
        }
    }
}

/// Makes arrays of a device's memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allocator(Arc<Memory>);

impl Allocator {
    /// Elements with arbitrary contents: every one of them must be written.
    pub(crate) fn take(&self, operation: &'static str, length: usize) -> Result<Vec<f32>> {
        self.0.take(operation, length)
    }

    /// Elements that are 0.
    pub(crate) fn zeroed(&self, operation: &'static str, length: usize) -> Result<Vec<f32>> {
        let mut block = self.0.take(operation, length)?;
        block.fill(0.0);
        Ok(block)
    }

    /// A block of so many elements is in use that is no array's.
    pub(crate) fn begin(&self, length: usize) {
        self.0.begin(length);
    }

    /// Such a block is not in use any more.
    pub(crate) fn end(&self, block: Vec<f32>) {
        self.0.end(block);
    }

    /// An array of these f32 elements.
    pub(crate) fn array(&self, elements: Vec<f32>, shape: impl Into<Shape>) -> Array {
        self.wrap(CpuStorage::F32(elements), shape, DType::F32)
    }

    /// An array around candle's storage.
    pub(crate) fn wrap(&self, storage: CpuStorage, shape: impl Into<Shape>, dtype: DType) -> Array {
        if let CpuStorage::F32(block) = &storage {
            self.0.begin(block.len());
        }
        Array::new(
            Buffer { storage, memory: self.0.clone(), packed: Pair::default(), bytes: OnceLock::new() },
            shape,
            dtype,
        )
    }
}

/// Candle's storage of an array, as long as the array's shape says.
pub(crate) fn storage<'a>(operation: &'static str, x: &'a Array) -> Result<&'a CpuStorage> {
    let Some(Buffer { storage, .. }) = x.buffer.downcast_ref::<Buffer>() else {
        return Err(TensorError::new(operation, "the array belongs to another backend")
            .shapes([&x.shape])
            .hint("move it with to_device()"));
    };
    let length = match storage {
        CpuStorage::F32(v) => v.len(),
        CpuStorage::BF16(v) => v.len(),
        CpuStorage::U32(v) => v.len(),
        CpuStorage::U8(v) => v.len(),
        _ => 0,
    };
    match length == x.numel() {
        true => Ok(storage),
        false => Err(TensorError::new(operation, format!("the array holds {length} elements")).shapes([&x.shape])),
    }
}

/// The elements of an f32 array.
pub(crate) fn f32s<'a>(operation: &'static str, x: &'a Array) -> Result<&'a [f32]> {
    match storage(operation, x)? {
        CpuStorage::F32(v) => Ok(v),
        _ => Err(wrong_type(operation, x, DType::F32)),
    }
}

/// The elements of a u32 array.
pub(crate) fn u32s<'a>(operation: &'static str, x: &'a Array) -> Result<&'a [u32]> {
    match storage(operation, x)? {
        CpuStorage::U32(v) => Ok(v),
        _ => Err(wrong_type(operation, x, DType::U32)),
    }
}

/// The elements of an i8 array, each in the bits of a u8.
pub(crate) fn i8s<'a>(operation: &'static str, x: &'a Array) -> Result<&'a [u8]> {
    match storage(operation, x)? {
        CpuStorage::U8(v) => Ok(v),
        _ => Err(wrong_type(operation, x, DType::I8)),
    }
}

/// The elements of an i8 array [N, K] in the order of [`Packed`]: made the first time, kept as long as the array. None where
/// another shape of the same elements was first.
pub(crate) fn packed_bytes<'a>(operation: &'static str, x: &'a Array) -> Result<Option<&'a Packed>> {
    let (elements, &[n, k]) = (i8s(operation, x)?, x.dims()) else { return Ok(None) };
    let packed = x
        .buffer
        .downcast_ref::<Buffer>()
        .map(|buffer| buffer.bytes.get_or_init(|| Box::new(Packed::new(elements, [n, k]))));
    Ok(packed.map(Box::as_ref).filter(|packed| packed.shape == [n, k]))
}

/// The elements of an f32 array for change in place: only where nothing else holds on to them.
pub(crate) fn f32s_mut(x: &mut Array) -> Option<&mut [f32]> {
    let length = x.numel();
    let buffer: &mut (dyn Any + Send + Sync) = Arc::get_mut(&mut x.buffer)?;
    let Buffer { storage, packed, .. } = buffer.downcast_mut::<Buffer>()?;
    *packed = Pair::default();
    match storage {
        CpuStorage::F32(v) if v.len() == length => Some(v),
        _ => None,
    }
}

/// What is packed of an array's elements.
pub(crate) fn pair(x: &Array) -> Option<&Pair> {
    Some(&x.buffer.downcast_ref::<Buffer>()?.packed)
}

fn wrong_type(operation: &'static str, x: &Array, wanted: DType) -> TensorError {
    TensorError::new(operation, format!("needs elements of type {wanted}, not {}", x.dtype)).shapes([&x.shape])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_elements_cannot_be_changed() {
        let memory = Allocator::default();
        let mut x = memory.array(vec![1.0, 2.0], 2);
        let other = x.clone();
        assert!(f32s_mut(&mut x).is_none());
        drop(other);
        assert!(f32s_mut(&mut x).is_some());
    }

    #[test]
    fn foreign_arrays_and_wrong_types_are_refused() {
        let memory = Allocator::default();
        assert!(f32s("add", &Array::new(vec![0f32], 1, DType::F32)).is_err());
        let ids = memory.wrap(CpuStorage::U32(vec![1]), 1, DType::U32);
        assert!(f32s("add", &ids).is_err() && i8s("add", &ids).is_err() && u32s("add", &ids).is_ok());
        assert!(u32s("add", &Array { shape: Shape::from(2), ..ids }).is_err());
    }

    #[test]
    fn memory_that_does_not_exist_is_an_error() {
        let error = zeros::<f32>("full", isize::MAX as usize / 8).unwrap_err();
        assert_eq!(error.class(), Class::OutOfMemory);
    }
}
