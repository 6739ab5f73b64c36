//! librocblas: products with batches, strides and transposes. Names and codes are AMD's.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_int, c_void};

use crate::engine::{Refusal, Work, with};
use crate::product::{Activation, Element, Matrix, Product};
use crate::settings::settings;

const SUCCESS: c_int = 0;
const INVALID_HANDLE: c_int = 1;
const NOT_IMPLEMENTED: c_int = 2;
const INVALID_SIZE: c_int = 4;
const INTERNAL_ERROR: c_int = 6;
const INVALID_VALUE: c_int = 11;

const NONE: c_int = 111;
const TRANSPOSE: c_int = 112;
const F32: c_int = 151;

/// The state of a handle.
struct Handle {
    stream: u64,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rocblas_create_handle(handle: *mut *mut c_void) -> c_int {
    if handle.is_null() {
        return INVALID_HANDLE;
    }
    // SAFETY: the caller's place is for a handle.
    unsafe { handle.write(Box::into_raw(Box::new(Handle { stream: 0 })).cast()) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rocblas_destroy_handle(handle: *mut c_void) -> c_int {
    if handle.is_null() {
        return INVALID_HANDLE;
    }
    // SAFETY: it was created above, and is destroyed once.
    drop(unsafe { Box::from_raw(handle.cast::<Handle>()) });
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rocblas_set_stream(handle: *mut c_void, stream: *mut c_void) -> c_int {
    // SAFETY: it was created above.
    match unsafe { handle.cast::<Handle>().as_mut() } {
        Some(handle) => {
            handle.stream = stream as u64;
            SUCCESS
        }
        None => INVALID_HANDLE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rocblas_set_atomics_mode(handle: *mut c_void, mode: c_int) -> c_int {
    match (handle.is_null(), mode) {
        (true, _) => INVALID_HANDLE,
        (false, 0 | 1) => SUCCESS,
        _ => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rocblas_set_workspace(handle: *mut c_void, _address: *mut c_void, _bytes: usize) -> c_int {
    if handle.is_null() { INVALID_HANDLE } else { SUCCESS }
}

/// An operand in a call: address, type, leading dimension, stride.
type Given = (u64, c_int, c_int, i64);

fn matrix((at, kind, leading, stride): Given, transposed: bool) -> Option<Matrix> {
    let element = match kind {
        F32 => Element::F32,
        168 => Element::Bf16,
        _ => return None,
    };
    Some(Matrix { at, element, leading: leading as u64, stride, transposed })
}

/// The product, or an error code.
fn product(
    operations: [c_int; 2],
    extents: [c_int; 4],
    [a, b, c, d]: [Given; 4],
    [alpha, beta]: [f32; 2],
) -> Result<Product, c_int> {
    if operations.iter().any(|operation| ![NONE, TRANSPOSE].contains(operation)) {
        return Err(INVALID_VALUE);
    }
    let [ta, tb] = operations.map(|operation| operation == TRANSPOSE);
    let [m, n, k, _] = extents;
    let rows = [if ta { k } else { m }, if tb { n } else { k }, m, m];
    let leading = [a.2, b.2, c.2, d.2];
    if extents.iter().any(|&extent| extent <= 0) || leading.iter().zip(rows).any(|(&leading, rows)| leading < rows) {
        return Err(INVALID_SIZE);
    }
    // Both operands have one type; the result has the same type, or f32.
    if a.1 != b.1 || c.1 != d.1 || (d.1 != a.1 && d.1 != F32) {
        return Err(NOT_IMPLEMENTED);
    }
    let matrices = [matrix(a, ta), matrix(b, tb), matrix(c, false), matrix(d, false)];
    let [Some(a), Some(b), Some(c), Some(d)] = matrices else { return Err(NOT_IMPLEMENTED) };
    let [m, n, k, batch] = extents.map(|extent| extent as u64);
    Ok(Product { m, n, k, batch, alpha, beta, a, b, c, d, bias: None, activation: Activation::None })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rocblas_gemm_strided_batched_ex(
    handle: *mut c_void,
    operation_a: c_int,
    operation_b: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    alpha: *const f32,
    a: u64,
    type_a: c_int,
    leading_a: c_int,
    stride_a: i64,
    b: u64,
    type_b: c_int,
    leading_b: c_int,
    stride_b: i64,
    beta: *const f32,
    c: u64,
    type_c: c_int,
    leading_c: c_int,
    stride_c: i64,
    d: u64,
    type_d: c_int,
    leading_d: c_int,
    stride_d: i64,
    batch: c_int,
    compute: c_int,
    _algorithm: c_int,
    _solution: i32,
    _flags: u32,
) -> c_int {
    // SAFETY: the handle was created above; alpha and beta are the host's.
    let (Some(handle), Some(&alpha), Some(&beta)) =
        (unsafe { (handle.cast::<Handle>().as_ref(), alpha.as_ref(), beta.as_ref()) })
    else {
        return INVALID_HANDLE;
    };
    if compute != F32 {
        return NOT_IMPLEMENTED;
    }
    let operands = [
        (a, type_a, leading_a, stride_a),
        (b, type_b, leading_b, stride_b),
        (c, type_c, leading_c, stride_c),
        (d, type_d, leading_d, stride_d),
    ];
    let product = match product([operation_a, operation_b], [m, n, k, batch], operands, [alpha, beta]) {
        Ok(product) => product,
        Err(code) => return code,
    };
    match with(settings().wave, |engine| engine.enqueue(handle.stream, Work::Product(Box::new(product)))) {
        Ok(()) => SUCCESS,
        Err(Refusal::InvalidValue) => INVALID_VALUE,
        Err(_) => INTERNAL_ERROR,
    }
}
