//! Seeds for each purpose, and shuffling, with the same results on every machine.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// A seed for one purpose of one replicate, unrelated to other seeds (the finalizer of splitmix64).
#[must_use]
pub fn seed_for(seed: u64, replicate: u32, purpose: &str) -> u64 {
    let start = mix(mix(seed) ^ u64::from(replicate));
    purpose.bytes().fold(start, |state, byte| mix(state ^ u64::from(byte)))
}

/// The finalizer of splitmix64: a bijection whose output looks random.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Fisher and Yates's shuffle.
pub fn shuffle<T>(items: &mut [T], rng: &mut ChaCha8Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.random_range(0..=last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    #[test]
    fn seeds_differ_by_seed_replicate_and_purpose() {
        let seeds = [seed_for(1, 1, "a"), seed_for(2, 1, "a"), seed_for(1, 2, "a"), seed_for(1, 1, "b")];
        let distinct: std::collections::BTreeSet<_> = seeds.into_iter().collect();
        assert_eq!(distinct.len(), seeds.len());
        assert_eq!(seed_for(1, 1, "a"), seeds[0]);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<_> = (0..100).collect();
        shuffle(&mut items, &mut ChaCha8Rng::seed_from_u64(1));
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
