//! The backend's [`Kernels`]: the primitives, and the operations that candle has itself. All others run composed.

use assay_tensor::{
    Arguments, Array, Attention, AttentionBackward, Binary, DType, DeviceInfo, HostData, Kernels, Reduce, Result,
    Shape, TensorError, Unary, find_kernel,
};
use candle_core::Tensor;

use crate::place::{CandleDevice, describe_products};
use crate::product::{Side, matmul, product_shape};
use crate::store::{
    Made, array, check_ids, check_memory, convert, convert_error, deferred_array, download, kind, tensor, upload,
};
use crate::{attention, elementwise};

/// From the name of a fused operation to candle's own. All others run by their definition.
static FUSED_KERNELS: [(&str, FusedKernel); 4] = [
    ("attention", attend),
    ("attention_backward", attend_backward),
    ("log_softmax", |call| by_rows("log_softmax", call, |x| candle_nn::ops::log_softmax(x, candle_core::D::Minus1))),
    ("softmax", |call| by_rows("softmax", call, candle_nn::ops::softmax_last_dim)),
];

/// A kernel of a fused operation.
type FusedKernel = fn(Arguments<'_>) -> Result<Vec<Array>>;

/// An operation of one operand with a value of its shape.
fn by_rows(name: &'static str, call: Arguments<'_>, apply: fn(&Tensor) -> Made) -> Result<Vec<Array>> {
    let x = call.input(0)?;
    if x.numel() == 0 {
        return Ok(vec![x.clone()]);
    }
    Ok(vec![array(name, x.dtype, apply(&tensor(name, x)?))?])
}

/// The operation `attention`.
fn attend(call: Arguments<'_>) -> Result<Vec<Array>> {
    let (Attention { q, k, v, options }, name) = (Attention::of_call(call)?, "attention");
    let (queries, keys) = (tensor(name, q)?, tensor(name, k)?);
    let value = array(name, q.dtype, attention::attention(&queries, &keys, &tensor(name, v)?, options))?;
    let shape = Shape::from(&q.dims()[..3]);
    let lse = deferred_array(shape, q.dtype, move || attention::attention_lse(&queries, &keys, options));
    Ok(vec![value, lse])
}

/// The operation `attention_backward`.
fn attend_backward(call: Arguments<'_>) -> Result<Vec<Array>> {
    let (AttentionBackward { of, out, lse, grad }, name) = (AttentionBackward::of_call(call)?, "attention");
    let place = |x: &Array| tensor(name, x);
    let (q, k, v) = (place(of.q)?, place(of.k)?, place(of.v)?);
    let (out, lse, g) = (place(out)?, place(lse)?, place(grad)?);
    let found = attention::attention_backward([&q, &k, &v, &out, &lse, &g], of.options);
    let found = found.map_err(|error| convert_error(name, &error))?;
    found.into_iter().map(|made| array(name, grad.dtype, Ok(made))).collect()
}

/// candle at a place.
#[derive(Debug)]
pub(crate) struct Candle {
    pub(crate) place: CandleDevice,
    pub(crate) device: candle_core::Device,
    pub(crate) threads: usize,
}

impl Candle {
    /// Zeros, for results without elements too.
    fn zeros(&self, operation: &'static str, shape: &Shape, dtype: DType) -> Result<Array> {
        array(operation, dtype, Tensor::zeros(shape.dims(), kind(dtype), &self.device))
    }

    /// The types that the device holds: Metal has no f64.
    fn dtypes(&self) -> Vec<DType> {
        let holds = |dtype: &DType| !(matches!(self.place, CandleDevice::Metal(_)) && *dtype == DType::F64);
        DType::ALL.into_iter().filter(holds).collect()
    }

    fn check_dtype(&self, operation: &'static str, dtype: DType) -> Result<()> {
        match self.dtypes().contains(&dtype) {
            true => Ok(()),
            false => Err(TensorError::new(operation, format!("candle has no {dtype} on {}", self.place.name()))
                .hint("use f32, or `ASSAY_CANDLE_DEVICE=cpu`")),
        }
    }
}

impl Kernels for Candle {
    fn info(&self) -> DeviceInfo {
        let mut features = vec![self.place.name()];
        if self.place == CandleDevice::Cpu {
            features.push(describe_products().into());
        }
        DeviceInfo {
            name: "candle".into(),
            description: format!("candle on {}", self.place.name()),
            threads: self.threads,
            dtypes: self.dtypes(),
            features,
        }
    }

    fn upload(&self, data: HostData, shape: &Shape) -> Result<Array> {
        let name = "upload";
        if data.len() != shape.check_size(name)? {
            return Err(TensorError::new(name, format!("there are {} elements", data.len())).shapes([shape]));
        }
        self.check_dtype(name, data.dtype())?;
        array(name, data.dtype(), upload(data, shape, &self.device))
    }

    fn download(&self, x: &Array) -> Result<HostData> {
        download(&tensor("download", x)?, x.dtype).map_err(|error| convert_error("download", &error))
    }

    fn full(&self, shape: &Shape, dtype: DType, value: f64) -> Result<Array> {
        let name = "full";
        self.check_dtype(name, dtype)?;
        check_memory(name, &self.device, shape, dtype)?;
        let one = upload(HostData::from_f64(&[value], dtype), &Shape::scalar(), &self.device);
        array(name, dtype, one.and_then(|one| one.broadcast_as(shape.dims())))
    }

    fn cast(&self, x: &Array, dtype: DType) -> Result<Array> {
        if x.dtype == dtype {
            return Ok(x.clone());
        }
        self.check_dtype("cast", dtype)?;
        array("cast", dtype, convert(&tensor("cast", x)?, x.dtype, dtype))
    }

    fn unary(&self, op: Unary, x: &Array) -> Result<Array> {
        let name = op.name();
        if x.numel() == 0 {
            return self.zeros(name, &x.shape, x.dtype);
        }
        array(name, x.dtype, elementwise::unary(op, &tensor(name, x)?))
    }

    fn binary(&self, op: Binary, a: &Array, b: &Array) -> Result<Array> {
        let name = op.name();
        let shape = Shape::broadcast(name, &a.shape, &b.shape)?;
        check_memory(name, &self.device, &shape, a.dtype)?;
        let (a_tensor, b_tensor) = (tensor(name, a)?, tensor(name, b)?);
        if shape.numel() == 0 {
            return self.zeros(name, &shape, a.dtype);
        }
        array(name, a.dtype, elementwise::binary(op, &a_tensor, &b_tensor))
    }

    fn reduce(&self, op: Reduce, x: &Array, axes: &[usize]) -> Result<Array> {
        let name = op.name();
        if axes.is_empty() {
            return Ok(x.clone());
        }
        if x.numel() == 0 {
            return self.zeros(name, &x.shape.reduced(axes, true), x.dtype);
        }
        array(name, x.dtype, elementwise::reduce(op, &tensor(name, x)?, axes))
    }

    fn matmul(&self, a: &Array, b: &Array, trans_a: bool, trans_b: bool) -> Result<Array> {
        let name = "matmul";
        let side = |x: &Array, transposed: bool| Ok(Side { of: tensor(name, x)?, transposed });
        let (left, right) = (side(a, trans_a)?, side(b, trans_b)?);
        let shape = product_shape(&left, &right)?;
        check_memory(name, &self.device, &shape, a.dtype)?;
        if shape.numel() == 0 || a.numel() == 0 {
            return self.zeros(name, &shape, a.dtype);
        }
        array(name, a.dtype, matmul(&left, &right, &shape))
    }

    fn permute(&self, x: &Array, axes: &[usize]) -> Result<Array> {
        array("permute", x.dtype, tensor("permute", x)?.permute(axes))
    }

    fn slice(&self, x: &Array, axis: usize, start: usize, length: usize) -> Result<Array> {
        let name = "slice";
        if length == 0 || x.numel() == 0 {
            return self.zeros(name, &x.shape.with(axis, length), x.dtype);
        }
        array(name, x.dtype, tensor(name, x)?.narrow(axis, start, length))
    }

    fn concat(&self, xs: &[&Array], axis: usize) -> Result<Array> {
        let name = "concat";
        let Some(first) = xs.first() else {
            return Err(TensorError::new(name, "there is nothing to join"));
        };
        let parts = xs.iter().map(|x| tensor(name, x)).collect::<Result<Vec<_>>>()?;
        let filled: Vec<&Tensor> = parts.iter().filter(|part| part.elem_count() > 0).collect();
        if filled.is_empty() {
            let extent = xs.iter().map(|x| x.dims()[axis]).sum();
            return self.zeros(name, &first.shape.with(axis, extent), first.dtype);
        }
        array(name, first.dtype, Tensor::cat(&filled, axis))
    }

    fn gather_rows(&self, table: &Array, ids: &Array) -> Result<Array> {
        let name = "rows";
        let rows = check_ids(name, ids, table.dims()[0], &table.shape)?;
        let width = table.shape.last();
        let shape = Shape::from([ids.dims(), &[width]].concat());
        if shape.numel() == 0 {
            return self.zeros(name, &shape, table.dtype);
        }
        let rows = tensor(name, table)?.index_select(&rows, 0);
        array(name, table.dtype, rows.and_then(|rows| rows.reshape(shape.dims())))
    }

    fn scatter_add_rows(&self, x: &Array, ids: &Array, rows: usize) -> Result<Array> {
        let name = "scatter_add_rows";
        let list = check_ids(name, ids, rows, &x.shape)?;
        let width = x.shape.last();
        let zeros = self.zeros(name, &Shape::from([rows, width]), x.dtype)?;
        if x.numel() == 0 {
            return Ok(zeros);
        }
        let values = tensor(name, &x.viewed([ids.numel(), width]))?;
        array(name, x.dtype, tensor(name, &zeros)?.index_add(&list, &values, 0))
    }

    fn fused(&self, name: &str, call: Arguments<'_>) -> Option<Result<Vec<Array>>> {
        find_kernel(&FUSED_KERNELS, name).map(|kernel| kernel(call))
    }

    fn broadcast(&self, x: &Array, shape: &Shape) -> Result<Array> {
        check_memory("broadcast", &self.device, shape, x.dtype)?;
        array("broadcast", x.dtype, tensor("broadcast", x)?.broadcast_as(shape.dims()))
    }
}
