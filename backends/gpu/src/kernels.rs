//! The backend's [`Kernels`]: each method is the work of the module that it belongs to.

use std::sync::Arc;

use assay_tensor::{
    AdamW, Arguments, Array, Binary, Capabilities, DType, DeviceInfo, HostData, Kernels, Reduce, ReplayBackend, Result,
    Shape, Unary, Update, find_kernel,
};

use crate::driver::Architecture;
use crate::fused::FUSED_KERNELS;
use crate::gpu::Gpu;

/// Tokens that a truncated pass sends through a model at once. On an H100, a training step of the 128M TEN of 8192 tokens took
/// 47 ms with 1024 tokens at once, of which 13 ms went into adding up the gradients of parameters. The activations of so many
/// tokens of that model take 8 GB.
const TOKENS_AT_ONCE: usize = 16_384;

impl Kernels for Gpu {
    fn info(&self) -> DeviceInfo {
        let properties = self.driver.properties();
        let name = match &properties.architecture {
            Architecture::Cuda(..) => "cuda",
            Architecture::Hip(_) => "rocm",
        };
        let gib = properties.memory as f64 / (1u64 << 30) as f64;
        DeviceInfo {
            name: name.to_owned(),
            description: format!(
                "{}, {gib:.1} GiB, driver {}, compiler {}",
                properties.name, properties.driver, properties.compiler
            ),
            threads: properties.multiprocessors as usize,
            dtypes: vec![DType::F32, DType::Bf16, DType::U32, DType::I8],
            features: vec![properties.architecture.to_string()],
        }
    }

    fn replay_backend(&self) -> Option<Box<dyn ReplayBackend>> {
        Some(Box::new(self.new_graph_cache()))
    }

    fn peak_memory(&self) -> Option<u64> {
        Some(self.arena.usage().peak as u64)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { tokens_at_once: TOKENS_AT_ONCE, multiplies_bf16: true, ..Capabilities::default() }
    }

    fn upload(&self, data: HostData, shape: &Shape) -> Result<Array> {
        self.copy_in(&data, shape)
    }

    fn download(&self, x: &Array) -> Result<HostData> {
        self.copy_out(x)
    }

    fn full(&self, shape: &Shape, dtype: DType, value: f64) -> Result<Array> {
        self.fill_constant(shape, dtype, value)
    }

    fn cast(&self, x: &Array, dtype: DType) -> Result<Array> {
        self.convert_dtype(x, dtype)
    }

    fn unary(&self, op: Unary, x: &Array) -> Result<Array> {
        self.apply_unary(op, x)
    }

    fn binary(&self, op: Binary, a: &Array, b: &Array) -> Result<Array> {
        self.apply_binary(op, a, b)
    }

    fn reduce(&self, op: Reduce, x: &Array, axes: &[usize]) -> Result<Array> {
        self.reduce_axes(op, x, axes)
    }

    fn matmul(&self, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
        self.matrix_product(a, b, trans_a, trans_b)
    }

    fn permute(&self, x: &Array, axes: &[usize]) -> Result<Array> {
        let strides = x.shape.strides();
        let shape: Vec<usize> = axes.iter().map(|&axis| x.dims()[axis]).collect();
        let strides: Vec<usize> = axes.iter().map(|&axis| strides[axis]).collect();
        self.copy_strided("permute", x, &shape.into(), &strides)
    }

    fn slice(&self, x: &Array, axis: usize, start: usize, length: usize) -> Result<Array> {
        self.copy_slice(x, axis, start, length)
    }

    fn concat(&self, xs: &[&Array], axis: usize) -> Result<Array> {
        self.join_arrays(xs, axis)
    }

    fn gather_rows(&self, table: &Array, ids: &Array) -> Result<Array> {
        self.gather_table_rows(table, ids)
    }

    fn scatter_add_rows(&self, x: &Array, ids: &Array, rows: usize) -> Result<Array> {
        self.scatter_table_rows(x, ids, rows)
    }

    fn fused(&self, name: &str, call: Arguments<'_>) -> Option<Result<Vec<Array>>> {
        find_kernel(&FUSED_KERNELS, name).map(|kernel| kernel(self, call))
    }

    fn broadcast(&self, x: &Array, shape: &Shape) -> Result<Array> {
        if &x.shape == shape {
            return Ok(x.clone());
        }
        self.copy_strided("broadcast", x, shape, &x.shape.broadcast_strides(shape))
    }

    fn accumulate(&self, mut sum: Array, x: &Array) -> Result<Array> {
        if sum.shape == x.shape && Arc::get_mut(&mut sum.buffer).is_some() {
            self.add_to(&sum, x)?;
            return Ok(sum);
        }
        self.apply_binary(Binary::Add, &sum, x)
    }

    fn matmul_onto(&self, mut sum: Array, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
        if Arc::get_mut(&mut sum.buffer).is_some() {
            self.product_onto(&sum, a, b, trans_a, trans_b)?;
            return Ok(sum);
        }
        self.accumulate(sum, &self.matmul(a, b, trans_a, trans_b)?)
    }

    fn scatter_add_rows_onto(&self, mut sum: Array, x: &Array, ids: &Array) -> Result<Array> {
        if Arc::get_mut(&mut sum.buffer).is_some() {
            self.add_table_rows(x, ids, &sum, true)?;
            return Ok(sum);
        }
        let rows = sum.dims().first().copied().unwrap_or(0);
        self.accumulate(sum, &self.scatter_add_rows(x, ids, rows)?)
    }

    fn unary_backward(&self, op: Unary, saved: &Array, grad: &Array) -> Result<Array> {
        self.unary_gradient(op, saved, grad)
    }

    fn linear_int8(&self, x: &Array, q: &Array, scale: &Array) -> Result<Array> {
        self.int8_product(x, q, scale)
    }

    fn adamw(&self, param: &mut Array, grad: &Array, m: &mut Array, v: &mut Array, args: AdamW) -> Result<()> {
        self.apply_adamw([param, m, v], grad, args)
    }

    fn clip(&self, gradients: &[&Array], limit: Option<f64>) -> Result<Array> {
        self.global_norm(gradients, limit)
    }

    fn adamw_all(&self, updates: Vec<Update<'_, Array>>, args: AdamW, factors: &Array, clip: &Array) -> Result<()> {
        self.update_all(updates, args, factors, clip)
    }
}
