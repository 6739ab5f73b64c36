//! The reference backend as [`Kernels`]: each kernel is a plain function in the module of its kind.

use assay_tensor::{
    AdamW, Arguments, Array, Binary, DType, DeviceInfo, HostData, Kernels, Reduce, Result, Shape, Unary, find_kernel,
};

use crate::store::{host_data, store_values, values_of, wrap_data};
use crate::{attention, elementwise, heads, layers, loss, movement, product, scan, token};

/// From the name of a fused operation to its plain loops.
static FUSED_KERNELS: [(&str, FusedKernel); 17] = [
    ("attend_token", token::attend_token),
    ("attention", attention::attention),
    ("attention_backward", attention::attention_backward),
    ("cross_entropy", loss::cross_entropy),
    ("cross_entropy_backward", loss::cross_entropy_backward),
    ("diagonal_scan", scan::diagonal_scan),
    ("diagonal_scan_backward", scan::diagonal_scan_backward),
    ("heads", heads::split_heads),
    ("heads_backward", heads::join_heads),
    ("layer_norm", layers::layer_norm),
    ("layer_norm_backward", layers::layer_norm_backward),
    ("linear", product::linear),
    ("log_softmax", |call| Ok(vec![loss::log_softmax(call.input(0)?)?])),
    ("log_softmax_backward", |call| Ok(vec![loss::log_softmax_backward(call.input(0)?, call.input(1)?)?])),
    ("route_token", token::route_token),
    ("softmax", |call| Ok(vec![loss::softmax(call.input(0)?)?])),
    ("softmax_backward", |call| Ok(vec![loss::softmax_backward(call.input(0)?, call.input(1)?)?])),
];

/// The loops of a fused operation.
type FusedKernel = fn(Arguments<'_>) -> Result<Vec<Array>>;

/// The names of the fused operations that have plain loops here.
pub fn fused_kernel_names() -> impl Iterator<Item = &'static str> {
    FUSED_KERNELS.iter().map(|(name, _)| *name)
}

/// The kernels of [`crate::device`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Reference;

impl Kernels for Reference {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "reference".into(),
            description: "plain loops in f64: the specification of every kernel".into(),
            threads: 1,
            dtypes: DType::ALL.to_vec(),
            features: Vec::new(),
        }
    }

    fn upload(&self, data: HostData, shape: &Shape) -> Result<Array> {
        Ok(wrap_data(data, shape))
    }

    fn download(&self, x: &Array) -> Result<HostData> {
        host_data(x).cloned()
    }

    fn full(&self, shape: &Shape, dtype: DType, value: f64) -> Result<Array> {
        Ok(store_values(&vec![value; shape.check_size("full")?], shape, dtype))
    }

    fn cast(&self, x: &Array, dtype: DType) -> Result<Array> {
        Ok(store_values(&values_of(x)?, &x.shape, dtype))
    }

    fn unary(&self, op: Unary, x: &Array) -> Result<Array> {
        elementwise::unary(op, x)
    }

    fn binary(&self, op: Binary, a: &Array, b: &Array) -> Result<Array> {
        elementwise::binary(op, a, b)
    }

    fn reduce(&self, op: Reduce, x: &Array, axes: &[usize]) -> Result<Array> {
        elementwise::reduce(op, x, axes)
    }

    fn matmul(&self, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
        product::matmul(a, b, trans_a, trans_b)
    }

    fn permute(&self, x: &Array, axes: &[usize]) -> Result<Array> {
        movement::permute(x, axes)
    }

    fn slice(&self, x: &Array, axis: usize, start: usize, length: usize) -> Result<Array> {
        movement::slice(x, axis, start, length)
    }

    fn concat(&self, xs: &[&Array], axis: usize) -> Result<Array> {
        movement::concat(xs, axis)
    }

    fn gather_rows(&self, table: &Array, ids: &Array) -> Result<Array> {
        movement::gather_rows(table, ids)
    }

    fn scatter_add_rows(&self, x: &Array, ids: &Array, rows: usize) -> Result<Array> {
        movement::scatter_add_rows(x, ids, rows)
    }

    fn linear_int8(&self, x: &Array, q: &Array, scale: &Array) -> Result<Array> {
        product::linear_int8(x, q, scale)
    }

    fn fused(&self, name: &str, call: Arguments<'_>) -> Option<Result<Vec<Array>>> {
        find_kernel(&FUSED_KERNELS, name).map(|kernel| kernel(call))
    }

    fn adamw(&self, param: &mut Array, grad: &Array, m: &mut Array, v: &mut Array, args: AdamW) -> Result<()> {
        layers::adamw(param, grad, m, v, args)
    }
}
