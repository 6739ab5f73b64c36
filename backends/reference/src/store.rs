//! The elements of an array: host data, read as f64 and rounded when written.

use assay_tensor::{Array, DType, HostData, Result, Shape, TensorError};

/// The array's elements.
pub(crate) fn host_data(x: &Array) -> Result<&HostData> {
    x.buffer.downcast_ref::<HostData>().ok_or_else(|| {
        TensorError::new("reference", "the array belongs to another backend")
            .shapes([&x.shape])
            .hint("move it with to_device()")
    })
}

/// The array's elements as f64, exactly.
pub(crate) fn values_of(x: &Array) -> Result<Vec<f64>> {
    Ok(host_data(x)?.to_f64())
}

/// An array of `values` rounded to `dtype`.
pub(crate) fn store_values(values: &[f64], shape: impl Into<Shape>, dtype: DType) -> Array {
    wrap_data(HostData::from_f64(values, dtype), shape)
}

/// An array of these elements.
pub(crate) fn wrap_data(data: HostData, shape: impl Into<Shape>) -> Array {
    let dtype = data.dtype();
    Array::new(data, shape, dtype)
}

/// Ids, which must be u32.
pub(crate) fn ids_of(x: &Array) -> Result<&[u32]> {
    match host_data(x)? {
        HostData::U32(ids) => Ok(ids),
        other => Err(TensorError::new("reference", format!("ids should be u32, not {}", other.dtype()))),
    }
}
