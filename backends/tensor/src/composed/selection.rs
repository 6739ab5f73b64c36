//! Composed forms of the selection of elements: dropout by a hash, and the k largest of a row.

use crate::array::Array;
use crate::dtype::HostData;
use crate::error::Result;
use crate::kernels::Kernels;
use crate::math::Math;

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

pub(crate) fn dropout<K: Kernels + ?Sized>(k: &K, x: &Array, p: f64, key: u64) -> Result<Array> {
    let factor = |i: u64| if dropout_keeps(key, i, p) { 1.0 / (1.0 - p) } else { 0.0 };
    let mask: Vec<f64> = (0..x.numel() as u64).map(factor).collect();
    let mask = k.upload(HostData::from_f64(&mask, x.dtype), &x.shape)?;
    Math(k).mul(x, &mask)
}

/// The finalizer of SplitMix64 (Steele et al. 2014): neighbouring numbers become unrelated ones.
pub fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

pub(crate) fn dropout_at<K: Kernels + ?Sized>(k: &K, x: &Array, p: f64, seed: &Array, place: u64) -> Result<Array> {
    let words = match k.download(seed)? {
        HostData::U32(words) => words,
        other => other.to_f64().into_iter().map(|word| word as u32).collect(),
    };
    let seed = words.iter().rev().fold(0, |seed, word| seed << 32 | u64::from(*word));
    k.dropout(x, p, mix(seed ^ place))
}

/// Subtracted from a score that is to have no weight in a softmax: it is exactly 0 then.
pub const HIDDEN: f64 = 1e30;

pub(crate) fn top_k_mask<K: Kernels + ?Sized>(k: &K, x: &Array, count: usize) -> Result<Array> {
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
}
