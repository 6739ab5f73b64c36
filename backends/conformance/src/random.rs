//! Random cases on several devices: what [`crate::check`] and [`crate::check_same_bits`] see on shapes that were chosen by hand.

use assay_tensor::{DType, Device};

use crate::cases::random::random_case;
use crate::compare::{check_close, check_identical};
use crate::report::Report;
use crate::suite::{Tolerance, run_case};

/// The cases of seeds from `first` on, while `more` says so: each on the first of `devices` against the reference backend in f64,
/// and on the others, which must give the same bits. A failure names the seed of its case.
pub fn check_random(
    devices: &[Device],
    float: DType,
    tolerance: Tolerance,
    first: u64,
    mut more: impl FnMut(u64) -> bool,
) -> Report {
    let oracle = assay_reference::device();
    let mut report = Report::default();
    for seed in (first..).take_while(|seed| more(*seed - first)) {
        let case = random_case(seed);
        report.run(&format!("seed {seed}: {}", case.name), || {
            let Some((one, others)) = devices.split_first() else { return Ok(()) };
            let (found, expected) = (run_case(&case, one, float)?, run_case(&case, &oracle, DType::F64)?);
            let tolerance = if case.f32_only { Tolerance::F32 } else { tolerance };
            for (i, (a, b)) in found.values.iter().zip(&expected.values).enumerate() {
                check_close(&format!("value {i}"), a, b, tolerance.value * case.slack)?;
            }
            for (i, (a, b)) in found.gradients.iter().zip(&expected.gradients).enumerate() {
                check_close(&format!("gradient of operand {i}"), a, b, tolerance.gradient * case.slack)?;
            }
            for other in others {
                let again = run_case(&case, other, float)?;
                let what = format!("on {} threads", other.info().threads);
                for (i, (a, b)) in found.values.iter().zip(&again.values).enumerate() {
                    check_identical(&format!("value {i} {what}"), b, a)?;
                }
                for (i, (a, b)) in found.gradients.iter().zip(&again.gradients).enumerate() {
                    check_identical(&format!("gradient of operand {i} {what}"), b, a)?;
                }
            }
            Ok(())
        });
    }
    report
}
