//! Compares the metrics of pairs of cells with the statistics of the ranking: one error for all cells of a metric if they
//! scatter alike, without the effect of seeds if it is significant.

use std::collections::{BTreeMap, BTreeSet};

use assay_server::{CellValue, Column, Measured, Missing};
use assay_spec::Better;
use assay_statistics::{
    Direction, ErrorTerm, GroupPair, Observation, PairDifference, Scale, Verdict, compare_groups, format,
    holm_of_tested,
};
use serde::Serialize;

use super::side::{RowPair, Side};

/// The chance of calling any equal values of a table different.
const ALPHA: f64 = 0.05;
/// The chance with which a detectable difference is found.
const POWER: f64 = 0.8;

/// A metric of a pair of cells, or of all cells of two jobs.
#[derive(Debug, Serialize)]
pub struct ComparedMetric {
    /// The cell of the base; a job with the number of its cells.
    pub base_cell: String,
    /// That of the candidate.
    pub candidate_cell: String,
    /// The metric.
    pub metric: String,
    /// Its title.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// What the base measured; of several cells, their means without an interval.
    pub base: Measured,
    /// What the candidate measured.
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
pub struct MetricComparison {
    /// The difference, not corrected.
    pub difference: PairDifference,
    /// The scale of the comparison.
    pub scale: Scale,
    /// The error.
    pub error: ErrorTerm,
    /// After Holm's correction for the table.
    pub p_corrected: Option<f64>,
    /// The smallest difference that is found with a chance of about 80 %: in the metric's unit, on the logarithmic scale a ratio.
    pub detectable: Option<f64>,
}

/// The observations of the cells of both sides.
#[derive(Debug)]
struct Samples {
    base: Vec<Sample>,
    candidate: Vec<Sample>,
}

/// The observations of a cell.
#[derive(Debug)]
struct Sample {
    /// The side, from 0 for the base; its row; its column. A cell that is compared several times counts once in the error.
    place: (usize, usize, usize),
    observations: Vec<Observation>,
    /// Whether another cell of the same run has the same work.
    is_copy: bool,
}

impl Samples {
    fn are_exact(&self) -> bool {
        let exact = |cell: &Sample| cell.observations.windows(2).all(|pair| pair[0].value == pair[1].value);
        self.base.iter().chain(&self.candidate).all(exact)
    }
}

/// Every metric that both sides of a pair have, by candidate. `threshold` is the smallest change worth a verdict, relative to the base;
/// `same_seeds` says whether replicates of one number ran from one seed.
pub(super) fn compare_metrics(
    base: &Side,
    candidates: &[(&Side, &[RowPair])],
    threshold: f64,
    same_seeds: bool,
) -> Vec<Vec<ComparedMetric>> {
    let (mut lines, mut counts) = (Vec::new(), Vec::new());
    let mut of_metric: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (number, (candidate, pairs)) in candidates.iter().enumerate() {
        let before = lines.len();
        for pair in *pairs {
            for (at, column) in base.results.columns.iter().enumerate() {
                let Some(partner) = find_column(column, &candidate.results.columns) else { continue };
                let (ours, theirs) = ((base, 0, at), (*candidate, number + 1, partner));
                if let Some(line) = collect_line((ours, &pair.base), (theirs, &pair.candidate), column, same_seeds) {
                    if line.verdict.is_empty() {
                        of_metric.entry(at).or_default().push(lines.len());
                    }
                    lines.push(line);
                }
            }
        }
        counts.push(lines.len() - before);
    }
    for members in of_metric.values() {
        compare_together(&mut lines, members, threshold);
    }
    correct_table(&mut lines, threshold);
    let mut lines = lines.into_iter();
    counts.into_iter().map(|count| lines.by_ref().take(count).collect()).collect()
}

/// A column of a side: the side, its number, and the place of the column.
type SideColumn<'a> = (&'a Side, usize, usize);

/// The values of one side of a line.
struct SideValues<'a> {
    side: &'a Side,
    values: Vec<(usize, &'a CellValue, &'a Missing)>,
}

impl<'a> SideValues<'a> {
    /// `None` without a value.
    fn of((side, _, column): SideColumn<'a>, rows: &[usize]) -> Option<Self> {
        let value = |&row: &usize| Some((row, side.value(row, column)?, &side.results.rows[row].missing[column]));
        let values: Vec<_> = rows.iter().filter_map(value).collect();
        (!values.is_empty()).then_some(SideValues { side, values })
    }

    /// The cell; of several, the job with their number.
    fn name(&self) -> String {
        let rows = &self.side.results.rows;
        match self.values.as_slice() {
            [(row, ..)] => rows[*row].cell.clone(),
            several => format!("{} ({} cells)", self.side.part_name().unwrap_or("all"), several.len()),
        }
    }

    /// The one value; of several cells, the mean of their means, without an interval.
    fn measured(&self, unit: &str) -> Measured {
        if let [(_, value, _)] = self.values.as_slice() {
            return value.measured.clone();
        }
        let means: Option<Vec<f64>> = self.values.iter().map(|(_, value, _)| value.measured.mean).collect();
        let Some(means) = means else { return Measured::missing("not finite") };
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        Measured {
            text: format::quantity(mean, unit),
            mean: Some(mean),
            n: self.values.iter().map(|(_, value, _)| value.measured.n).sum(),
            listed: means.iter().map(|mean| format::quantity(*mean, unit)).collect(),
            values: means,
            ..Measured::missing("")
        }
    }

    fn samples(&self, (_, number, column): SideColumn<'_>, same_seeds: bool) -> Vec<Sample> {
        let sample = |(row, value, _): &(usize, &CellValue, &Missing)| {
            let blocks = value.replicates.iter().map(|replicate| replicate.filter(|_| same_seeds));
            let observed = std::iter::zip(&value.measured.values, blocks);
            let observations = observed.map(|(&value, block)| Observation { value, block }).collect();
            Sample { place: (number, *row, column), observations, is_copy: value.same_as.is_some() }
        };
        self.values.iter().map(sample).collect()
    }
}

/// A line of the table; with a verdict already if its values cannot be compared.
fn collect_line(
    (base, base_rows): (SideColumn<'_>, &[usize]),
    (candidate, candidate_rows): (SideColumn<'_>, &[usize]),
    column: &Column,
    same_seeds: bool,
) -> Option<ComparedMetric> {
    let (left, right) = (SideValues::of(base, base_rows)?, SideValues::of(candidate, candidate_rows)?);
    let both = || left.values.iter().chain(&right.values);
    let keys = |values: &SideValues<'_>| -> BTreeSet<String> {
        let keys = values.values.iter().flat_map(|(_, value, _)| values.side.work_keys(value));
        keys.map(str::to_owned).collect()
    };
    let shared = !keys(&left).is_disjoint(&keys(&right));
    let lacking = both().find(|(_, _, missing)| missing.is_selective());
    let finite = |value: &CellValue| value.measured.values.iter().all(|value| value.is_finite());
    let (ours, theirs) = (left.measured(&column.unit), right.measured(&column.unit));
    let verdict = if shared {
        "the same work".to_owned()
    } else if let Some((_, value, missing)) = lacking {
        format!("not judged: {}", missing.describe(value.measured.n))
    } else if !both().all(|(_, value, _)| finite(value)) {
        "not compared: a value is not finite".to_owned()
    } else if both().any(|(_, value, _)| value.measured.n < 2) {
        match ours.values == theirs.values {
            true => "equal".to_owned(),
            false => "not judged: a single observation has no uncertainty".to_owned(),
        }
    } else {
        String::new()
    };
    let change = ours.mean.zip(theirs.mean).map(|(base, candidate)| relative_change(candidate - base, base));
    Some(ComparedMetric {
        base_cell: left.name(),
        candidate_cell: right.name(),
        metric: column.metric.clone(),
        title: column.title.clone(),
        unit: column.unit.clone(),
        samples: Samples { base: left.samples(base, same_seeds), candidate: right.samples(candidate, same_seeds) },
        base: ours,
        candidate: theirs,
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
    let Ok(found) = compare_groups(&cells, &pairs, 1.0 - ALPHA) else { return };
    for (&line, difference) in std::iter::zip(members, found.differences) {
        let (scale, error) = (found.scale, found.error.clone());
        lines[line].comparison =
            Some(MetricComparison { difference, scale, error, p_corrected: None, detectable: None });
    }
}

/// The cells of lines, and the places of each line's cells among them. A cell that occurs in several lines is one cell, and so are cells
/// of one side with the same work: their observations count once in the error.
fn collect_cells(lines: &[ComparedMetric], members: &[usize]) -> (Vec<Vec<Observation>>, Vec<GroupPair>) {
    let mut cells: Vec<Vec<Observation>> = Vec::new();
    let mut places: Vec<(usize, usize, usize)> = Vec::new();
    let mut place_of = |sample: &Sample| {
        let copied =
            |at: &usize| sample.is_copy && places[*at].0 == sample.place.0 && cells[*at] == sample.observations;
        let known = (0..cells.len()).find(|at| places[*at] == sample.place || copied(at));
        known.unwrap_or_else(|| {
            cells.push(sample.observations.clone());
            places.push(sample.place);
            cells.len() - 1
        })
    };
    let mut pairs = Vec::with_capacity(members.len());
    for &line in members {
        let Samples { base, candidate } = &lines[line].samples;
        let base = base.iter().map(&mut place_of).collect();
        pairs.push(GroupPair { base, candidate: candidate.iter().map(&mut place_of).collect() });
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
    #[must_use]
    pub fn is_regression(&self) -> bool {
        self.outcome == Some(Verdict::Regression)
    }

    /// The cell, or both if they differ.
    #[must_use]
    pub fn cells(&self) -> String {
        match self.base_cell == self.candidate_cell {
            true => self.base_cell.clone(),
            false => format!("{} | {}", self.base_cell, self.candidate_cell),
        }
    }

    /// The columns of [`ComparedMetric::table_line`].
    pub const HEAD: [&'static str; 8] =
        ["cell", "metric", "base", "candidate", "candidate - base", "ratio", "detectable", "verdict"];

    /// The cells of a line: cell, metric, base, candidate, difference, ratio, what is detectable, verdict.
    #[must_use]
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

    fn line(row: usize, base: &[f64], candidate: &[f64], is_copy: bool) -> ComparedMetric {
        let sample = |side, values: &[f64]| {
            vec![Sample { place: (side, row, 0), observations: Observation::unblocked(values), is_copy }]
        };
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
            samples: Samples { base: sample(0, base), candidate: sample(1, candidate) },
        }
    }

    #[test]
    fn the_same_work_in_two_cells_counts_once_in_the_error() {
        let (base, candidate) = ([1.0, 1.1, 1.2], [1.3, 1.35, 1.5]);
        let mut alone = [line(0, &base, &candidate, false)];
        compare_together(&mut alone, &[0], 0.05);
        let mut both = [line(0, &base, &candidate, false), line(1, &base, &candidate, true)];
        compare_together(&mut both, &[0, 1], 0.05);
        let freedom = |line: &ComparedMetric| line.comparison.as_ref().unwrap().difference.freedom;
        assert_eq!((freedom(&alone[0]), freedom(&both[0]), freedom(&both[1])), (4.0, 4.0, 4.0));
        assert_eq!(both[0].comparison, both[1].comparison);
        // Equal values of different work are further observations.
        let mut other = [line(0, &base, &candidate, false), line(1, &base, &candidate, false)];
        compare_together(&mut other, &[0, 1], 0.05);
        assert_eq!(freedom(&other[0]), 8.0);
        // A base that two candidates share is one cell.
        let mut shared = [line(0, &base, &candidate, false), line(0, &base, &[2.0, 2.1, 2.2], false)];
        shared[1].samples.candidate[0].place = (2, 0, 0);
        compare_together(&mut shared, &[0, 1], 0.05);
        assert_eq!(freedom(&shared[0]), 6.0);
    }
}
