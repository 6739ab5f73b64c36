//! Main effects and interactions with one error for all cells.
//!
//! Each effect is tested by an F test with sums of squares of type II (each term beyond all others that do not contain
//! it), which unbalanced data and missing cells do not disturb. The error is that between the replicates of a cell.

use serde::{Deserialize, Serialize};

use super::design::{Axis, Cells, FactorialObservation};
use super::linear::residual;
use crate::comparisons::cells::{CellMeans, ErrorTerm, Observation, values};
use crate::comparisons::compare::Direction;
use crate::comparisons::correction::holm_of_tested;
use crate::comparisons::power::critical_value;
use crate::comparisons::scale::{Scale, convert_to_scale, poolable_scale};
use crate::distributions::{fisher_tail, student_cdf, student_quantile};
use crate::error::{StatisticsError, check_open_unit};
use crate::estimate::{Estimate, Method};

/// What the axes of a sweep do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// The scale: where it is logarithmic, effects are differences of natural logarithms.
    pub scale: Scale,
    /// The error of effects.
    pub error: ErrorTerm,
    /// The p-value of the hypothesis that cells scatter alike as measured; `None` where nothing scatters.
    pub equal_variances: Option<f64>,
    /// The main effect of each axis, then the interaction of each pair of axes.
    pub effects: Vec<Effect>,
}

/// The effect of an axis, or the interaction of two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The axes, by their places.
    pub axes: Vec<usize>,
    /// Its degrees of freedom; 0 where missing cells leave nothing of it.
    pub freedom: usize,
    /// The F statistic; `None` without freedom, without scatter, or where cells have separate variances.
    pub f: Option<f64>,
    /// Its p-value.
    pub p: Option<f64>,
    /// `p` after Holm's correction for all effects.
    pub p_corrected: Option<f64>,
    /// Partial eta squared: the share of the effect in the sum of its variation and the error's, from 0 to 1.
    pub share: Option<f64>,
    /// Of an axis: its levels, in order, over the combinations of the other axes that every level has. Empty of an
    /// interaction, and where there is no such combination.
    pub levels: Vec<LevelEffect>,
    /// Of an ordered axis: how the metric goes along it.
    pub trend: Option<Trend>,
}

/// A level of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LevelEffect {
    /// The mean over the combinations of the other axes, each counting alike.
    pub mean: f64,
    /// That mean less the mean of all levels, with Student's interval.
    pub effect: Estimate,
    /// Whether this level is not worse than the best one as far as the data can tell (Hsu's comparison with the best).
    pub may_be_best: bool,
}

/// How a metric goes along an ordered axis: the contrast of the levels that is linear in their positions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trend {
    /// The change for each doubling of the position where all positions are above zero, else for each unit of it.
    pub slope: Estimate,
    /// Whether it is for each doubling.
    pub per_doubling: bool,
    /// Two-sided; `None` where nothing scatters.
    pub p: Option<f64>,
}

/// Analyses a sweep. Cells with one replicate take part, as long as some cell has two. Where cells do not scatter
/// alike on either scale, effects have no F test, and each level's interval takes the variances of its own cells (of cells
/// with one replicate there is none: such data are refused then).
///
/// # Errors
/// With observations that do not fit the axes, or are not finite; with a level of confidence outside 0 to 1; without two
/// replicates in any cell, or with one in some cell where variances are separate.
pub fn analyse(
    axes: &[Axis],
    observations: &[FactorialObservation],
    direction: Direction,
    level: f64,
) -> Result<Analysis, StatisticsError> {
    check_open_unit("the confidence level", level)?;
    let mut cells = Cells::of(axes, observations)?;
    if cells.observations.iter().all(|cell| cell.len() < 2) {
        return Err(StatisticsError::TooFew { what: "the error between replicates", needed: 2, found: 1 });
    }
    let (scale, equal_variances) = poolable_scale(&cells.observations);
    cells.observations = convert_to_scale(&cells.observations, scale.unwrap_or(Scale::Linear));
    let fit = match scale {
        Some(_) => CellMeans::pooled(&cells.observations),
        None => separate(&cells.observations)?,
    };
    let sheet = Sheet { axes, cells: &cells, fit: &fit, level, direction };
    let terms = list_terms(axes.len());
    let mut effects: Vec<Effect> = terms.iter().map(|term| sheet.effect(term, &terms)).collect();
    let tested: Vec<Option<f64>> = effects.iter().map(|effect| effect.p).collect();
    for (effect, corrected) in std::iter::zip(&mut effects, holm_of_tested(&tested)?) {
        effect.p_corrected = corrected;
    }
    Ok(Analysis { scale: scale.unwrap_or(Scale::Linear), error: fit.error.clone(), equal_variances, effects })
}

/// Each axis, then each pair of axes.
pub(super) fn list_terms(axes: usize) -> Vec<Vec<usize>> {
    let singles = (0..axes).map(|axis| vec![axis]);
    let pairs = (0..axes).flat_map(|a| (a + 1..axes).map(move |b| vec![a, b]));
    singles.chain(pairs).collect()
}

fn separate(cells: &[Vec<Observation>]) -> Result<CellMeans, StatisticsError> {
    match values(cells).iter().find(|cell| cell.len() < 2) {
        Some(_) => Err(StatisticsError::TooFew { what: "a cell with a variance of its own", needed: 2, found: 1 }),
        None => Ok(CellMeans::separate(cells)),
    }
}

/// All that an effect is computed from.
pub(super) struct Sheet<'a> {
    pub axes: &'a [Axis],
    pub cells: &'a Cells,
    pub fit: &'a CellMeans,
    pub level: f64,
    pub direction: Direction,
}

impl Sheet<'_> {
    fn effect(&self, term: &[usize], terms: &[Vec<usize>]) -> Effect {
        let (squares, freedom) = self.sum_of_squares(term, terms);
        let (mut f, mut p, mut share) = (None, None, None);
        if let ErrorTerm::Pooled { deviation, freedom: error_freedom, .. } = self.fit.error
            && freedom > 0
            && deviation > 0.0
        {
            let ratio = squares / freedom as f64 / (deviation * deviation);
            (f, p) = (Some(ratio), Some(fisher_tail(ratio, freedom as f64, error_freedom)));
            share = Some(squares / (squares + deviation * deviation * error_freedom));
        }
        let weights = if let [axis] = term { self.level_weights(*axis) } else { Vec::new() };
        let levels = self.levels(&weights);
        let trend = term.first().filter(|_| !weights.is_empty()).and_then(|axis| self.trend(*axis, &weights));
        Effect { axes: term.to_vec(), freedom, f, p, p_corrected: None, share, levels, trend }
    }

    /// The observations, cell by cell.
    pub fn values(&self) -> Vec<f64> {
        self.cells.rows().iter().map(|(_, observation)| observation.value).collect()
    }

    /// The columns that every model has: the constant, and the blocks if they are removed from the error.
    pub fn base_columns(&self) -> Vec<Vec<f64>> {
        let mut columns = vec![vec![1.0; self.cells.rows().len()]];
        if matches!(self.fit.error, ErrorTerm::Pooled { blocked: true, .. }) {
            columns.extend(self.cells.block_columns());
        }
        columns
    }

    /// Of type II: what the term explains beyond all terms that do not contain it.
    pub fn sum_of_squares(&self, term: &[usize], terms: &[Vec<usize>]) -> (f64, usize) {
        let y = self.values();
        let contains = |other: &&Vec<usize>| !term.iter().all(|axis| other.contains(axis));
        let mut columns = self.base_columns();
        columns.extend(terms.iter().filter(contains).flat_map(|other| self.cells.columns(self.axes, other)));
        let own = self.cells.columns(self.axes, term);
        let (without, few) = residual(&columns, &y);
        let (with, many) = residual(columns.iter().chain(&own), &y);
        ((without - with).max(0.0), many - few)
    }

    /// For each level of an axis the cells that its mean is over, by place: those of the combinations of the other axes that
    /// every level has.
    fn level_weights(&self, axis: usize) -> Vec<Vec<usize>> {
        let others = |cell: usize| {
            let mut levels = self.cells.levels[cell].clone();
            levels.remove(axis);
            levels
        };
        let count = self.cells.levels.len();
        let is_common =
            |cell: &usize| (0..count).filter(|&other| others(other) == others(*cell)).count() == self.axes[axis].levels;
        let common: Vec<usize> = (0..count).filter(is_common).collect();
        if common.is_empty() {
            return Vec::new();
        }
        let at = |level: usize| common.iter().copied().filter(|&cell| self.cells.levels[cell][axis] == level).collect();
        (0..self.axes[axis].levels).map(at).collect()
    }

    fn levels(&self, weights: &[Vec<usize>]) -> Vec<LevelEffect> {
        let count = weights.len() as f64;
        let mean =
            |cells: &Vec<usize>| cells.iter().map(|&cell| self.fit.means[cell]).sum::<f64>() / cells.len() as f64;
        let sign = if self.direction == Direction::HigherIsBetter { 1.0 } else { -1.0 };
        let level = |(place, cells): (usize, &Vec<usize>)| {
            let shares: Vec<f64> =
                (0..weights.len()).map(|other| f64::from(u8::from(other == place)) - 1.0 / count).collect();
            let others = weights.iter().enumerate().filter(|(other, _)| *other != place);
            let may_be_best = others
                .into_iter()
                .all(|(other, rival)| sign * (mean(rival) - mean(cells)) <= self.margin(weights, place, other));
            LevelEffect { mean: mean(cells), effect: self.contrast(weights, &shares).0, may_be_best }
        };
        weights.iter().enumerate().map(level).collect()
    }

    /// By how much another level must be better to leave a level out of those that may be the best.
    fn margin(&self, weights: &[Vec<usize>], place: usize, other: usize) -> f64 {
        let mut shares = vec![0.0; weights.len()];
        (shares[place], shares[other]) = (1.0, -1.0);
        let (_, error, freedom) = self.fit.contrast(&weigh(weights, &shares));
        let equal = vec![std::f64::consts::FRAC_1_SQRT_2; weights.len() - 1];
        if error > 0.0 { error * critical_value(1.0 - self.level, &equal, freedom) } else { 0.0 }
    }

    /// A weighted sum of level means, with its p-value.
    fn contrast(&self, weights: &[Vec<usize>], shares: &[f64]) -> (Estimate, Option<f64>) {
        let (value, error, freedom) = self.fit.contrast(&weigh(weights, shares));
        let n = weights.iter().flatten().map(|&cell| self.fit.counts[cell]).sum();
        if error == 0.0 {
            return (Estimate::bare(value, n), None);
        }
        let half = error * student_quantile(0.5 + self.level / 2.0, freedom);
        let p = 2.0 * student_cdf(-(value / error).abs(), freedom);
        (Estimate::with(value, (value - half, value + half), self.level, n, Method::Contrast), Some(p))
    }

    fn trend(&self, axis: usize, weights: &[Vec<usize>]) -> Option<Trend> {
        let positions = &self.axes[axis].positions;
        let per_doubling = positions.iter().all(|&at| at > 0.0);
        let x: Vec<f64> = positions.iter().map(|at| if per_doubling { at.log2() } else { *at }).collect();
        let middle = x.iter().sum::<f64>() / x.len() as f64;
        let spread: f64 = x.iter().map(|x| (x - middle).powi(2)).sum();
        if x.is_empty() || spread == 0.0 {
            return None;
        }
        let shares: Vec<f64> = x.iter().map(|x| (x - middle) / spread).collect();
        let (slope, p) = self.contrast(weights, &shares);
        Some(Trend { slope, per_doubling, p })
    }
}

/// The weight of each cell in a weighted sum of level means.
fn weigh(levels: &[Vec<usize>], shares: &[f64]) -> Vec<(usize, f64)> {
    let of_level = |(cells, share): (&Vec<usize>, &f64)| {
        let weight = share / cells.len() as f64;
        cells.iter().map(|&cell| (cell, weight)).collect::<Vec<_>>()
    };
    std::iter::zip(levels, shares).flat_map(of_level).collect()
}

#[cfg(test)]
#[path = "analysis_tests.rs"]
mod tests;
