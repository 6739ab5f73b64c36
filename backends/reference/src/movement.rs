//! Movement of elements of any type.

use assay_tensor::{Array, HostData, Result, Shape, TensorError};

use crate::store::{host_data, ids_of, store_values, values_of, wrap_data};

/// The elements of `x` at `places`.
fn collect_elements(x: &HostData, places: impl Iterator<Item = usize>) -> HostData {
    match x {
        HostData::F32(v) => HostData::F32(places.map(|i| v[i]).collect()),
        HostData::F64(v) => HostData::F64(places.map(|i| v[i]).collect()),
        HostData::Bf16(v) => HostData::Bf16(places.map(|i| v[i]).collect()),
        HostData::U32(v) => HostData::U32(places.map(|i| v[i]).collect()),
        HostData::I8(v) => HostData::I8(places.map(|i| v[i]).collect()),
    }
}

/// For each index of `shape` in order, `start` + index . strides.
fn walk_indices(shape: &Shape, strides: Vec<usize>, start: usize) -> impl Iterator<Item = usize> + use<> {
    let extents = shape.dims().to_vec();
    (0..shape.numel()).map(move |mut flat| {
        let mut place = start;
        for axis in (0..extents.len()).rev() {
            place += flat % extents[axis] * strides[axis];
            flat /= extents[axis];
        }
        place
    })
}

pub(crate) fn permute(x: &Array, axes: &[usize]) -> Result<Array> {
    let strides = x.shape.strides();
    let shape = Shape::from(axes.iter().map(|&axis| x.dims()[axis]).collect::<Vec<_>>());
    let strides = axes.iter().map(|&axis| strides[axis]).collect();
    Ok(wrap_data(collect_elements(host_data(x)?, walk_indices(&shape, strides, 0)), &shape))
}

pub(crate) fn slice(x: &Array, axis: usize, start: usize, length: usize) -> Result<Array> {
    let strides = x.shape.strides();
    let shape = x.shape.with(axis, length);
    let first = start * strides[axis];
    Ok(wrap_data(collect_elements(host_data(x)?, walk_indices(&shape, strides, first)), &shape))
}

pub(crate) fn concat(xs: &[&Array], axis: usize) -> Result<Array> {
    let first = xs.first().ok_or_else(|| TensorError::new("concat", "there are no arrays to join"))?;
    let all = xs.iter().map(|x| values_of(x)).collect::<Result<Vec<_>>>()?;
    let outer: usize = first.dims()[..axis].iter().product();
    let mut out = Vec::new();
    for row in 0..outer {
        for (x, v) in xs.iter().zip(&all) {
            let run: usize = x.dims()[axis..].iter().product();
            out.extend_from_slice(&v[row * run..][..run]);
        }
    }
    let extent = xs.iter().map(|x| x.dims()[axis]).sum();
    // Every type passes through f64 unchanged.
    Ok(store_values(&out, first.shape.with(axis, extent), first.dtype))
}

pub(crate) fn gather_rows(table: &Array, wanted: &Array) -> Result<Array> {
    let (rows, width) = (table.dims()[0], table.dims()[1]);
    let v = values_of(table)?;
    let mut out = Vec::with_capacity(wanted.numel() * width);
    for &id in ids_of(wanted)? {
        let id = check_ids("rows", id, rows)?;
        out.extend_from_slice(&v[id * width..][..width]);
    }
    let mut dims = wanted.dims().to_vec();
    dims.push(width);
    Ok(store_values(&out, dims, table.dtype))
}

pub(crate) fn scatter_add_rows(x: &Array, targets: &Array, rows: usize) -> Result<Array> {
    let width = x.shape.last();
    let v = values_of(x)?;
    let mut out = vec![0.0; rows * width];
    for (from, &id) in ids_of(targets)?.iter().enumerate() {
        let id = check_ids("scatter_add_rows", id, rows)?;
        for i in 0..width {
            out[id * width + i] += v[from * width + i];
        }
    }
    Ok(store_values(&out, [rows, width], x.dtype))
}

fn check_ids(operation: &'static str, id: u32, rows: usize) -> Result<usize> {
    match id as usize {
        id if id < rows => Ok(id),
        id => Err(TensorError::new(operation, format!("id {id} is beyond the table's {rows} rows"))),
    }
}
