//! Tests and effect sizes that look at order alone: Mann and Whitney's U, and Cliff's delta.

use serde::{Deserialize, Serialize};

use crate::describe::sorted;
use crate::distributions::normal_cdf;
use crate::error::{StatisticsError, check};

/// Up to this many samples on both sides together, the p-value is exact.
const EXACT_UP_TO: usize = 60;

/// How a rank test found its p-value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankMethod {
    /// From all ways to deal the ranks, ties included.
    Exact,
    /// From the normal approximation, corrected for ties and continuity.
    Normal,
}

/// The outcome of [`mann_whitney`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MannWhitney {
    /// U of the first sample: in how many pairs it is the larger, a tie counting half.
    pub u: f64,
    /// Two-sided: how often a random deal of the ranks lies at least as far from the middle.
    pub p: f64,
    /// How it was found.
    pub method: RankMethod,
}

/// Mann and Whitney's test (1947) that neither of two samples tends to be larger.
///
/// # Errors
/// With no sample on a side, or one that is not finite.
pub fn mann_whitney(first: &[f64], second: &[f64]) -> Result<MannWhitney, StatisticsError> {
    check(first, "a rank test", 1)?;
    check(second, "a rank test", 1)?;
    let ranks = Ranks::of(first, second);
    let n = first.len() as f64;
    let u = ranks.first_twice as f64 / 2.0 - n * (n + 1.0) / 2.0;
    let exact = first.len() + second.len() <= EXACT_UP_TO;
    let (p, method) =
        if exact { (ranks.exact_p(), RankMethod::Exact) } else { (ranks.normal_p(u), RankMethod::Normal) };
    Ok(MannWhitney { u, p, method })
}

/// Cliff's delta (N. Cliff, 1993): how much more often `first` is the larger of a pair than the smaller, from -1 to 1.
///
/// # Errors
/// As [`mann_whitney`].
pub fn cliffs_delta(first: &[f64], second: &[f64]) -> Result<f64, StatisticsError> {
    let pairs = first.len() as f64 * second.len() as f64;
    Ok(2.0 * mann_whitney(first, second)?.u / pairs - 1.0)
}

/// The ranks of two samples put together. They are kept twice as large, so that the mean rank of a tie is whole.
struct Ranks {
    /// Twice the rank of every sample, rising.
    twice: Vec<usize>,
    /// The sum over the first sample.
    first_twice: usize,
    first: usize,
    second: usize,
    /// The sizes of the groups of equal samples.
    ties: Vec<usize>,
}

impl Ranks {
    fn of(first: &[f64], second: &[f64]) -> Self {
        let all = sorted(&[first, second].concat());
        let (mut twice, mut ties, mut first_twice) = (Vec::with_capacity(all.len()), Vec::new(), 0);
        let mut start = 0;
        while start < all.len() {
            let value = all[start];
            let size = all[start..].iter().take_while(|&&other| other == value).count();
            // Ranks start+1 to start+size; twice their mean is the sum of the first and the last.
            let rank = 2 * start + size + 1;
            twice.extend(std::iter::repeat_n(rank, size));
            first_twice += rank * first.iter().filter(|&&sample| sample == value).count();
            ties.push(size);
            start += size;
        }
        Ranks { twice, first_twice, first: first.len(), second: second.len(), ties }
    }

    /// Counts the deals of `first` ranks by their sum: `ways[k][s]` deals of k ranks sum up to s. The counts stay below
    /// 2^57, and their rounding in f64 is far below what a p-value needs.
    fn exact_p(&self) -> f64 {
        let total: usize = self.twice.iter().sum();
        let mut ways = vec![vec![0.0_f64; total + 1]; self.first + 1];
        ways[0][0] = 1.0;
        let mut reached = 0;
        for &rank in &self.twice {
            reached += rank;
            for k in (1..=self.first).rev() {
                let (below, here) = ways.split_at_mut(k);
                for sum in rank..=reached {
                    here[0][sum] += below[k - 1][sum - rank];
                }
            }
        }
        // Distances from the middle, which is first / (first + second) of the total, made whole by the count of all.
        let count = self.first + self.second;
        let distance = |sum: usize| (sum * count).abs_diff(total * self.first);
        let (far, all) = ways[self.first].iter().enumerate().fold((0.0, 0.0), |(far, all), (sum, &ways)| {
            (if distance(sum) >= distance(self.first_twice) { far + ways } else { far }, all + ways)
        });
        far / all
    }

    fn normal_p(&self, u: f64) -> f64 {
        let (n, m) = (self.first as f64, self.second as f64);
        let count = n + m;
        let ties: f64 = self.ties.iter().map(|&size| (size as f64).powi(3) - size as f64).sum();
        let variance = n * m / 12.0 * (count + 1.0 - ties / (count * (count - 1.0)));
        if variance <= 0.0 {
            return 1.0;
        }
        let distance = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
        2.0 * normal_cdf(-distance / variance.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: [f64; 6] = [1.1, 2.2, 3.3, 4.4, 5.5, 6.6];
    const B: [f64; 5] = [2.0, 4.1, 6.2, 8.3, 10.4];
    const TIED_A: [f64; 7] = [1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 5.0];
    const TIED_B: [f64; 8] = [2.0, 4.0, 5.0, 6.0, 6.0, 7.0, 8.0, 9.0];

    /// `scipy.stats.mannwhitneyu(a, b, method='exact')` and `'asymptotic'`, SciPy 1.17; the tied exact
    /// value counts, with `itertools.combinations` over `scipy.stats.rankdata(a + b)`, the 101 of 6435 deals whose rank
    /// sum lies at least as far from 56.
    #[test]
    fn p_values_are_those_of_scipy() {
        let found = mann_whitney(&A, &B).unwrap();
        assert_eq!((found.u, found.method), (9.0, RankMethod::Exact));
        assert!((found.p - 0.329_004_329_004_328_97).abs() < 1e-12, "{found:?}");
        assert!((Ranks::of(&A, &B).normal_p(9.0) - 0.315_302_452_081_745_57).abs() < 1e-10);
        assert!((Ranks::of(&TIED_A, &TIED_B).normal_p(7.5) - 0.019_517_481_182_177_75).abs() < 1e-10);
        let tied = mann_whitney(&TIED_A, &TIED_B).unwrap();
        assert_eq!(tied.u, 7.5);
        assert!((tied.p - 101.0 / 6435.0).abs() < 1e-12, "{tied:?}");
    }
    #[test]
    fn the_two_ways_to_a_p_value_agree_where_both_apply() {
        let a: Vec<f64> = (0..30).map(|i| f64::from(i * 37 % 100)).collect();
        let b: Vec<f64> = (0..30).map(|i| f64::from(i * 53 % 100) + 12.0).collect();
        let found = mann_whitney(&a, &b).unwrap();
        assert_eq!(found.method, RankMethod::Exact);
        assert!((found.p - Ranks::of(&a, &b).normal_p(found.u)).abs() < 0.003, "{found:?}");
    }

    #[test]
    fn what_never_overlaps_is_as_significant_as_it_can_be() {
        // Two of the 20 deals of three and three are as extreme.
        let found = mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).unwrap();
        assert!((found.p - 0.1).abs() < 1e-15);
        assert_eq!(cliffs_delta(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).unwrap(), -1.0);
        assert_eq!(mann_whitney(&[2.0; 5], &[2.0; 7]).unwrap().p, 1.0);
        assert_eq!(mann_whitney(&[2.0; 50], &[2.0; 70]).unwrap().p, 1.0);
    }

    /// 12 of 30 pairs more are above than below, counted by hand.
    #[test]
    fn cliffs_delta_counts_pairs() {
        assert!((cliffs_delta(&B, &A).unwrap() - 0.4).abs() < 1e-15);
    }

    proptest! {
        #[test]
        fn order_is_all_that_counts(
            a in prop::collection::vec(-20_i32..20, 1..12), b in prop::collection::vec(-20_i32..20, 1..12),
        ) {
            let numbers = |values: &[i32], f: &dyn Fn(f64) -> f64| -> Vec<f64> {
                values.iter().map(|&value| f(f64::from(value))).collect()
            };
            let plain = mann_whitney(&numbers(&a, &|x| x), &numbers(&b, &|x| x)).unwrap();
            let bent = mann_whitney(&numbers(&a, &f64::exp), &numbers(&b, &f64::exp)).unwrap();
            prop_assert_eq!(plain, bent);
            let swapped = mann_whitney(&numbers(&b, &|x| x), &numbers(&a, &|x| x)).unwrap();
            prop_assert!((plain.p - swapped.p).abs() < 1e-12);
            prop_assert_eq!(plain.u + swapped.u, (a.len() * b.len()) as f64);
            prop_assert!(plain.p > 0.0 && plain.p <= 1.0);
        }
    }
}
