//! The backend itself: its threads, its free buffers, and the list of its kernels.

use std::sync::Arc;

use assay_tensor::{
    AdamW, Array, AttentionGradient, AttentionKind, AttentionOptions, Binary, DType, DeviceInfo, HostData, Kernels,
    LayerNorm, LayerNormGradient, Reduce, Result, Scan, ScanGradient, Shape, Unary, composed,
};
use candle_core::CpuStorage;

use crate::flush::flushed;
use crate::parallel::Threads;
use crate::simd;
use crate::store::{self, Recycler, wrap_storage};

/// The kernels of [`crate::device`].
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) threads: Threads,
    pub(crate) recycler: Arc<Recycler>,
}

impl Cpu {
    pub(crate) fn new(threads: usize) -> Cpu {
        Cpu { threads: Threads::new(threads), recycler: Arc::default() }
    }

    /// A buffer of arbitrary contents.
    pub(crate) fn take(&self, length: usize) -> Result<Vec<f32>> {
        self.recycler.take(length)
    }

    /// An array of f32 in such a buffer.
    pub(crate) fn wrap(&self, buffer: Vec<f32>, shape: impl Into<Shape>) -> Array {
        store::wrap(&self.recycler, buffer, shape)
    }

    /// An array of `dtype` from values, converted as `HostData::from_f64` does.
    fn from_values(&self, values: &[f64], shape: &Shape, dtype: DType) -> Result<Array> {
        Ok(wrap_storage(&self.recycler, store::from_host(HostData::from_f64(values, dtype))?, shape, dtype))
    }
}

// Each kernel runs with denormals flushed on the calling thread; see `flush.rs`.
impl Kernels for Cpu {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "cpu".into(),
            description: format!("candle-core storage and matmul, own kernels; {}", std::env::consts::ARCH),
            threads: self.threads.count(),
            dtypes: vec![DType::F32, DType::U32, DType::I8],
            features: simd::features(),
        }
    }

    fn upload(&self, data: HostData, shape: &Shape) -> Result<Array> {
        let dtype = data.dtype();
        Ok(wrap_storage(&self.recycler, store::from_host(data)?, shape, dtype))
    }

    fn download(&self, x: &Array) -> Result<HostData> {
        store::to_host(x)
    }

    fn full(&self, shape: &Shape, dtype: DType, value: f64) -> Result<Array> {
        if dtype == DType::F32 {
            let mut out = self.take(shape.check_size("full")?)?;
            out.fill(value as f32);
            return Ok(self.wrap(out, shape));
        }
        self.from_values(&vec![value; shape.check_size("full")?], shape, dtype)
    }

    fn cast(&self, x: &Array, dtype: DType) -> Result<Array> {
        match (store::storage(x)?, dtype) {
            (CpuStorage::F32(v), DType::U32) => {
                let cast = CpuStorage::U32(v.iter().map(|&x| x as u32).collect());
                Ok(wrap_storage(&self.recycler, cast, &x.shape, dtype))
            }
            (CpuStorage::U32(v), DType::F32) => Ok(self.wrap(v.iter().map(|&x| x as f32).collect(), &x.shape)),
            (CpuStorage::U8(v), DType::F32) => {
                Ok(self.wrap(v.iter().map(|x| f32::from(x.cast_signed())).collect(), &x.shape))
            }
            _ => self.from_values(&store::to_host(x)?.to_f64(), &x.shape, dtype),
        }
    }

    fn unary(&self, op: Unary, x: &Array) -> Result<Array> {
        flushed(|| self.map(op, x))
    }

    fn binary(&self, op: Binary, a: &Array, b: &Array) -> Result<Array> {
        flushed(|| self.zip(op, a, b))
    }

    fn reduce(&self, op: Reduce, x: &Array, axes: &[usize]) -> Result<Array> {
        flushed(|| self.reduce_axes(op, x, axes))
    }

    fn matmul(&self, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
        flushed(|| self.matmul_arrays(a, b, trans_a, trans_b))
    }

    fn permute(&self, x: &Array, axes: &[usize]) -> Result<Array> {
        self.permute_axes(x, axes)
    }

    fn slice(&self, x: &Array, axis: usize, start: usize, length: usize) -> Result<Array> {
        self.take_slice(x, axis, start, length)
    }

    fn concat(&self, xs: &[&Array], axis: usize) -> Result<Array> {
        self.join(xs, axis)
    }

    fn gather_rows(&self, table: &Array, ids: &Array) -> Result<Array> {
        self.gather(table, ids)
    }

    fn scatter_add_rows(&self, x: &Array, ids: &Array, rows: usize) -> Result<Array> {
        flushed(|| self.scatter(x, ids, rows))
    }

    fn accumulate(&self, sum: Array, x: &Array) -> Result<Array> {
        flushed(|| self.add_to(sum, x))
    }

    fn unary_backward(&self, op: Unary, saved: &Array, grad: &Array) -> Result<Array> {
        flushed(|| self.map_backward(op, saved, grad))
    }

    fn softmax(&self, x: &Array) -> Result<Array> {
        flushed(|| self.softmax_rows(x, false))
    }

    fn softmax_backward(&self, y: &Array, grad: &Array) -> Result<Array> {
        flushed(|| self.softmax_rows_backward(y, grad, false))
    }

    fn log_softmax(&self, x: &Array) -> Result<Array> {
        flushed(|| self.softmax_rows(x, true))
    }

    fn log_softmax_backward(&self, y: &Array, grad: &Array) -> Result<Array> {
        flushed(|| self.softmax_rows_backward(y, grad, true))
    }

    fn layer_norm(&self, x: &Array, gain: &Array, bias: &Array, eps: f64) -> Result<LayerNorm> {
        flushed(|| self.normalise(x, gain, bias, eps))
    }

    fn layer_norm_backward(
        &self,
        x: &Array,
        gain: &Array,
        mean: &Array,
        rstd: &Array,
        grad: &Array,
    ) -> Result<LayerNormGradient> {
        flushed(|| self.normalise_backward(x, gain, mean, rstd, grad))
    }

    fn cross_entropy(&self, logits: &Array, targets: &Array, smoothing: f64) -> Result<(Array, Array)> {
        flushed(|| self.entropy(logits, targets, smoothing))
    }

    fn cross_entropy_backward(
        &self,
        logits: &Array,
        targets: &Array,
        lse: &Array,
        grad: &Array,
        smoothing: f64,
    ) -> Result<Array> {
        flushed(|| self.entropy_backward(logits, targets, lse, grad, smoothing))
    }

    fn linear(&self, x: &Array, weight: &Array, bias: Option<&Array>) -> Result<Array> {
        flushed(|| self.linear_layer(x, weight, bias))
    }

    fn linear_int8(&self, x: &Array, q: &Array, scale: &Array) -> Result<Array> {
        flushed(|| self.quantized_linear(x, q, scale))
    }

    fn attention(&self, q: &Array, k: &Array, v: &Array, options: AttentionOptions) -> Result<(Array, Array)> {
        match options.kind {
            AttentionKind::Full => composed::attention(self, q, k, v, options),
            AttentionKind::Flash => flushed(|| self.attend(q, k, v, options)),
        }
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
        match options.kind {
            AttentionKind::Full => composed::attention_backward(self, q, k, v, out, lse, grad, options),
            AttentionKind::Flash => flushed(|| self.attend_backward(q, k, v, out, lse, grad, options)),
        }
    }

    fn diagonal_scan(&self, scan: Scan<'_, Array>) -> Result<(Array, Array)> {
        flushed(|| self.scan(scan))
    }

    fn diagonal_scan_backward(
        &self,
        scan: Scan<'_, Array>,
        states: (&Array, &Array),
        grad: (Option<&Array>, Option<&Array>),
    ) -> Result<ScanGradient> {
        flushed(|| self.scan_backward(scan, states, grad))
    }

    fn adamw(&self, param: &mut Array, grad: &Array, m: &mut Array, v: &mut Array, args: AdamW) -> Result<()> {
        flushed(|| self.update(param, grad, m, v, args))
    }
}
