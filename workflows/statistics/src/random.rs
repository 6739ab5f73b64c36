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
