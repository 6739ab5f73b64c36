//! The types of element that a tensor can hold, and host data of each of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32-bit floating point: what models compute in.
    F32,
    /// 64-bit floating point: what the oracle computes in.
    F64,
    /// 32-bit unsigned integers: token ids and class labels.
    U32,
    /// 8-bit signed integers: quantized weights.
    I8,
}

impl DType {
    /// Every type, in order of declaration.
    pub const ALL: [DType; 4] = [DType::F32, DType::F64, DType::U32, DType::I8];

    /// The size of one element in bytes.
    pub fn size(self) -> usize {
        match self {
            DType::F32 | DType::U32 => 4,
            DType::F64 => 8,
            DType::I8 => 1,
        }
    }

    /// Whether arithmetic and gradients are defined on it.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64)
    }

    /// The name as it is written in files and messages: `f32`, `f64`, `u32`, `i8`.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::U32 => "u32",
            DType::I8 => "i8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Elements in host memory, row-major: what goes into a device and what comes back.
#[derive(Debug, Clone, PartialEq)]
pub enum HostData {
    /// Elements of [`DType::F32`].
    F32(Vec<f32>),
    /// Elements of [`DType::F64`].
    F64(Vec<f64>),
    /// Elements of [`DType::U32`].
    U32(Vec<u32>),
    /// Elements of [`DType::I8`].
    I8(Vec<i8>),
}

impl HostData {
    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        match self {
            HostData::F32(_) => DType::F32,
            HostData::F64(_) => DType::F64,
            HostData::U32(_) => DType::U32,
            HostData::I8(_) => DType::I8,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            HostData::F32(v) => v.len(),
            HostData::F64(v) => v.len(),
            HostData::U32(v) => v.len(),
            HostData::I8(v) => v.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every element as f64, which holds each of the types exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        match self {
            HostData::F32(v) => v.iter().map(|&x| f64::from(x)).collect(),
            HostData::F64(v) => v.clone(),
            HostData::U32(v) => v.iter().map(|&x| f64::from(x)).collect(),
            HostData::I8(v) => v.iter().map(|&x| f64::from(x)).collect(),
        }
    }

    /// The conversion to `dtype`: floats are rounded to nearest; to integers they are truncated towards zero and
    /// saturate at the type's limits (NaN becomes 0), as Rust's `as` does.
    pub fn from_f64(values: &[f64], dtype: DType) -> HostData {
        match dtype {
            DType::F32 => HostData::F32(values.iter().map(|&x| x as f32).collect()),
            DType::F64 => HostData::F64(values.to_vec()),
            DType::U32 => HostData::U32(values.iter().map(|&x| x as u32).collect()),
            DType::I8 => HostData::I8(values.iter().map(|&x| x as i8).collect()),
        }
    }
}
