//! Values and gradients of every case, against the oracle and between devices.

use assay_tensor::{AdamW, DType, Device, Shape, Tensor, Update, adamw, adamw_all, clip};

use crate::cases::{self, Case};
use crate::compare::{check_close, check_identical, host_values};
use crate::operands::{Numbers, to_tensor};
use crate::report::Report;

/// How far a result may be from the oracle's, relative to the largest magnitude in it.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    /// For values.
    pub value: f64,
    /// For gradients.
    pub gradient: f64,
}

impl Tolerance {
    /// For devices that compute in f32.
    pub const F32: Tolerance = Tolerance { value: 2e-5, gradient: 1e-4 };
    /// For devices that compute in f64.
    pub const F64: Tolerance = Tolerance { value: 1e-11, gradient: 1e-10 };
}

/// What came of a case: its values, and the gradient of each operand.
pub(crate) struct CaseResult {
    pub(crate) values: Vec<Tensor>,
    pub(crate) gradients: Vec<Tensor>,
}

fn error_text(error: assay_tensor::TensorError) -> String {
    error.to_string()
}

/// Runs a case on a device, and sees that the operands are unchanged.
pub(crate) fn run_case(case: &Case, device: &Device, float: DType) -> Result<CaseResult, String> {
    let float = if case.f32_only { DType::F32 } else { float };
    let before = case.operand_values();
    let operands = case.to_device(device, float, &before).map_err(error_text)?;
    let outputs = case.apply(&operands).map_err(error_text)?;
    let mut gradients = Vec::new();
    if case.differentiable {
        let objective = case.weighted_sum(&outputs).map_err(error_text)?.ok_or("the case has no value")?;
        let found = objective.backward().map_err(error_text)?;
        for (i, operand) in case.variables(&operands) {
            gradients.push(found.get(operand).cloned().ok_or_else(|| format!("operand {i} got no gradient"))?);
        }
    }
    for (i, (operand, before)) in operands.iter().zip(&before).enumerate() {
        if &host_values(operand)? != before {
            return Err(format!("operand {i} was changed"));
        }
    }
    Ok(CaseResult { values: outputs, gradients })
}

/// Every case on `device`, computing in `float`, against the reference backend in f64.
pub fn check(device: &Device, float: DType, tolerance: Tolerance) -> Report {
    let oracle = assay_reference::device();
    let mut report = Report::default();
    for case in cases::small().into_iter().chain(cases::medium()) {
        report.run(&case.name, || {
            let (found, expected) = (run_case(&case, device, float)?, run_case(&case, &oracle, DType::F64)?);
            let tolerance = if case.f32_only { Tolerance::F32 } else { tolerance };
            for (i, (a, b)) in found.values.iter().zip(&expected.values).enumerate() {
                check_close(&format!("value {i}"), a, b, tolerance.value * case.slack)?;
            }
            for (i, (a, b)) in found.gradients.iter().zip(&expected.gradients).enumerate() {
                check_close(&format!("gradient of operand {i}"), a, b, tolerance.gradient * case.slack)?;
            }
            Ok(())
        });
    }
    report
}

/// Every case, on small shapes and on those that are worth several threads, gives the same bits on both devices.
pub fn check_same_bits(one: &Device, other: &Device, float: DType) -> Report {
    let mut report = Report::default();
    for case in cases::small().into_iter().chain(cases::large()) {
        report.run(&case.name, || {
            let (a, b) = (run_case(&case, one, float)?, run_case(&case, other, float)?);
            for (i, (a, b)) in a.values.iter().zip(&b.values).enumerate() {
                check_identical(&format!("value {i}"), a, b)?;
            }
            for (i, (a, b)) in a.gradients.iter().zip(&b.gradients).enumerate() {
                check_identical(&format!("gradient of operand {i}"), a, b)?;
            }
            Ok(())
        });
    }
    report
}

/// Several updates of AdamW against the oracle, of one parameter and of several whose gradients are clipped; what other
/// handles hold does not change.
pub fn check_adamw(device: &Device, float: DType, tolerance: Tolerance) -> Report {
    let mut report = Report::default();
    for shape in [Shape::from([1]), Shape::from([3, 7]), Shape::from([40, 33]), Shape::from([0])] {
        report.run(&format!("adamw of {shape}"), || {
            let found = train_steps(device, float, &shape)?;
            let expected = train_steps(&assay_reference::device(), DType::F64, &shape)?;
            for (what, (a, b)) in ["parameter", "first moment", "second moment"].iter().zip(found.iter().zip(&expected))
            {
                check_close(what, a, b, tolerance.value)?;
            }
            Ok(())
        });
    }
    check_clip(&mut report, device, float, tolerance);
    report
}

fn train_steps(device: &Device, float: DType, shape: &Shape) -> Result<[Tensor; 3], String> {
    let numbers = |seed: u64| Numbers::new(seed).numbers_between(-1.0, 1.0, shape.numel());
    let mut param = to_tensor(device, float, &numbers(1), shape).map_err(error_text)?.variable();
    let mut m = Tensor::zeros(device, shape, float).map_err(error_text)?;
    let mut v = m.clone();
    let held = [param.clone(), m.clone()];
    let before = [host_values(&held[0])?, host_values(&held[1])?];
    for step in 1..=3 {
        let grad = to_tensor(device, float, &numbers(10 + step), shape).map_err(error_text)?;
        let args = AdamW { step, lr: 0.1, betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.1, grad_scale: 0.5 };
        adamw(&mut param, &grad, &mut m, &mut v, args).map_err(error_text)?;
    }
    if before != [host_values(&held[0])?, host_values(&held[1])?] {
        return Err("another handle on the state was changed".into());
    }
    if !param.is_tracked() {
        return Err("the parameter is no leaf any more".into());
    }
    Ok([param, m, v])
}

/// The norm of several gradients, what clips them, and updates of all their parameters by it, against the oracle.
fn check_clip(report: &mut Report, device: &Device, float: DType, tolerance: Tolerance) {
    for (name, limit) in [("no limit", None), ("a limit above the norm", Some(1e3)), ("a limit below", Some(0.25))] {
        report.run(&format!("clip with {name}"), || {
            let (found, expected) =
                (clip_gradients(device, float, limit)?, clip_gradients(&assay_reference::device(), DType::F64, limit)?);
            for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
                check_close(&format!("value {i}"), a, b, tolerance.value)?;
            }
            Ok(())
        });
    }
}

fn clip_gradients(device: &Device, float: DType, limit: Option<f64>) -> Result<Vec<Tensor>, String> {
    let shapes = [Shape::from([3, 7]), Shape::from([0]), Shape::from([130, 257]), Shape::from([1])];
    let numbers = |seed: u64, shape: &Shape| Numbers::new(seed).numbers_between(-1.0, 1.0, shape.numel());
    let place = |seed, shape: &Shape| to_tensor(device, float, &numbers(seed, shape), shape).map_err(error_text);
    let some =
        |first: u64| shapes.iter().zip(first..).map(|(shape, seed)| place(seed, shape)).collect::<Result<Vec<_>, _>>();
    let (mut params, gradients) = (some(1)?, some(11)?);
    let zero = |shape| Tensor::zeros(device, shape, float).map_err(error_text);
    let zeros = || shapes.iter().map(zero).collect::<Result<Vec<_>, _>>();
    let (mut first, mut second) = (zeros()?, zeros()?);
    let clip = clip(&gradients.iter().collect::<Vec<_>>(), limit).map_err(error_text)?;
    for step in 1..=2 {
        let args = AdamW { step, lr: 0.1, betas: (0.9, 0.99), eps: 1e-3, weight_decay: 0.1, grad_scale: 1.0 };
        let factors = Tensor::from_f32(device, args.factors().to_vec(), 4).map_err(error_text)?;
        let states = params.iter_mut().zip(&gradients).zip(first.iter_mut().zip(&mut second));
        let update = |(i, ((param, grad), (m, v)))| Update { param, grad, m, v, decays: i % 2 == 0 };
        adamw_all(states.enumerate().map(update).collect(), args, &factors, &clip).map_err(error_text)?;
    }
    Ok([vec![clip], params, first, second].concat())
}
