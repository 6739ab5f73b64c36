//! What an [`Array`] of this backend points to: a contiguous tensor of candle, or how to compute one when it is first read.
//!
//! | type | type of candle |
//! |---|---|
//! | f32, f64, bf16, u32 | the same |
//! | i8 | `F32`: candle has no signed bytes |

use std::sync::OnceLock;

use assay_tensor::{Array, Class, DType, HostData, Result, Shape, TensorError};
use candle_core::{DType as Kind, Device, Tensor};

/// What candle answers.
pub(crate) type Made = candle_core::Result<Tensor>;

/// Computes a tensor.
type Compute = Box<dyn Fn() -> Made + Send + Sync>;

/// A tensor, computed now or when it is first read.
struct Held {
    tensor: OnceLock<Tensor>,
    compute: Option<Compute>,
}

/// Arrays on the processor from this size on are refused, instead of ending the process, if there is no memory for them.
const LARGE: usize = 256 << 20;

/// An error of candle as ours. The trace that candle may append is left out.
pub(crate) fn convert_error(operation: &'static str, error: &candle_core::Error) -> TensorError {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or("it gave no reason");
    let lower = first.to_lowercase();
    let contains = |part: &str| lower.contains(part);
    let class = match () {
        () if contains("out of memory") || contains("out_of_memory") => Class::OutOfMemory,
        () if contains("cuda_error") || contains("illegal address") => Class::Fault,
        () => Class::Refused,
    };
    let error = TensorError::new(operation, format!("candle refused: {first}")).of_class(class);
    match class {
        Class::OutOfMemory => error.hint("use a smaller batch, model or sequence"),
        _ => error,
    }
}

/// candle's type for a type.
pub(crate) fn kind(dtype: DType) -> Kind {
    match dtype {
        DType::F32 | DType::I8 => Kind::F32,
        DType::F64 => Kind::F64,
        DType::Bf16 => Kind::BF16,
        DType::U32 => Kind::U32,
    }
}

/// An array of what candle computed for `operation`; its shape is the tensor's.
pub(crate) fn array(operation: &'static str, dtype: DType, made: Made) -> Result<Array> {
    let tensor = made.and_then(|tensor| tensor.contiguous()).map_err(|error| convert_error(operation, &error))?;
    let shape = Shape::from(tensor.dims());
    Ok(Array::new(Held { tensor: OnceLock::from(tensor), compute: None }, shape, dtype))
}

/// An array that `compute` gives when it is first read: what only gradients need costs nothing without them.
pub(crate) fn deferred_array(shape: Shape, dtype: DType, compute: impl Fn() -> Made + Send + Sync + 'static) -> Array {
    Array::new(Held { tensor: OnceLock::new(), compute: Some(Box::new(compute)) }, shape, dtype)
}

/// The tensor of an array, in the array's shape.
pub(crate) fn tensor(operation: &'static str, x: &Array) -> Result<Tensor> {
    let Some(held) = x.buffer.downcast_ref::<Held>() else {
        return Err(TensorError::new(operation, "the array belongs to another backend")
            .shapes([&x.shape])
            .hint("move it with to_device()"));
    };
    let whole = match (held.tensor.get(), &held.compute) {
        (Some(tensor), _) => Ok(tensor.clone()),
        (None, Some(compute)) => {
            let computed = compute().and_then(|tensor| tensor.contiguous());
            computed.map(|tensor| held.tensor.get_or_init(|| tensor).clone())
        }
        (None, None) => return Err(TensorError::new(operation, "the array holds nothing")),
    };
    whole.and_then(|whole| whole.reshape(x.dims())).map_err(|error| convert_error(operation, &error))
}

/// That there is memory for a result of this shape on the processor, where candle would end the process without it.
pub(crate) fn check_memory(operation: &'static str, device: &Device, shape: &Shape, dtype: DType) -> Result<()> {
    let bytes = shape.check_size(operation)?.saturating_mul(kind(dtype).size_in_bytes());
    if !device.is_cpu() || bytes < LARGE || Vec::<u8>::new().try_reserve_exact(bytes).is_ok() {
        return Ok(());
    }
    Err(TensorError::new(operation, format!("there is no memory for {bytes} bytes"))
        .of_class(Class::OutOfMemory)
        .shapes([shape])
        .hint("use a smaller batch, model or sequence"))
}

/// Host elements on a device.
pub(crate) fn upload(data: HostData, shape: &Shape, device: &Device) -> Made {
    let dims = shape.dims();
    match data {
        HostData::F32(values) => Tensor::from_vec(values, dims, device),
        HostData::F64(values) => Tensor::from_vec(values, dims, device),
        HostData::Bf16(values) => Tensor::from_vec(values, dims, device),
        HostData::U32(values) => Tensor::from_vec(values, dims, device),
        HostData::I8(values) => Tensor::from_vec(values.into_iter().map(f32::from).collect(), dims, device),
    }
}

/// The elements of a tensor that holds this type, in host memory.
pub(crate) fn download(x: &Tensor, dtype: DType) -> candle_core::Result<HostData> {
    let flat = x.flatten_all()?;
    Ok(match dtype {
        DType::F32 => HostData::F32(flat.to_vec1()?),
        DType::F64 => HostData::F64(flat.to_vec1()?),
        DType::Bf16 => HostData::Bf16(flat.to_vec1()?),
        DType::U32 => HostData::U32(flat.to_vec1()?),
        DType::I8 => HostData::I8(flat.to_vec1::<f32>()?.into_iter().map(|x| x as i8).collect()),
    })
}

/// The conversion to another type, with the rules of [`HostData::from_f64`]. To integers it is done by the host: devices differ in
/// what they make of numbers beyond the type's limits.
pub(crate) fn convert(x: &Tensor, from: DType, to: DType) -> Made {
    match to {
        DType::F32 | DType::F64 => x.to_dtype(kind(to)),
        DType::Bf16 => x.to_dtype(Kind::F32)?.to_dtype(Kind::BF16),
        DType::U32 | DType::I8 => {
            let values = HostData::from_f64(&download(x, from)?.to_f64(), to);
            upload(values, &Shape::from(x.dims()), x.device())
        }
    }
}

/// Every id is below `rows`. Gives the ids as one axis.
pub(crate) fn check_ids(operation: &'static str, ids: &Array, rows: usize, shape: &Shape) -> Result<Tensor> {
    let failed = |error| convert_error(operation, &error);
    let flat = tensor(operation, ids)?.flatten_all().map_err(failed)?;
    let largest = flat.to_vec1::<u32>().map_err(failed)?.into_iter().max();
    match largest.filter(|&id| id as usize >= rows) {
        None => Ok(flat),
        Some(id) => Err(TensorError::new(operation, format!("id {id} is beyond the {rows} rows"))
            .shapes([shape])
            .hint("ids count from 0 and stay below the row count")),
    }
}
