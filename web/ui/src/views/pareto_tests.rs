//! Tests of the front over tables of results.

use std::collections::BTreeMap;

use assay_server::{Selection, TaskResult, TaskStateName, tabulate_results};
use assay_spec::{MetricKind, StepKind};
use serde_json::Value;

use super::*;

const METRICS: &[MetricKind] = &[
    MetricKind { name: "accuracy", unit: "", better: Better::Higher, headline: Some("accuracy"), covers: "" },
    MetricKind { name: "latency", unit: "s", better: Better::Lower, headline: Some("latency"), covers: "" },
    MetricKind { name: "steps", unit: "", better: Better::Neither, headline: Some("steps"), covers: "" },
];

/// A table of cells, each with its replicates' accuracies and latencies. An accuracy that is NaN stands for a task that failed.
fn table(cells: &[(&str, &[(f64, f64)])]) -> Results {
    let kind = StepKind {
        name: "train",
        version: 1,
        measures: false,
        about: "",
        schema: Value::Null.into(),
        outputs: &[],
        metrics: METRICS,
        check: |_| Vec::new(),
    };
    let mut metrics: Vec<(BTreeMap<String, Value>, BTreeMap<String, f64>)> = Vec::new();
    for (cell, replicates) in cells {
        for (accuracy, latency) in *replicates {
            let values = [("accuracy", *accuracy), ("latency", *latency), ("steps", 1.0)];
            let values = values.iter().filter(|_| !accuracy.is_nan()).map(|(name, value)| ((*name).to_owned(), *value));
            metrics.push((BTreeMap::from([("cell".to_owned(), Value::from(*cell))]), values.collect()));
        }
    }
    let names = cells.iter().flat_map(|(cell, replicates)| (1..=replicates.len() as u32).map(move |n| (*cell, n)));
    let tasks: Vec<TaskResult<'_>> =
        std::iter::zip(names, &metrics).map(|((cell, replicate), values)| task_of(cell, replicate, values)).collect();
    tabulate_results(&tasks, &[kind], &Selection::Headlines)
}

fn task_of<'a>(
    cell: &'a str,
    replicate: u32,
    (matrix, metrics): &'a (BTreeMap<String, Value>, BTreeMap<String, f64>),
) -> TaskResult<'a> {
    TaskResult {
        job: "train",
        kind: "train",
        cell,
        matrix,
        replicate: Some(replicate),
        each: None,
        state: if metrics.is_empty() { TaskStateName::Failed } else { TaskStateName::Succeeded },
        detail: "",
        metrics,
        seconds: None,
        config: None,
        work: None,
    }
}

#[test]
fn cells_are_sorted_numbered_and_described() {
    let found = table(&[
        ("slow", &[(0.90, 2.0), (0.92, 2.1), (0.91, 1.9)]),
        ("worse", &[(0.61, 4.1), (0.60, 3.9), (0.62, 4.0)]),
        ("fast", &[(0.72, 1.0), (0.71, 0.9), (0.70, 1.1)]),
        ("single", &[(0.65, 0.5)]),
        ("broken", &[(0.99, 0.1), (f64::NAN, 0.0)]),
    ]);
    let view = compare_metrics(&found, 1, 0).unwrap();
    let shown: Vec<(&str, Standing, Option<usize>)> =
        view.cells.iter().map(|cell| (cell.cell.as_str(), cell.standing, cell.number)).collect();
    let expected = [
        ("single", Standing::NotTested, Some(1)),
        ("fast", Standing::Front, Some(2)),
        ("slow", Standing::Front, Some(3)),
        ("worse", Standing::Excluded, None),
    ];
    assert_eq!(shown, expected);
    assert_eq!(view.left_out[0].reason, "latency: 1 of 2 failed; accuracy: 1 of 2 failed");
    let verdict = "2 of 4 cells are on the front; 1 is excluded; 1 has a single replicate and cannot be tested";
    assert_eq!(view.verdict, verdict);
    assert_eq!(view.cells[3].by.as_deref(), Some("slow"));
    let plot = plot_front(&view).unwrap();
    assert_eq!(plot.points.len(), 4);
    // From the fastest to the slowest of the three: two steps.
    assert_eq!((plot.front.matches('H').count(), plot.front.matches('V').count()), (2, 2));
    assert!(plot.across.contains("latency [s], lower is better"), "{}", plot.across);
    assert!(compare_metrics(&found, 2, 0).is_none(), "steps have no direction");
}

#[test]
fn single_observations_exclude_nothing() {
    let found = table(&[("a", &[(0.9, 1.0)]), ("b", &[(0.1, 9.0)])]);
    let view = compare_metrics(&found, 1, 0).unwrap();
    assert!(view.verdict.starts_with("1 of 2 cells have the best means; a single observation"), "{}", view.verdict);
}
