//! [`Cpu`]: the threads and the memory that all kernels work with.

use assay_tensor::{Array, DType, Result, Shape, TensorError};

use crate::memory::blocks::Block;
use crate::memory::storage::{Allocator, Elements, zeros};
use crate::threads::split::Threads;

/// The CPU's kernels: threads, and memory that is used again.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) threads: Threads,
    pub(crate) memory: Allocator,
}

impl Cpu {
    /// A block for a result of this shape, with arbitrary contents.
    pub(crate) fn take_block(&self, operation: &'static str, shape: &Shape) -> Result<Block> {
        self.memory.take_block(operation, shape.check_size(operation)?)
    }

    pub(crate) fn f32_array(&self, elements: impl Into<Block>, shape: &Shape) -> Array {
        self.memory.f32_array(elements, shape)
    }

    /// Storage for elements of this type, with arbitrary contents.
    pub(crate) fn empty_elements(&self, operation: &'static str, shape: &Shape, dtype: DType) -> Result<Elements> {
        let length = shape.check_size(operation)?;
        match dtype {
            DType::F32 => Ok(Elements::F32(self.memory.take_block(operation, length)?)),
            DType::Bf16 => Ok(Elements::Bf16(zeros(operation, length)?)),
            DType::U32 => Ok(Elements::U32(zeros(operation, length)?)),
            DType::I8 => Ok(Elements::I8(zeros(operation, length)?)),
            DType::F64 => Err(unsupported_type(operation, dtype)),
        }
    }

    /// An operand as what is computed with: bf16 as f32.
    pub(crate) fn widen_operand(&self, x: &Array) -> Result<Array> {
        use assay_tensor::Kernels;
        if x.dtype == DType::Bf16 { self.cast(x, DType::F32) } else { Ok(x.clone()) }
    }
}

/// The refusal of a type that the backend does not hold.
pub(crate) fn unsupported_type(operation: &'static str, dtype: DType) -> TensorError {
    TensorError::new(operation, format!("the cpu backend holds no {dtype}"))
        .hint("use f32, or the reference backend for f64")
}
