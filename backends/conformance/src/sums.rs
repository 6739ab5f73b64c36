//! Gradients that are accumulated into a sum as they are computed.

use assay_tensor::{DType, Device, Gradients, Tensor};

use crate::cases::{self, Case};
use crate::compare::{check_close, check_identical};
use crate::report::Report;

/// The gradients of every case, added to themselves, are twice as large, to `tolerance`; what other handles hold of the
/// sums does not change.
pub fn check_sums(device: &Device, float: DType, tolerance: f64) -> Report {
    let mut report = Report::default();
    for case in cases::small().into_iter().filter(|case| case.differentiable && case.size() > 0) {
        report.run(&case.name, || check_doubled(&case, device, float, tolerance));
    }
    report
}

fn error_text(error: assay_tensor::TensorError) -> String {
    error.to_string()
}

fn check_doubled(case: &Case, device: &Device, float: DType, tolerance: f64) -> Result<(), String> {
    let operands = case.to_device(device, float, &case.operand_values()).map_err(error_text)?;
    let gradients = |sums: Gradients| -> Result<Gradients, String> {
        let objective = case.weighted_sum(&case.apply(&operands).map_err(error_text)?).map_err(error_text)?;
        objective.ok_or("the case has no value")?.backward_onto(sums).map_err(error_text)
    };
    let of = |gradients: &Gradients, operand: &Tensor| {
        gradients.get(operand).cloned().ok_or_else(|| "an operand got no gradient".to_owned())
    };
    let once = gradients(Gradients::default())?;
    let free = gradients(gradients(Gradients::default())?)?;
    // Here each sum has another handle, so that none may be changed.
    let held = gradients(once.clone())?;
    let again = gradients(Gradients::default())?;
    for (i, operand) in case.variables(&operands) {
        let expected = of(&once, operand)?.scale(2.0).map_err(error_text)?;
        check_close(&format!("the sum of operand {i}"), &of(&free, operand)?, &expected, tolerance * case.slack)?;
        check_close(&format!("the held sum of operand {i}"), &of(&held, operand)?, &expected, tolerance * case.slack)?;
        check_identical(&format!("what was held of operand {i}"), &of(&once, operand)?, &of(&again, operand)?)?;
    }
    Ok(())
}
