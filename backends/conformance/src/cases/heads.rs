//! Cases of heads of attention beside the examples of the operation.

use assay_tensor::{Result, Rotary, Tensor};

use super::{Case, floats};

/// What the examples of the operation do not have: a value of which no gradient comes.
pub(super) fn small() -> Vec<Case> {
    vec![queries_alone()]
}

/// The tables of a rotation, for places up to `rows` and heads of `width` channels.
fn tables(like: &Tensor, rows: usize, width: usize) -> Result<[Tensor; 2]> {
    let angle = |i: usize| (i / (width / 2)) as f64 * 0.3 + (i % (width / 2)) as f64 * 0.7;
    let table = |f: fn(f64) -> f64| {
        let values: Vec<f64> = (0..rows * (width / 2)).map(|i| f(angle(i))).collect();
        Tensor::from_host(
            like.device(),
            assay_tensor::HostData::from_f64(&values, like.dtype().wide()),
            [rows, width / 2],
        )
    };
    Ok([table(f64::cos)?, table(f64::sin)?])
}

/// Queries, keys and values split into heads, rotated if a first position is given.
pub(super) fn heads([b, t, h, p]: [usize; 4], first: Option<usize>) -> Case {
    let name = format!("heads ({h}) from {first:?}");
    Case::new(name, [floats([b, t, 3 * h * p])], move |x| {
        let Some(first) = first else { return Ok(x[0].heads(h, None)?.into()) };
        let [cos, sin] = tables(&x[0], first + t + usize::from(first > 0), p)?;
        Ok(x[0].heads(h, Some(Rotary { cos: &cos, sin: &sin, first }))?.into())
    })
}

/// Of keys and values nothing is used: their gradients are zeros.
fn queries_alone() -> Case {
    Case::single("heads, queries alone", [floats([2, 3, 24])], |x| {
        let [q, ..] = x[0].heads(2, None)?;
        Ok(q)
    })
}
