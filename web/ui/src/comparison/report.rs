//! A comparison of a base with one or more candidates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::configs::{ConfigComparison, ConfigDifference, config_differences};
use super::difference::{Difference, differences};
use super::metrics::{ComparedMetric, compare_metrics};
use super::side::{RowPair, Side, match_rows, only_in};

/// The smallest change worth a verdict if none is named, relative to the base.
pub const DEFAULT_THRESHOLD: f64 = 0.05;

/// A base and what was compared with it.
#[derive(Debug)]
pub struct ComparisonReport<'a> {
    /// The base.
    pub base: &'a Side,
    /// The smallest change worth a verdict, relative to the base.
    pub threshold: f64,
    /// In the order in which they were given.
    pub candidates: Vec<CandidateComparison<'a>>,
}

/// A candidate against the base.
#[derive(Debug)]
pub struct CandidateComparison<'a> {
    /// The candidate.
    pub side: &'a Side,
    /// What differs in the parameters of the runs.
    pub params: Vec<Difference>,
    /// What differs in the configs.
    pub configs: Vec<ConfigDifference>,
    /// The jobs of the base whose configs were compared.
    pub compared_jobs: BTreeSet<String>,
    /// Cells that the candidate does not have.
    pub only_in_base: Vec<String>,
    /// Cells that the base does not have.
    pub only_in_candidate: Vec<String>,
    /// Whether both sides have a cell with results in common, or are two jobs.
    pub has_common_cells: bool,
    /// The metrics that both have.
    pub metrics: Vec<ComparedMetric>,
}

/// Compares each candidate with the base. The p-values of all candidates are corrected together, and each metric has one error for the cells
/// of all of them if they scatter alike.
#[must_use]
pub fn compare_sides<'a>(base: &'a Side, candidates: &[&'a Side], threshold: f64) -> ComparisonReport<'a> {
    let pairs: Vec<Vec<RowPair>> = candidates.iter().map(|candidate| match_rows(base, candidate)).collect();
    let configs: Vec<ConfigComparison> =
        std::iter::zip(candidates, &pairs).map(|(side, pairs)| config_differences(base, side, pairs)).collect();
    let is_seed = |found: &ConfigDifference| found.difference.path.rsplit('.').next() == Some("seed");
    let same_seeds = !configs.iter().flat_map(|found| &found.differences).any(is_seed);
    let parts: Vec<(&Side, &[RowPair])> =
        std::iter::zip(candidates, &pairs).map(|(side, pairs)| (*side, &pairs[..])).collect();
    let metrics = compare_metrics(base, &parts, threshold, same_seeds);
    let found = std::iter::zip(std::iter::zip(candidates, &pairs), std::iter::zip(configs, metrics));
    let candidates = found.map(|((side, pairs), (configs, metrics))| CandidateComparison {
        params: differences(&base.run.params, &side.run.params),
        only_in_base: only_in(base, side),
        only_in_candidate: only_in(side, base),
        has_common_cells: !pairs.is_empty(),
        configs: configs.differences,
        compared_jobs: configs.jobs,
        metrics,
        side,
    });
    ComparisonReport { base, threshold, candidates: candidates.collect() }
}

impl CandidateComparison<'_> {
    /// The metrics that are significantly worse by the threshold or more.
    pub fn regressions(&self) -> impl Iterator<Item = &ComparedMetric> {
        self.metrics.iter().filter(|metric| metric.is_regression())
    }

    fn json(&self) -> Value {
        json!({
            "regressions": self.regressions().count(),
            "candidate": self.side.json(),
            "params": self.params,
            "configs": self.configs,
            "only_in_base": self.only_in_base,
            "only_in_candidate": self.only_in_candidate,
            "metrics": self.metrics,
        })
    }
}

impl ComparisonReport<'_> {
    /// As JSON: the candidates in a list.
    #[must_use]
    pub fn json(&self) -> Value {
        let candidates: Vec<Value> = self.candidates.iter().map(CandidateComparison::json).collect();
        json!({"threshold": self.threshold, "base": self.base.json(), "candidates": candidates})
    }

    /// As JSON with the one candidate in place of the list.
    #[must_use]
    pub fn json_of_first(&self) -> Value {
        let mut json = self.candidates.first().map_or_else(|| json!({}), CandidateComparison::json);
        if let Some(object) = json.as_object_mut() {
            object.insert("threshold".to_owned(), json!(self.threshold));
            object.insert("base".to_owned(), self.base.json());
        }
        json
    }
}
