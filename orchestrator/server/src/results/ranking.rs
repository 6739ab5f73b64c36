//! Whether one cell may be called the best. Only if the data can distinguish it from every other cell.

use assay_spec::Better;
use assay_statistics::compare::{Rule, compare_replicates, correct};
use assay_statistics::{Direction, mean};

/// What may be said of the cells of one column. Cells are named by their places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranking {
    /// The cell with the best mean; `None` where there is nothing to compare.
    pub leader: Option<usize>,
    /// The cells that the data cannot distinguish from the leader, which is left out.
    pub close: Vec<usize>,
    /// The leader, if it may be called the best: the data distinguish it from every other cell.
    pub best: Option<usize>,
    /// A sentence for people; empty where there is nothing to compare.
    pub verdict: String,
}

impl Ranking {
    fn new(leader: usize, close: Vec<usize>, verdict: impl Into<String>) -> Self {
        let best = close.is_empty().then_some(leader);
        Ranking { leader: Some(leader), close, best, verdict: verdict.into() }
    }
}

/// Ranks cells by their replicates. Cells without a value, or with one that is not finite, do not take part.
///
/// The cell with the best mean is held against every other one by Welch's test, corrected by Holm's method. Where no
/// cell scatters at all (a size in bytes), the values are exact, and are compared as such.
#[must_use]
pub fn rank_cells(cells: &[&[f64]], better: Better) -> Ranking {
    let direction = match better {
        Better::Lower => Direction::LowerIsBetter,
        Better::Higher => Direction::HigherIsBetter,
        Better::Neither => return Ranking::default(),
    };
    let sound = |values: &[f64]| !values.is_empty() && values.iter().all(|value| value.is_finite());
    let means = cells.iter().enumerate().filter(|(_, values)| sound(values));
    let means: Vec<(usize, f64)> = means.filter_map(|(at, values)| Some((at, mean(values).ok()?))).collect();
    let sign = if direction == Direction::LowerIsBetter { 1.0 } else { -1.0 };
    let Some(&(leader, best)) = means.iter().min_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1))) else {
        return Ranking::default();
    };
    if means.len() < 2 {
        return Ranking::default();
    }
    let mut ranking = if means.iter().any(|&(at, _)| cells[at].len() < 2) {
        let others = means.iter().map(|&(at, _)| at).filter(|at| *at != leader).collect();
        Ranking::new(leader, others, "not ranked: a single observation has no uncertainty")
    } else if means.iter().all(|&(at, _)| cells[at].windows(2).all(|pair| pair[0] == pair[1])) {
        rank_exact(&means, leader, best)
    } else {
        rank_by_test(cells, &means, leader, direction)
    };
    let spoiled = cells.iter().filter(|values| values.iter().any(|value| !value.is_finite())).count();
    if spoiled > 0 {
        let noun = if spoiled == 1 { "cell" } else { "cells" };
        ranking.verdict += &format!("; {spoiled} {noun} with values that are not finite left out");
    }
    ranking
}

fn rank_exact(means: &[(usize, f64)], leader: usize, best: f64) -> Ranking {
    let ties: Vec<usize> =
        means.iter().filter(|(at, mean)| *mean == best && *at != leader).map(|(at, _)| *at).collect();
    let equal = ties.len() + 1;
    let verdict = match equal {
        1 => "best; no scatter".to_owned(),
        equal if equal == means.len() => "the same in every cell".to_owned(),
        equal => format!("{equal} cells are equally good; no scatter"),
    };
    Ranking::new(leader, ties, verdict)
}

fn rank_by_test(cells: &[&[f64]], means: &[(usize, f64)], leader: usize, direction: Direction) -> Ranking {
    let others: Vec<usize> = means.iter().map(|(at, _)| *at).filter(|at| *at != leader).collect();
    let compared = others.iter().map(|at| compare_replicates(cells[leader], cells[*at], direction, &Rule::default()));
    let compared = compared.collect::<Result<Vec<_>, _>>().and_then(|mut compared| {
        correct(&mut compared)?;
        Ok(compared)
    });
    let Ok(compared) = compared else { return Ranking::new(leader, others, "not ranked") };
    let close = std::iter::zip(others, compared).filter(|(_, comparison)| !comparison.significant());
    let close: Vec<usize> = close.map(|(at, _)| at).collect();
    let verdict = match close.len() + 1 {
        1 => "best; distinguished from every other cell".to_owned(),
        count if count == means.len() => format!("not ranked: the {count} cells cannot be distinguished"),
        count => format!("not ranked: {count} of {} cells cannot be distinguished", means.len()),
    };
    Ranking::new(leader, close, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_ranking(cells: &[&[f64]], better: Better, best: Option<usize>, close: &[usize], verdict: &str) {
        let found = rank_cells(cells, better);
        assert_eq!((found.best, found.close.as_slice(), found.verdict.as_str()), (best, close, verdict));
    }

    #[test]
    fn a_winner_needs_evidence() {
        let (low, high, middle) = ([1.0, 1.01, 0.99], [2.0, 2.01, 1.99], [1.01, 1.02, 0.98]);
        check_ranking(&[&high, &low], Better::Lower, Some(1), &[], "best; distinguished from every other cell");
        check_ranking(&[&high, &low], Better::Higher, Some(0), &[], "best; distinguished from every other cell");
        let words = "not ranked: 2 of 3 cells cannot be distinguished";
        check_ranking(&[&high, &low, &middle], Better::Lower, None, &[2], words);
        assert_eq!(rank_cells(&[&high, &low, &middle], Better::Lower).leader, Some(1));
        check_ranking(&[&low, &middle], Better::Lower, None, &[1], "not ranked: the 2 cells cannot be distinguished");
        check_ranking(&[&high, &low], Better::Neither, None, &[], "");
    }

    #[test]
    fn what_cannot_be_compared_is_not() {
        let words = "not ranked: a single observation has no uncertainty";
        check_ranking(&[&[1.0], &[2.0, 2.1]], Better::Lower, None, &[1], words);
        check_ranking(&[&[1.0, 1.1], &[], &[f64::NAN, 0.1]], Better::Lower, None, &[], "");
        check_ranking(&[], Better::Lower, None, &[], "");
    }

    #[test]
    fn a_cell_that_diverged_is_left_out_and_that_is_said() {
        let words = "best; distinguished from every other cell; 1 cell with values that are not finite left out";
        check_ranking(&[&[1.0, 1.01, 0.99], &[2.0, 2.01, 1.99], &[0.5, f64::NAN]], Better::Lower, Some(0), &[], words);
    }

    #[test]
    fn exact_values_are_compared_as_such() {
        check_ranking(&[&[8.0, 8.0], &[4.0, 4.0]], Better::Lower, Some(1), &[], "best; no scatter");
        check_ranking(&[&[4.0, 4.0], &[4.0, 4.0]], Better::Lower, None, &[1], "the same in every cell");
        let words = "2 cells are equally good; no scatter";
        check_ranking(&[&[4.0, 4.0], &[4.0, 4.0], &[5.0, 5.0]], Better::Lower, None, &[1], words);
    }

    #[test]
    fn the_best_has_the_best_mean() {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1_u32 << 31)
        };
        for _ in 0..500 {
            let count = (next() * 6.0) as usize;
            let cells: Vec<Vec<f64>> =
                (0..count).map(|_| (0..(next() * 5.0) as usize).map(|_| next() * 2e3 - 1e3).collect()).collect();
            let cells: Vec<&[f64]> = cells.iter().map(Vec::as_slice).collect();
            let found = rank_cells(&cells, Better::Lower);
            if let Some(leader) = found.leader {
                let of = |values: &[f64]| mean(values).unwrap_or(f64::INFINITY);
                assert!(cells.iter().all(|cell| of(cell) >= of(cells[leader])));
                assert!(found.best.is_none_or(|best| best == leader) && !found.close.contains(&leader));
            }
        }
    }
}
