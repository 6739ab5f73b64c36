//! The tensor: a value on a device and, where gradients are wanted, its place on the tape.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::array::Array;
use crate::device::Device;
use crate::dtype::{DType, HostData};
use crate::error::{Result, TensorError};
use crate::math::Math;
use crate::shape::Shape;
use crate::tape::{Edge, Node, Op, record_node};

/// A value: elements on a device, a shape, and a tape node if some input of its history is a
/// [`variable`](Tensor::variable). Always contiguous and row-major. Cloning is cheap and shares the elements.
///
/// Every operation checks its arguments and returns an error rather than panic. Both operands must live on one
/// device and have one type, but for bf16, which goes with f32.
#[derive(Clone)]
pub struct Tensor {
    device: Device,
    array: Array,
    edge: Option<Edge>,
}

impl Tensor {
    /// A tensor of host elements. Errors if `shape` has another number of elements, or the device lacks the type.
    pub fn from_host(device: &Device, data: HostData, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        if shape.check_size("upload")? != data.len() {
            let problem = format!("{} elements do not fill the shape", data.len());
            return Err(TensorError::new("upload", problem).shapes([&shape]));
        }
        Ok(Tensor::from_array(device, device.kernels().upload(data, &shape)?))
    }

    /// A tensor of f32, row-major.
    pub fn from_f32(device: &Device, data: Vec<f32>, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_host(device, HostData::F32(data), shape)
    }

    /// A tensor of f64, row-major.
    pub fn from_f64(device: &Device, data: Vec<f64>, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_host(device, HostData::F64(data), shape)
    }

    /// A tensor of u32, row-major.
    pub fn from_u32(device: &Device, data: Vec<u32>, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_host(device, HostData::U32(data), shape)
    }

    /// A tensor of i8, row-major.
    pub fn from_i8(device: &Device, data: Vec<i8>, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::from_host(device, HostData::I8(data), shape)
    }

    /// One value everywhere, converted to `dtype`.
    pub fn full(device: &Device, shape: impl Into<Shape>, dtype: DType, value: f64) -> Result<Tensor> {
        let shape = shape.into();
        shape.check_size("full")?;
        Ok(Tensor::from_array(device, device.kernels().full(&shape, dtype, value)?))
    }

    /// Zeros.
    pub fn zeros(device: &Device, shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        Tensor::full(device, shape, dtype, 0.0)
    }

    /// A tensor around a kernel's result.
    #[inline]
    pub(crate) fn from_array(device: &Device, array: Array) -> Tensor {
        Tensor { device: device.clone(), array, edge: None }
    }

    /// A tensor around the only value of an operation on `inputs`, recorded if any of them is tracked.
    pub(crate) fn from_operation(array: Array, inputs: &[&Tensor], op: impl FnOnce() -> Op) -> Tensor {
        let device = inputs[0].device.clone();
        let edge = record_node(inputs, op).map(|node| Edge { node, output: 0 });
        Tensor { device, array, edge }
    }

    /// Tensors around the several values of an operation.
    pub(crate) fn recorded_many(arrays: Vec<Array>, inputs: &[&Tensor], op: impl FnOnce() -> Op) -> Vec<Tensor> {
        Tensor::from_outputs(&inputs[0].device, arrays, record_node(inputs, op))
    }

    /// Tensors around the values of a node, or constants where there is none.
    pub(crate) fn from_outputs(device: &Device, arrays: Vec<Array>, node: Option<Arc<Node>>) -> Vec<Tensor> {
        let edge = |output| node.clone().map(|node| Edge { node, output });
        arrays
            .into_iter()
            .enumerate()
            .map(|(i, array)| Tensor { device: device.clone(), array, edge: edge(i) })
            .collect()
    }

    /// The same value as a leaf of the tape: gradients with respect to it are wanted. It forgets its history.
    pub fn variable(&self) -> Tensor {
        Tensor { device: self.device.clone(), array: self.array.clone(), edge: Some(Edge::new_leaf()) }
    }

    /// The same value without its history: a constant.
    pub fn detach(&self) -> Tensor {
        Tensor::from_array(&self.device, self.array.clone())
    }

    /// Whether gradients flow to or through this tensor.
    #[inline]
    pub fn is_tracked(&self) -> bool {
        self.edge.is_some()
    }

    /// The name of the operation that made this value, as in [`crate::operation_names`]; `leaf` for a variable, and
    /// none for a constant, of which nothing is recorded.
    pub fn operation(&self) -> Option<&'static str> {
        self.edge.as_ref().map(|edge| edge.node.op.name())
    }

    pub(crate) fn tape_edge(&self) -> Option<&Edge> {
        self.edge.as_ref()
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.array.shape
    }

    /// The extents, outermost first.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        self.array.shape.dims()
    }

    /// The number of axes.
    #[inline]
    pub fn rank(&self) -> usize {
        self.array.shape.rank()
    }

    /// The number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.array.numel()
    }

    /// The type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.array.dtype
    }

    /// The device that holds it.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The value as kernels see it.
    #[inline]
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// The value as arithmetic sees it: bf16 as f32.
    pub(crate) fn wide_array(&self) -> Result<Array> {
        Math(self.device.kernels()).to_wide_type(&self.array)
    }

    /// [`Tensor::wide_array`] without a handle of its own where there is nothing to widen, for small operations.
    pub(crate) fn wide_array_ref(&self) -> Result<Cow<'_, Array>> {
        match self.dtype() == self.dtype().wide() {
            true => Ok(Cow::Borrowed(&self.array)),
            false => Math(self.device.kernels()).to_wide_type(&self.array).map(Cow::Owned),
        }
    }

    pub(crate) fn into_array(self) -> Array {
        self.array
    }

    pub(crate) fn array_mut(&mut self) -> &mut Array {
        &mut self.array
    }

    /// A copy of the elements in host memory, in their own type.
    pub fn to_host(&self) -> Result<HostData> {
        self.device.kernels().download(&self.array)
    }

    /// A copy of the elements, which must be f32.
    pub fn to_f32_vec(&self) -> Result<Vec<f32>> {
        match self.to_host()? {
            HostData::F32(v) => Ok(v),
            other => Err(wrong_type("to_f32_vec", other.dtype())),
        }
    }

    /// A copy of the elements of any type as f64, which holds each of them exactly.
    pub fn to_f64_vec(&self) -> Result<Vec<f64>> {
        Ok(self.to_host()?.to_f64())
    }

    /// A copy of the elements, which must be u32.
    pub fn to_u32_vec(&self) -> Result<Vec<u32>> {
        match self.to_host()? {
            HostData::U32(v) => Ok(v),
            other => Err(wrong_type("to_u32_vec", other.dtype())),
        }
    }

    /// A copy of the elements, which must be i8.
    pub fn to_i8_vec(&self) -> Result<Vec<i8>> {
        match self.to_host()? {
            HostData::I8(v) => Ok(v),
            other => Err(wrong_type("to_i8_vec", other.dtype())),
        }
    }

    /// The value of a tensor of one element.
    pub fn item(&self) -> Result<f64> {
        match self.to_f64_vec()?.as_slice() {
            [value] => Ok(*value),
            _ => Err(TensorError::new("item", "the tensor does not have one element").shapes([self.shape()])),
        }
    }

    /// The same value on another device, by way of host memory. It is a constant there.
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        if device == &self.device {
            return Ok(self.detach());
        }
        Tensor::from_host(device, self.to_host()?, self.shape())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tracked = if self.is_tracked() { ", tracked" } else { "" };
        write!(f, "Tensor({} {} on {}{tracked})", self.dtype(), self.shape(), self.device.name())
    }
}

fn wrong_type(operation: &'static str, found: DType) -> TensorError {
    TensorError::new(operation, format!("the elements are {found}")).hint("convert with cast() first")
}
