//! Operations of decoding one token, between the products that read the weights: attention to the tokens before, and reading and
//! writing PULSE's slots.

use std::cell::Cell;

use assay_tensor::{Arguments, Array, HIDDEN, Result, Rotary, Shape};

use crate::device::Cpu;
use crate::matmul::dots::dot_rows;
use crate::memory::storage::f32s;
use crate::ops::heads::{Tables, rotary_tables, rotate_head};
use crate::ops::selection::top_k_rows;
use crate::ops::softmax::softmax_rows;
use crate::simd::instructions::simd;
use crate::simd::math::exp;
use crate::simd::reduction::{reduce_rows, sum_rows};
use crate::threads::denormals::FlushGuard;

/// Keys whose values are added up together.
const TOGETHER: usize = 4;

thread_local! {
    /// The rotated query and the scores of the last head, or the scores and the mask of the last token.
    static LAST: Cell<Vec<f32>> = Cell::default();
}

simd! {
    /// Scores to exponentials of what they are below the largest; returns what makes their sum 1.
    fn exponentiate_scores(scores: &mut [f32]) -> f32 {
        let peak = reduce_rows([&*scores], f32::NEG_INFINITY, |[s]| s, |a, b| if b > a { b } else { a });
        for score in scores.iter_mut() {
            *score = exp(*score - peak);
        }
        1.0 / sum_rows([&*scores], |[s]| s)
    }

    /// Adds values by their weights, one after the other.
    fn add_weighted(weights: &[f32], values: &[f32], seen: &mut [f32]) {
        let width = seen.len();
        let some = TOGETHER * width;
        for (weights, values) in weights.chunks(TOGETHER).zip(values.chunks(some)) {
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
    }

    /// A vector, rotated if there are tables.
    fn copy_rotated(x: &[f32], tables: Option<Tables<'_>>, y: &mut [f32]) {
        match tables {
            None => y.copy_from_slice(x),
            Some(tables) => rotate_head(x, tables, 0, 1.0, y),
        }
    }

    /// What is read of the slots, and what is written to them: their sums so far, or none, with the weighted value.
    fn read_and_write_slots(weights: &[f32], value: &[f32], sides: &[f32], before: Option<&[f32]>, read: &mut [f32], sums: &mut [f32]) {
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

/// A segment of the cached keys and values before a token.
struct CacheSegment<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    length: usize,
}

impl<'a> CacheSegment<'a> {
    /// Those of one head.
    fn head_rows(&self, row: usize, width: usize) -> (&'a [f32], &'a [f32]) {
        let run = self.length * width;
        (&self.keys[row * run..][..run], &self.values[row * run..][..run])
    }
}

/// What a query, whose scores are scaled, sees of the keys and values of one head, those of the last segment after the
/// others. The order of every sum is that of the tokens, however they are cut into segments.
fn attend_head<'a>(
    (query, scale): (&[f32], f32),
    segments: impl Iterator<Item = (&'a [f32], &'a [f32])> + Clone,
    last: (&'a [f32], &'a [f32]),
    scores: &mut [f32],
    seen: &mut [f32],
) {
    let width = query.len();
    let mut at = 0;
    for (keys, _) in segments.clone().chain([last]) {
        let count = keys.len() / width;
        dot_rows(query, keys, width, scale, &mut scores[at..at + count]);
        at += count;
    }
    let factor = exponentiate_scores(scores);
    seen.fill(0.0);
    let mut at = 0;
    for (_, values) in segments.chain([last]) {
        let count = values.len() / width;
        add_weighted(&scores[at..at + count], values, seen);
        at += count;
    }
    seen.iter_mut().for_each(|y| *y *= factor);
}

impl Cpu {
    /// The operation `attend_token`: attention of one token to those before it.
    pub(crate) fn attend_token(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let name = "attend_token";
        let (qkv, rotary) = (call.input(0)?, Rotary::of_call(call, 1)?);
        let (heads, scale) = (call.required("heads")? as usize, call.required("scale")? as f32);
        let (batch, all) = (qkv.dims()[0], qkv.shape.last() / 3);
        let width = all / heads;
        let (past, _) = call.inputs[if rotary.is_some() { 3 } else { 1 }..].as_chunks::<2>();
        let segments = past.iter().map(|[keys, values]| {
            Ok(CacheSegment { keys: f32s(name, keys)?, values: f32s(name, values)?, length: keys.dims()[2] })
        });
        let segments = segments.collect::<Result<Vec<_>>>()?;
        let (kept, joined) = segments.split_at(segments.len() - call.count("joined").unwrap_or(0));
        let count = |segments: &[CacheSegment<'_>]| segments.iter().map(|segment| segment.length).sum::<usize>();
        let (old, new) = (count(kept), count(joined) + 1);
        let (shape, grown) = (Shape::from([batch, 1, all]), Shape::from([batch, heads, new, width]));
        let (mut seen, mut keys, mut values) =
            (self.take_block(name, &shape)?, self.take_block(name, &grown)?, self.take_block(name, &grown)?);
        let (qkv, tables) = (f32s(name, qkv)?, rotary.map(rotary_tables).transpose()?);
        if !seen.is_empty() {
            let run = new * width;
            let outputs = [(&mut seen[..], width), (&mut keys, run), (&mut values, run)];
            let cost = 1.0 * (old * width + run) as f64 + 4.0 * (old + new) as f64 + 50.0;
            self.threads.split_rows(batch * heads, cost, outputs, |range, [seen, keys, values]| {
                let mut scratch = LAST.take();
                scratch.resize(width + old + new, 0.0);
                let rows =
                    seen.chunks_exact_mut(width).zip(keys.chunks_exact_mut(run).zip(values.chunks_exact_mut(run)));
                for (row, (seen, (keys, values))) in range.zip(rows) {
                    let part = |part: usize| &qkv[row / heads * 3 * all + part * all + row % heads * width..][..width];
                    let mut at = 0;
                    for segment in joined {
                        let run = segment.length * width;
                        keys[at..at + run].copy_from_slice(&segment.keys[row * run..][..run]);
                        values[at..at + run].copy_from_slice(&segment.values[row * run..][..run]);
                        at += run;
                    }
                    copy_rotated(part(1), tables, &mut keys[at..]);
                    values[at..].copy_from_slice(part(2));
                    let (query, scores) = scratch.split_at_mut(width);
                    copy_rotated(part(0), tables, query);
                    attend_head(
                        (query, scale),
                        kept.iter().map(|p| p.head_rows(row, width)),
                        (keys, values),
                        scores,
                        seen,
                    );
                }
                LAST.set(scratch);
            });
        }
        Ok(vec![self.f32_array(seen, &shape), self.f32_array(keys, &grown), self.f32_array(values, &grown)])
    }

    /// The operation `route_token` of PULSE: reads the slots with one token, and writes it to them.
    pub(crate) fn route_token(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let name = "route_token";
        let (projected, sides, top_k) = (call.input(0)?, call.input(1)?, call.count("top_k"));
        let written =
            if let [_, _, sum, mass] = call.inputs { Some((f32s(name, sum)?, f32s(name, mass)?)) } else { None };
        let [batch, slots, both] = [0, 1, 2].map(|axis| sides.dims()[axis]);
        let width = both / 2;
        let [of_weights, of_read] = [slots, width].map(|last| Shape::from([batch, 1, last]));
        let [of_sum, of_mass] = [width, 1].map(|last| Shape::from([batch, slots, last]));
        let (mut weights, mut read) = (self.take_block(name, &of_weights)?, self.take_block(name, &of_read)?);
        let (mut sum, mut mass) = (self.take_block(name, &of_sum)?, self.take_block(name, &of_mass)?);
        let (projected, sides) = (f32s(name, projected)?, f32s(name, sides)?);
        let scale = 1.0 / (width as f32).sqrt();
        let outputs = [(&mut weights[..], slots), (&mut read, width), (&mut sum, slots * width), (&mut mass, slots)];
        self.threads.split_rows(
            batch,
            1.0 * (slots * both) as f64 + 50.0,
            outputs,
            |range, [weights, read, sum, mass]| {
                let mut scratch = LAST.take();
                scratch.resize(2 * slots, 0.0);
                for (i, row) in range.enumerate() {
                    let (query, value) = projected[row * both..][..both].split_at(width);
                    let sides = &sides[row * slots * both..][..slots * both];
                    let weights = &mut weights[i * slots..][..slots];
                    let (scores, mask) = scratch.split_at_mut(slots);
                    dot_rows(query, sides, both, scale, scores);
                    if let Some(kept) = top_k {
                        top_k_rows(scores, kept, slots, mask);
                        scores.iter_mut().zip(mask).for_each(|(score, kept)| *score += (*kept - 1.0) * HIDDEN as f32);
                    }
                    softmax_rows(scores, slots, weights);
                    let (read, sum) = (&mut read[i * width..][..width], &mut sum[i * slots * width..][..slots * width]);
                    let before = written.map(|(sums, _)| &sums[row * slots * width..][..slots * width]);
                    read_and_write_slots(weights, value, sides, before, read, sum);
                    for (slot, (mass, weight)) in mass[i * slots..][..slots].iter_mut().zip(weights).enumerate() {
                        *mass = *weight + written.map_or(0.0, |(_, masses)| masses[row * slots + slot]);
                    }
                }
                LAST.set(scratch);
            },
        );
        Ok(vec![
            self.f32_array(weights, &of_weights),
            self.f32_array(read, &of_read),
            self.f32_array(sum, &of_sum),
            self.f32_array(mass, &of_mass),
        ])
    }
}
