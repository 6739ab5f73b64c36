//! Conversion between the types of elements, by the rules of [`assay_tensor::HostData::from_f64`].

use assay_tensor::bf16;
use candle_core::CpuStorage;

use crate::bf16::{narrow, widen};
use crate::parallel::Threads;

/// Writes the elements of `x` to `y` in the type of `y`; none where one of the types is not this backend's.
///
/// Integers are saturated as if they passed through f64, which `as` between integers would not do.
pub(crate) fn convert(threads: &Threads, x: &CpuStorage, y: &mut CpuStorage) -> Option<()> {
    match (x, y) {
        (CpuStorage::F32(x), CpuStorage::F32(y)) => y.copy_from_slice(x),
        (CpuStorage::F32(x), CpuStorage::BF16(y)) => narrow(threads, x, y),
        (CpuStorage::F32(x), CpuStorage::U32(y)) => each(x, y, |x| x as u32),
        (CpuStorage::F32(x), CpuStorage::U8(y)) => each(x, y, |x| x as i8 as u8),
        (CpuStorage::BF16(x), CpuStorage::F32(y)) => widen(threads, x, y),
        (CpuStorage::BF16(x), CpuStorage::BF16(y)) => y.copy_from_slice(x),
        (CpuStorage::BF16(x), CpuStorage::U32(y)) => each(x, y, |x| x.to_f32() as u32),
        (CpuStorage::BF16(x), CpuStorage::U8(y)) => each(x, y, |x| x.to_f32() as i8 as u8),
        (CpuStorage::U32(x), CpuStorage::BF16(y)) => each(x, y, |x| bf16::from_f32(x as f32)),
        (CpuStorage::U32(x), CpuStorage::F32(y)) => each(x, y, |x| x as f32),
        (CpuStorage::U32(x), CpuStorage::U32(y)) => y.copy_from_slice(x),
        (CpuStorage::U32(x), CpuStorage::U8(y)) => each(x, y, |x| x.min(127) as u8),
        (CpuStorage::U8(x), CpuStorage::BF16(y)) => each(x, y, |x| bf16::from_f32(f32::from(x as i8))),
        (CpuStorage::U8(x), CpuStorage::F32(y)) => each(x, y, |x| f32::from(x as i8)),
        (CpuStorage::U8(x), CpuStorage::U32(y)) => each(x, y, |x| (x as i8).max(0) as u32),
        (CpuStorage::U8(x), CpuStorage::U8(y)) => y.copy_from_slice(x),
        _ => return None,
    }
    Some(())
}

fn each<A: Copy, B>(x: &[A], y: &mut [B], as_type: impl Fn(A) -> B) {
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
            HostData::F32(v) => Some(CpuStorage::F32(v)),
            HostData::Bf16(v) => Some(CpuStorage::BF16(v)),
            HostData::U32(v) => Some(CpuStorage::U32(v)),
            HostData::I8(v) => Some(CpuStorage::U8(v.into_iter().map(|x| x as u8).collect())),
            HostData::F64(_) => None,
        };
        for from in DType::ALL {
            for to in DType::ALL {
                let source = HostData::from_f64(&numbers, from);
                let expected = HostData::from_f64(&source.to_f64(), to);
                if let (Some(x), Some(mut y), Some(expected)) =
                    (held(source), held(HostData::from_f64(&[0.0; 10], to)), held(expected))
                {
                    assert!(convert(&threads, &x, &mut y).is_some());
                    assert_eq!(format!("{y:?}"), format!("{expected:?}"), "{from} to {to}");
                }
            }
        }
    }
}
