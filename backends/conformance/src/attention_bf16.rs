//! Attention of bf16 queries, keys and values, which a device may multiply as such: against the oracle, to the precision of
//! bf16, and the same bits twice.

use assay_tensor::{AttentionKind, DType, Device};

use crate::cases::fused::attention;
use crate::compare::{check_close, check_identical};
use crate::report::Report;
use crate::storage::{ValuesAndGradients, run_case};

/// How far values and gradients may be from the oracle's, in the terms of [`check_close`]. A weight of the softmax that is rounded
/// to bf16 is off by 2^-9 of itself at most, and so is what it weighs; a gradient also has the rounding of the result's
/// gradient and of that of the scores in it, and adds over rows.
pub(crate) const VALUE: f64 = 1.0 / 256.0;
pub(crate) const GRADIENT: f64 = 1.0 / 64.0;

/// Extents B, H, Tq, Tk and width: widths of every kind, tails behind tiles of 16, 64 and 128 rows, fewer queries than keys,
/// nothing at all, and heads that are wider than fast kernels take.
const SIZES: [[usize; 5]; 11] = [
    [1, 1, 1, 1, 1],
    [2, 2, 3, 5, 4],
    [1, 2, 16, 16, 16],
    [1, 2, 70, 130, 17],
    [1, 1, 65, 65, 70],
    [1, 1, 130, 131, 32],
    [1, 1, 3, 66, 128],
    [1, 1, 40, 40, 100],
    [1, 1, 64, 64, 64],
    [1, 1, 0, 2, 3],
    [1, 1, 2, 5, 130],
];

/// Values and gradients of attention whose operands are bf16, on a device that computes in f32 at least.
pub fn check_attention_bf16(device: &Device) -> Report {
    let mut report = Report::default();
    for sizes in SIZES {
        for causal in [false, true] {
            let case = attention(sizes, causal, AttentionKind::Flash);
            report.run(&format!("bf16 {}", case.name), || {
                let values = case.rounded_values();
                let on = |device: &Device, float, bf16: bool| {
                    run_case(&case, device, float, &values, |_| bf16).map_err(|error| error.to_string())
                };
                let found = on(device, DType::F32, true)?;
                let expected = on(&assay_reference::device(), DType::F64, false)?;
                compare_attention(&found, &expected, |gradient, what, a, b| {
                    check_close(what, a, b, if gradient { GRADIENT } else { VALUE })
                })?;
                compare_attention(&found, &on(device, DType::F32, true)?, |_, what, a, b| check_identical(what, a, b))
            });
        }
    }
    report
}

/// Compares value by value and gradient by gradient; the first argument says whether it is one.
fn compare_attention(
    (values, gradients): &ValuesAndGradients,
    (expected, expected_gradients): &ValuesAndGradients,
    agree: impl Fn(bool, &str, &assay_tensor::Tensor, &assay_tensor::Tensor) -> Result<(), String>,
) -> Result<(), String> {
    for (a, b) in values.iter().zip(expected) {
        agree(false, "the value", a, b)?;
    }
    for (i, (a, b)) in gradients.iter().zip(expected_gradients).enumerate() {
        let (Some(a), Some(b)) = (a, b) else { return Err(format!("operand {i} got no gradient")) };
        if a.dtype() != DType::F32 {
            return Err(format!("the gradient of operand {i} is {}, not f32", a.dtype()));
        }
        agree(true, &format!("the gradient of operand {i}"), a, b)?;
    }
    Ok(())
}
