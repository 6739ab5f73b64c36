//! Conversion between the types of elements, by the rules of [`assay_tensor::HostData::from_f64`].

use assay_tensor::bf16;

use crate::memory::storage::Elements;
use crate::ops::bf16::{narrow_to_bf16, widen_bf16};
use crate::threads::split::Threads;

/// Writes the elements of `x` to `y` in the type of `y`.
///
/// Integers are saturated as if they passed through f64, which `as` between integers would not do.
pub(crate) fn convert_elements(threads: &Threads, x: &Elements, y: &mut Elements) {
    match (x, y) {
        (Elements::F32(x), Elements::F32(y)) => y.copy_from_slice(x),
        (Elements::F32(x), Elements::Bf16(y)) => narrow_to_bf16(threads, x, y),
        (Elements::F32(x), Elements::U32(y)) => convert_each(x, y, |x| x as u32),
        (Elements::F32(x), Elements::I8(y)) => convert_each(x, y, |x| x as i8 as u8),
        (Elements::Bf16(x), Elements::F32(y)) => widen_bf16(threads, x, y),
        (Elements::Bf16(x), Elements::Bf16(y)) => y.copy_from_slice(x),
        (Elements::Bf16(x), Elements::U32(y)) => convert_each(x, y, |x| x.to_f32() as u32),
        (Elements::Bf16(x), Elements::I8(y)) => convert_each(x, y, |x| x.to_f32() as i8 as u8),
        (Elements::U32(x), Elements::Bf16(y)) => convert_each(x, y, |x| bf16::from_f32(x as f32)),
        (Elements::U32(x), Elements::F32(y)) => convert_each(x, y, |x| x as f32),
        (Elements::U32(x), Elements::U32(y)) => y.copy_from_slice(x),
        (Elements::U32(x), Elements::I8(y)) => convert_each(x, y, |x| x.min(127) as u8),
        (Elements::I8(x), Elements::Bf16(y)) => convert_each(x, y, |x| bf16::from_f32(f32::from(x as i8))),
        (Elements::I8(x), Elements::F32(y)) => convert_each(x, y, |x| f32::from(x as i8)),
        (Elements::I8(x), Elements::U32(y)) => convert_each(x, y, |x| (x as i8).max(0) as u32),
        (Elements::I8(x), Elements::I8(y)) => y.copy_from_slice(x),
    }
}

fn convert_each<A: Copy, B>(x: &[A], y: &mut [B], as_type: impl Fn(A) -> B) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = as_type(*x);
    }
}

#[cfg(test)]
mod tests {
    use assay_tensor::{DType, HostData};

    use super::*;

    #[test]
    fn conversions_follow_the_rules_of_host_data() {
        let numbers = [0.0, -0.6, 1.9, -3.0, 126.4, 128.0, 3e9, -129.0, f64::NAN, f64::INFINITY];
        let threads = Threads::new(2).unwrap();
        let held = |data: HostData| match data {
            HostData::F32(v) => Some(Elements::F32(v.into())),
            HostData::Bf16(v) => Some(Elements::Bf16(v)),
            HostData::U32(v) => Some(Elements::U32(v)),
            HostData::I8(v) => Some(Elements::I8(v.into_iter().map(|x| x as u8).collect())),
            HostData::F64(_) => None,
        };
        for from in DType::ALL {
            for to in DType::ALL {
                let source = HostData::from_f64(&numbers, from);
                let expected = HostData::from_f64(&source.to_f64(), to);
                if let (Some(x), Some(mut y), Some(expected)) =
                    (held(source), held(HostData::from_f64(&[0.0; 10], to)), held(expected))
                {
                    convert_elements(&threads, &x, &mut y);
                    assert_eq!(format!("{y:?}"), format!("{expected:?}"), "{from} to {to}");
                }
            }
        }
    }
}
