//! bf16 as storage: an operation on bf16 gives what it gives for the same values in f32, and so do its gradients.
//!
//! The rules for f32 are checked against central differences; this carries them over to bf16, whose rounding is a
//! staircase that differences cannot climb.

use assay_tensor::{AdamW, DType, Device, HostData, Result as TensorResult, Tensor, adamw};

use crate::attention_bf16::GRADIENT;
use crate::cases::{self, Case};
use crate::compare::{check_close, check_identical};
use crate::operands::Numbers;
use crate::report::Report;

fn error_text(error: assay_tensor::TensorError) -> String {
    error.to_string()
}

/// Every case on a device that computes in f32 and holds bf16: with all its operands as bf16, and with each other one.
/// Also the rounding itself, and what is refused.
pub fn check_storage(device: &Device) -> Report {
    let mut report = Report::default();
    report.run("rounding to bf16 and back", || check_rounding(device));
    report.run("what bf16 is not for", || check_storage_refusals(device));
    // Quantized layers take f32 alone.
    for case in cases::small().into_iter().filter(|case| !case.f32_only) {
        report.run(&case.name, || check_same(&case, device));
    }
    report
}

/// The values, and the gradient of each operand.
pub(crate) type ValuesAndGradients = (Vec<Tensor>, Vec<Option<Tensor>>);

/// Values and gradients with operands of type `float`, and those as bf16 that are `narrow`.
pub(crate) fn run_case(
    case: &Case,
    device: &Device,
    float: DType,
    values: &[Vec<f64>],
    narrow: impl Fn(usize) -> bool,
) -> TensorResult<ValuesAndGradients> {
    let mut operands = case.to_device(device, float, values)?;
    for (i, operand) in operands.iter_mut().enumerate().filter(|(i, operand)| narrow(*i) && operand.dtype().is_float())
    {
        let held = Tensor::from_host(device, HostData::from_f64(&values[i], DType::Bf16), operand.shape())?;
        *operand = if operand.is_tracked() { held.variable() } else { held };
    }
    let outputs = case.apply(&operands)?;
    let objective = if case.differentiable { case.weighted_sum(&outputs)? } else { None };
    let gradients = match objective {
        None => Vec::new(),
        Some(objective) => {
            let found = objective.backward()?;
            case.variables(&operands).map(|(_, operand)| found.get(operand).cloned()).collect()
        }
    };
    Ok((outputs, gradients))
}

/// How far linear layers of bf16 may be from those of the same values in f32: each adds in f32, in an order of its own where
/// the device multiplies bf16 by itself.
const LINEAR: f64 = 1e-5;

/// How far gradients of theirs may be where the device multiplies bf16: these are rounded to it for its products.
const ROUNDED: f64 = 1e-2;

/// The same bits, but for linear layers: there to `linear`. Attention too may multiply bf16 by itself, where `all` three
/// operands are: its gradient is within `GRADIENT` of the oracle's.
fn check_agreement(
    case: &Case,
    all: bool,
    linear: f64,
    what: &str,
    found: &Tensor,
    expected: &Tensor,
) -> Result<(), String> {
    if case.name.starts_with("linear") || case.name.starts_with("feed_forward") {
        check_close(what, found, expected, linear)
    } else if all && case.name.contains("attention") {
        check_close(what, found, expected, GRADIENT)
    } else {
        check_identical(what, found, expected)
    }
}

fn check_same(case: &Case, device: &Device) -> Result<(), String> {
    let values = case.rounded_values();
    let wide = run_case(case, device, DType::F32, &values, |_| false).map_err(error_text)?;
    let gradient = if device.kernels().capabilities().multiplies_bf16 { ROUNDED } else { LINEAR };
    for (what, narrow) in [("all", 1), ("every other one", 2)] {
        let found = run_case(case, device, DType::F32, &values, |i| i % narrow == 0).map_err(error_text)?;
        for (i, (a, b)) in found.0.iter().zip(&wide.0).enumerate() {
            check_agreement(case, narrow == 1, LINEAR, &format!("value {i} with {what} bf16"), a, b)?;
        }
        for (i, (a, b)) in found.1.iter().zip(&wide.1).enumerate() {
            let (Some(a), Some(b)) = (a, b) else { return Err(format!("operand {i} got no gradient")) };
            if a.dtype() != DType::F32 {
                return Err(format!("the gradient of operand {i} is {}, not f32", a.dtype()));
            }
            check_agreement(case, narrow == 1, gradient, &format!("gradient {i} with {what} bf16"), a, b)?;
        }
    }
    Ok(())
}

/// Ties, overflow, NaN and ordinary numbers, rounded and widened again.
fn check_rounding(device: &Device) -> Result<(), String> {
    let unit = 2f64.powi(-8);
    let mut values = vec![1.0 + unit, 1.0 + 3.0 * unit, -1.0 - unit, 0.0, 3.4e38, -3.4e38, f64::INFINITY, f64::NAN];
    values.extend(Numbers::new(3).numbers_between(-9.0, 9.0, 1000));
    let x = Tensor::from_host(device, HostData::from_f64(&values, DType::F32), values.len()).map_err(error_text)?;
    let narrow = x.cast(DType::Bf16).map_err(error_text)?;
    let expected = HostData::from_f64(&values, DType::Bf16);
    let expected = Tensor::from_host(device, expected, values.len()).map_err(error_text)?;
    check_identical("what was rounded", &narrow, &expected)?;
    check_identical("what was widened again", &narrow.cast(DType::F32).map_err(error_text)?, &expected)?;
    let full = Tensor::full(device, 2, DType::Bf16, 1.0 + unit).map_err(error_text)?;
    check_identical("a constant", &full, &Tensor::full(device, 2, DType::F32, 1.0).map_err(error_text)?)
}

fn check_storage_refusals(device: &Device) -> Result<(), String> {
    let of = |dtype: DType| Tensor::full(device, [2, 2], dtype, 0.5).map_err(error_text);
    let (narrow, wide) = (of(DType::Bf16)?, of(DType::F32)?);
    let args = AdamW { step: 1, lr: 0.1, betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.0, grad_scale: 1.0 };
    let update = adamw(&mut narrow.clone(), &wide, &mut wide.clone(), &mut wide.clone(), args);
    let scale = Tensor::full(device, 2, DType::F32, 0.5).map_err(error_text)?;
    let refused =
        [update, narrow.linear_int8(&of(DType::I8)?, &scale).map(drop), narrow.add(&of(DType::U32)?).map(drop)];
    match refused.iter().position(Result::is_ok) {
        Some(i) => Err(format!("call {i} was accepted")),
        None => Ok(()),
    }
}
