//! The backend's [`Kernels`]: each method takes its operands' elements, allocates the result, and leaves the work to
//! the module that it belongs to.

use assay_tensor::{
    AdamW, Arguments, Array, Binary, Capabilities, Columns, DType, DeviceInfo, HostData, Int8Linear, Kernels, Reduce,
    Result, Shape, TensorError, Unary, bf16, clip_factor, find_kernel, group_axes,
};

use crate::device::{Cpu, unsupported_type};
use crate::fused::FUSED_KERNELS;
use crate::matmul::epilogue::Start;
use crate::matmul::matrix::{self, Extent, Matrix};
use crate::matmul::packed::Right;
use crate::matmul::product::multiply_batch;
use crate::matmul::weights::WeightUse;
use crate::memory::storage::{Elements, elements_of, f32s, f32s_mut, u32s};
use crate::ops::movement::{RowLayout, collect_strided, copy_rows, copy_strided};
use crate::ops::strides::batch_offsets;
use crate::ops::{adamw, convert, elementwise, gather, int8, reduce};
use crate::simd::instructions;
use crate::threads::denormals::FlushGuard;

impl Cpu {
    /// A movement of elements to `shape`, whichever their type: `strides` say where in `x` each is read.
    fn move_elements(&self, operation: &'static str, x: &Array, shape: &Shape, strides: &[usize]) -> Result<Array> {
        let length = shape.check_size(operation)?;
        let (threads, dims) = (&self.threads, shape.dims());
        let moved = match elements_of(operation, x)? {
            Elements::F32(x) => {
                let mut y = self.memory.take_block(operation, length)?;
                copy_strided(threads, x, dims, strides, &mut y);
                Elements::F32(y)
            }
            Elements::Bf16(x) => Elements::Bf16(collect_strided(threads, operation, x, dims, strides)?),
            Elements::U32(x) => Elements::U32(collect_strided(threads, operation, x, dims, strides)?),
            Elements::I8(x) => Elements::I8(collect_strided(threads, operation, x, dims, strides)?),
        };
        Ok(self.memory.array_of(moved, shape, x.dtype))
    }
}

/// Products of some hundred rows are as fast as larger ones, and their results stay in a second-level cache of 2 MiB.
const TOKENS_A_THREAD: usize = 512;
/// Weight gradients with fewer rows are deferred and batched. The slots of a chunk are fewer rows, the tokens of a shard more.
const FEW_ROWS: usize = 128;

impl Kernels for Cpu {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "cpu".to_owned(),
            description: format!("{}; products by {}", instructions::processor_name(), matrix::product_library()),
            threads: self.threads.count(),
            dtypes: vec![DType::F32, DType::Bf16, DType::U32, DType::I8],
            features: instructions::feature_names(),
        }
    }

    fn arithmetic_rate(&self) -> Option<f64> {
        Some(crate::peak::fma_rate(&self.threads))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { tokens_a_thread: Some(TOKENS_A_THREAD), few_rows: FEW_ROWS, ..Capabilities::default() }
    }

    fn concurrently(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        self.threads.run_concurrently(count, job);
    }

    fn upload(&self, data: HostData, shape: &Shape) -> Result<Array> {
        if data.len() != shape.check_size("upload")? {
            return Err(TensorError::new("upload", format!("there are {} elements", data.len())).shapes([shape]));
        }
        let dtype = data.dtype();
        let held = match data {
            HostData::F32(v) => Elements::F32(self.memory.block_of("upload", v)?),
            HostData::Bf16(v) => Elements::Bf16(v),
            HostData::U32(v) => Elements::U32(v),
            HostData::I8(v) => Elements::I8(v.into_iter().map(|x| x as u8).collect()),
            HostData::F64(_) => return Err(unsupported_type("upload", DType::F64)),
        };
        Ok(self.memory.array_of(held, shape, dtype))
    }

    fn download(&self, x: &Array) -> Result<HostData> {
        match elements_of("download", x)? {
            Elements::F32(v) => Ok(HostData::F32(v.to_vec())),
            Elements::Bf16(v) => Ok(HostData::Bf16(v.clone())),
            Elements::U32(v) => Ok(HostData::U32(v.clone())),
            Elements::I8(v) => Ok(HostData::I8(v.iter().map(|&x| x as i8).collect())),
        }
    }

    fn full(&self, shape: &Shape, dtype: DType, value: f64) -> Result<Array> {
        let mut held = self.empty_elements("full", shape, dtype)?;
        match &mut held {
            Elements::F32(v) => v.fill(value as f32),
            Elements::Bf16(v) => v.fill(bf16::from_f32(value as f32)),
            Elements::U32(v) => v.fill(value as u32),
            Elements::I8(v) => v.fill(value as i8 as u8),
        }
        Ok(self.memory.array_of(held, shape, dtype))
    }

    fn cast(&self, x: &Array, dtype: DType) -> Result<Array> {
        if x.dtype == dtype {
            return Ok(x.clone());
        }
        let mut held = self.empty_elements("cast", &x.shape, dtype)?;
        convert::convert_elements(&self.threads, elements_of("cast", x)?, &mut held);
        Ok(self.memory.array_of(held, &x.shape, dtype))
    }

    fn unary(&self, op: Unary, x: &Array) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let mut y = self.take_block(op.name(), &x.shape)?;
        elementwise::unary(&self.threads, op, f32s(op.name(), x)?, &mut y);
        Ok(self.f32_array(y, &x.shape))
    }

    fn binary(&self, op: Binary, a: &Array, b: &Array) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let name = op.name();
        let shape = Shape::broadcast(name, &a.shape, &b.shape)?;
        let mut y = self.take_block(name, &shape)?;
        let (in_a, in_b) = (a.shape.broadcast_strides(&shape), b.shape.broadcast_strides(&shape));
        let (a, b) = ((f32s(name, a)?, &in_a[..]), (f32s(name, b)?, &in_b[..]));
        elementwise::binary(&self.threads, op, shape.dims(), a, b, &mut y);
        Ok(self.f32_array(y, &shape))
    }

    fn reduce(&self, op: Reduce, x: &Array, axes: &[usize]) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let name = op.name();
        let shape = x.shape.reduced(axes, true);
        let mut value: Option<Array> = None;
        for dims in group_axes(x.dims(), axes) {
            let rest = Shape::from([dims[0], dims[2]]);
            let mut y = self.take_block(name, &rest)?;
            reduce::reduce_middle_axis(&self.threads, op, f32s(name, value.as_ref().unwrap_or(x))?, dims, &mut y);
            if op == Reduce::Mean {
                reduce::divide_by_count(&mut y, dims[1]);
            }
            value = Some(self.f32_array(y, &rest));
        }
        Ok(value.unwrap_or_else(|| x.clone()).viewed(&shape))
    }

    fn matmul(&self, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let name = "matmul";
        let wrong = || TensorError::new(name, "both sides need two axes at least").shapes([&a.shape, &b.shape]);
        let [batch_a @ .., ra, ca] = a.dims() else { return Err(wrong()) };
        let [batch_b @ .., rb, cb] = b.dims() else { return Err(wrong()) };
        let (m, k) = if trans_a { (*ca, *ra) } else { (*ra, *ca) };
        let n = if trans_b { *rb } else { *cb };
        let (batch_a, batch_b) = (Shape::from(batch_a), Shape::from(batch_b));
        let batch = Shape::broadcast(name, &batch_a, &batch_b)?;
        let shape = Shape::from([batch.dims(), &[m, n]].concat());
        let mut y = self.take_block(name, &shape)?;
        let (x, w) = (f32s(name, a)?, f32s(name, b)?);
        // Rows of several products with one right side are the rows of one product.
        if batch_b.numel() == 1 && batch_a == batch && !trans_a {
            let extent = Extent { m: m * batch.numel(), n, k };
            let packed = if trans_b { None } else { self.packed_weight(b, extent.m, WeightUse::Back) };
            let right = packed.map_or(Right::Matrix(Matrix::new(w, *cb).transposed_if(trans_b)), Right::Packed);
            multiply_batch(&self.threads, 1, extent, |_| (Matrix::new(x, *ca), right), &mut y, Start::Zero);
            return Ok(self.f32_array(y, &shape));
        }
        let (from_a, from_b) = (batch_offsets(&batch_a, &batch), batch_offsets(&batch_b, &batch));
        let operands = |i: usize| {
            let a = Matrix::new(&x[from_a[i] * ra * ca..], *ca).transposed_if(trans_a);
            (a, Right::Matrix(Matrix::new(&w[from_b[i] * rb * cb..], *cb).transposed_if(trans_b)))
        };
        multiply_batch(&self.threads, batch.numel(), Extent { m, n, k }, operands, &mut y, Start::Zero);
        Ok(self.f32_array(y, &shape))
    }

    fn permute(&self, x: &Array, axes: &[usize]) -> Result<Array> {
        let strides = x.shape.strides();
        let shape: Vec<usize> = axes.iter().map(|&axis| x.dims()[axis]).collect();
        let strides: Vec<usize> = axes.iter().map(|&axis| strides[axis]).collect();
        self.move_elements("permute", x, &shape.into(), &strides)
    }

    fn fused(&self, name: &str, call: Arguments<'_>) -> Option<Result<Vec<Array>>> {
        find_kernel(&FUSED_KERNELS, name).map(|kernel| kernel(self, call))
    }

    fn broadcast(&self, x: &Array, shape: &Shape) -> Result<Array> {
        if &x.shape == shape {
            return Ok(x.clone());
        }
        self.move_elements("broadcast", x, shape, &x.shape.broadcast_strides(shape))
    }

    fn slice(&self, x: &Array, axis: usize, start: usize, length: usize) -> Result<Array> {
        let shape = x.shape.with(axis, length);
        let mut held = self.empty_elements("slice", &shape, x.dtype)?;
        let inner: usize = x.dims()[axis + 1..].iter().product();
        let outer: usize = x.dims()[..axis].iter().product();
        let source = RowLayout { start: start * inner, stride: x.dims()[axis] * inner };
        let target = RowLayout { start: 0, stride: length * inner };
        copy_rows((elements_of("slice", x)?, source), (&mut held, target), outer, length * inner)
            .ok_or_else(|| unsupported_type("slice", x.dtype))?;
        Ok(self.memory.array_of(held, shape, x.dtype))
    }

    fn concat(&self, xs: &[&Array], axis: usize) -> Result<Array> {
        let Some(first) = xs.first() else {
            return Err(TensorError::new("concat", "there is nothing to join"));
        };
        let shape = first.shape.with(axis, xs.iter().map(|x| x.dims()[axis]).sum());
        let mut held = self.empty_elements("concat", &shape, first.dtype)?;
        let inner: usize = first.dims()[axis + 1..].iter().product();
        let outer: usize = first.dims()[..axis].iter().product();
        let stride = shape.dims()[axis] * inner;
        let mut start = 0;
        for x in xs {
            let width = x.dims()[axis] * inner;
            let source = RowLayout { start: 0, stride: width };
            copy_rows((elements_of("concat", x)?, source), (&mut held, RowLayout { start, stride }), outer, width)
                .ok_or_else(|| unsupported_type("concat", x.dtype))?;
            start += width;
        }
        Ok(self.memory.array_of(held, shape, first.dtype))
    }

    fn gather_rows(&self, table: &Array, ids: &Array) -> Result<Array> {
        let name = "rows";
        let width = table.shape.last();
        let list = u32s(name, ids)?;
        gather::check_ids(name, list, table.shape.rows(), &table.shape)?;
        let shape = Shape::from([ids.dims(), &[width]].concat());
        let mut held = self.empty_elements(name, &shape, table.dtype)?;
        match (elements_of(name, table)?, &mut held) {
            (Elements::F32(table), Elements::F32(y)) => gather::gather_f32(&self.threads, table, list, width, y),
            (Elements::Bf16(table), Elements::Bf16(y)) => gather::gather_rows(table, list, width, y),
            (Elements::U32(table), Elements::U32(y)) => gather::gather_rows(table, list, width, y),
            (Elements::I8(table), Elements::I8(y)) => gather::gather_rows(table, list, width, y),
            _ => return Err(unsupported_type(name, table.dtype)),
        }
        Ok(self.memory.array_of(held, shape, table.dtype))
    }

    fn scatter_add_rows(&self, x: &Array, ids: &Array, rows: usize) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let name = "scatter_add_rows";
        let (list, shape) = (u32s(name, ids)?, Shape::from([rows, x.shape.last()]));
        gather::check_ids(name, list, rows, &x.shape)?;
        let mut y = self.memory.zeroed_block(name, shape.check_size(name)?)?;
        gather::scatter_add(&self.threads, f32s(name, x)?, list, x.shape.last(), &mut y);
        Ok(self.f32_array(y, &shape))
    }

    fn accumulate(&self, mut sum: Array, x: &Array) -> Result<Array> {
        let _flushed = FlushGuard::here();
        if sum.shape == x.shape
            && let Some(total) = f32s_mut(&mut sum)
        {
            elementwise::add_to(&self.threads, f32s("accumulate", x)?, total);
            return Ok(sum);
        }
        self.binary(Binary::Add, &sum, x)
    }

    fn accumulate_all(&self, sum: Array, xs: &[&Array]) -> Result<Array> {
        self.add_all(sum, xs)
    }

    fn matmul_onto(&self, mut sum: Array, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let name = "matmul";
        if let (&[rows, k], &[_, columns]) = (a.dims(), b.dims())
            && let Some(total) = f32s_mut(&mut sum)
        {
            let left = Matrix::new(f32s(name, a)?, k).transposed_if(trans_a);
            let (m, k) = if trans_a { (k, rows) } else { (rows, k) };
            let extent = Extent { m, n: total.len() / m.max(1), k };
            let packed = if trans_a || trans_b { None } else { self.packed_weight(b, m, WeightUse::Back) };
            let as_it_lies = Matrix::new(f32s(name, b)?, columns).transposed_if(trans_b);
            let right = packed.map_or(Right::Matrix(as_it_lies), Right::Packed);
            multiply_batch(&self.threads, 1, extent, |_| (left, right), total, Start::Add);
            return Ok(sum);
        }
        self.accumulate(sum, &self.matmul(a, b, trans_a, trans_b)?)
    }

    fn scatter_add_rows_onto(&self, mut sum: Array, x: &Array, ids: &Array) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let name = "scatter_add_rows";
        let (list, rows) = (u32s(name, ids)?, sum.dims().first().copied().unwrap_or(0));
        gather::check_ids(name, list, rows, &x.shape)?;
        if let Some(total) = f32s_mut(&mut sum) {
            gather::scatter_add(&self.threads, f32s(name, x)?, list, x.shape.last(), total);
            return Ok(sum);
        }
        self.accumulate(sum, &self.scatter_add_rows(x, ids, rows)?)
    }

    fn unary_backward(&self, op: Unary, saved: &Array, grad: &Array) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let mut dx = self.take_block(op.name(), &grad.shape)?;
        elementwise::unary_backward(&self.threads, op, f32s(op.name(), saved)?, f32s(op.name(), grad)?, &mut dx);
        Ok(self.f32_array(dx, &grad.shape))
    }

    fn linear_int8(&self, x: &Array, q: &Array, scale: &Array) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let columns = Columns { of: x, from: 0, width: x.shape.last() };
        int8::int8_linear(&self.threads, &self.memory, &[columns], &[Int8Linear::new(q, scale)])
    }

    fn int8_linear(&self, inputs: &[Columns<'_, Array>], layers: &[Int8Linear<'_, Array>]) -> Option<Result<Array>> {
        let _flushed = FlushGuard::here();
        Some(int8::int8_linear(&self.threads, &self.memory, inputs, layers))
    }

    fn adamw(&self, param: &mut Array, grad: &Array, m: &mut Array, v: &mut Array, args: AdamW) -> Result<()> {
        self.update_parameter(args, [param, m, v], grad)
    }

    fn clip(&self, gradients: &[&Array], limit: Option<f64>) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let gradients = gradients.iter().map(|gradient| f32s("clip", gradient)).collect::<Result<Vec<_>>>()?;
        let norm = adamw::global_norm(&self.threads, &gradients);
        Ok(self.f32_array(vec![norm as f32, clip_factor(norm, limit) as f32], &Shape::from(2)))
    }
}
