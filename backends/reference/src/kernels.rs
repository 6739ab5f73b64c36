//! The reference backend as [`Kernels`]: each kernel is a plain function in the module of its kind.

use assay_tensor::{
    AdamW, Array, AttentionGradient, AttentionOptions, Binary, DType, DeviceInfo, HostData, Kernels, LayerNorm,
    LayerNormGradient, Reduce, Result, Rotary, Routed, Scan, ScanGradient, Shape, TokenAttention, TokenRouting, Unary,
};

use crate::store::{host_data, store_values, values_of, wrap_data};
use crate::{attention, elementwise, heads, layers, loss, movement, product, scan, token};

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

    fn softmax(&self, x: &Array) -> Result<Array> {
        loss::softmax(x)
    }

    fn softmax_backward(&self, y: &Array, grad: &Array) -> Result<Array> {
        loss::softmax_backward(y, grad)
    }

    fn log_softmax(&self, x: &Array) -> Result<Array> {
        loss::log_softmax(x)
    }

    fn log_softmax_backward(&self, y: &Array, grad: &Array) -> Result<Array> {
        loss::log_softmax_backward(y, grad)
    }

    fn layer_norm(&self, x: &Array, gain: &Array, bias: &Array, eps: f64) -> Result<LayerNorm> {
        layers::layer_norm(x, gain, bias, eps)
    }

    fn layer_norm_backward(
        &self,
        x: &Array,
        gain: &Array,
        mean: &Array,
        rstd: &Array,
        grad: &Array,
    ) -> Result<LayerNormGradient> {
        layers::layer_norm_backward(x, gain, mean, rstd, grad)
    }

    fn cross_entropy(&self, logits: &Array, targets: &Array, smoothing: f64) -> Result<(Array, Array)> {
        loss::cross_entropy(logits, targets, smoothing)
    }

    fn cross_entropy_backward(
        &self,
        logits: &Array,
        targets: &Array,
        lse: &Array,
        grad: &Array,
        smoothing: f64,
    ) -> Result<Array> {
        loss::cross_entropy_backward(logits, targets, lse, grad, smoothing)
    }

    fn linear(&self, x: &Array, weight: &Array, bias: Option<&Array>) -> Result<Array> {
        product::linear(x, weight, bias)
    }

    fn linear_int8(&self, x: &Array, q: &Array, scale: &Array) -> Result<Array> {
        product::linear_int8(x, q, scale)
    }

    fn heads(&self, x: &Array, heads: usize, rotary: Option<Rotary<'_, Array>>) -> Result<[Array; 3]> {
        heads::heads(x, heads, rotary)
    }

    fn heads_backward(&self, grads: [&Array; 3], rotary: Option<Rotary<'_, Array>>) -> Result<Array> {
        heads::heads_backward(grads, rotary)
    }

    fn attend_token(&self, token: TokenAttention<'_, Array>) -> Result<[Array; 3]> {
        token::attend_token(token)
    }

    fn route_token(&self, token: TokenRouting<'_, Array>) -> Result<Routed<Array>> {
        token::route_token(token)
    }

    fn attention(&self, q: &Array, k: &Array, v: &Array, options: AttentionOptions) -> Result<(Array, Array)> {
        attention::attention(q, k, v, options)
    }

    fn attention_backward(
        &self,
        q: &Array,
        k: &Array,
        v: &Array,
        out: &Array,
        lse: &Array,
        grad: &Array,
        options: AttentionOptions,
    ) -> Result<AttentionGradient> {
        attention::attention_backward(q, k, v, out, lse, grad, options)
    }

    fn diagonal_scan(&self, scan: Scan<'_, Array>) -> Result<(Array, Array)> {
        scan::diagonal_scan(scan)
    }

    fn diagonal_scan_backward(
        &self,
        scan: Scan<'_, Array>,
        states: (&Array, &Array),
        grad: (Option<&Array>, Option<&Array>),
    ) -> Result<ScanGradient> {
        scan::diagonal_scan_backward(scan, states, grad)
    }

    fn adamw(&self, param: &mut Array, grad: &Array, m: &mut Array, v: &mut Array, args: AdamW) -> Result<()> {
        layers::adamw(param, grad, m, v, args)
    }
}
