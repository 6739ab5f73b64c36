//! Operands: the same numbers on every device, exact in f32.

use assay_tensor::{DType, Device, HostData, Result, Shape, Tensor};

/// A source of numbers that depends on its seed alone (SplitMix64; Steele, Lea and Flood, 2014).
pub(crate) struct Numbers(u64);

impl Numbers {
    /// The seed is mixed first: neighbouring seeds would otherwise give one sequence, shifted by a step, and operands
    /// that hold the same numbers.
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(Numbers(seed ^ 0x5851_f42d_4c95_7f2d).next_bits())
    }

    fn next_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `count` numbers between `low` and `high`, each exact in f32.
    pub(crate) fn numbers_between(&mut self, low: f64, high: f64, count: usize) -> Vec<f64> {
        let unit = |bits: u64| (bits >> 40) as f64 / (1u64 << 24) as f64;
        (0..count).map(|_| f64::from((low + (high - low) * unit(self.next_bits())) as f32)).collect()
    }

    /// `count` ids below `limit`.
    pub(crate) fn random_ids(&mut self, limit: u32, count: usize) -> Vec<u32> {
        (0..count).map(|_| (self.next_bits() % u64::from(limit.max(1))) as u32).collect()
    }

    /// `count` numbers over the whole range of i8.
    pub(crate) fn random_bytes(&mut self, count: usize) -> Vec<i8> {
        (0..count).map(|_| (self.next_bits() as u8).cast_signed()).collect()
    }
}

/// A tensor of these values in the type `float`.
pub(crate) fn to_tensor(device: &Device, float: DType, values: &[f64], shape: &Shape) -> Result<Tensor> {
    Tensor::from_host(device, HostData::from_f64(values, float), shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_seeds_share_no_number() {
        let of = |seed| Numbers::new(seed).numbers_between(-1.0, 1.0, 200);
        let (a, b) = (of(1), of(2));
        assert!(a.iter().all(|x| !b.contains(x)));
        assert_eq!(a, of(1));
    }
}
