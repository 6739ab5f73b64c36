//! What an [`Array`] of this backend points to: a block of device memory, and what is known of ids in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assay_tensor::{Array, DType, HostData, Result, Shape, TensorError, bf16};

use crate::arena::{Arena, Block, Purpose};
use crate::driver::{Address, Argument};

/// The elements of an array. Where there is none there is no block.
#[derive(Debug)]
pub(crate) struct Buffer {
    block: Option<Block>,
    elements: usize,
    dtype: DType,
    /// No id in it is this or more: what lets ids be checked without waiting for the device. [`UNKNOWN`] where only the
    /// device knows.
    bound: AtomicU64,
}

/// The bound of ids that were computed on the device.
pub(crate) const UNKNOWN: u64 = u64::MAX;

impl Buffer {
    /// A buffer with arbitrary contents.
    pub(crate) fn new(
        arena: &Arc<Arena>,
        operation: &'static str,
        elements: usize,
        dtype: DType,
        purpose: Purpose,
    ) -> Result<Buffer> {
        let bytes = elements.saturating_mul(dtype.size());
        let block = if bytes == 0 { None } else { Some(arena.allocate_block(operation, bytes, purpose)?) };
        Ok(Buffer { block, elements, dtype, bound: AtomicU64::new(UNKNOWN) })
    }

    /// The same, with what is known of the ids that it will hold.
    pub(crate) fn with_id_bound(self, bound: u64) -> Buffer {
        self.set_id_bound(bound);
        self
    }

    pub(crate) fn set_id_bound(&self, bound: u64) {
        self.bound.store(bound, Ordering::Relaxed);
    }

    pub(crate) fn id_bound(&self) -> u64 {
        self.bound.load(Ordering::Relaxed)
    }

    /// Where the elements are; none where there are none.
    pub(crate) fn address(&self) -> Option<Address> {
        self.block.as_ref().map(Block::address)
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn bytes(&self) -> usize {
        self.elements * self.dtype.size()
    }

    /// The same as an argument of a kernel.
    pub(crate) fn pointer(&self) -> Argument {
        Argument::Pointer(self.address())
    }

    /// The address of the element `offset`, as an argument of a kernel.
    pub(crate) fn pointer_at(&self, offset: usize) -> Argument {
        Argument::Pointer(self.address().map(|Address(at)| Address(at + (offset * self.dtype.size()) as u64)))
    }

    /// An array of this buffer.
    pub(crate) fn into_array(self, shape: impl Into<Shape>) -> Array {
        let dtype = self.dtype;
        Array::new(self, shape, dtype)
    }
}

/// The buffer of an array, which is one of `arena` and as long as the array's shape says.
pub(crate) fn buffer_of<'a>(arena: &Arc<Arena>, operation: &'static str, x: &'a Array) -> Result<&'a Buffer> {
    let found = x.buffer.downcast_ref::<Buffer>();
    let Some(buffer) = found.filter(|b| b.block.as_ref().is_none_or(|block| block.is_of(arena))) else {
        return Err(TensorError::new(operation, "the array belongs to another backend")
            .shapes([&x.shape])
            .hint("move it with to_device()"));
    };
    match buffer.elements == x.numel() && buffer.dtype == x.dtype {
        true => Ok(buffer),
        false => {
            let problem = format!("the array holds {} elements of type {}", buffer.elements, buffer.dtype);
            Err(TensorError::new(operation, problem).shapes([&x.shape]))
        }
    }
}

/// The buffer of an array of this type.
pub(crate) fn typed_buffer<'a>(
    arena: &Arc<Arena>,
    operation: &'static str,
    x: &'a Array,
    dtype: DType,
) -> Result<&'a Buffer> {
    if x.dtype != dtype {
        let problem = format!("needs elements of type {dtype}, not {}", x.dtype);
        return Err(TensorError::new(operation, problem).shapes([&x.shape]));
    }
    buffer_of(arena, operation, x)
}

/// The bytes of elements that may have any bits.
fn bytes_of<T: Copy>(elements: &[T]) -> &[u8] {
    // SAFETY: the types below are numbers without padding; the slice covers exactly their bytes.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

fn bytes_of_mut<T: Copy>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and any bits are a number.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of host data, in the types that the backend holds.
pub(crate) fn host_bytes(data: &HostData) -> Option<&[u8]> {
    match data {
        HostData::F32(v) => Some(bytes_of(v)),
        HostData::Bf16(v) => Some(bytes_of(v)),
        HostData::U32(v) => Some(bytes_of(v)),
        HostData::I8(v) => Some(bytes_of(v)),
        HostData::F64(_) => None,
    }
}

/// Zeros of a type that the backend holds, and a way to their bytes.
pub(crate) fn host_zeros(dtype: DType, count: usize) -> Option<HostData> {
    match dtype {
        DType::F32 => Some(HostData::F32(vec![0.0; count])),
        DType::Bf16 => Some(HostData::Bf16(vec![bf16::ZERO; count])),
        DType::U32 => Some(HostData::U32(vec![0; count])),
        DType::I8 => Some(HostData::I8(vec![0; count])),
        DType::F64 => None,
    }
}

pub(crate) fn host_bytes_mut(data: &mut HostData) -> Option<&mut [u8]> {
    match data {
        HostData::F32(v) => Some(bytes_of_mut(v)),
        HostData::Bf16(v) => Some(bytes_of_mut(v)),
        HostData::U32(v) => Some(bytes_of_mut(v)),
        HostData::I8(v) => Some(bytes_of_mut(v)),
        HostData::F64(_) => None,
    }
}
