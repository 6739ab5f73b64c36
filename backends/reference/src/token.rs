//! The steps of one token that is decoded: attention, and the way to PULSE's slots.

use assay_tensor::{Arguments, Array, Result, Rotary};

use crate::heads::split_heads;
use crate::store::{store_values, values_of};

/// softmax of some numbers.
fn softmax_of(scores: &[f64]) -> Vec<f64> {
    let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> = scores.iter().map(|score| (score - peak).exp()).collect();
    let total: f64 = exponentials.iter().sum();
    exponentials.into_iter().map(|e| e / total).collect()
}

fn dot_product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(crate) fn attend_token(call: Arguments<'_>) -> Result<Vec<Array>> {
    let (qkv, rotary) = (call.input(0)?, Rotary::of_call(call, 1)?);
    let (scale, joined) = (call.required("scale")?, call.count("joined").unwrap_or(0));
    let parts = split_heads(Arguments { inputs: &call.inputs[..if rotary.is_some() { 3 } else { 1 }], ..call })?;
    let [q, k, v] = [0, 1, 2].map(|part| &parts[part]);
    let [b, h, _, width] = [0, 1, 2, 3].map(|axis| q.dims()[axis]);
    let (past, _) = call.inputs[if rotary.is_some() { 3 } else { 1 }..].as_chunks::<2>();
    // The runs of each head, one after the other, of some segments and of the token.
    let grown = |segments: &[&Array], new: &Array| -> Result<Vec<f64>> {
        let parts = segments.iter().copied().chain([new]).map(|x| Ok((values_of(x)?, x.dims()[2] * width)));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let of = |row: usize| parts.iter().flat_map(move |(x, run)| x[row * run..][..*run].to_vec());
        Ok((0..b * h).flat_map(of).collect())
    };
    let [old_keys, old_values] = [0, 1].map(|part| past.iter().map(|pair| pair[part]).collect::<Vec<_>>());
    let (keys, all) = (grown(&old_keys, k)?, grown(&old_values, v)?);
    let count_of = |segments: &[&Array]| 1 + segments.iter().map(|keys| keys.dims()[2]).sum::<usize>();
    let (queries, count) = (values_of(q)?, count_of(&old_keys));
    let mut seen = vec![0.0; b * h * width];
    for row in 0..b * h {
        let query = &queries[row * width..][..width];
        let vector = |of: &[f64], j: usize| of[(row * count + j) * width..][..width].to_vec();
        let scores: Vec<f64> = (0..count).map(|j| scale * dot_product(query, &vector(&keys, j))).collect();
        for (j, weight) in softmax_of(&scores).into_iter().enumerate() {
            for (y, x) in seen[row * width..][..width].iter_mut().zip(vector(&all, j)) {
                *y += weight * x;
            }
        }
    }
    let (dtype, from) = (qkv.dtype, past.len() - joined);
    let shape = [b, h, count_of(&old_keys[from..]), width];
    let (keys, all) = (grown(&old_keys[from..], k)?, grown(&old_values[from..], v)?);
    Ok(vec![
        store_values(&seen, [b, 1, h * width], dtype),
        store_values(&keys, shape, dtype),
        store_values(&all, shape, dtype),
    ])
}

pub(crate) fn route_token(call: Arguments<'_>) -> Result<Vec<Array>> {
    let (projected, sides) = (call.input(0)?, call.input(1)?);
    let (dtype, [b, slots, both]) = (sides.dtype, [0, 1, 2].map(|axis| sides.dims()[axis]));
    let width = both / 2;
    let (projected, sides) = (values_of(projected)?, values_of(sides)?);
    let (mut sum, mut mass) = match call.inputs {
        [_, _, sum, mass] => (values_of(sum)?, values_of(mass)?),
        _ => (vec![0.0; b * slots * width], vec![0.0; b * slots]),
    };
    let (mut weights, mut read) = (Vec::new(), vec![0.0; b * width]);
    for sequence in 0..b {
        let (query, value) = projected[sequence * both..][..both].split_at(width);
        let side = |slot: usize| sides[(sequence * slots + slot) * both..][..both].split_at(width);
        let scores: Vec<f64> =
            (0..slots).map(|slot| dot_product(query, side(slot).0) / (width as f64).sqrt()).collect();
        // From the highest down; the sort is stable, so that of equal ones the first is kept.
        let mut order: Vec<usize> = (0..slots).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let kept = &order[..call.count("top_k").unwrap_or(slots)];
        let score = |slot: usize| if kept.contains(&slot) { scores[slot] } else { f64::NEG_INFINITY };
        let routed = softmax_of(&(0..slots).map(score).collect::<Vec<_>>());
        for (slot, weight) in routed.iter().enumerate() {
            let at = sequence * slots + slot;
            mass[at] += weight;
            for i in 0..width {
                read[sequence * width + i] += weight * side(slot).1[i];
                sum[at * width + i] += weight * value[i];
            }
        }
        weights.extend(routed);
    }
    Ok(vec![
        store_values(&weights, [b, 1, slots], dtype),
        store_values(&read, [b, 1, width], dtype),
        store_values(&sum, [b, slots, width], dtype),
        store_values(&mass, [b, slots, 1], dtype),
    ])
}
