//! How much of the variation of a metric each axis of a sweep accounts for.
//!
//! The variance of one observation is split into what the axes, their interactions and the replicates contribute: a term's share is
//! omega squared, `l / (sum of all l + N)`, where `l` is the estimated noncentrality of the term (`SS / MSE` less its degrees of freedom)
//! and N the number of observations (W. L. Hays, Statistics, 1963). Sums of squares are of type II, as in [`analyse`](super::analyse).

use serde::{Deserialize, Serialize};

use super::analysis::{Sheet, list_terms};
use super::design::{Axis, Cells, FactorialObservation};
use super::linear::residual;
use crate::comparisons::cells::{CellMeans, ErrorTerm};
use crate::comparisons::compare::Direction;
use crate::comparisons::scale::{Scale, convert_to_scale, poolable_scale};
use crate::distributions::{noncentral_fisher_cdf, solve_rising};
use crate::error::{StatisticsError, check_open_unit};
use crate::estimate::Interval;

/// What the statistic is called in errors.
const WHAT: &str = "a share of the variance";
/// No share is distinguishable from 1 above this noncentrality.
const LARGEST: f64 = 1e12;

/// The shares of the variance of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Importance {
    /// The scale of the values.
    pub scale: Scale,
    /// Of each axis, then of each pair of axes.
    pub shares: Vec<VarianceShare>,
    /// The share of interactions of three or more axes; 0 with one or two axes.
    pub higher: f64,
    /// The share of what differs between the replicates of a cell.
    pub error: f64,
}

/// The share of an axis, or of the interaction of two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VarianceShare {
    /// The axes, by their places.
    pub axes: Vec<usize>,
    /// The share, from 0 to 1; `None` where missing cells leave nothing of the term.
    pub share: Option<f64>,
    /// Its interval, with the other terms held at their estimates: the ends are the noncentralities with which the observed F ratio would
    /// be at the ends of its distribution (J. H. Steiger, Psychological Methods 9, 2004). `None` where nothing scatters.
    pub interval: Option<Interval>,
}

/// Splits the variance of a sweep. The replicates of some cell must differ in number from one; blocks (seeds) that have an effect are
/// removed first.
///
/// # Errors
/// With observations that do not fit the axes, or are not finite; with a level of confidence outside 0 to 1; without two replicates in
/// any cell; if cells do not scatter alike on any scale; if all values are equal.
pub fn variance_shares(
    axes: &[Axis],
    observations: &[FactorialObservation],
    level: f64,
) -> Result<Importance, StatisticsError> {
    check_open_unit("the confidence level", level)?;
    let mut cells = Cells::of(axes, observations)?;
    if cells.observations.iter().all(|cell| cell.len() < 2) {
        return Err(StatisticsError::TooFew { what: "the error between replicates", needed: 2, found: 1 });
    }
    let (Some(scale), _) = poolable_scale(&cells.observations) else {
        return Err(StatisticsError::UnequalVariances { what: WHAT });
    };
    cells.observations = convert_to_scale(&cells.observations, scale);
    let fit = CellMeans::pooled(&cells.observations);
    let ErrorTerm::Pooled { deviation, freedom, blocked, .. } = fit.error else {
        return Err(StatisticsError::UnequalVariances { what: WHAT });
    };
    // Only the sums of squares are used, which have no direction.
    let sheet = Sheet { axes, cells: &cells, fit: &fit, level, direction: Direction::LowerIsBetter };
    let terms = list_terms(axes.len());
    let squares: Vec<(f64, usize)> = terms.iter().map(|term| sheet.sum_of_squares(term, &terms)).collect();
    let variance = deviation * deviation;
    let rest = rest_of_cells(&sheet, &terms, variance * freedom, blocked);
    let (shares, higher, error) = if variance > 0.0 {
        shares_with_error(&squares, rest, (variance, freedom), observations.len() as f64, level)
    } else {
        exact_shares(&squares, rest.0).ok_or(StatisticsError::NoVariation { what: WHAT })?
    };
    let share = |(axes, (share, interval)): (Vec<usize>, (Option<f64>, Option<Interval>))| VarianceShare {
        axes,
        share,
        interval,
    };
    Ok(Importance { scale, shares: std::iter::zip(terms, shares).map(share).collect(), higher, error })
}

/// What differs between cells beyond all terms, with its degrees of freedom. `within` is the sum of squares of the error.
fn rest_of_cells(sheet: &Sheet<'_>, terms: &[Vec<usize>], within: f64, blocked: bool) -> (f64, usize) {
    let base = sheet.base_columns();
    let columns: Vec<Vec<f64>> = terms.iter().flat_map(|term| sheet.cells.columns(sheet.axes, term)).collect();
    let (left, rank) = residual(base.iter().chain(&columns), &sheet.values());
    let blocks = if blocked { base.len() - 1 } else { 0 };
    let freedom = (sheet.cells.levels.len() + blocks).saturating_sub(rank);
    if freedom == 0 { (0.0, 0) } else { ((left - within).max(0.0), freedom) }
}

type Shares = (Vec<(Option<f64>, Option<Interval>)>, f64, f64);

fn shares_with_error(
    squares: &[(f64, usize)],
    rest: (f64, usize),
    (variance, freedom): (f64, f64),
    count: f64,
    level: f64,
) -> Shares {
    let noncentrality = |&(squares, own): &(f64, usize)| (squares / variance - own as f64).max(0.0);
    let total = squares.iter().map(noncentrality).sum::<f64>() + noncentrality(&rest) + count;
    let share = |term: &(f64, usize)| {
        let (squares, own) = (term.0, term.1 as f64);
        if term.1 == 0 {
            return (None, None);
        }
        let ratio = squares / own / variance;
        let others = total - noncentrality(term);
        // The cumulative probability falls with the noncentrality.
        let end = |p: f64| {
            let at = solve_rising(1.0 - p, LARGEST, |l| 1.0 - noncentral_fisher_cdf(ratio, own, freedom, l));
            at / (at + others)
        };
        let estimate = noncentrality(term) / total;
        let (low, high) = (end(0.5 + level / 2.0).min(estimate), end(0.5 - level / 2.0).max(estimate));
        (Some(estimate), Some(Interval { low, high, level }))
    };
    (squares.iter().map(share).collect(), noncentrality(&rest) / total, count / total)
}

/// The shares of values that do not scatter; `None` if they are all equal.
fn exact_shares(squares: &[(f64, usize)], rest: f64) -> Option<Shares> {
    let total = squares.iter().map(|term| term.0).sum::<f64>() + rest;
    let share = |term: &(f64, usize)| ((term.1 > 0).then_some(term.0 / total), None);
    (total > 0.0).then(|| (squares.iter().map(share).collect(), rest / total, 0.0))
}

#[cfg(test)]
#[path = "importance_tests.rs"]
mod tests;
