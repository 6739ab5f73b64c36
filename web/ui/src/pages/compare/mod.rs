//! Runs, jobs and cells side by side: what differs in their configs, by how much their metrics differ, and their curves.

use std::collections::{BTreeMap, BTreeSet};

use assay_server::metric_kind;
use assay_statistics::Scale;
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;
use serde_json::Value;

use crate::comparison::{
    CandidateComparison, ComparedMetric, ComparisonReport, DEFAULT_THRESHOLD, Side, compare_sides, differences,
};
use crate::error::Failure;
use crate::load::{self, XAxis};
use crate::pages::run::{first_curve, in_order};
use crate::query::{Choices, encode};
use crate::server::{Inner, Site};
use crate::templates::render;
use crate::views::format::{Moment, moment};
use crate::views::states::{StateView, of_run};
use crate::views::strips::{Strip, StripScale, WIDTH};

/// The most sides of a comparison: the number of lines that can have separate colours.
pub(crate) const MOST_SIDES: usize = 7;
/// The most values of a config that a cell of the table lists.
const VALUES: usize = 4;
/// How much a curve may be smoothed: the weight of what came before.
const SMOOTHING: [&str; 6] = ["0", "0.5", "0.8", "0.9", "0.95", "0.99"];
/// The parameters of the query.
pub(crate) const PARAMETERS: [&str; 7] = ["of", "metrics", "metric", "x", "xscale", "scale", "smooth"];

#[derive(Debug, Serialize)]
struct ComparePage {
    title: String,
    live: bool,
    sides: Vec<SideHead>,
    /// The sides as the field of the form has them.
    of: String,
    metrics: String,
    configs: Vec<ConfigRow>,
    candidates: Vec<CandidateView>,
    strip_width: f64,
    curves: CurveChoice,
    data: String,
}

/// A side at the head of the page.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct SideHead {
    name: String,
    reference: String,
    href: String,
    state: StateView,
    started: Moment,
    commit: Option<String>,
}

/// A config that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ConfigRow {
    job: String,
    path: String,
    /// By side; empty if the side does not have it.
    values: Vec<String>,
}

/// A candidate against the base.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CandidateView {
    name: String,
    has_common_cells: bool,
    only_in_base: Vec<String>,
    only_in_candidate: Vec<String>,
    rows: Vec<ContrastRow>,
}

/// A metric of two sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ContrastRow {
    /// Cell, metric, base, candidate, difference, ratio, what is detectable, verdict.
    line: Vec<String>,
    strip: Option<Strip>,
    /// `regression`, `improvement` or empty.
    class: &'static str,
}

/// What is chosen for the curves, and what could be.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CurveChoice {
    metrics: Vec<String>,
    metric: String,
    unit: &'static str,
    x: &'static str,
    xscale: String,
    scale: String,
    smooth: String,
    smoothings: [&'static str; 6],
    figure: String,
    data: String,
}

/// The page.
pub(crate) async fn show(State(site): State<Site>, choices: Choices) -> Result<Html<String>, Failure> {
    choices.only(&PARAMETERS)?;
    let sides = load_sides(&site, &choices).await?;
    let curves = choose_curves(&site, &sides, &choices).await?;
    let references: Vec<String> = sides.iter().map(Side::reference).collect();
    let (configs, candidates) = match sides.split_first() {
        Some((base, others)) if !others.is_empty() => {
            let others: Vec<&Side> = others.iter().collect();
            let comparison = compare_sides(base, &others, DEFAULT_THRESHOLD);
            (config_rows(&comparison), comparison.candidates.iter().map(candidate_view).collect())
        }
        _ => (Vec::new(), Vec::new()),
    };
    let page = ComparePage {
        title: if sides.is_empty() { "Compare".to_owned() } else { format!("Compare {}", references.join(", ")) },
        live: sides.iter().any(|side| load::is_live(&side.run)),
        of: references.join(" "),
        metrics: choices.get("metrics").unwrap_or_default().to_owned(),
        data: format!("/api/compare?{}", query_of(&references, choices.get("metrics"))),
        sides: sides.iter().map(side_head).collect(),
        strip_width: WIDTH,
        configs,
        candidates,
        curves,
    };
    render(&site, "compare.html", page)
}

/// The sides that a query names.
///
/// # Errors
/// If there are too many of them, or one of them is not in the store.
pub(crate) async fn load_sides(site: &Inner, choices: &Choices) -> Result<Vec<Side>, Failure> {
    let mut names: Vec<String> = choices.all("of").into_iter().flat_map(split_references).collect();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    if names.len() > MOST_SIDES {
        let error = format!("{} sides are more than can be compared", names.len());
        return Err(Failure::bad_request(error, format!("give at most {MOST_SIDES}")));
    }
    let mut sides = Vec::with_capacity(names.len());
    for name in &names {
        sides.push(load::side(site, name, choices.get("metrics")).await?);
    }
    Ok(sides)
}

/// Splits at spaces and commas outside of brackets, which hold the values of cells.
fn split_references(text: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0_usize, vec![String::new()]);
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if depth > 0 || !(c.is_whitespace() || c == ',') => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

fn query_of(references: &[String], metrics: Option<&str>) -> String {
    let mut parts: Vec<String> = references.iter().map(|name| format!("of={}", encode(name))).collect();
    parts.extend(metrics.map(|metrics| format!("metrics={}", encode(metrics))));
    parts.join("&")
}

fn side_head(side: &Side) -> SideHead {
    let summary = &side.run.summary;
    SideHead {
        name: side.name(),
        reference: side.reference(),
        href: format!("/runs/{}", side.id()),
        state: of_run(summary.state),
        started: moment(summary.created_at),
        commit: summary.git.as_ref().map(|git| git.commit.chars().take(10).collect()),
    }
}

/// What differs, by side: the workflow, commit, version and machine of the runs, their parameters, then the configs of jobs.
fn config_rows(comparison: &ComparisonReport<'_>) -> Vec<ConfigRow> {
    let base = comparison.base;
    let sides = comparison.candidates.len() + 1;
    let mut found: BTreeMap<(usize, String, String), Vec<BTreeSet<String>>> = BTreeMap::new();
    let mut add = |key: (usize, &str, &str), side: usize, ours: Option<&str>, theirs: Option<&str>| {
        let key = (key.0, key.1.to_owned(), key.2.to_owned());
        let values = found.entry(key).or_insert_with(|| vec![BTreeSet::new(); sides]);
        values[0].extend(ours.map(str::to_owned));
        values[side].insert(theirs.unwrap_or_default().to_owned());
    };
    for (at, candidate) in comparison.candidates.iter().enumerate() {
        let side = at + 1;
        for difference in differences(&run_facts(base), &run_facts(candidate.side)) {
            add((0, "run", &difference.path), side, difference.base.as_deref(), difference.candidate.as_deref());
        }
        for difference in &candidate.params {
            add((1, "params", &difference.path), side, difference.base.as_deref(), difference.candidate.as_deref());
        }
        for config in &candidate.configs {
            let difference = &config.difference;
            let key = (2, config.job.as_str(), difference.path.as_str());
            add(key, side, difference.base.as_deref(), difference.candidate.as_deref());
        }
    }
    let text = |values: &BTreeSet<String>| {
        let more = values.len().saturating_sub(VALUES);
        let text = values.iter().take(VALUES).map(String::as_str).collect::<Vec<_>>().join(", ");
        if more > 0 { format!("{text} and {more} more") } else { text }
    };
    let row = |((kind, job, path), values): ((usize, String, String), Vec<BTreeSet<String>>)| {
        // A candidate without an entry has what the base has, if it was compared.
        let is_compared = |side: usize| {
            let candidate = side.checked_sub(1).and_then(|at| comparison.candidates.get(at));
            kind < 2 || candidate.is_none_or(|candidate| candidate.compared_jobs.contains(&job))
        };
        let value = |(side, own): (usize, &BTreeSet<String>)| match own.is_empty() && is_compared(side) {
            true => text(&values[0]),
            false => text(own),
        };
        let values = values.iter().enumerate().map(value).collect();
        ConfigRow { job, path, values }
    };
    found.into_iter().map(row).collect()
}

fn run_facts(side: &Side) -> Value {
    let summary = &side.run.summary;
    serde_json::json!({
        "workflow": summary.name,
        "commit": summary.git.as_ref().map(|git| git.commit.as_str()),
        "assay": summary.version,
        "machine": side.run.machine,
    })
}

fn candidate_view(candidate: &CandidateComparison<'_>) -> CandidateView {
    let rows = candidate.metrics.iter().map(|metric| ContrastRow {
        line: metric.table_line(),
        strip: strip_of(metric, &candidate.metrics),
        class: match metric.outcome {
            Some(assay_statistics::Verdict::Regression) => "regression",
            Some(assay_statistics::Verdict::Improvement) => "improvement",
            _ => "",
        },
    });
    CandidateView {
        name: candidate.side.name(),
        has_common_cells: candidate.has_common_cells,
        only_in_base: candidate.only_in_base.clone(),
        only_in_candidate: candidate.only_in_candidate.clone(),
        rows: rows.collect(),
    }
}

/// The value with its interval that is drawn: the difference, or the ratio where the comparison is on the logarithmic scale.
fn effect(metric: &ComparedMetric) -> Option<(f64, Option<(f64, f64)>, f64)> {
    let found = metric.comparison.as_ref()?;
    let (estimate, rule) = match found.scale {
        Scale::Linear => (found.difference.difference, 0.0),
        Scale::Log => (found.difference.ratio?, 1.0),
    };
    Some((estimate.value, estimate.low().zip(estimate.high()), rule))
}

/// The strip of a line, on one scale with all lines of the metric.
fn strip_of(metric: &ComparedMetric, all: &[ComparedMetric]) -> Option<Strip> {
    let same = all.iter().filter(|other| other.metric == metric.metric).filter_map(effect);
    let ends = same.flat_map(|(value, interval, rule)| {
        let (low, high) = interval.unwrap_or((value, value));
        [value, low, high, rule]
    });
    let scale = StripScale::spanning(ends)?;
    let (value, interval, rule) = effect(metric)?;
    scale.strip(value, interval, Some(rule))
}

async fn choose_curves(site: &Inner, sides: &[Side], choices: &Choices) -> Result<CurveChoice, Failure> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut runs: BTreeSet<i64> = BTreeSet::new();
    for side in sides {
        if runs.insert(side.id()) {
            names.extend(site.store.metric_names(side.run.summary.id).await?);
        }
    }
    let metrics = in_order(site, names.into_iter().collect());
    let metric = choices.get("metric").map_or_else(|| first_curve(&metrics), str::to_owned);
    let x = XAxis::of(choices.one_of("x", &XAxis::WORDS)?);
    let references: Vec<String> = sides.iter().map(Side::reference).collect();
    let query = format!("{}&metric={}&x={}", query_of(&references, None), encode(&metric), x.word());
    let scale = |key| choices.one_of(key, &["linear", "log"]).map(|scale| scale.unwrap_or("linear").to_owned());
    Ok(CurveChoice {
        unit: metric_kind(&site.kinds, &metric).map_or("", |kind| kind.unit),
        x: x.word(),
        xscale: scale("xscale")?,
        scale: scale("scale")?,
        smooth: choices.one_of("smooth", &SMOOTHING)?.unwrap_or(SMOOTHING[0]).to_owned(),
        smoothings: SMOOTHING,
        figure: if sides.is_empty() { String::new() } else { format!("/api/compare/curves?{query}&points=500") },
        data: format!("/api/compare/curves?{query}"),
        metrics,
        metric,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_split_outside_of_brackets() {
        assert_eq!(split_references("1, 2:train[a=1,b=x y] latest:ten"), ["1", "2:train[a=1,b=x y]", "latest:ten"]);
        assert_eq!(split_references(" ,"), [] as [String; 0]);
        assert_eq!(split_references("1:a]b c"), ["1:a]b", "c"]);
    }
}
