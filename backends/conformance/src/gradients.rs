//! Central differences: every gradient rule against the slope of what it is the gradient of.

use std::collections::BTreeSet;

use assay_tensor::{DType, Device, operation_names};

use crate::cases::{self, Case};
use crate::compare::host_values;
use crate::report::Report;

/// How far a gradient may be from the difference quotient, relative to 1 or its own magnitude.
const TOLERANCE: f64 = 1e-6;

/// Every case's gradients against central differences, on a device that computes in f64. An operation of the table
/// that no case records on the tape is a failure.
pub fn check_gradients(device: &Device) -> Report {
    let mut report = Report::default();
    let mut reached = BTreeSet::new();
    for case in cases::small().into_iter().filter(|case| case.differentiable) {
        report.run(&case.name, || check_case(&case, device, &mut reached));
    }
    for name in operation_names() {
        report.run(&format!("the case of {name}"), || match reached.contains(name) {
            true => Ok(()),
            false => Err("no case has it; add one to the suite".into()),
        });
    }
    report
}

pub(crate) fn check_case(case: &Case, device: &Device, reached: &mut BTreeSet<&'static str>) -> Result<(), String> {
    let text = |error: assay_tensor::TensorError| error.to_string();
    let mut at = case.operand_values();
    let operands = case.to_device(device, DType::F64, &at).map_err(text)?;
    let outputs = case.apply(&operands).map_err(text)?;
    if case.size() > 0 {
        reached.extend(outputs.iter().filter_map(|y| y.operation()));
    }
    let objective = |at: &[Vec<f64>]| -> Result<f64, String> {
        let outputs = case.apply(&case.to_device(device, DType::F64, at).map_err(text)?).map_err(text)?;
        case.weighted_sum(&outputs).map_err(text)?.ok_or("the case has no value")?.item().map_err(text)
    };
    let scalar = case.weighted_sum(&outputs).map_err(text)?.ok_or("the case has no value")?;
    let gradients = scalar.backward().map_err(text)?;
    for (i, operand) in case.variables(&operands) {
        let found = host_values(gradients.get(operand).ok_or_else(|| format!("operand {i} got no gradient"))?)?;
        for (j, found) in found.into_iter().enumerate() {
            let here = at[i][j];
            let mut value = |x: f64| {
                at[i][j] = x;
                objective(&at)
            };
            let (above, below) = (value(here + case.step)?, value(here - case.step)?);
            at[i][j] = here;
            let slope = (above - below) / (2.0 * case.step);
            // Written so that NaN fails.
            let right = (found - slope).abs() <= TOLERANCE * case.slack * slope.abs().max(1.0);
            if !right {
                return Err(format!("operand {i}, element {j}: {found}, where the slope is {slope}"));
            }
        }
    }
    Ok(())
}
