//! Matrix products by rocBLAS, which thinks in columns: what lies in memory row by row is, to it, the transpose. So
//! c = a b is computed as c^T = b^T a^T: the sides are swapped and nothing is copied.
//!
//! The library has no epilogue: a bias is added by a kernel of ours, and GELU is left to the caller.

use std::ffi::{c_int, c_void};
use std::ptr;

use assay_gpu::{DriverError, Element, Operand, Product};

use crate::error::check_product as check_status;
use crate::library::{At, Blas, Handle};

/// One workspace for all products, so that the choice of algorithms does not depend on what is free.
pub(crate) const WORKSPACE: usize = 32 << 20;

/// `rocblas_operation`
const NONE: c_int = 111;
const TRANSPOSE: c_int = 112;
/// `rocblas_datatype`
const F32: c_int = 151;
const BF16: c_int = 168;
/// `rocblas_atomics_not_allowed`: sums do not depend on which block ends first.
const NO_ATOMICS: c_int = 0;
/// `rocblas_gemm_algo_standard`
const STANDARD: c_int = 0;

/// A bias, added after the product: the library's own products have none.
pub(crate) const BIAS: &str = r#"
extern "C" __global__ void __launch_bounds__(256)
add_bias(void* c, const void* bias, unsigned int bf16, unsigned long long rows, unsigned long long columns,
         unsigned long long stride, unsigned long long batch_stride, unsigned long long batch) {
    unsigned long long count = batch * rows * columns, step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        unsigned long long column = i % columns, row = i / columns % rows, at = i / columns / rows * batch_stride;
        at += row * stride + column;
        if (bf16) {
            unsigned short* y = (unsigned short*)c;
            union { unsigned int word; float number; } bits, added;
            bits.word = (unsigned int)y[at] << 16;
            added.word = (unsigned int)((const unsigned short*)bias)[column] << 16;
            bits.number += added.number;
            y[at] = bits.number != bits.number ? (unsigned short)((bits.word >> 16) | 0x40u)
                                               : (unsigned short)((bits.word + 0x7fffu + ((bits.word >> 16) & 1u)) >> 16);
        } else {
            ((float*)c)[at] += ((const float*)bias)[column];
        }
    }
}
"#;

/// The library's handle, on the device's stream.
pub(crate) struct Products {
    blas: &'static Blas,
    handle: Handle,
}

impl Products {
    /// # Safety
    /// The device is current; `stream` and `workspace`, of [`WORKSPACE`] bytes, are its own and outlive what is made.
    pub(crate) unsafe fn new(blas: &'static Blas, stream: Handle, workspace: At) -> Result<Products, DriverError> {
        let mut handle = ptr::null_mut();
        // SAFETY: as the caller promises.
        unsafe {
            check_status("rocblas_create_handle", (blas.rocblas_create_handle)(&raw mut handle))?;
            let products = Products { blas, handle };
            check_status("rocblas_set_stream", (blas.rocblas_set_stream)(handle, stream))?;
            check_status("rocblas_set_atomics_mode", (blas.rocblas_set_atomics_mode)(handle, NO_ATOMICS))?;
            check_status("rocblas_set_workspace", (blas.rocblas_set_workspace)(handle, workspace, WORKSPACE))?;
            Ok(products)
        }
    }

    /// Starts a product, without its epilogue.
    ///
    /// # Safety
    /// The device is current, and the operands lie in its memory.
    pub(crate) unsafe fn launch(&self, product: &Product) -> Result<(), DriverError> {
        const CALL: &str = "rocblas_gemm_strided_batched_ex";
        let Product { m, n, k, batch, a, b, c, .. } = product;
        let (alpha, beta) = (1f32, if product.base.is_some() { 1f32 } else { 0.0 });
        let base = product.base.unwrap_or(product.c.address).0 as *mut c_void;
        let size = |extent: usize| {
            let too_large = |_| DriverError::Call { call: CALL, reason: format!("an extent of {extent}") };
            c_int::try_from(extent).map_err(too_large)
        };
        let operation = |operand: &Operand| if operand.transposed { TRANSPOSE } else { NONE };
        let at = |operand: &Operand| operand.address.0 as *mut c_void;
        let stride = |operand: &Operand| operand.batch_stride as i64;
        // The stride of a single row means nothing, and may be anything.
        let leading = |operand: &Operand, rows: usize, columns: usize| {
            let (rows, columns) = if operand.transposed { (columns, rows) } else { (rows, columns) };
            size(if rows == 1 { operand.stride.max(columns) } else { operand.stride })
        };
        // SAFETY: as the caller promises; the host's scalars are read before the call returns.
        let code = unsafe {
            (self.blas.rocblas_gemm_strided_batched_ex)(
                self.handle,
                operation(b),
                operation(a),
                size(*n)?,
                size(*m)?,
                size(*k)?,
                (&raw const alpha).cast(),
                at(b),
                data_type(b),
                leading(b, *k, *n)?,
                stride(b),
                at(a),
                data_type(a),
                leading(a, *m, *k)?,
                stride(a),
                (&raw const beta).cast(),
                base,
                data_type(c),
                leading(c, *m, *n)?,
                stride(c),
                at(c),
                data_type(c),
                leading(c, *m, *n)?,
                stride(c),
                size(*batch)?,
                F32,
                STANDARD,
                0,
                0,
            )
        };
        check_status(CALL, code)
    }
}

fn data_type(operand: &Operand) -> c_int {
    match operand.element {
        Element::F32 => F32,
        Element::Bf16 => BF16,
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: it was created, and is destroyed once.
        unsafe { (self.blas.rocblas_destroy_handle)(self.handle) };
    }
}
