//! A backend of the reference's primitives and nothing else: every fused operation is its composed form.
//!
//! It holds two claims together: that the composed forms mean what the reference's plain loops compute, and that a
//! backend works that provides the primitives alone.

use assay_reference::Reference;
use assay_tensor::{Array, Binary, DType, Device, DeviceInfo, HostData, Kernels, Reduce, Result, Shape, Unary};

#[derive(Debug)]
struct Composed(Reference);

/// A device of the reference backend's primitives, on which the fused operations are composed of them.
pub fn composed_device() -> Device {
    Device::new(Composed(Reference))
}

impl Kernels for Composed {
    fn info(&self) -> DeviceInfo {
        let description = "the reference backend's primitives, fused operations composed".into();
        DeviceInfo { name: "composed".into(), description, ..self.0.info() }
    }

    fn upload(&self, data: HostData, shape: &Shape) -> Result<Array> {
        self.0.upload(data, shape)
    }

    fn download(&self, x: &Array) -> Result<HostData> {
        self.0.download(x)
    }

    fn full(&self, shape: &Shape, dtype: DType, value: f64) -> Result<Array> {
        self.0.full(shape, dtype, value)
    }

    fn cast(&self, x: &Array, dtype: DType) -> Result<Array> {
        self.0.cast(x, dtype)
    }

    fn unary(&self, op: Unary, x: &Array) -> Result<Array> {
        self.0.unary(op, x)
    }

    fn binary(&self, op: Binary, a: &Array, b: &Array) -> Result<Array> {
        self.0.binary(op, a, b)
    }

    fn reduce(&self, op: Reduce, x: &Array, axes: &[usize]) -> Result<Array> {
        self.0.reduce(op, x, axes)
    }

    fn matmul(&self, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
        self.0.matmul(a, b, trans_a, trans_b)
    }

    fn permute(&self, x: &Array, axes: &[usize]) -> Result<Array> {
        self.0.permute(x, axes)
    }

    fn slice(&self, x: &Array, axis: usize, start: usize, length: usize) -> Result<Array> {
        self.0.slice(x, axis, start, length)
    }

    fn concat(&self, xs: &[&Array], axis: usize) -> Result<Array> {
        self.0.concat(xs, axis)
    }

    fn gather_rows(&self, table: &Array, ids: &Array) -> Result<Array> {
        self.0.gather_rows(table, ids)
    }

    fn scatter_add_rows(&self, x: &Array, ids: &Array, rows: usize) -> Result<Array> {
        self.0.scatter_add_rows(x, ids, rows)
    }
}
