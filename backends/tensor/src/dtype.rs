//! The types of element that a tensor can hold, and host data of each of them.

use std::fmt;

use half::bf16;
use serde::{Deserialize, Serialize};

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32-bit floating point: what models compute in.
    F32,
    /// 64-bit floating point: what the oracle computes in.
    F64,
    /// The upper half of an f32, 8 bits of precision: storage. Whatever is computed from it is computed in f32, but that a
    /// device may multiply it as it is, where products are added in f32: see [`crate::Tensor::linear`] and
    /// [`crate::Tensor::attention`].
    Bf16,
    /// 32-bit unsigned integers: token ids and class labels.
    U32,
    /// 8-bit signed integers: quantized weights.
    I8,
}

impl DType {
    /// Every type, in order of declaration.
    pub const ALL: [DType; 5] = [DType::F32, DType::F64, DType::Bf16, DType::U32, DType::I8];

    /// The size of one element in bytes.
    pub fn size(self) -> usize {
        match self {
            DType::F32 | DType::U32 => 4,
            DType::F64 => 8,
            DType::Bf16 => 2,
            DType::I8 => 1,
        }
    }

    /// Whether arithmetic and gradients are defined on it.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::Bf16)
    }

    /// The type that it is computed in, which is also that of its gradients: f32 for bf16, itself otherwise.
    pub fn wide(self) -> DType {
        if self == DType::Bf16 { DType::F32 } else { self }
    }

    /// The name as it is written in files and messages: `f32`, `f64`, `bf16`, `u32`, `i8`.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::Bf16 => "bf16",
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
    /// Elements of [`DType::Bf16`].
    Bf16(Vec<bf16>),
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
            HostData::Bf16(_) => DType::Bf16,
            HostData::U32(_) => DType::U32,
            HostData::I8(_) => DType::I8,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            HostData::F32(v) => v.len(),
            HostData::F64(v) => v.len(),
            HostData::Bf16(v) => v.len(),
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
            HostData::Bf16(v) => v.iter().map(|x| x.to_f64()).collect(),
            HostData::U32(v) => v.iter().map(|&x| f64::from(x)).collect(),
            HostData::I8(v) => v.iter().map(|&x| f64::from(x)).collect(),
        }
    }

    /// The conversion to `dtype`: floats are rounded to nearest, ties to even; to integers they are truncated towards zero
    /// and saturate at the type's limits (NaN becomes 0), as Rust's `as` does. On its way to bf16 a value is rounded to f32
    /// first, so that it becomes there what its f32 form becomes. NaN stays NaN.
    pub fn from_f64(values: &[f64], dtype: DType) -> HostData {
        match dtype {
            DType::F32 => HostData::F32(values.iter().map(|&x| x as f32).collect()),
            DType::F64 => HostData::F64(values.to_vec()),
            DType::Bf16 => HostData::Bf16(values.iter().map(|&x| bf16::from_f32(x as f32)).collect()),
            DType::U32 => HostData::U32(values.iter().map(|&x| x as u32).collect()),
            DType::I8 => HostData::I8(values.iter().map(|&x| x as i8).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 + 2^-8 lies half way between two neighbours, of which 1 is the even one; 1 + 3 2^-8 rounds up for the same reason.
    #[test]
    fn bf16_rounds_to_nearest_with_ties_to_even_and_keeps_nan() {
        let unit = 2f64.powi(-8);
        let values = [1.0, 1.0 + unit, 1.0 + 3.0 * unit, 1.0 + 1.01 * unit, -2.0, 3.4e38, f64::NAN, -0.0, 1e-40];
        let HostData::Bf16(found) = HostData::from_f64(&values, DType::Bf16) else { panic!("it is bf16") };
        let wide: Vec<f64> = found.iter().map(|x| x.to_f64()).collect();
        assert_eq!(wide[..5], [1.0, 1.0, 1.0 + 4.0 * unit, 1.0 + 2.0 * unit, -2.0]);
        assert!(wide[5].is_infinite() && wide[6].is_nan() && wide[7].to_bits() == (-0.0f64).to_bits());
        assert!(wide[8] > 0.0, "the range is that of f32, denormals included");
    }
}
