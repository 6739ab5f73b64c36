//! The results of a sweep: one row a cell, one column a headline metric, replicates drawn together with their interval.
//!
//! A cell's row follows its line through the workflow: what was trained, then what was quantized, exported and
//! benchmarked from it by `strategy: {each: ..}`. The terminal and the pages show the same table.

use std::collections::BTreeMap;

use assay_core::TaskIx;
use assay_spec::{Better, MetricKind, StepKind};
use assay_statistics::{Estimate, student};
use serde_json::Value;

/// A task, as far as its results go.
#[derive(Debug, Clone, Copy)]
pub struct TaskResult<'a> {
    /// The job's name.
    pub job: &'a str,
    /// The step kind.
    pub kind: &'a str,
    /// The matrix values.
    pub matrix: &'a BTreeMap<String, Value>,
    /// The task that it is derived from.
    pub each: Option<TaskIx>,
    /// The last value of each metric.
    pub metrics: &'a BTreeMap<String, f64>,
}

/// The table.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// The metrics shown, in the order of the step kinds.
    pub columns: Vec<Column>,
    /// The cells, in the order of their first tasks.
    pub rows: Vec<Row>,
}

/// One headline metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// What stands above it.
    pub title: String,
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: &'static str,
    /// Which direction is better.
    pub better: Better,
}

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Such as `train[chunk=64,states=16]`: the address without the replicate.
    pub cell: String,
    /// The job at the root of the line.
    pub job: String,
    /// The matrix values at the root.
    pub matrix: BTreeMap<String, Value>,
    /// Parallel to [`Results::columns`]; `None` where nothing was measured.
    pub values: Vec<Option<Estimate>>,
    /// Parallel to [`Results::columns`]: the replicates' own values.
    pub samples: Vec<Vec<f64>>,
}

/// Two-sided confidence of every interval that is shown.
const LEVEL: f64 = 0.95;

/// Draws the table from the tasks of one run; `address` gives a task's address.
#[must_use]
pub fn results(tasks: &[TaskResult<'_>], addresses: &[&str], kinds: &[StepKind]) -> Results {
    let columns = columns(tasks, kinds);
    let mut rows: Vec<Row> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (ix, task) in tasks.iter().enumerate() {
        let values: Vec<(usize, f64)> = columns
            .iter()
            .enumerate()
            .filter_map(|(at, column)| Some((at, *task.metrics.get(&column.metric)?)))
            .filter(|(at, _)| defines(kinds, task.kind, &columns[*at].metric))
            .collect();
        if values.is_empty() {
            continue;
        }
        let root = root(tasks, ix);
        let cell = addresses.get(root).map_or("?", |address| address.split('#').next().unwrap_or(address));
        let place = *places.entry(cell.to_owned()).or_insert_with(|| {
            rows.push(Row {
                cell: cell.to_owned(),
                job: tasks[root].job.to_owned(),
                matrix: tasks[root].matrix.clone(),
                values: Vec::new(),
                samples: vec![Vec::new(); columns.len()],
            });
            rows.len() - 1
        });
        for (at, value) in values {
            rows[place].samples[at].push(value);
        }
    }
    for row in &mut rows {
        row.values = row.samples.iter().map(|samples| estimate(samples)).collect();
    }
    Results { columns, rows }
}

/// The mean with Student's interval; a plain value where one replicate is not finite or stands alone.
fn estimate(samples: &[f64]) -> Option<Estimate> {
    let first = *samples.first()?;
    let spoiled = samples.iter().copied().find(|value| !value.is_finite());
    Some(match spoiled {
        Some(value) => Estimate::bare(value, samples.len()),
        None => student::interval(samples, LEVEL).unwrap_or_else(|_| Estimate::bare(first, samples.len())),
    })
}

/// The task at the start of this task's line. Needs point to smaller places, so that the walk ends.
fn root(tasks: &[TaskResult<'_>], mut ix: usize) -> usize {
    while let Some(TaskIx(up)) = tasks[ix].each {
        if up as usize >= ix {
            break;
        }
        ix = up as usize;
    }
    ix
}

fn columns(tasks: &[TaskResult<'_>], kinds: &[StepKind]) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for kind in kinds {
        for (metric, title) in kind.metrics.iter().filter_map(|metric| Some((metric, metric.headline?))) {
            let mut names: Vec<&String> = tasks
                .iter()
                .filter(|task| task.kind == kind.name)
                .flat_map(|task| task.metrics.keys())
                .filter(|name| matches(metric.name, name))
                .collect();
            names.sort();
            names.dedup();
            let several = names.len() > 1;
            for name in names {
                let title = if several { format!("{title} {}", varying(metric.name, name)) } else { title.to_owned() };
                if !columns.iter().any(|column| column.metric == *name) {
                    columns.push(Column { title, metric: name.clone(), unit: metric.unit, better: metric.better });
                }
            }
        }
    }
    columns
}

fn defines(kinds: &[StepKind], kind: &str, metric: &str) -> bool {
    find(kinds, kind, metric).is_some_and(|found| found.headline.is_some())
}

fn find<'a>(kinds: &'a [StepKind], kind: &str, metric: &str) -> Option<&'a MetricKind> {
    kinds.iter().find(|known| known.name == kind)?.metrics.iter().find(|known| matches(known.name, metric))
}

/// What a kind says of a metric by name, over all kinds: its unit and direction.
#[must_use]
pub fn metric_kind<'a>(kinds: &'a [StepKind], metric: &str) -> Option<&'a MetricKind> {
    kinds.iter().flat_map(|kind| kind.metrics).find(|known| matches(known.name, metric))
}

/// Whether a name fits a pattern in which `*` stands for one segment.
fn matches(pattern: &str, name: &str) -> bool {
    let (mut parts, mut segments) = (pattern.split('/'), name.split('/'));
    loop {
        match (parts.next(), segments.next()) {
            (None, None) => return true,
            (Some(part), Some(segment)) if part == "*" || part == segment => {}
            _ => return false,
        }
    }
}

/// The segments of a name that its pattern leaves open.
fn varying(pattern: &str, name: &str) -> String {
    let open = std::iter::zip(pattern.split('/'), name.split('/')).filter(|(part, _)| *part == "*");
    open.map(|(_, segment)| segment).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_spec::OutputKind;

    const METRICS: &[MetricKind] = &[
        MetricKind { name: "test/accuracy", unit: "", better: Better::Higher, headline: Some("accuracy") },
        MetricKind { name: "train/loss", unit: "", better: Better::Lower, headline: None },
    ];
    const LATENCY: &[MetricKind] =
        &[MetricKind { name: "latency/*/median", unit: "s", better: Better::Lower, headline: Some("latency") }];
    const NONE: &[OutputKind] = &[];

    fn kinds() -> Vec<StepKind> {
        let kind = |name, metrics| StepKind {
            name,
            version: 1,
            measures: false,
            about: "",
            schema: Value::Null,
            outputs: NONE,
            metrics,
            check: |_| Vec::new(),
        };
        vec![kind("train", METRICS), kind("benchmark", LATENCY)]
    }

    #[test]
    fn replicates_are_drawn_together_and_followed_along_their_line() {
        let cell = BTreeMap::from([("states".to_owned(), Value::from(16))]);
        let [first, second] = [0.5, 0.7].map(|v| BTreeMap::from([("test/accuracy".to_owned(), v)]));
        let latency =
            BTreeMap::from([("latency/f32/median".to_owned(), 0.01), ("latency/int8/median".to_owned(), 0.02)]);
        let task = |kind, metrics, each| TaskResult { job: kind, kind, matrix: &cell, each, metrics };
        let tasks =
            [task("train", &first, None), task("train", &second, None), task("benchmark", &latency, Some(TaskIx(1)))];
        let addresses = ["train[states=16]#1", "train[states=16]#2", "benchmark[states=16]#2"];
        let table = results(&tasks, &addresses, &kinds());
        let titles: Vec<&str> = table.columns.iter().map(|column| column.title.as_str()).collect();
        assert_eq!(titles, ["accuracy", "latency f32", "latency int8"]);
        assert_eq!(table.rows.len(), 1);
        let row = &table.rows[0];
        assert_eq!(row.cell, "train[states=16]");
        assert_eq!(row.samples, [vec![0.5, 0.7], vec![0.01], vec![0.02]]);
        let accuracy = row.values[0].as_ref().unwrap();
        assert!(accuracy.interval.is_some() && (accuracy.value - 0.6).abs() < 1e-12);
        assert!(row.values[1].as_ref().unwrap().interval.is_none(), "one replicate has no interval");
    }

    #[test]
    fn a_star_is_one_segment() {
        assert!(matches("latency/*/*/median", "latency/f32/128/median"));
        assert!(!matches("latency/*/median", "latency/f32/128/median"));
        assert!(!matches("train/loss", "train/loss/x"));
    }
}
