//! Compares the metrics of pairs of cells with the statistics of the ranking: one error for all cells of a metric if they
//! scatter alike, without the effect of seeds if it is significant.

use std::collections::BTreeMap;

use assay_server::{CellValue, Column, Measured};
use assay_spec::Better;
use assay_statistics::{
    Direction, ErrorTerm, Observation, Pair, PairDifference, Scale, Verdict, compare_pairs, format, holm_of_tested,
};
use serde::Serialize;

use super::{RowPair, Side};

/// The chance of calling any equal values of a table different.
const ALPHA: f64 = 0.05;
/// The chance with which a detectable difference is found.
const POWER: f64 = 0.8;

/// A metric of a pair of cells.
#[derive(Debug, Serialize)]
pub(super) struct ComparedMetric {
    pub base_cell: String,
    pub candidate_cell: String,
    pub metric: String,
    pub title: String,
    pub unit: String,
    pub base: Measured,
    pub candidate: Measured,
    /// `None` where the values cannot be compared, or are exact.
    pub comparison: Option<MetricComparison>,
    /// The change relative to the base: 0.05 is five percent more. `None` where a value is not finite.
    pub change: Option<f64>,
    /// The verdict; that on the change itself if no value scatters. `None` if nothing was judged.
    pub outcome: Option<Verdict>,
    /// The verdict in words.
    pub verdict: String,
    #[serde(skip)]
    better: Better,
    #[serde(skip)]
    samples: Samples,
}

/// The difference of a metric, with its error.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MetricComparison {
    pub difference: PairDifference,
    pub scale: Scale,
    pub error: ErrorTerm,
    /// After Holm's correction for the table.
    pub p_corrected: Option<f64>,
    /// The smallest difference that is found with a chance of about 80 %: in the metric's unit, on the logarithmic scale a ratio.
    pub detectable: Option<f64>,
}

/// The observations of both cells.
#[derive(Debug)]
struct Samples {
    base: Sample,
    candidate: Sample,
}

/// The observations of a cell.
#[derive(Debug)]
struct Sample {
    observations: Vec<Observation>,
    /// Whether another cell of the same run has the same work.
    is_copy: bool,
}

impl Samples {
    fn are_exact(&self) -> bool {
        let exact = |cell: &Sample| cell.observations.windows(2).all(|pair| pair[0].value == pair[1].value);
        exact(&self.base) && exact(&self.candidate)
    }
}

/// Every metric that both cells of a pair have. `threshold` is the smallest change worth a verdict, relative to the base;
/// `same_seeds` says whether replicates of one number ran from one seed.
pub(super) fn compare_metrics(
    base: &Side,
    candidate: &Side,
    pairs: &[RowPair],
    threshold: f64,
    same_seeds: bool,
) -> Vec<ComparedMetric> {
    let mut lines = Vec::new();
    let mut of_metric: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for pair in pairs {
        for (at, column) in base.results.columns.iter().enumerate() {
            if let Some(line) = collect_line(base, candidate, pair, (at, column), same_seeds) {
                if line.verdict.is_empty() {
                    of_metric.entry(at).or_default().push(lines.len());
                }
                lines.push(line);
            }
        }
    }
    for members in of_metric.values() {
        compare_together(&mut lines, members, threshold);
    }
    correct_table(&mut lines, threshold);
    lines
}

/// A line of the table; with a verdict already where its values cannot be compared.
fn collect_line(
    base: &Side,
    candidate: &Side,
    pair: &RowPair,
    (at, column): (usize, &Column),
    same_seeds: bool,
) -> Option<ComparedMetric> {
    let partner = find_column(column, &candidate.results.columns)?;
    let (left, right) = (base.value(pair.base, at)?, candidate.value(pair.candidate, partner)?);
    let (left_row, right_row) = (&base.results.rows[pair.base], &candidate.results.rows[pair.candidate]);
    let shared = base.work_keys(left).intersection(&candidate.work_keys(right)).next().is_some();
    let missing = [(&left_row.missing[at], left), (&right_row.missing[partner], right)];
    let lacking = missing.into_iter().find(|(missing, _)| missing.is_selective());
    let finite = |measured: &Measured| measured.values.iter().all(|value| value.is_finite());
    let verdict = if shared {
        "the same work".to_owned()
    } else if let Some((missing, value)) = lacking {
        format!("not judged: {}", missing.describe(value.measured.n))
    } else if !finite(&left.measured) || !finite(&right.measured) {
        "not compared: a value is not finite".to_owned()
    } else if left.measured.n < 2 || right.measured.n < 2 {
        match left.measured.values == right.measured.values {
            true => "equal".to_owned(),
            false => "not judged: a single observation has no uncertainty".to_owned(),
        }
    } else {
        String::new()
    };
    let sample = |value: &CellValue| -> Sample {
        let blocks = value.replicates.iter().map(|replicate| replicate.filter(|_| same_seeds));
        let observed = std::iter::zip(&value.measured.values, blocks);
        let observations = observed.map(|(&value, block)| Observation { value, block }).collect();
        Sample { observations, is_copy: value.same_as.is_some() }
    };
    let change =
        left.measured.mean.zip(right.measured.mean).map(|(base, candidate)| relative_change(candidate - base, base));
    Some(ComparedMetric {
        base_cell: left_row.cell.clone(),
        candidate_cell: right_row.cell.clone(),
        metric: column.metric.clone(),
        title: column.title.clone(),
        unit: column.unit.clone(),
        samples: Samples { base: sample(left), candidate: sample(right) },
        base: left.measured.clone(),
        candidate: right.measured.clone(),
        comparison: None,
        change,
        outcome: None,
        verdict,
        better: column.better,
    })
}

/// The column of the other table that shows the same.
fn find_column(column: &Column, columns: &[Column]) -> Option<usize> {
    let same = |other: &Column| other.kind == column.kind && other.metric == column.metric;
    let exact = columns.iter().position(|other| same(other) && other.job == column.job);
    exact.or_else(|| columns.iter().position(same))
}

/// A change relative to a base; infinite from a base of zero.
fn relative_change(change: f64, base: f64) -> f64 {
    if change == 0.0 { 0.0 } else { change / base.abs() }
}

/// Compares the lines of one metric with one error for all of their cells.
fn compare_together(lines: &mut [ComparedMetric], members: &[usize], threshold: f64) {
    if members.iter().all(|&line| lines[line].samples.are_exact()) {
        for &line in members {
            judge_exact(&mut lines[line], threshold);
        }
        return;
    }
    let (cells, pairs) = collect_cells(lines, members);
    // Only values that are not finite or too few are refused, and such lines were left out.
    let Ok(found) = compare_pairs(&cells, &pairs, 1.0 - ALPHA) else { return };
    for (&line, difference) in std::iter::zip(members, found.differences) {
        let (scale, error) = (found.scale, found.error.clone());
        lines[line].comparison =
            Some(MetricComparison { difference, scale, error, p_corrected: None, detectable: None });
    }
}

/// The cells of lines, and the places of each line's pair among them. Cells of one run with the same work are one cell: its
/// observations count once in the error.
fn collect_cells(lines: &[ComparedMetric], members: &[usize]) -> (Vec<Vec<Observation>>, Vec<Pair>) {
    let (mut cells, mut of_base): (Vec<Vec<Observation>>, Vec<bool>) = (Vec::new(), Vec::new());
    let mut place_of = |sample: &Sample, is_base: bool| {
        let same = |at: &usize| of_base[*at] == is_base && cells[*at] == sample.observations;
        let known = (0..cells.len()).filter(|_| sample.is_copy).find(same);
        known.unwrap_or_else(|| {
            cells.push(sample.observations.clone());
            of_base.push(is_base);
            cells.len() - 1
        })
    };
    let mut pairs = Vec::with_capacity(members.len());
    for &line in members {
        let Samples { base, candidate } = &lines[line].samples;
        pairs.push(Pair { base: place_of(base, true), candidate: place_of(candidate, false) });
    }
    (cells, pairs)
}

/// Judges a metric without scatter, such as a size in bytes, by its change alone.
fn judge_exact(line: &mut ComparedMetric, threshold: f64) {
    let change = line.change.unwrap_or(0.0);
    if change == 0.0 {
        line.verdict = "equal".to_owned();
        return;
    }
    let outcome = direction_of(line.better).map(|direction| Verdict::from_change(change, true, direction, threshold));
    let words = outcome.map_or("different", format::verdict);
    (line.outcome, line.verdict) = (outcome, format!("{words}; no scatter"));
}

fn direction_of(better: Better) -> Option<Direction> {
    match better {
        Better::Lower => Some(Direction::LowerIsBetter),
        Better::Higher => Some(Direction::HigherIsBetter),
        Better::Neither => None,
    }
}

/// Corrects the p-values of the table together and sets the verdicts.
fn correct_table(lines: &mut [ComparedMetric], threshold: f64) {
    let p_of = |line: &ComparedMetric| line.comparison.as_ref().and_then(|comparison| comparison.difference.p);
    let tested: Vec<Option<f64>> = lines.iter().map(p_of).collect();
    let count = tested.iter().flatten().count().max(1) as f64;
    // Only p-values outside 0 to 1 are refused, and none made here is.
    let corrected = holm_of_tested(&tested).unwrap_or(tested);
    for (line, p_corrected) in std::iter::zip(lines, corrected) {
        let Some(comparison) = &mut line.comparison else { continue };
        comparison.p_corrected = p_corrected;
        let detectable = comparison.difference.detectable(ALPHA / count, POWER);
        comparison.detectable =
            detectable.map(|found| if comparison.scale == Scale::Log { found.exp() } else { found });
        if comparison.scale == Scale::Log {
            line.change = comparison.difference.ratio.map(|ratio| ratio.value - 1.0);
        }
        let significant = p_corrected.is_some_and(|p| p < ALPHA);
        let change = line.change.unwrap_or(0.0);
        let direction = direction_of(line.better).unwrap_or(Direction::LowerIsBetter);
        let outcome = Verdict::from_change(change, significant, direction, threshold);
        line.verdict = match line.better {
            Better::Neither if significant => "different".to_owned(),
            _ => format::verdict(outcome).to_owned(),
        };
        line.outcome = (line.better != Better::Neither || !significant).then_some(outcome);
    }
}

impl ComparedMetric {
    /// Whether the candidate is significantly worse by the threshold or more.
    pub fn is_regression(&self) -> bool {
        self.outcome == Some(Verdict::Regression)
    }

    /// The cell, or both where they differ.
    pub fn cells(&self) -> String {
        match self.base_cell == self.candidate_cell {
            true => self.base_cell.clone(),
            false => format!("{} | {}", self.base_cell, self.candidate_cell),
        }
    }

    /// The cells of a line: cell, metric, base, candidate, difference, ratio, what is detectable, verdict.
    pub fn table_line(&self) -> Vec<String> {
        let none = || "-".to_owned();
        let counted = |measured: &Measured| format!("{}  n={}", measured.text, measured.n);
        let found = self.comparison.as_ref();
        let plain = |difference: f64| format::quantity(difference, &self.unit);
        let difference = match found {
            Some(found) => Some(format::with_interval(&found.difference.difference, &self.unit)),
            None => self.base.mean.zip(self.candidate.mean).map(|(base, candidate)| plain(candidate - base)),
        };
        let ratio = found.and_then(|found| found.difference.ratio.as_ref()).map(format::ratio);
        let detectable = found.and_then(|found| {
            let smallest = found.detectable?;
            Some(match found.scale {
                Scale::Linear => plain(smallest),
                Scale::Log => format!("{}×", format::quantity(smallest, "")),
            })
        });
        let p = found.and_then(|found| found.p_corrected).map(|p| format!(" ({})", format::p_value(p)));
        vec![
            self.cells(),
            self.title.clone(),
            counted(&self.base),
            counted(&self.candidate),
            difference.unwrap_or_else(none),
            ratio.unwrap_or_else(none),
            detectable.unwrap_or_else(none),
            format!("{}{}", self.verdict, p.unwrap_or_default()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use assay_server::summarize_values;

    use super::*;

    fn line(base: &[f64], candidate: &[f64], is_copy: bool) -> ComparedMetric {
        let sample = |values: &[f64]| Sample { observations: Observation::unblocked(values), is_copy };
        ComparedMetric {
            base_cell: "train".into(),
            candidate_cell: "train".into(),
            metric: "loss".into(),
            title: "loss".into(),
            unit: String::new(),
            base: summarize_values(base, "").unwrap(),
            candidate: summarize_values(candidate, "").unwrap(),
            comparison: None,
            change: None,
            outcome: None,
            verdict: String::new(),
            better: Better::Lower,
            samples: Samples { base: sample(base), candidate: sample(candidate) },
        }
    }

    #[test]
    fn the_same_work_in_two_cells_counts_once_in_the_error() {
        let (base, candidate) = ([1.0, 1.1, 1.2], [1.3, 1.35, 1.5]);
        let mut alone = [line(&base, &candidate, false)];
        compare_together(&mut alone, &[0], 0.05);
        let mut both = [line(&base, &candidate, false), line(&base, &candidate, true)];
        compare_together(&mut both, &[0, 1], 0.05);
        let freedom = |line: &ComparedMetric| line.comparison.as_ref().unwrap().difference.freedom;
        assert_eq!((freedom(&alone[0]), freedom(&both[0]), freedom(&both[1])), (4.0, 4.0, 4.0));
        assert_eq!(both[0].comparison, both[1].comparison);
        // Equal values of different work are further observations.
        let mut other = [line(&base, &candidate, false), line(&base, &candidate, false)];
        compare_together(&mut other, &[0, 1], 0.05);
        assert_eq!(freedom(&other[0]), 8.0);
    }
}
