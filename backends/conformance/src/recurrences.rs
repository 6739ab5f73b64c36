//! Properties of recurrences: chunks do not change states, a segment cuts the gradient and nothing else, and the
//! future does not change the past.

use assay_tensor::{AttentionKind, AttentionOptions, DType, Device, Gradients, Result as TensorResult, Tensor};

use crate::cases::fused::scan_of;
use crate::compare::{check_close, check_identical};
use crate::operands::{Numbers, to_tensor};
use crate::report::Report;

const BATCH: usize = 2;
const STEPS: usize = 23;
const STATES: usize = 19;

/// The checks of recurrences and of causality on `device`, which computes in `float`.
pub fn check_recurrences(device: &Device, float: DType) -> Report {
    let tolerance = if float == DType::F64 { 1e-12 } else { 1e-5 };
    let mut report = Report::default();
    for chunk in [1, 3, 8, 22, 23, 40] {
        report.run(&format!("states in chunks of {chunk}"), || check_chunked_scan(device, float, chunk, tolerance));
        report.run(&format!("gradients cut every {chunk} steps"), || {
            check_truncated_gradients(device, float, chunk, tolerance)
        });
    }
    report.run("the scan's past", || past_of_scan(device, float));
    for kind in [AttentionKind::Full, AttentionKind::Flash] {
        report.run(&format!("{kind:?} attention's past"), || past_of_attention(device, float, kind, tolerance));
    }
    report
}

fn error_text(error: assay_tensor::TensorError) -> String {
    error.to_string()
}

/// Decay, carry and complex input, as leaves.
fn scan_operands(device: &Device, float: DType) -> TensorResult<Vec<Tensor>> {
    let carry = [BATCH, STATES];
    let input = [BATCH, STEPS, STATES];
    let shapes: [&[usize]; 6] = [&[STATES], &[STATES], &carry, &carry, &input, &input];
    let make = |(i, shape): (usize, &&[usize])| {
        let limit = if i < 2 { 0.65 } else { 1.0 };
        let count = shape.iter().product();
        Ok(to_tensor(device, float, &Numbers::new(i as u64).numbers_between(-limit, limit, count), &(*shape).into())?
            .variable())
    };
    shapes.iter().enumerate().map(make).collect()
}

/// The same scan in chunks of `chunk` steps; with `detach`, the state that is carried over is a constant.
fn scan_in_chunks(x: &[Tensor], chunk: usize, detach: bool) -> TensorResult<Vec<Tensor>> {
    let (mut carry_re, mut carry_im) = (x[2].clone(), x[3].clone());
    let (mut re, mut im) = (Vec::new(), Vec::new());
    for start in (0..STEPS).step_by(chunk) {
        let length = chunk.min(STEPS - start);
        let slice_of = |x: &Tensor| x.slice(1, start, length);
        let parts = [x[0].clone(), x[1].clone(), carry_re, carry_im, slice_of(&x[4])?, slice_of(&x[5])?];
        let states = scan_of(&parts, None)?;
        let last = |c: &Tensor| {
            let last = c.slice(1, length - 1, 1)?.reshape([BATCH, STATES])?;
            Ok(if detach { last.detach() } else { last })
        };
        (carry_re, carry_im) = (last(&states[0])?, last(&states[1])?);
        re.push(states[0].clone());
        im.push(states[1].clone());
    }
    let join = |parts: &[Tensor]| Tensor::concat(&parts.iter().collect::<Vec<_>>(), 1);
    Ok(vec![join(&re)?, join(&im)?])
}

/// The gradients of a fixed weighted sum of the states.
fn scan_gradients(states: &[Tensor]) -> TensorResult<Gradients> {
    let part = |i: usize| {
        let weights = Numbers::new(50 + i as u64).numbers_between(-1.0, 1.0, states[i].numel());
        states[i].mul(&to_tensor(states[i].device(), states[i].dtype(), &weights, states[i].shape())?)?.sum_all()
    };
    part(0)?.add(&part(1)?)?.backward()
}

fn check_chunked_scan(device: &Device, float: DType, chunk: usize, tolerance: f64) -> Result<(), String> {
    let x = scan_operands(device, float).map_err(error_text)?;
    let (whole, chunked) =
        (scan_of(&x, None).map_err(error_text)?, scan_in_chunks(&x, chunk, false).map_err(error_text)?);
    check_close("the real part", &chunked[0], &whole[0], tolerance)?;
    check_close("the imaginary part", &chunked[1], &whole[1], tolerance)?;
    same_gradients(&x, &chunked, &whole, tolerance)
}

fn check_truncated_gradients(device: &Device, float: DType, chunk: usize, tolerance: f64) -> Result<(), String> {
    let x = scan_operands(device, float).map_err(error_text)?;
    let whole = scan_of(&x, None).map_err(error_text)?;
    let cut = scan_of(&x, Some(chunk)).map_err(error_text)?;
    check_identical("the real part", &cut[0], &whole[0])?;
    check_identical("the imaginary part", &cut[1], &whole[1])?;
    same_gradients(&x, &cut, &scan_in_chunks(&x, chunk, true).map_err(error_text)?, tolerance)
}

fn same_gradients(x: &[Tensor], found: &[Tensor], expected: &[Tensor], tolerance: f64) -> Result<(), String> {
    let (found, expected) = (scan_gradients(found).map_err(error_text)?, scan_gradients(expected).map_err(error_text)?);
    for (i, leaf) in x.iter().enumerate() {
        let pair = found.get(leaf).zip(expected.get(leaf)).ok_or_else(|| format!("operand {i} got no gradient"))?;
        check_close(&format!("gradient of operand {i}"), pair.0, pair.1, 20.0 * tolerance)?;
    }
    Ok(())
}

/// A sequence [.., T, K] of which the elements from step `from` on are others.
fn with_other_future(x: &Tensor, axis: usize, from: usize) -> TensorResult<Tensor> {
    let past = x.slice(axis, 0, from)?;
    let future = x.slice(axis, from, x.dims()[axis] - from)?.offset(3.0)?;
    Tensor::concat(&[&past, &future], axis)
}

fn past_of_scan(device: &Device, float: DType) -> Result<(), String> {
    let x = scan_operands(device, float).map_err(error_text)?;
    let mut y = x.clone();
    for i in [4, 5] {
        y[i] = with_other_future(&x[i], 1, 11).map_err(error_text)?;
    }
    let (a, b) = (scan_of(&x, None).map_err(error_text)?, scan_of(&y, None).map_err(error_text)?);
    for part in 0..2 {
        let past = |states: &[Tensor], steps| states[part].slice(1, 0, steps).map_err(error_text);
        check_identical("the past", &past(&b, 11)?, &past(&a, 11)?)?;
        if check_identical("the future", &past(&b, 12)?, &past(&a, 12)?).is_ok() {
            return Err("a changed input changed no state".into());
        }
    }
    Ok(())
}

fn past_of_attention(device: &Device, float: DType, kind: AttentionKind, tolerance: f64) -> Result<(), String> {
    let shape = [1, 2, STEPS, 5];
    let make = |seed| {
        let count = shape.iter().product();
        to_tensor(device, float, &Numbers::new(seed).numbers_between(-1.0, 1.0, count), &shape.into())
            .map_err(error_text)
    };
    let (q, k, v) = (make(1)?, make(2)?, make(3)?);
    let options = AttentionOptions { causal: true, scale: 1.0, kind };
    let attend = |k: &Tensor, v: &Tensor| q.attention(k, v, options).map_err(error_text);
    let other = |x: &Tensor| with_other_future(x, 2, 11).map_err(error_text);
    let (a, b) = (attend(&k, &v)?, attend(&other(&k)?, &other(&v)?)?);
    let past = |x: &Tensor, steps| x.slice(2, 0, steps).map_err(error_text);
    check_identical("the past", &past(&b, 11)?, &past(&a, 11)?)?;
    if check_close("the future", &past(&b, 12)?, &past(&a, 12)?, tolerance).is_ok() {
        return Err("changed keys and values changed no result".into());
    }
    Ok(())
}
