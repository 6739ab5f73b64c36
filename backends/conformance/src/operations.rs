//! Operations that are values, which any crate may declare: the kernels of a backend against the definition, and the definition
//! against the reference's plain loops.

use std::collections::BTreeSet;

use assay_tensor::{DType, Device, Example, ExampleSize, FusedOp};

use crate::cases::Case;
use crate::cases::operations::{case_of, cases_of};
use crate::compare::{check_close, check_identical};
use crate::composed::composed_device;
use crate::gradients;
use crate::report::Report;
use crate::suite::{Tolerance, run_case};

/// All examples of `operations` on the first of `devices`, which compute in `float`, against the reference backend in f64, and on the
/// others, which must give the same bits. The definitions and the gradient rules are checked too: on primitives alone, and against
/// central differences.
pub fn check_operations(
    devices: &[Device],
    float: DType,
    tolerance: Tolerance,
    operations: &[&'static FusedOp],
) -> Report {
    let (mut report, mut reached) = (Report::default(), BTreeSet::new());
    let (oracle, composed) = (assay_reference::device(), composed_device());
    for &op in operations {
        let small = cases_of(op, ExampleSize::Small);
        report.run(&format!("the examples of {}", op.name), || match small.is_empty() {
            true => Err("it has none".into()),
            false => Ok(()),
        });
        for case in &small {
            report.run(&format!("{}, as it is defined", case.name), || {
                check_against(case, (&composed, DType::F64), &oracle, Tolerance::F64)
            });
            if case.differentiable {
                report.run(&format!("{}, its slope", case.name), || gradients::check_case(case, &oracle, &mut reached));
            }
        }
        for size in [ExampleSize::Small, ExampleSize::Medium, ExampleSize::Large] {
            for case in cases_of(op, size) {
                report.run(&case.name, || check_on_devices(&case, devices, float, tolerance));
            }
        }
    }
    report
}

/// [`check_operations`] for further examples of one operation, without its definition and its gradient rule.
pub fn check_examples(
    devices: &[Device],
    float: DType,
    tolerance: Tolerance,
    op: &'static FusedOp,
    examples: impl IntoIterator<Item = Example>,
) -> Report {
    let mut report = Report::default();
    for example in examples {
        let case = case_of(op, example);
        report.run(&case.name, || check_on_devices(&case, devices, float, tolerance));
    }
    report
}

fn check_on_devices(case: &Case, devices: &[Device], float: DType, tolerance: Tolerance) -> Result<(), String> {
    let Some((first, others)) = devices.split_first() else { return Ok(()) };
    check_against(case, (first, float), &assay_reference::device(), tolerance)?;
    let found = run_case(case, first, float)?;
    for other in others {
        let again = run_case(case, other, float)?;
        let what = format!("on {} threads", other.info().threads);
        for (i, (a, b)) in again.values.iter().zip(&found.values).enumerate() {
            check_identical(&format!("value {i} {what}"), a, b)?;
        }
        for (i, (a, b)) in again.gradients.iter().zip(&found.gradients).enumerate() {
            check_identical(&format!("gradient {i} {what}"), a, b)?;
        }
    }
    Ok(())
}

/// Values and gradients on a device that computes in `float`, against an oracle in f64.
fn check_against(
    case: &Case,
    (device, float): (&Device, DType),
    oracle: &Device,
    tolerance: Tolerance,
) -> Result<(), String> {
    let (found, expected) = (run_case(case, device, float)?, run_case(case, oracle, DType::F64)?);
    if found.values.len() != expected.values.len() {
        return Err(format!("it gave {} values, not {}", found.values.len(), expected.values.len()));
    }
    for (i, (a, b)) in found.values.iter().zip(&expected.values).enumerate() {
        check_close(&format!("value {i}"), a, b, tolerance.value)?;
    }
    for (i, (a, b)) in found.gradients.iter().zip(&expected.gradients).enumerate() {
        check_close(&format!("gradient {i}"), a, b, tolerance.gradient)?;
    }
    Ok(())
}
