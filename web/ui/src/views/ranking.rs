//! Whether one cell may be called the best. Only if the data can tell it apart from every other cell.

use assay_spec::Better;
use assay_statistics::compare::{Rule, compare_replicates, correct};
use assay_statistics::{Direction, mean};

/// What may be said of the cells of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ranking {
    /// The best cell, if there is one that may be called so.
    pub best: Option<usize>,
    /// A sentence for people; empty where there is nothing to compare.
    pub verdict: String,
}

/// Ranks cells by their replicates. Cells without a value, or with one that is not finite, do not take part.
///
/// The cell with the best mean is held against every other one by Welch's test, corrected by Holm's method. Where no
/// cell scatters at all (a size in bytes), the values are exact, and are compared as such.
pub(crate) fn rank(cells: &[&[f64]], better: Better) -> Ranking {
    let none = |verdict: &str| Ranking { best: None, verdict: verdict.into() };
    let direction = match better {
        Better::Lower => Direction::LowerIsBetter,
        Better::Higher => Direction::HigherIsBetter,
        Better::Neither => return none(""),
    };
    let sound = |values: &[f64]| !values.is_empty() && values.iter().all(|value| value.is_finite());
    let means = cells.iter().enumerate().filter(|(_, values)| sound(values));
    let means: Vec<(usize, f64)> = means.filter_map(|(at, values)| Some((at, mean(values).ok()?))).collect();
    let sign = if direction == Direction::LowerIsBetter { 1.0 } else { -1.0 };
    let Some(&(leader, best)) = means.iter().min_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1))) else {
        return none("");
    };
    if means.len() < 2 {
        return none("");
    }
    if means.iter().any(|&(at, _)| cells[at].len() < 2) {
        return none("not ranked: a single observation has no uncertainty");
    }
    if means.iter().all(|&(at, _)| cells[at].windows(2).all(|pair| pair[0] == pair[1])) {
        return exact(&means, leader, best);
    }
    against_the_others(cells, &means, leader, direction)
}

fn exact(means: &[(usize, f64)], leader: usize, best: f64) -> Ranking {
    let ties = means.iter().filter(|(_, mean)| *mean == best).count();
    if ties == means.len() {
        return Ranking { best: None, verdict: "the same in every cell".into() };
    }
    let best = (ties == 1).then_some(leader);
    let verdict =
        if ties == 1 { "best; no scatter".into() } else { format!("{ties} cells are equally good; no scatter") };
    Ranking { best, verdict }
}

fn against_the_others(cells: &[&[f64]], means: &[(usize, f64)], leader: usize, direction: Direction) -> Ranking {
    let others = means.iter().filter(|(at, _)| *at != leader);
    let compared = others.map(|(at, _)| compare_replicates(cells[leader], cells[*at], direction, &Rule::default()));
    let Ok(mut compared) = compared.collect::<Result<Vec<_>, _>>() else {
        return Ranking { best: None, verdict: "not ranked".into() };
    };
    let corrected = correct(&mut compared).is_ok();
    let apart = compared.iter().filter(|comparison| comparison.significant()).count();
    if corrected && apart == compared.len() {
        return Ranking { best: Some(leader), verdict: "best; told apart from every other cell".into() };
    }
    let close = compared.len() - apart + 1;
    let verdict = if close == means.len() {
        format!("not ranked: the {close} cells cannot be told apart")
    } else {
        format!("not ranked: {close} of {} cells cannot be told apart", means.len())
    };
    Ranking { best: None, verdict }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(cells: &[&[f64]], better: Better, best: Option<usize>, verdict: &str) {
        assert_eq!(rank(cells, better), Ranking { best, verdict: verdict.into() });
    }

    #[test]
    fn a_winner_needs_evidence() {
        let (low, high, middle) = ([1.0, 1.01, 0.99], [2.0, 2.01, 1.99], [1.01, 1.02, 0.98]);
        check(&[&high, &low], Better::Lower, Some(1), "best; told apart from every other cell");
        check(&[&high, &low], Better::Higher, Some(0), "best; told apart from every other cell");
        check(&[&high, &low, &middle], Better::Lower, None, "not ranked: 2 of 3 cells cannot be told apart");
        check(&[&low, &middle], Better::Lower, None, "not ranked: the 2 cells cannot be told apart");
        check(&[&high, &low], Better::Neither, None, "");
    }

    #[test]
    fn what_cannot_be_compared_is_not() {
        check(&[&[1.0], &[2.0, 2.1]], Better::Lower, None, "not ranked: a single observation has no uncertainty");
        check(&[&[1.0, 1.1], &[], &[f64::NAN, 0.1]], Better::Lower, None, "");
        check(&[], Better::Lower, None, "");
    }

    #[test]
    fn exact_values_are_compared_as_such() {
        check(&[&[8.0, 8.0], &[4.0, 4.0]], Better::Lower, Some(1), "best; no scatter");
        check(&[&[4.0, 4.0], &[4.0, 4.0]], Better::Lower, None, "the same in every cell");
        check(&[&[4.0, 4.0], &[4.0, 4.0], &[5.0, 5.0]], Better::Lower, None, "2 cells are equally good; no scatter");
    }

    proptest! {
        #[test]
        fn the_best_has_the_best_mean(cells in prop::collection::vec(prop::collection::vec(-1e3..1e3_f64, 0..5), 0..6)) {
            let cells: Vec<&[f64]> = cells.iter().map(Vec::as_slice).collect();
            if let Some(best) = rank(&cells, Better::Lower).best {
                let of = |values: &[f64]| mean(values).unwrap_or(f64::INFINITY);
                prop_assert!(cells.iter().all(|cell| of(cell) >= of(cells[best])));
            }
        }
    }
}
