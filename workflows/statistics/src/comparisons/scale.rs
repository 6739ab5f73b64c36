//! Whether cells scatter alike, so that their errors may be pooled, and on which scale they do.

use serde::{Deserialize, Serialize};

use super::cells::{CellMeans, Observation, values};
use crate::describe::{mean_of, median_of, variance_of};
use crate::distributions::fisher_tail;

/// The scale that cells are compared on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// As measured: comparisons are differences.
    Linear,
    /// Natural logarithms: comparisons are ratios of geometric means.
    Log,
}

/// Below this p-value of the test of equal variances, three or more cells are not pooled.
///
/// With few replicates the test would reject sound experiments too often to be of use at 5 %, and what it then
/// leads to, a variance for each cell, has hardly any power. At this level the test mostly overlooks a single cell that scatters
/// more; [`OWN_VARIANCE_FROM`](super::cells::OWN_VARIANCE_FROM) covers that case.
pub const POOLING_LEVEL: f64 = 0.01;

/// The level for two cells, where separate variances cost only degrees of freedom (Welch's test).
pub const POOLING_LEVEL_OF_TWO: f64 = 0.2;

/// Whether this number of cells may be pooled, by the p-value of [`equal_variances`].
pub(crate) fn is_poolable(p: Option<f64>, cells: usize) -> bool {
    p.is_none_or(|p| p >= if cells > 2 { POOLING_LEVEL } else { POOLING_LEVEL_OF_TWO })
}

/// How many replicates a cell needs on average for Brown and Forsythe's test. With fewer, deviations from medians are
/// zero by construction, and Bartlett's test takes its place.
const FEW: f64 = 6.0;

/// The p-value of the hypothesis that cells have one variance: Brown and Forsythe's test (1974) where there are six or more
/// replicates a cell on average, else Bartlett's (1937). Bartlett's assumes normal errors: a low p-value may also mean
/// heavy tails. It leaves out cells whose values are all equal, since rounded values (accuracies on a small test split) can
/// be equal by chance. `None` if fewer than two cells scatter.
#[must_use]
pub fn equal_variances(cells: &[Vec<f64>]) -> Option<f64> {
    let cells: Vec<&[f64]> = cells.iter().map(Vec::as_slice).filter(|cell| cell.len() > 1).collect();
    let count: usize = cells.iter().map(|cell| cell.len()).sum();
    let average = count as f64 / cells.len() as f64;
    let scattered: Vec<&[f64]> = cells.iter().copied().filter(|cell| variance_of(cell) > 0.0).collect();
    if scattered.len() < 2 {
        return None;
    }
    Some(if average >= FEW { brown_forsythe(&cells) } else { bartlett(&scattered) })
}

/// The one-way analysis of variance of the absolute deviations from the medians.
fn brown_forsythe(cells: &[&[f64]]) -> f64 {
    let deviations: Vec<Vec<f64>> = cells
        .iter()
        .map(|cell| {
            let median = median_of(cell);
            cell.iter().map(|value| (value - median).abs()).collect()
        })
        .collect();
    let count: f64 = deviations.iter().map(|cell| cell.len() as f64).sum();
    let groups = deviations.len() as f64;
    let centre = deviations.iter().flatten().sum::<f64>() / count;
    let between: f64 = deviations.iter().map(|cell| cell.len() as f64 * (mean_of(cell) - centre).powi(2)).sum();
    let within: f64 = deviations.iter().map(|cell| variance_of(cell) * (cell.len() as f64 - 1.0)).sum();
    if within == 0.0 {
        return if between == 0.0 { 1.0 } else { 0.0 };
    }
    fisher_tail(between / (groups - 1.0) / (within / (count - groups)), groups - 1.0, count - groups)
}

/// Bartlett's test by the F approximation of G. E. P. Box (1949), which holds with few observations where the chi-square
/// does not. No cell has a variance of zero.
fn bartlett(cells: &[&[f64]]) -> f64 {
    let freedoms: Vec<f64> = cells.iter().map(|cell| cell.len() as f64 - 1.0).collect();
    let variances: Vec<f64> = cells.iter().map(|cell| variance_of(cell)).collect();
    let (groups, total) = (cells.len() as f64, freedoms.iter().sum::<f64>());
    let pooled =
        std::iter::zip(&freedoms, &variances).map(|(freedom, variance)| freedom * variance).sum::<f64>() / total;
    let logs: f64 = std::iter::zip(&freedoms, &variances).map(|(freedom, variance)| freedom * variance.ln()).sum();
    let statistic = total * pooled.ln() - logs;
    let first = groups - 1.0;
    let a = (freedoms.iter().map(|freedom| 1.0 / freedom).sum::<f64>() - 1.0 / total) / (3.0 * first);
    let second = (groups + 1.0) / (a * a);
    let b = second / (1.0 - a + 2.0 / second);
    if statistic >= b {
        return 0.0;
    }
    fisher_tail(second * statistic / (first * (b - statistic)), first, second)
}

/// On which scale cells may be pooled; `None` where on neither. The logarithm is taken only where the cells do not
/// scatter alike as measured, where all values are above zero, where larger means go with larger scatter, and where the
/// logarithms scatter alike.
pub(crate) fn poolable_scale(cells: &[Vec<Observation>]) -> (Option<Scale>, Option<f64>) {
    let plain = values(cells);
    let p = equal_variances(&plain);
    if is_poolable(p, cells.len()) {
        return (Some(Scale::Linear), p);
    }
    if plain.iter().flatten().any(|value| *value <= 0.0) || !grows_with_the_mean(&plain) {
        return (None, p);
    }
    let logs: Vec<Vec<f64>> = plain.iter().map(|cell| cell.iter().map(|value| value.ln()).collect()).collect();
    (is_poolable(equal_variances(&logs), cells.len()).then_some(Scale::Log), p)
}

/// Fits the means of cells: with one error for all cells on the scale where they may be pooled, otherwise with a variance for
/// each cell as measured. Also gives the scale and the p-value of [`equal_variances`].
pub(crate) fn fit_means(cells: &[Vec<Observation>]) -> (CellMeans, Scale, Option<f64>) {
    let (poolable, equal_variances) = poolable_scale(cells);
    let fit = match poolable {
        Some(scale) => CellMeans::pooled(&convert_to_scale(cells, scale)),
        None => CellMeans::separate(cells),
    };
    (fit, poolable.unwrap_or(Scale::Linear), equal_variances)
}

/// The cells on a scale. On the logarithmic one, all values are to be above zero.
pub(crate) fn convert_to_scale(cells: &[Vec<Observation>], scale: Scale) -> Vec<Vec<Observation>> {
    let converted = |observation: &Observation| match scale {
        Scale::Linear => *observation,
        Scale::Log => Observation { value: observation.value.ln(), ..*observation },
    };
    cells.iter().map(|cell| cell.iter().map(converted).collect()).collect()
}

/// Whether the standard deviations rise with the means by more than half a power: the slope of their logarithms, as in
/// the spread-versus-level plot of J. W. Tukey (1977). A slope of one asks for the logarithm.
fn grows_with_the_mean(cells: &[Vec<f64>]) -> bool {
    let points = cells.iter().map(|cell| (mean_of(cell).ln(), 0.5 * variance_of(cell).ln()));
    let (x, y): (Vec<f64>, Vec<f64>) = points.filter(|point| point.1.is_finite()).unzip();
    if x.len() < 2 {
        return false;
    }
    let (mean_x, mean_y) = (mean_of(&x), mean_of(&y));
    let spread: f64 = x.iter().map(|x| (x - mean_x).powi(2)).sum();
    let shared: f64 = std::iter::zip(&x, &y).map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    spread > 0.0 && shared / spread > 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scatter_that_grows_with_the_mean_asks_for_the_logarithm() {
        let shape = [-0.12, 0.02, 0.10, -0.04, 0.05, -0.01];
        let cells = |scatter: &dyn Fn(f64) -> f64| -> Vec<Vec<Observation>> {
            let cell = |mean: f64| -> Vec<f64> { shape.iter().map(|step| mean + scatter(mean) * step).collect() };
            [1.0, 10.0, 100.0].map(|mean| Observation::unblocked(&cell(mean))).to_vec()
        };
        assert_eq!(poolable_scale(&cells(&|mean| mean)).0, Some(Scale::Log));
        assert_eq!(poolable_scale(&cells(&|_| 1.0)).0, Some(Scale::Linear));
        assert_eq!(poolable_scale(&cells(&|mean| 5.0 / mean)).0, None, "scatter that falls with the mean");
    }

    #[test]
    fn what_does_not_scatter_has_no_test() {
        assert_eq!(equal_variances(&[vec![1.0, 1.0], vec![2.0, 2.0]]), None);
        assert_eq!(equal_variances(&[vec![1.0, 1.0], vec![2.0, 2.1]]), None);
        assert_eq!(equal_variances(&[vec![1.0, 2.0]]), None);
    }

    /// Accuracies on a small test split are equal by chance: such a cell says nothing against one variance for all.
    #[test]
    fn cells_of_equal_values_do_not_forbid_pooling() {
        let scattered = [vec![0.5, 0.55, 0.6], vec![0.6, 0.6, 0.65]];
        let with_equal = [scattered[0].clone(), vec![0.55; 3], scattered[1].clone()];
        assert_eq!(equal_variances(&with_equal), equal_variances(&scattered));
        let cells: Vec<Vec<Observation>> = with_equal.iter().map(|values| Observation::unblocked(values)).collect();
        assert_eq!(poolable_scale(&cells).0, Some(Scale::Linear));
    }

    #[test]
    fn two_cells_are_pooled_with_more_care() {
        assert_eq!(
            [0.1, 0.3].map(|p| (is_poolable(Some(p), 2), is_poolable(Some(p), 3))),
            [(false, true), (true, true)]
        );
        assert!(!is_poolable(Some(0.009), 3) && is_poolable(None, 2));
    }
}
