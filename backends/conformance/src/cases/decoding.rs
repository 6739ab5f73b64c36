//! Cases of heads of attention, and of the steps of one token that is decoded.

use assay_tensor::{Result, Rotary, Tensor, TokenAttention, TokenRouting};

use super::{Case, between, floats};

pub(super) fn small() -> Vec<Case> {
    let mut cases = Vec::new();
    for sizes in [[1, 1, 1, 2], [2, 3, 2, 4], [1, 5, 3, 6], [2, 0, 1, 2], [0, 2, 2, 2], [2, 1, 2, 34]] {
        cases.extend([None, Some(0), Some(3)].map(|first| heads(sizes, first)));
    }
    cases.push(heads([2, 3, 2, 3], None));
    cases.push(queries_alone());
    for sizes in [[1, 1, 0, 2], [2, 3, 1, 4], [1, 2, 5, 34], [2, 1, 9, 66], [0, 2, 3, 2]] {
        cases.extend([None, Some(4)].map(|first| attend(sizes, first)));
    }
    for (sizes, top_k) in
        [([1, 1, 1], None), ([2, 5, 3], None), ([2, 5, 34], Some(2)), ([1, 16, 70], Some(16)), ([0, 2, 2], None)]
    {
        cases.extend([false, true].map(|written| route(sizes, top_k, written)));
    }
    cases
}

pub(super) fn medium() -> Vec<Case> {
    vec![heads([2, 70, 3, 34], Some(5)), attend([2, 3, 130, 64], Some(1)), route([3, 33, 130], Some(7), true)]
}

pub(super) fn large() -> Vec<Case> {
    vec![heads([3, 130, 4, 34], Some(1)), attend([3, 4, 700, 64], Some(2)), route([40, 16, 128], Some(3), true)]
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

/// One token after none, after `t` others, and after segments of `t`, `t` and 3, of which some are joined.
pub(super) fn attend([b, h, t, p]: [usize; 4], first: Option<usize>) -> Case {
    let segment = |length: usize| [floats([b, h, length, p]), floats([b, h, length, p])];
    let operands = [vec![floats([b, 1, 3 * h * p])], segment(t).into(), segment(t).into(), segment(3).into()].concat();
    let case = Case::new(format!("attend_token from {first:?}"), operands, move |x| {
        let tables = first.map(|first| tables(&x[0], first + 2, p)).transpose()?;
        let rotary = tables.as_ref().zip(first).map(|([cos, sin], first)| Rotary { cos, sin, first });
        let segments = [(&x[1], &x[2]), (&x[3], &x[4]), (&x[5], &x[6])];
        let mut found = Vec::new();
        for (count, joined) in [(0, 0), (1, 0), (1, 1), (3, 1), (3, 2), (3, 3)] {
            let token = TokenAttention { qkv: &x[0], heads: h, rotary, past: &segments[..count], joined, scale: 0.6 };
            found.extend(Tensor::attend_token(token)?);
        }
        Ok(found)
    });
    Case { wide_only: true, ..case.constant() }
}

/// One token and `s` slots.
pub(super) fn route([b, s, p]: [usize; 3], top_k: Option<usize>, written: bool) -> Case {
    let operands = [floats([b, 1, 2 * p]), floats([b, s, 2 * p]), floats([b, s, p]), between(0.0, 3.0, [b, s, 1])];
    let case = Case::new(format!("route_token, top_k {top_k:?}"), operands, move |x| {
        let written = written.then_some((&x[2], &x[3]));
        let routed = Tensor::route_token(TokenRouting { projected: &x[0], sides: &x[1], written, top_k })?;
        Ok(vec![routed.weights, routed.read, routed.sum, routed.mass])
    });
    Case { wide_only: true, ..case.constant() }
}
