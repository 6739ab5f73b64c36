//! The steps of one token that is decoded: attention, and the way to PULSE's slots.

use assay_tensor::{Array, Result, Routed, TokenAttention, TokenRouting};

use crate::heads::heads;
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

pub(crate) fn attend_token(token: TokenAttention<'_, Array>) -> Result<[Array; 3]> {
    let [q, k, v] = heads(token.qkv, token.heads, token.rotary)?;
    let [b, h, _, width] = [0, 1, 2, 3].map(|axis| q.dims()[axis]);
    // The runs of each head, one after the other, of some segments and of the token.
    let grown = |segments: &[&Array], new: &Array| -> Result<Vec<f64>> {
        let parts = segments.iter().copied().chain([new]).map(|x| Ok((values_of(x)?, x.dims()[2] * width)));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let of = |row: usize| parts.iter().flat_map(move |(x, run)| x[row * run..][..*run].to_vec());
        Ok((0..b * h).flat_map(of).collect())
    };
    let [old_keys, old_values] =
        [token.past.iter().map(|(keys, _)| *keys).collect::<Vec<_>>(), token.past.iter().map(|(_, v)| *v).collect()];
    let (keys, all) = (grown(&old_keys, &k)?, grown(&old_values, &v)?);
    let count_of = |segments: &[&Array]| 1 + segments.iter().map(|keys| keys.dims()[2]).sum::<usize>();
    let (queries, count) = (values_of(&q)?, count_of(&old_keys));
    let mut seen = vec![0.0; b * h * width];
    for row in 0..b * h {
        let query = &queries[row * width..][..width];
        let vector = |of: &[f64], j: usize| of[(row * count + j) * width..][..width].to_vec();
        let scores: Vec<f64> = (0..count).map(|j| token.scale * dot_product(query, &vector(&keys, j))).collect();
        for (j, weight) in softmax_of(&scores).into_iter().enumerate() {
            for (y, x) in seen[row * width..][..width].iter_mut().zip(vector(&all, j)) {
                *y += weight * x;
            }
        }
    }
    let dtype = token.qkv.dtype;
    let from = token.past.len() - token.joined;
    let shape = [b, h, count_of(&old_keys[from..]), width];
    let (keys, all) = (grown(&old_keys[from..], &k)?, grown(&old_values[from..], &v)?);
    Ok([
        store_values(&seen, [b, 1, h * width], dtype),
        store_values(&keys, shape, dtype),
        store_values(&all, shape, dtype),
    ])
}

pub(crate) fn route_token(token: TokenRouting<'_, Array>) -> Result<Routed<Array>> {
    let [b, slots, both] = [0, 1, 2].map(|axis| token.sides.dims()[axis]);
    let width = both / 2;
    let (projected, sides) = (values_of(token.projected)?, values_of(token.sides)?);
    let (mut sum, mut mass) = match token.written {
        Some((sum, mass)) => (values_of(sum)?, values_of(mass)?),
        None => (vec![0.0; b * slots * width], vec![0.0; b * slots]),
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
        let kept = &order[..token.top_k.unwrap_or(slots)];
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
    let dtype = token.sides.dtype;
    Ok(Routed {
        weights: store_values(&weights, [b, 1, slots], dtype),
        read: store_values(&read, [b, 1, width], dtype),
        sum: store_values(&sum, [b, slots, width], dtype),
        mass: store_values(&mass, [b, slots, 1], dtype),
    })
}
