//! Checks of arguments before a kernel runs, so that kernels may rely on them. Those that are public serve operations that other
//! crates declare.

use crate::dtype::DType;
use crate::error::{Result, TensorError};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Both live on one device and have one type.
///
/// # Errors
/// Otherwise, one that names `operation`; so do all of these.
#[inline]
pub fn same_shape(operation: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    matching_operands(operation, a, b, a.dtype() == b.dtype())
}

/// Both live on one device, and their types go together.
#[inline]
pub(crate) fn matching_operands(operation: &'static str, a: &Tensor, b: &Tensor, types_fit: bool) -> Result<()> {
    match types_fit && a.device() == b.device() {
        true => Ok(()),
        false => Err(mismatch_error(operation, a, b)),
    }
}

/// What is wrong with operands that are not [`matching_operands`].
#[cold]
fn mismatch_error(operation: &'static str, a: &Tensor, b: &Tensor) -> TensorError {
    if a.device() != b.device() {
        let problem = format!("the operands live on two devices, {} and {}", a.device().name(), b.device().name());
        return TensorError::new(operation, problem)
            .shapes([a.shape(), b.shape()])
            .hint("move one with to_device(), and make each device only once");
    }
    let problem = format!("the operands have two types, {} and {}", a.dtype(), b.dtype());
    TensorError::new(operation, problem).shapes([a.shape(), b.shape()]).hint("convert one with cast()")
}

/// All are floats on one device that are computed in one type: bf16 goes with f32.
///
/// # Errors
/// Otherwise.
pub fn float_types(operation: &'static str, tensors: &[&Tensor]) -> Result<()> {
    let Some(first) = tensors.first() else { return Ok(()) };
    for tensor in tensors {
        matching_operands(operation, first, tensor, first.dtype().wide() == tensor.dtype().wide())?;
    }
    element_type(operation, first, first.dtype().is_float(), "floats")
}

/// `ids` are u32 on the device of `of`.
pub(crate) fn class_labels(operation: &'static str, of: &Tensor, ids: &Tensor) -> Result<()> {
    if of.device() != ids.device() {
        return same_shape(operation, of, ids);
    }
    element_type(operation, ids, ids.dtype() == DType::U32, "ids of type u32")
}

/// The type of `tensor` is right, where `what` was needed.
///
/// # Errors
/// Otherwise.
#[inline]
pub fn element_type(operation: &'static str, tensor: &Tensor, right: bool, what: &str) -> Result<()> {
    if right {
        return Ok(());
    }
    Err(TensorError::new(operation, format!("needs {what}, not {}", tensor.dtype()))
        .shapes([tensor.shape()])
        .hint("convert with cast()"))
}

/// The tensor has exactly this shape; `what` names it in the message.
///
/// # Errors
/// Otherwise.
#[inline]
pub fn expected_shape(operation: &'static str, what: &str, tensor: &Tensor, expected: &Shape) -> Result<()> {
    if tensor.shape() == expected {
        return Ok(());
    }
    Err(TensorError::new(operation, format!("the {what} should have the second shape"))
        .shapes([tensor.shape(), expected]))
}

/// The tensor has as many axes as `layout` names; returns their extents.
///
/// # Errors
/// Otherwise.
pub fn expected_rank<const N: usize>(
    operation: &'static str,
    what: &str,
    tensor: &Tensor,
    layout: &str,
) -> Result<[usize; N]> {
    <[usize; N]>::try_from(tensor.dims())
        .map_err(|_| TensorError::new(operation, format!("the {what} should be {layout}")).shapes([tensor.shape()]))
}

/// The axis exists.
pub(crate) fn valid_axis(operation: &'static str, tensor: &Tensor, axis: usize) -> Result<()> {
    if axis < tensor.rank() {
        return Ok(());
    }
    let problem = format!("there is no axis {axis} in a tensor of {} axes", tensor.rank());
    Err(TensorError::new(operation, problem).shapes([tensor.shape()]).hint("axes count from 0, the outermost"))
}

/// All axes exist and none is named twice; returns them in ascending order.
pub(crate) fn valid_axes(operation: &'static str, tensor: &Tensor, axes: &[usize]) -> Result<Vec<usize>> {
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    for &a in &sorted {
        valid_axis(operation, tensor, a)?;
    }
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        let problem = format!("axis {} is named twice", pair[0]);
        return Err(TensorError::new(operation, problem).shapes([tensor.shape()]));
    }
    Ok(sorted)
}

/// The shape of a matrix product.
pub(crate) fn matmul_shape(a: &Shape, b: &Shape, trans_a: bool, trans_b: bool) -> Result<Shape> {
    let error = |problem: &str| TensorError::new("matmul", problem).shapes([a, b]);
    let ([batch_a @ .., rows_a, columns_a], [batch_b @ .., rows_b, columns_b]) = (a.dims(), b.dims()) else {
        return Err(error("both sides need two axes at least").hint("add an axis of extent 1 with reshape()"));
    };
    let (m, k) = if trans_a { (columns_a, rows_a) } else { (rows_a, columns_a) };
    let (other, n) = if trans_b { (columns_b, rows_b) } else { (rows_b, columns_b) };
    if k != other {
        return Err(error(&format!("the inner extents {k} and {other} differ")).hint("transpose one side"));
    }
    let batch = Shape::broadcast("matmul", &batch_a.into(), &batch_b.into()).map_err(|e| error(e.problem()))?;
    let mut dims = batch.dims().to_vec();
    dims.extend([m, n]);
    let shape = Shape::from(dims);
    shape.check_size("matmul")?;
    Ok(shape)
}
