//! The steps of one token that is decoded, between the products that read the weights: attention to what came before, and
//! the way to PULSE's slots and back.

use std::cell::Cell;

use assay_tensor::{Array, Result, Routed, Shape, TokenAttention, TokenRouting};

use crate::dots::dots;
use crate::flush::Flushed;
use crate::heads::{Tables, tables, turn};
use crate::kernels::Cpu;
use crate::math::exp;
use crate::selection::top_k_rows;
use crate::simd::{reduce, simd, sum};
use crate::softmax::softmax_rows;
use crate::storage::f32s;

/// Subtracted from the scores of slots that are not kept, so that their weight is 0.
const HIDDEN: f32 = 1e30;

/// Keys whose values are added up together.
const TOGETHER: usize = 4;

thread_local! {
    /// The turned query and the scores of the last head, or the scores and the mask of the last token.
    static LAST: Cell<Vec<f32>> = Cell::default();
}

simd! {
    /// What a token sees of the values by the scores of their keys, which become the weights on the way.
    fn weigh(scores: &mut [f32], values: &[f32], seen: &mut [f32]) {
        let width = seen.len();
        let peak = reduce([&*scores], f32::NEG_INFINITY, |[s]| s, |a, b| if b > a { b } else { a });
        for score in scores.iter_mut() {
            *score = exp(*score - peak);
        }
        let factor = 1.0 / sum([&*scores], |[s]| s);
        seen.fill(0.0);
        let some = TOGETHER * width;
        for (weights, values) in scores.chunks(TOGETHER).zip(values.chunks(some)) {
            if let (&[a, b, c, d], true) = (weights, values.len() == some) {
                let (low, high) = values.split_at(2 * width);
                let ((va, vb), (vc, vd)) = (low.split_at(width), high.split_at(width));
                for ((((y, va), vb), vc), vd) in seen.iter_mut().zip(va).zip(vb).zip(vc).zip(vd) {
                    *y = d.mul_add(*vd, c.mul_add(*vc, b.mul_add(*vb, a.mul_add(*va, *y))));
                }
            } else {
                for (weight, value) in weights.iter().zip(values.chunks_exact(width)) {
                    seen.iter_mut().zip(value).for_each(|(y, v)| *y = weight.mul_add(*v, *y));
                }
            }
        }
        seen.iter_mut().for_each(|y| *y *= factor);
    }

    /// A vector, turned if there are tables.
    fn turned(x: &[f32], tables: Option<Tables<'_>>, y: &mut [f32]) {
        match tables {
            None => y.copy_from_slice(x),
            Some(tables) => turn(x, tables, 0, 1.0, y),
        }
    }

    /// What is read of the slots, and what is written to them: their sums so far, or none, with the weighted value.
    fn exchange(weights: &[f32], value: &[f32], sides: &[f32], before: Option<&[f32]>, read: &mut [f32], sums: &mut [f32]) {
        let width = value.len();
        read.fill(0.0);
        for (slot, (weight, sum)) in weights.iter().zip(sums.chunks_exact_mut(width)).enumerate() {
            let side = &sides[(2 * slot + 1) * width..][..width];
            read.iter_mut().zip(side).for_each(|(y, x)| *y = weight.mul_add(*x, *y));
            match before {
                None => sum.iter_mut().zip(value).for_each(|(y, x)| *y = weight * x),
                Some(before) => {
                    let all = sum.iter_mut().zip(value).zip(&before[slot * width..][..width]);
                    all.for_each(|((y, x), before)| *y = weight.mul_add(*x, *before));
                }
            }
        }
    }
}

impl Cpu {
    /// Attention of one token, see [`TokenAttention`].
    pub(crate) fn attend_one(&self, token: TokenAttention<'_, Array>) -> Result<[Array; 3]> {
        let _flushed = Flushed::here();
        let (name, heads) = ("attend_token", token.heads);
        let (batch, all) = (token.qkv.dims()[0], token.qkv.shape.last() / 3);
        let (width, before) = (all / heads, token.past.map_or(0, |(keys, _)| keys.dims()[2]));
        let count = before + 1;
        let (shape, grown) = (Shape::from([batch, 1, all]), Shape::from([batch, heads, count, width]));
        let (mut seen, mut keys, mut values) =
            (self.take(name, &shape)?, self.take(name, &grown)?, self.take(name, &grown)?);
        let past = token.past.map(|(keys, values)| Ok((f32s(name, keys)?, f32s(name, values)?)));
        let (old_keys, old_values) = past.transpose()?.unwrap_or_default();
        let (qkv, tables) = (f32s(name, token.qkv)?, token.rotary.map(tables).transpose()?);
        if !seen.is_empty() {
            let (run, old) = (count * width, before * width);
            let outputs = [(&mut seen[..], width), (&mut keys, run), (&mut values, run)];
            let cost = 1.5 * run as f64 + 4.0 * count as f64 + 50.0;
            self.threads.rows(batch * heads, cost, outputs, |range, [seen, keys, values]| {
                let mut scratch = LAST.take();
                scratch.resize(width + count, 0.0);
                let rows =
                    seen.chunks_exact_mut(width).zip(keys.chunks_exact_mut(run).zip(values.chunks_exact_mut(run)));
                for (row, (seen, (keys, values))) in range.zip(rows) {
                    let part = |part: usize| &qkv[row / heads * 3 * all + part * all + row % heads * width..][..width];
                    keys[..old].copy_from_slice(&old_keys[row * old..][..old]);
                    turned(part(1), tables, &mut keys[old..]);
                    values[..old].copy_from_slice(&old_values[row * old..][..old]);
                    values[old..].copy_from_slice(part(2));
                    let (query, scores) = scratch.split_at_mut(width);
                    turned(part(0), tables, query);
                    dots(query, keys, width, token.scale as f32, scores);
                    weigh(scores, values, seen);
                }
                LAST.set(scratch);
            });
        }
        Ok([self.array(seen, &shape), self.array(keys, &grown), self.array(values, &grown)])
    }

    /// One token and the slots, see [`TokenRouting`].
    pub(crate) fn route_one(&self, token: TokenRouting<'_, Array>) -> Result<Routed<Array>> {
        let _flushed = Flushed::here();
        let name = "route_token";
        let [batch, slots, both] = [0, 1, 2].map(|axis| token.sides.dims()[axis]);
        let width = both / 2;
        let [of_weights, of_read] = [slots, width].map(|last| Shape::from([batch, 1, last]));
        let [of_sum, of_mass] = [width, 1].map(|last| Shape::from([batch, slots, last]));
        let (mut weights, mut read) = (self.take(name, &of_weights)?, self.take(name, &of_read)?);
        let (mut sum, mut mass) = (self.take(name, &of_sum)?, self.take(name, &of_mass)?);
        let written = token.written.map(|(sum, mass)| Ok((f32s(name, sum)?, f32s(name, mass)?))).transpose()?;
        let (projected, sides) = (f32s(name, token.projected)?, f32s(name, token.sides)?);
        let scale = 1.0 / (width as f32).sqrt();
        let outputs = [(&mut weights[..], slots), (&mut read, width), (&mut sum, slots * width), (&mut mass, slots)];
        self.threads.rows(batch, 1.0 * (slots * both) as f64 + 50.0, outputs, |range, [weights, read, sum, mass]| {
            let mut scratch = LAST.take();
            scratch.resize(2 * slots, 0.0);
            for (i, row) in range.enumerate() {
                let (query, value) = projected[row * both..][..both].split_at(width);
                let sides = &sides[row * slots * both..][..slots * both];
                let weights = &mut weights[i * slots..][..slots];
                let (scores, mask) = scratch.split_at_mut(slots);
                dots(query, sides, both, scale, scores);
                if let Some(kept) = token.top_k {
                    top_k_rows(scores, kept, slots, mask);
                    scores.iter_mut().zip(mask).for_each(|(score, kept)| *score += (*kept - 1.0) * HIDDEN);
                }
                softmax_rows(scores, slots, weights);
                let (read, sum) = (&mut read[i * width..][..width], &mut sum[i * slots * width..][..slots * width]);
                let before = written.map(|(sums, _)| &sums[row * slots * width..][..slots * width]);
                exchange(weights, value, sides, before, read, sum);
                for (slot, (mass, weight)) in mass[i * slots..][..slots].iter_mut().zip(weights).enumerate() {
                    *mass = *weight + written.map_or(0.0, |(_, masses)| masses[row * slots + slot]);
                }
            }
            LAST.set(scratch);
        });
        Ok(Routed {
            weights: self.array(weights, &of_weights),
            read: self.array(read, &of_read),
            sum: self.array(sum, &of_sum),
            mass: self.array(mass, &of_mass),
        })
    }
}
