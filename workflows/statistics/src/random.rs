//! Random draws that are the same on every machine and with every version of the `rand` crates: ChaCha8 gives the
//! bits, and what is made of the bits stands here.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A seeded source of random draws.
pub struct Random(ChaCha8Rng);

impl Random {
    /// The source of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `bound`, or 0 below 0; each as likely as the others. (Lemire's multiplication; the bias is below 2^-32 for the
    /// sizes of samples, and there is no rejection, so that the number of draws is fixed.)
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Shuffles by Fisher and Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Fills `out` with as many draws from `samples` as there are, with replacement.
    pub fn resample(&mut self, samples: &[f64], out: &mut Vec<f64>) {
        out.clear();
        out.extend((0..samples.len()).map(|_| samples[self.below(samples.len())]));
    }

    /// A number in [0, 1) with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A draw from the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.unit(), self.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Each of the six orders of three comes up in 1,000 of 6,000 shuffles, to five standard errors,
    /// 5 sqrt(6000 1/6 5/6) = 144.
    #[test]
    fn every_order_is_as_likely_as_the_others() {
        let mut random = Random::new(11);
        let mut counts: BTreeMap<[u8; 3], u32> = BTreeMap::new();
        for _ in 0..6_000 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            *counts.entry(items).or_default() += 1;
        }
        assert_eq!(counts.len(), 6, "{counts:?}");
        assert!(counts.values().all(|count| count.abs_diff(1_000) < 144), "{counts:?}");
    }

    #[test]
    fn a_shuffle_keeps_the_items_and_repeats_with_its_seed() {
        let shuffled = |seed: u64| {
            let mut items: Vec<u32> = (0..50).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        let mut found = shuffled(1);
        assert_eq!(found, shuffled(1));
        assert_ne!(found, shuffled(2));
        found.sort_unstable();
        assert_eq!(found, (0..50).collect::<Vec<u32>>());
    }
}
