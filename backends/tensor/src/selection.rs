//! The fused operations that select elements: `dropout` by a hash, and `top_k_mask` by size.
//!
//! | | dropout | top_k_mask |
//! |---|---|---|
//! | inputs | x; if the key follows from a seed: that seed (u32, \[2\], its low word first) | x [.., D] |
//! | settings | `p`, 0 < p < 1; `low` and `high`: the words of a number of 64 bits | `k`, from 1 to D |
//! | values | each element kept with probability 1 - p and divided by that, the others zero | 1 at the k largest elements of each row, 0 elsewhere; ties to the lower index, NaN least |
//!
//! Which elements dropout keeps is [`dropout_keeps`] of the key and their index. The key is the number of the settings; with a seed,
//! which may change in the device's memory while all else stays the same, it is [`mix`](seed ^ number). What dropout does to the
//! value, it does to the gradient. The mask is a constant.

use crate::array::Array;
use crate::check;
use crate::dtype::HostData;
use crate::error::{Result, TensorError};
use crate::fusion::{
    Arguments, Bf16Operands, Example, ExampleInput, ExampleSize, FusedOp, GradientRule, Setting, Upstreams,
};
use crate::kernels::Kernels;
use crate::math::Math;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// See the module.
pub static DROPOUT: FusedOp = FusedOp {
    name: "dropout",
    compose: drop_elements,
    gradient: Some(GradientRule { inputs: &[1], values: &[], outputs: 1, rule: dropout_gradient }),
    bf16: Bf16Operands::Converted,
    examples: dropout_examples,
};

/// See the module.
pub static TOP_K_MASK: FusedOp = FusedOp {
    name: "top_k_mask",
    compose: |k, call| Ok(vec![mark_largest(k, call.input(0)?, call.required("k")? as usize)?]),
    gradient: None,
    bf16: Bf16Operands::Converted,
    examples: top_k_examples,
};

/// The operands and settings of a call of `dropout`.
#[derive(Debug, Clone, Copy)]
pub struct Dropout<'a> {
    /// What is dropped from.
    pub x: &'a Array,
    /// The probability of being dropped.
    pub p: f64,
    /// The seed on the device, if the key follows from one.
    pub seed: Option<&'a Array>,
    /// The key, or what it follows from together with the seed.
    pub number: u64,
}

impl<'a> Dropout<'a> {
    /// Those of a call.
    ///
    /// # Errors
    /// If one is missing.
    pub fn of_call(call: Arguments<'a>) -> Result<Dropout<'a>> {
        let number = (call.required("high")? as u64) << 32 | call.required("low")? as u64;
        Ok(Dropout { x: call.input(0)?, p: call.required("p")?, seed: call.inputs.get(1).copied(), number })
    }
}

/// The settings of `dropout`. A number of 64 bits goes as two words, since a setting holds 53 bits.
fn dropout_settings(p: f64, number: u64) -> [Setting; 3] {
    [("p", p), ("low", f64::from(number as u32)), ("high", f64::from((number >> 32) as u32))]
}

impl Tensor {
    /// Keeps each element with probability 1 - `p` and divides it by that, and makes the others zero (Srivastava et al.,
    /// 2014). Which are kept is a function of `key` and an element's index, see [`dropout_keeps`]: the same on every
    /// device, at any number of threads, and when the mask is made again for the gradient.
    ///
    /// # Errors
    /// Unless 0 <= p < 1, and the elements are floats.
    pub fn dropout(&self, p: f64, key: u64) -> Result<Tensor> {
        if !self.has_dropout(p)? {
            return Ok(self.clone());
        }
        let [y] = Tensor::fused_values(&DROPOUT, &[self], &dropout_settings(p, key))?;
        Ok(y)
    }

    /// [`Tensor::dropout`] with the key [`mix`](seed ^ place). The seed (u32, \[2\], its low word first) is on the
    /// device, where it must stay the same until the gradient has been computed.
    ///
    /// # Errors
    /// As there, and if the seed is something else.
    pub fn dropout_at(&self, p: f64, seed: &Tensor, place: u64) -> Result<Tensor> {
        check::class_labels(DROPOUT.name, self, seed)?;
        check::expected_shape(DROPOUT.name, "seed", seed, &Shape::from(2))?;
        if !self.has_dropout(p)? {
            return Ok(self.clone());
        }
        let [y] = Tensor::fused_values(&DROPOUT, &[self, seed], &dropout_settings(p, place))?;
        Ok(y)
    }

    /// Whether dropout does anything.
    fn has_dropout(&self, p: f64) -> Result<bool> {
        let name = DROPOUT.name;
        check::float_types(name, &[self])?;
        if !(0.0..1.0).contains(&p) {
            return Err(TensorError::new(name, format!("a probability of {p} is not in [0, 1)")).shapes([self.shape()]));
        }
        Ok(p > 0.0)
    }

    /// 1 at the `k` largest elements of each row (of the last axis), 0 elsewhere; ties go to the lower index, and NaN
    /// counts as the least. A constant: no gradient flows.
    ///
    /// # Errors
    /// Unless 1 <= k <= the extent of the row, and the elements are floats.
    pub fn top_k_mask(&self, k: usize) -> Result<Tensor> {
        let name = TOP_K_MASK.name;
        self.check_rows(name)?;
        if k == 0 || k > self.shape().last() {
            let problem = format!("cannot take the {k} largest of {}", self.shape().last());
            return Err(TensorError::new(name, problem).shapes([self.shape()]));
        }
        let [mask] = Tensor::fused_values(&TOP_K_MASK, &[&self.detach()], &[("k", k as f64)])?;
        Ok(mask)
    }
}

/// Whether dropout with probability `p` keeps the element at `index`, for this key: where a hash of the two, of 32 bits,
/// is not below p 2^32. The hash is two rounds of the finalizer `lowbias32` of Wellons (2018), a bijection that changes
/// each output bit with probability 1/2 when an input bit changes.
#[inline(always)]
pub fn dropout_keeps(key: u64, index: u64, p: f64) -> bool {
    let mix = |mut x: u32| {
        x ^= x >> 16;
        x = x.wrapping_mul(0x7feb_352d);
        x ^= x >> 15;
        x = x.wrapping_mul(0x846c_a68b);
        x ^ (x >> 16)
    };
    let first = mix(index as u32 ^ key as u32);
    let second = mix(first ^ (key >> 32) as u32 ^ ((index >> 32) as u32).wrapping_mul(0x9e37_79b9));
    second >= (p * 4_294_967_296.0) as u32
}

/// The finalizer of SplitMix64 (Steele et al. 2014): neighbouring numbers become unrelated ones.
pub fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Subtracted from a score that is to have no weight in a softmax: it is exactly 0 then.
pub const HIDDEN: f64 = 1e30;

/// The definition of `dropout`. A seed is downloaded, and the operation runs again without it.
fn drop_elements(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let Dropout { x, p, seed, number } = Dropout::of_call(call)?;
    if let Some(seed) = seed {
        let words = match k.download(seed)? {
            HostData::U32(words) => words,
            other => other.to_f64().into_iter().map(|word| word as u32).collect(),
        };
        let seed = words.iter().rev().fold(0, |seed, word| seed << 32 | u64::from(*word));
        return DROPOUT.run(k, Arguments::new(&[x], &dropout_settings(p, mix(seed ^ number))));
    }
    let factor = |i: u64| if dropout_keeps(number, i, p) { 1.0 / (1.0 - p) } else { 0.0 };
    let mask: Vec<f64> = (0..x.numel() as u64).map(factor).collect();
    let mask = k.upload(HostData::from_f64(&mask, x.dtype), &x.shape)?;
    Ok(vec![Math(k).mul(x, &mask)?])
}

fn dropout_gradient(k: &dyn Kernels, call: Upstreams<'_>) -> Result<Vec<Option<Array>>> {
    let mut gradients = vec![None; call.shapes.len()];
    if let [Some(g)] = call.gradients {
        let inputs: Vec<&Array> = [g].into_iter().chain(call.inputs).collect();
        gradients[0] = DROPOUT.run(k, Arguments::new(&inputs, call.settings))?.pop();
    }
    Ok(gradients)
}

/// The definition of `top_k_mask`.
fn mark_largest(k: &dyn Kernels, x: &Array, count: usize) -> Result<Array> {
    let values = k.download(x)?.to_f64();
    let mut mask = vec![0.0; values.len()];
    let width = x.shape.last().max(1);
    for (row, mask) in values.chunks(width).zip(mask.chunks_mut(width)) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        // Adding 0 makes -0 equal to 0 in the total order too.
        let key = |i: usize| if row[i].is_nan() { f64::NEG_INFINITY } else { row[i] + 0.0 };
        // The sort is stable, so that of equal elements the lower index comes first.
        order.sort_by(|&a, &b| key(b).total_cmp(&key(a)));
        order.iter().take(count).for_each(|&i| mask[i] = 1.0);
    }
    k.upload(HostData::from_f64(&mask, x.dtype), &x.shape)
}

fn dropout_examples(size: ExampleSize) -> Vec<Example> {
    let shapes = match size {
        ExampleSize::Small => vec![vec![], vec![1], vec![7, 33], vec![0, 3]],
        ExampleSize::Medium => vec![vec![300, 33]],
        ExampleSize::Large => vec![vec![900, 300]],
    };
    let example = |(shape, seeded): (Vec<usize>, bool)| {
        let seed = seeded.then(|| ExampleInput::ids(usize::MAX, 2));
        let inputs = [ExampleInput::floats(shape)].into_iter().chain(seed).collect();
        Example { inputs, settings: dropout_settings(0.3, 0x1234_5678_9abc_def0).into() }
    };
    shapes.into_iter().flat_map(|shape| [(shape.clone(), false), (shape, true)]).map(example).collect()
}

fn top_k_examples(size: ExampleSize) -> Vec<Example> {
    let of = |input, k: usize| Example { inputs: vec![input], settings: vec![("k", k as f64)] };
    let example = |(shape, k): (Vec<usize>, usize)| of(ExampleInput::floats(shape), k);
    match size {
        ExampleSize::Small => {
            let all = [(vec![1], 1), (vec![4, 9], 3), (vec![2, 2, 40], 39), (vec![3, 5], 5), (vec![0, 2], 1)];
            // All elements tie.
            let ties = of(ExampleInput::between(0.5, 0.5, [3, 20]), 2);
            all.into_iter().map(example).chain([ties]).collect()
        }
        ExampleSize::Medium => vec![example((vec![30, 130], 7))],
        ExampleSize::Large => vec![example((vec![9000, 33], 7))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropout_keeps_the_wanted_share_and_no_pattern() {
        for p in [0.1, 0.5, 0.9] {
            for key in [0, 1, u64::MAX, 1 << 40] {
                let kept: Vec<bool> = (0..20_000).map(|i| dropout_keeps(key, i, p)).collect();
                let share = kept.iter().filter(|&&k| k).count() as f64 / 20_000.0;
                // Five standard deviations of a fair mask are 0.018 at most.
                assert!((share - (1.0 - p)).abs() < 0.018, "p {p}, key {key}: {share}");
                for lag in [1, 2, 16, 256] {
                    let both = kept.iter().zip(&kept[lag..]).filter(|(a, b)| **a && **b).count() as f64;
                    let joint = both / (20_000 - lag) as f64;
                    assert!((joint - (1.0 - p) * (1.0 - p)).abs() < 0.02, "p {p}, lag {lag}: {joint}");
                }
            }
        }
        assert!((0..1000).any(|i| dropout_keeps(1, i, 0.5) != dropout_keeps(2, i, 0.5)));
        assert!((0..1000).any(|i| dropout_keeps(1, i, 0.5) != dropout_keeps(1 + (1 << 32), i, 0.5)));
        assert!((0..1000).any(|i| dropout_keeps(1, i, 0.5) != dropout_keeps(1, i + (1 << 32), 0.5)));
    }

    #[test]
    fn settings_hold_every_bit_of_a_number() {
        let x = Array::new((), 1, crate::dtype::DType::F32);
        for number in [0, 1, u64::MAX, 0x1234_5678_9abc_def1] {
            let settings = dropout_settings(0.5, number);
            let inputs = [&x];
            let found = Dropout::of_call(Arguments::new(&inputs, &settings)).unwrap();
            assert_eq!((found.number, found.p), (number, 0.5));
        }
    }
}
