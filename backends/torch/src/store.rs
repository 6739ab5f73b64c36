//! What an [`Array`] of this backend points to: a tensor of libtorch, contiguous, with elements of its own.
//!
//! | type | kind of libtorch |
//! |---|---|
//! | f32, f64, bf16, i8 | `Float`, `Double`, `BFloat16`, `Char` |
//! | u32 | `Int64`, which is what it takes as an index |

use std::sync::{Mutex, PoisonError};

use assay_tensor::{Array, Class, DType, HostData, Result, Shape, TensorError};
use half::bf16;
use tch::{Device, Kind, TchError, Tensor};

/// What libtorch answers.
pub(crate) type Made = std::result::Result<Tensor, TchError>;

/// A tensor behind a lock: libtorch's handles may go from thread to thread, but not be used by two at once.
struct Held(Mutex<Tensor>);

/// An error of libtorch as ours. Its message continues with a trace of C++ frames, which is left out.
pub(crate) fn failed(operation: &'static str, error: &TchError) -> TensorError {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or("it gave no reason");
    let said = |part: &str| first.contains(part);
    let (class, hint) = match () {
        () if said("out of memory") || said("can't allocate memory") => {
            (Class::OutOfMemory, Some("use a smaller batch, model or sequence"))
        }
        () if said("CUDA error") => (Class::Fault, None),
        () => (Class::Refused, None),
    };
    let failed = TensorError::new(operation, format!("libtorch refused: {first}")).of_class(class);
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

/// libtorch's kind for a type.
pub(crate) fn kind(dtype: DType) -> Kind {
    match dtype {
        DType::F32 => Kind::Float,
        DType::F64 => Kind::Double,
        DType::Bf16 => Kind::BFloat16,
        DType::U32 => Kind::Int64,
        DType::I8 => Kind::Int8,
    }
}

/// Extents as libtorch takes them.
pub(crate) fn sizes(dims: &[usize]) -> Vec<i64> {
    dims.iter().map(|&extent| extent as i64).collect()
}

/// An array of what libtorch made for `operation`; its shape is the tensor's.
pub(crate) fn array(operation: &'static str, dtype: DType, made: Made) -> Result<Array> {
    let tensor = made.and_then(|tensor| tensor.f_contiguous()).map_err(|error| failed(operation, &error))?;
    let dims: Vec<usize> = tensor.size().iter().map(|&extent| extent.max(0) as usize).collect();
    Ok(Array::new(Held(Mutex::new(tensor)), dims, dtype))
}

/// The tensor of an array, in the array's shape.
pub(crate) fn tensor(operation: &'static str, x: &Array) -> Result<Tensor> {
    let Some(Held(held)) = x.buffer.downcast_ref::<Held>() else {
        return Err(TensorError::new(operation, "the array belongs to another backend")
            .shapes([&x.shape])
            .hint("move it with to_device()"));
    };
    let whole = held.lock().unwrap_or_else(PoisonError::into_inner).shallow_clone();
    whole.f_view(sizes(x.dims()).as_slice()).map_err(|error| failed(operation, &error))
}

/// The tensor of an array for change in place, if no one else holds on to its elements.
pub(crate) fn tensor_mut(x: &mut Array) -> Option<&mut Tensor> {
    let buffer = std::sync::Arc::get_mut(&mut x.buffer)?;
    let Held(held) = buffer.downcast_mut::<Held>()?;
    Some(held.get_mut().unwrap_or_else(PoisonError::into_inner))
}

/// A view as a tensor of its own.
pub(crate) fn owned(view: &Tensor) -> Made {
    if !view.is_contiguous() {
        return view.f_contiguous();
    }
    let mut copy = view.f_empty_like()?;
    copy.f_copy_(view)?;
    Ok(copy)
}

/// A number as a tensor without axes, in the type of another one.
///
/// `tch` has a type for the scalars of libtorch's operations, which panics when the operation that it was given to fails,
/// as where there is no memory. So no operation here is given one.
pub(crate) fn number(like: &Tensor, value: f64) -> Made {
    Tensor::f_from_slice(&[value])?.f_view([0i64; 0])?.f_totype(like.kind())?.f_to(like.device())
}

/// x times a number.
pub(crate) fn times(x: &Tensor, by: f64) -> Made {
    x.f_mul(&number(x, by)?)
}

/// x plus a number.
pub(crate) fn plus(x: &Tensor, offset: f64) -> Made {
    x.f_add(&number(x, offset)?)
}

/// Host elements on a device.
pub(crate) fn upload(data: &HostData, shape: &Shape, device: Device) -> Made {
    let flat = match data {
        HostData::F32(v) => Tensor::f_from_slice(v),
        HostData::F64(v) => Tensor::f_from_slice(v),
        // By way of f32, which is exact: `tch` takes a slice of bf16 for one of f16.
        HostData::Bf16(v) => {
            Tensor::f_from_slice(&v.iter().map(|x| x.to_f32()).collect::<Vec<_>>())?.f_totype(Kind::BFloat16)
        }
        HostData::U32(v) => Tensor::f_from_slice(&v.iter().map(|&id| i64::from(id)).collect::<Vec<_>>()),
        HostData::I8(v) => Tensor::f_from_slice(v),
    };
    flat?.f_to(device)?.f_view(sizes(shape.dims()).as_slice())
}

/// The elements of a tensor of this type in host memory.
pub(crate) fn download(x: &Tensor, dtype: DType) -> std::result::Result<HostData, TchError> {
    let x = x.f_to(Device::Cpu)?;
    let x = if dtype == DType::Bf16 { x.f_totype(Kind::Float)? } else { x };
    let count = x.numel();
    macro_rules! copied {
        ($zero:expr) => {{
            let mut values = vec![$zero; count];
            x.f_copy_data(&mut values, count)?;
            values
        }};
    }
    Ok(match dtype {
        DType::F32 => HostData::F32(copied!(0f32)),
        DType::F64 => HostData::F64(copied!(0f64)),
        DType::Bf16 => HostData::Bf16(copied!(0f32).into_iter().map(bf16::from_f32).collect()),
        DType::U32 => HostData::U32(copied!(0i64).into_iter().map(|id| id as u32).collect()),
        DType::I8 => HostData::I8(copied!(0i8)),
    })
}

/// The conversion to another type, with the rules of [`HostData::from_f64`].
pub(crate) fn convert(x: &Tensor, to: DType) -> Made {
    let bounded = |low: f64, high: f64| {
        let x = x.f_totype(Kind::Double)?.f_nan_to_num(0.0, high, low)?;
        x.f_maximum(&number(&x, low)?)?.f_minimum(&number(&x, high)?)?.f_trunc()?.f_totype(kind(to))
    };
    match to {
        DType::F32 | DType::F64 => x.f_totype(kind(to)),
        DType::Bf16 => x.f_totype(Kind::Float)?.f_totype(Kind::BFloat16),
        DType::U32 => bounded(0.0, f64::from(u32::MAX)),
        DType::I8 => bounded(f64::from(i8::MIN), f64::from(i8::MAX)),
    }
}

/// Every id is below `rows`: what libtorch would find out too late.
pub(crate) fn check_ids(operation: &'static str, ids: &Tensor, rows: usize, shape: &Shape) -> Result<()> {
    if ids.numel() == 0 {
        return Ok(());
    }
    let largest = ids.f_max().and_then(|most| most.f_int64_value(&[])).map_err(|error| failed(operation, &error))?;
    if (largest as usize) < rows {
        return Ok(());
    }
    Err(TensorError::new(operation, format!("id {largest} is beyond the {rows} rows"))
        .shapes([shape])
        .hint("ids count from 0 and stay below the row count"))
}
