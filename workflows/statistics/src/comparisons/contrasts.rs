//! Comparisons that were planned: families of cells with one another, and every cell with a baseline.

use serde::{Deserialize, Serialize};

use super::cells::{CellMeans, ErrorTerm, Observation, check_cells, values};
use super::scale::{equal_variances, is_poolable};
use crate::distributions::{Sides, many_one_critical, many_one_tail, student_cdf, student_quantile};
use crate::distributions::{studentized_range_cdf, studentized_range_critical};
use crate::error::{StatisticsError, check_open_unit};
use crate::estimate::{Estimate, Method};

/// A difference with its test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Contrast {
    /// In the unit of the observations.
    pub difference: Estimate,
    /// Two-sided; corrected for all comparisons that it was made together with. `None` where nothing scatters.
    pub p: Option<f64>,
}

/// Cells with the error of planned comparisons: pooled if [`equal_variances`] does not speak against it (with blocks if they
/// matter), otherwise separate.
pub struct Experiment {
    fit: CellMeans,
    level: f64,
}

impl Experiment {
    /// Fits cells at the confidence level `level`.
    ///
    /// # Errors
    /// With fewer than two cells, a cell with fewer than two observations, or one that is not finite; with a level outside
    /// 0 to 1.
    pub fn of(cells: &[Vec<Observation>], level: f64) -> Result<Self, StatisticsError> {
        check_cells(cells)?;
        check_open_unit("the confidence level", level)?;
        let poolable = is_poolable(equal_variances(&values(cells)), cells.len());
        let fit = if poolable { CellMeans::pooled(cells) } else { CellMeans::separate(cells) };
        Ok(Experiment { fit, level })
    }

    /// The error of differences.
    #[must_use]
    pub fn error(&self) -> &ErrorTerm {
        &self.fit.error
    }

    /// The mean of the cells of `first` less that of `second`, each cell counting alike: a planned contrast such as one
    /// family of models against another. Student's t, not corrected.
    ///
    /// # Errors
    /// With a family that has no cell, or a place that no cell has.
    pub fn families(&self, first: &[usize], second: &[usize]) -> Result<Contrast, StatisticsError> {
        self.check_places(first)?;
        self.check_places(second)?;
        let weigh = |family: &[usize], sign: f64| -> Vec<(usize, f64)> {
            family.iter().map(|&cell| (cell, sign / family.len() as f64)).collect()
        };
        Ok(self.contrast(&[weigh(first, 1.0), weigh(second, -1.0)].concat()))
    }

    /// A weighted sum of cells' means, whose weights add up to zero.
    pub(crate) fn contrast(&self, weights: &[(usize, f64)]) -> Contrast {
        let (value, error, freedom) = self.fit.contrast(weights);
        let n = weights.iter().map(|&(cell, _)| self.fit.counts[cell]).sum();
        let p = (error > 0.0).then(|| 2.0 * student_cdf(-(value / error).abs(), freedom));
        self.with_margin(value, error * student_quantile(0.5 + self.level / 2.0, freedom), n, p, Method::Contrast)
    }

    fn with_margin(&self, value: f64, half: f64, n: usize, p: Option<f64>, method: Method) -> Contrast {
        let difference = match p {
            Some(_) => Estimate::with(value, (value - half, value + half), self.level, n, method),
            None => Estimate::bare(value, n),
        };
        Contrast { difference, p }
    }

    /// Every other cell less the baseline, in the order of the cells (C. W. Dunnett, 1955): intervals that hold together
    /// with the confidence level, and p-values that are corrected for each other. Where variances are separate, each pair
    /// has its own error with Welch's degrees of freedom, and the critical value is Dunnett's with these degrees of freedom:
    /// an approximation like that of Games and Howell for all pairs.
    ///
    /// # Errors
    /// With a baseline that no cell is.
    pub fn against_baseline(&self, baseline: usize) -> Result<Vec<Contrast>, StatisticsError> {
        self.check_places(&[baseline])?;
        let others: Vec<usize> = (0..self.fit.means.len()).filter(|cell| *cell != baseline).collect();
        let loading = |cell: &usize| {
            let (m, n) = (self.fit.counts[*cell] as f64, self.fit.counts[baseline] as f64);
            (m / (m + n)).sqrt()
        };
        let loadings: Vec<f64> = others.iter().map(loading).collect();
        let critical = |freedom| many_one_critical(self.level, &loadings, freedom, Sides::Two);
        let pooled = match self.fit.error {
            ErrorTerm::Pooled { freedom, .. } => Some(critical(freedom)),
            ErrorTerm::Separate { .. } => None,
        };
        let compare = |&cell: &usize| {
            let (value, error, freedom) = self.fit.contrast(&[(cell, 1.0), (baseline, -1.0)]);
            let p = (error > 0.0).then(|| many_one_tail((value / error).abs(), &loadings, freedom, Sides::Two));
            let half = error * pooled.unwrap_or_else(|| critical(freedom));
            let n = self.fit.counts[cell] + self.fit.counts[baseline];
            self.with_margin(value, half, n, p, Method::Dunnett)
        };
        Ok(others.iter().map(compare).collect())
    }

    fn check_places(&self, places: &[usize]) -> Result<(), StatisticsError> {
        if places.is_empty() {
            return Err(StatisticsError::TooFew { what: "a family of cells", needed: 1, found: 0 });
        }
        match places.iter().find(|place| **place >= self.fit.means.len()) {
            Some(&place) => Err(StatisticsError::OutOfRange {
                name: "the place of a cell",
                value: place as f64,
                range: "below the number of cells",
            }),
            None => Ok(()),
        }
    }
}

/// A pair of cells, by their places, with its comparison: the first less the second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PairComparison {
    /// The first cell.
    pub first: usize,
    /// The second cell, which comes later.
    pub second: usize,
    /// The first less the second.
    pub contrast: Contrast,
}

/// All pairs of cells without the assumption that they scatter alike (P. A. Games and J. F. Howell, 1976): the studentized
/// range with Welch's degrees of freedom for each pair. The intervals hold together with about the confidence level.
///
/// # Errors
/// As [`Experiment::of`].
pub fn games_howell(cells: &[Vec<Observation>], level: f64) -> Result<Vec<PairComparison>, StatisticsError> {
    check_cells(cells)?;
    check_open_unit("the confidence level", level)?;
    let separate = Experiment { fit: CellMeans::separate(cells), level };
    let pairs = (0..cells.len()).flat_map(|first| (first + 1..cells.len()).map(move |second| (first, second)));
    let compare = |(first, second): (usize, usize)| {
        let (value, error, freedom) = separate.fit.contrast(&[(first, 1.0), (second, -1.0)]);
        let root = std::f64::consts::SQRT_2;
        let range = |t: f64| 1.0 - studentized_range_cdf(t * root, cells.len(), freedom);
        let p = (error > 0.0).then(|| range((value / error).abs()).clamp(0.0, 1.0));
        let half = error * studentized_range_critical(level, cells.len(), freedom) / root;
        let n = cells[first].len() + cells[second].len();
        PairComparison { first, second, contrast: separate.with_margin(value, half, n, p, Method::GamesHowell) }
    };
    Ok(pairs.map(compare).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(values: &[&[f64]]) -> Vec<Vec<Observation>> {
        values.iter().map(|values| Observation::unblocked(values)).collect()
    }

    /// Pooled Student's t by hand: the means differ by 2, the pooled variance is 1 with 6 degrees of freedom, and the
    /// error of the contrast is sqrt(1/4 (1/3 + 1/3) + 1/3) = sqrt(1/2).
    #[test]
    fn families_are_compared_by_their_mean_cells() {
        let cells = cells(&[&[2.0, 3.0, 4.0], &[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]]);
        let experiment = Experiment::of(&cells, 0.95).unwrap();
        let found = experiment.families(&[0, 1], &[2]).unwrap();
        assert!((found.difference.value - 2.0).abs() < 1e-12);
        let half = 2.446_911_851_144_969_2 * 0.5_f64.sqrt();
        assert!((found.difference.high().unwrap() - 2.0 - half).abs() < 1e-9, "{found:?}");
        assert!(experiment.families(&[], &[2]).is_err() && experiment.families(&[0], &[3]).is_err());
        assert!(experiment.against_baseline(3).is_err());
    }

    #[test]
    fn what_does_not_scatter_has_a_difference_and_no_test() {
        let experiment = Experiment::of(&cells(&[&[2.0, 2.0], &[1.0, 1.0]]), 0.95).unwrap();
        let found = experiment.against_baseline(0).unwrap();
        assert_eq!((found[0].difference, found[0].p), (Estimate::bare(-1.0, 4), None));
    }

    #[test]
    fn separate_variances_widen_the_pairs_that_need_it() {
        let cells = cells(&[&[1.0, 1.001, 0.999, 1.0], &[2.0, 2.001, 1.999, 2.0], &[3.0, 9.0, -4.0, 4.0]]);
        let pairs = games_howell(&cells, 0.95).unwrap();
        assert_eq!(pairs.iter().map(|pair| (pair.first, pair.second)).collect::<Vec<_>>(), [(0, 1), (0, 2), (1, 2)]);
        assert!(pairs[0].contrast.p.unwrap() < 0.001 && pairs[1].contrast.p.unwrap() > 0.05);
        let experiment = Experiment::of(&cells, 0.95).unwrap();
        assert!(matches!(experiment.error(), ErrorTerm::Separate { .. }));
        let against = experiment.against_baseline(0).unwrap();
        assert!(against[0].p.unwrap() < 0.001 && against[1].p.unwrap() > 0.05);
        assert!(games_howell(&cells, 1.0).is_err() && Experiment::of(&cells, 0.0).is_err());
    }
}
