//! Which metrics are shown: those that their step kinds name as headlines, or those that a person asks for.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use assay_spec::{Better, MetricKind, StepKind};
use serde_json::Value;

use super::table::TaskResult;

/// How many metrics of a kind without headlines are shown.
const MOST_UNKNOWN: usize = 50;

/// Which metrics a table shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Those with a headline, in the order of the step kinds.
    Headlines,
    /// Those whose names fit one of these patterns, in which `*` stands for any text.
    Named(Vec<String>),
}

/// What a measurement reports that other programs disturbed: their load, in processors.
pub const OTHERS_LOAD: &str = "load/others";

/// A column before its values are known.
pub(super) struct Chosen {
    pub title: String,
    /// What all columns of its metric and its family have in common.
    pub heading: String,
    pub metric: String,
    pub kind: String,
    /// Set where tasks of several jobs of one kind share rows: then each job has a column of its own.
    pub job: Option<String>,
    /// The jobs that may have the metric; `None` of one that the kind itself declares.
    pub reporting_jobs: Option<Vec<String>>,
    pub unit: String,
    pub better: Better,
    pub covers: &'static str,
}

impl Chosen {
    /// Whether a task can have a value in this column.
    pub fn applies_to(&self, task: &TaskResult<'_>) -> bool {
        let reports = self.reporting_jobs.as_ref().is_none_or(|jobs| jobs.iter().any(|job| job == task.job));
        reports && self.kind == task.kind && self.job.as_ref().is_none_or(|job| job == task.job)
    }
}

/// The columns of a table; `rows` are the tasks' rows.
pub(super) fn choose_columns(
    tasks: &[TaskResult<'_>],
    rows: &[usize],
    kinds: &[StepKind],
    selection: &Selection,
) -> Vec<Chosen> {
    let mut found: Vec<Chosen> = Vec::new();
    let mut add = |kind: &str, metric: &str, (heading, title): (&str, String), declared: Option<&MetricKind>| {
        if found.iter().any(|column| column.kind == kind && column.metric == metric) {
            return;
        }
        let jobs = jobs_with_metric(tasks, kind, metric);
        let split = jobs.len() > 1 && share_a_row(tasks, rows, kind, metric);
        for job in if split { jobs.into_iter().map(Some).collect() } else { vec![None] } {
            found.push(Chosen {
                title: job.map_or_else(|| title.clone(), |job| format!("{title} {job}")),
                heading: heading.to_owned(),
                metric: metric.to_owned(),
                kind: kind.to_owned(),
                job: job.map(str::to_owned),
                reporting_jobs: if declared.is_some() { None } else { Some(reporting_jobs(tasks, kind, metric)) },
                unit: declared.map_or_else(String::new, |metric| metric.unit.to_owned()),
                better: declared.map_or(Better::Neither, |metric| metric.better),
                covers: declared.map_or("", |metric| metric.covers),
            });
        }
    };
    match selection {
        Selection::Headlines => {
            for kind in kinds {
                for (metric, heading) in kind.metrics.iter().filter_map(|metric| Some((metric, metric.headline?))) {
                    let names = metric_names(tasks, kind.name, &|name| matches_declared(metric.name, name));
                    let several = names.len() > 1;
                    for name in names {
                        let varying = open_segments(metric.name, name);
                        let title = if several { format!("{heading} {varying}") } else { heading.to_owned() };
                        add(kind.name, name, (heading, title), Some(metric));
                    }
                }
            }
            for kind in undescribed_kinds(tasks, kinds) {
                for name in metric_names(tasks, kind, &|_| true).into_iter().take(MOST_UNKNOWN) {
                    add(kind, name, (name, name.to_owned()), None);
                }
            }
        }
        Selection::Named(patterns) => {
            // The mark of a disturbed measurement belongs to every selection of its metrics.
            let fits = |name: &str| patterns.iter().any(|pattern| matches_wildcard(pattern, name));
            let is_found = kinds_of(tasks, kinds).into_iter().any(|kind| !metric_names(tasks, kind, &fits).is_empty());
            let patterns = patterns.iter().map(String::as_str).chain(is_found.then_some(OTHERS_LOAD));
            for (pattern, kind) in patterns.flat_map(|p| kinds_of(tasks, kinds).into_iter().map(move |k| (p, k))) {
                for name in metric_names(tasks, kind, &|name| matches_wildcard(pattern, name)) {
                    let declared = kinds.iter().find(|known| known.name == kind);
                    let declared =
                        declared.and_then(|kind| kind.metrics.iter().find(|m| matches_declared(m.name, name)));
                    add(kind, name, (name, name.to_owned()), declared);
                }
            }
        }
    }
    add_declared(&mut found, tasks, rows, selection);
    disambiguate_titles(&mut found);
    found
}

/// The kinds of which nobody says which metrics matter, such as that of runs which a client of MLflow logged.
fn undescribed_kinds<'a>(tasks: &[TaskResult<'a>], kinds: &[StepKind]) -> Vec<&'a str> {
    let mut found = kinds_of(tasks, kinds);
    found.retain(|kind| !kinds.iter().any(|known| known.name == *kind));
    found.retain(|kind| {
        tasks.iter().filter(|task| task.kind == *kind).all(|task| declared_metrics(task).next().is_none())
    });
    found
}

/// Adds what the configs of tasks say of metrics that their kind does not know: columns for those that they name, with direction
/// and unit, as `metrics: {loss: {better: lower}}` of a `command`.
fn add_declared(found: &mut Vec<Chosen>, tasks: &[TaskResult<'_>], rows: &[usize], selection: &Selection) {
    for task in tasks {
        for (name, declared) in declared_metrics(task) {
            let better = match declared.get("better").and_then(Value::as_str) {
                Some("lower") => Better::Lower,
                Some("higher") => Better::Higher,
                _ => Better::Neither,
            };
            let unit = declared.get("unit").and_then(Value::as_str).unwrap_or_default();
            let known = |column: &Chosen| column.kind == task.kind && column.metric == *name;
            if *selection == Selection::Headlines && !found.iter().any(known) {
                let jobs = jobs_with_metric(tasks, task.kind, name);
                let split = jobs.len() > 1 && share_a_row(tasks, rows, task.kind, name);
                for job in if split { jobs.into_iter().map(Some).collect() } else { vec![None] } {
                    found.push(Chosen {
                        title: job.map_or_else(|| name.clone(), |job| format!("{name} {job}")),
                        heading: name.clone(),
                        metric: name.clone(),
                        kind: task.kind.to_owned(),
                        job: job.map(str::to_owned),
                        reporting_jobs: Some(reporting_jobs(tasks, task.kind, name)),
                        unit: String::new(),
                        better: Better::Neither,
                        covers: "",
                    });
                }
            }
            for column in found.iter_mut().filter(|column| known(column) && column.applies_to(task)) {
                (column.better, column.unit) = (better, unit.to_owned());
            }
        }
    }
}

/// The entries of `metrics:` in a task's config.
fn declared_metrics<'a>(task: &TaskResult<'a>) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let declared = task.config.and_then(|config| config.get("metrics")).and_then(Value::as_object);
    declared.into_iter().flatten()
}

/// The kinds that tasks have, in the order of the registry; kinds that it does not know come last.
fn kinds_of<'a>(tasks: &[TaskResult<'a>], kinds: &[StepKind]) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for task in tasks {
        if !found.contains(&task.kind) {
            found.push(task.kind);
        }
    }
    found.sort_by_key(|kind| kinds.iter().position(|known| known.name == *kind).unwrap_or(usize::MAX));
    found
}

/// The names of a kind's metrics that finished tasks have, numbers in them by size.
fn metric_names<'a>(tasks: &[TaskResult<'a>], kind: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<&'a str> {
    let mine = tasks.iter().filter(|task| task.kind == kind && task.is_finished());
    let names: BTreeSet<&str> = mine.flat_map(|task| task.metrics.keys()).map(String::as_str).collect();
    let mut names: Vec<&str> = names.into_iter().filter(|name| wanted(name)).collect();
    names.sort_by(|a, b| by_segments(a, b));
    names
}

/// Compares segment by segment, two numbers by their size.
fn by_segments(a: &str, b: &str) -> Ordering {
    for (a, b) in std::iter::zip(a.split('/'), b.split('/')) {
        let order = match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            _ => a.cmp(b),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// The jobs of a kind whose tasks have a metric, in the order of the tasks.
fn jobs_with_metric<'a>(tasks: &[TaskResult<'a>], kind: &str, metric: &str) -> Vec<&'a str> {
    let mut jobs: Vec<&str> = Vec::new();
    for task in tasks_with_metric(tasks, kind, metric).map(|(_, task)| task) {
        if !jobs.contains(&task.job) {
            jobs.push(task.job);
        }
    }
    jobs
}

/// The jobs of a kind in which some task reported a metric or declares it. Other jobs never have the metric, so their failed
/// tasks are not missing values of it.
fn reporting_jobs(tasks: &[TaskResult<'_>], kind: &str, metric: &str) -> Vec<String> {
    let mine = tasks.iter().filter(|task| task.kind == kind);
    let reports = |task: &&TaskResult<'_>| {
        task.metrics.contains_key(metric) || declared_metrics(task).any(|(name, _)| name == metric)
    };
    mine.filter(reports).map(|task| task.job.to_owned()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Whether two jobs of a kind have a value of a metric in the same row, where they must not be taken for replicates.
fn share_a_row(tasks: &[TaskResult<'_>], rows: &[usize], kind: &str, metric: &str) -> bool {
    let mut owners: Vec<Option<&str>> = vec![None; rows.iter().max().map_or(0, |last| last + 1)];
    tasks_with_metric(tasks, kind, metric).any(|(ix, task)| {
        let owner = owners[rows[ix]].get_or_insert(task.job);
        *owner != task.job
    })
}

fn tasks_with_metric<'t, 'a>(
    tasks: &'t [TaskResult<'a>],
    kind: &'t str,
    metric: &'t str,
) -> impl Iterator<Item = (usize, &'t TaskResult<'a>)> {
    let has = move |task: &TaskResult<'_>| task.kind == kind && task.is_finished() && task.metrics.contains_key(metric);
    tasks.iter().enumerate().filter(move |(_, task)| has(task))
}

/// Columns of two kinds with one title get the kind's name behind it.
fn disambiguate_titles(columns: &mut [Chosen]) {
    let titles: Vec<String> = columns.iter().map(|column| column.title.clone()).collect();
    for column in columns {
        if titles.iter().filter(|title| **title == column.title).count() > 1 {
            column.title = format!("{} ({})", column.title, column.kind);
        }
    }
}

/// What a kind says of a metric by name, over all kinds: its unit and direction.
#[must_use]
pub fn metric_kind<'a>(kinds: &'a [StepKind], metric: &str) -> Option<&'a MetricKind> {
    kinds.iter().flat_map(|kind| kind.metrics).find(|known| matches_declared(known.name, metric))
}

/// A direction in words.
#[must_use]
pub fn direction_text(better: Better) -> &'static str {
    match better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
        Better::Neither => "",
    }
}

/// Whether a name fits a declared pattern, in which `*` stands for one segment.
fn matches_declared(pattern: &str, name: &str) -> bool {
    let (mut parts, mut segments) = (pattern.split('/'), name.split('/'));
    loop {
        match (parts.next(), segments.next()) {
            (None, None) => return true,
            (Some(part), Some(segment)) if part == "*" || part == segment => {}
            _ => return false,
        }
    }
}

/// Whether a name fits what a person wrote, in which `*` stands for any text.
fn matches_wildcard(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(start) else { return false };
    // The shortest text for the star leaves the most for what follows it.
    (0..=name.len()).filter_map(|at| name.get(at..)).any(|left| matches_wildcard(rest, left))
}

/// The segments of a name that its pattern leaves open.
fn open_segments(pattern: &str, name: &str) -> String {
    let open = std::iter::zip(pattern.split('/'), name.split('/')).filter(|(part, _)| *part == "*");
    open.map(|(_, segment)| segment).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_segment_where_declared_and_any_text_where_asked_for() {
        assert!(matches_declared("latency/*/*/median", "latency/f32/128/median"));
        assert!(!matches_declared("latency/*/median", "latency/f32/128/median"));
        assert!(!matches_declared("train/loss", "train/loss/x"));
        for (pattern, name, fit) in [
            ("latency/*", "latency/f32/128/median", true),
            ("*/loss", "test/loss", true),
            ("*loss*", "train/loss", true),
            ("*/median", "latency/f32/128/median_low", false),
            ("test/loss", "test/loss_low", false),
            ("*é", "x/é", true),
        ] {
            assert_eq!(matches_wildcard(pattern, name), fit, "{pattern} {name}");
        }
    }

    #[test]
    fn numbers_in_names_are_ordered_by_size() {
        let mut names = ["latency/f32/128/median", "latency/f32/16/median", "latency/a/1024/median"];
        names.sort_by(|a, b| by_segments(a, b));
        assert_eq!(names, ["latency/a/1024/median", "latency/f32/16/median", "latency/f32/128/median"]);
    }
}
