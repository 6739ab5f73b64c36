//! Tests of parallel coordinates: dimensions, brushes, colours and lines.

use std::collections::BTreeMap;

use assay_server::{Selection, TaskResult, TaskStateName, tabulate_results};
use assay_spec::{MetricKind, StepKind};

use super::*;

const METRICS: &[MetricKind] = &[
    MetricKind { name: "accuracy", unit: "", better: Better::Higher, headline: Some("accuracy"), covers: "" },
    MetricKind { name: "loss", unit: "", better: Better::Lower, headline: Some("loss"), covers: "" },
];

/// Cells over an optimizer and a number of states, `replicates` each.
fn table(states: &[u64], replicates: u32) -> Results {
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
    let mut tasks: Vec<(String, BTreeMap<String, Value>, u32, BTreeMap<String, f64>)> = Vec::new();
    for optimizer in ["sgd", "adam"] {
        for &count in states {
            for replicate in 1..=replicates {
                let matrix = [("optimizer", Value::from(optimizer)), ("states", Value::from(count))];
                let matrix = matrix.map(|(name, value)| (name.to_owned(), value)).into();
                let jitter = (u64::from(replicate) * 7 + count + if optimizer == "adam" { 3 } else { 0 }) % 5;
                let accuracy = 0.1 * (count as f64).log2() + 0.001 * jitter as f64;
                let mut metrics = BTreeMap::from([("accuracy".to_owned(), accuracy)]);
                if optimizer == "sgd" {
                    metrics.insert("loss".to_owned(), 1.0 - accuracy);
                }
                tasks.push((format!("train[{optimizer},{count}]"), matrix, replicate, metrics));
            }
        }
    }
    let task = |(cell, matrix, replicate, metrics)| TaskResult {
        job: "train",
        kind: "train",
        cell,
        matrix,
        replicate: Some(replicate),
        each: None,
        state: TaskStateName::Succeeded,
        detail: "",
        metrics,
        seconds: None,
        config: None,
        work: None,
    };
    let rows: Vec<TaskResult<'_>> = tasks
        .iter()
        .map(|(cell, matrix, replicate, metrics)| task((cell.as_str(), matrix, *replicate, metrics)))
        .collect();
    tabulate_results(&rows, &[kind], &Selection::Headlines)
}

fn wanted(brushes: &[(&str, &str)]) -> Wanted {
    let brush = |(name, text): &(&str, &str)| ((*name).to_owned(), text.parse().unwrap());
    Wanted { job: None, columns: vec![0, 1], colour: Some(0), brushes: brushes.iter().map(brush).collect() }
}

#[test]
fn axes_come_before_metrics_and_cells_are_brushed() {
    let found = table(&[16, 32, 64], 2);
    let view = view_cells(&found, &wanted(&[])).unwrap();
    let names: Vec<&str> = view.dimensions.iter().map(|dimension| dimension.name.as_str()).collect();
    assert_eq!(names, ["optimizer", "states", "accuracy", "loss"]);
    assert_eq!((view.cells.len(), view.hidden), (6, 0));
    let kept = |brushes: &[(&str, &str)]| {
        let view = view_cells(&found, &wanted(brushes)).unwrap();
        (view.cells.iter().map(|cell| cell.cell.clone()).collect::<Vec<_>>(), view.hidden)
    };
    assert_eq!(kept(&[("states", "20..40")]).1, 4);
    assert_eq!(kept(&[("optimizer", "sgd"), ("states", "64")]).0, ["train[sgd,64]"]);
    assert_eq!(kept(&[("accuracy", "0.55..")]).1, 4);
    // Of what has no loss, no loss is kept.
    assert!(kept(&[("loss", "0..1")]).0.iter().all(|cell| cell.contains("sgd")));
    assert_eq!(view_cells(&found, &wanted(&[("states", "20..40")])).unwrap().dimensions[1].brush, "20..40");
}

#[test]
fn the_best_cells_have_colours() {
    let view = view_cells(&table(&[16, 32, 64], 3), &wanted(&[])).unwrap();
    let mut coloured: Vec<&str> =
        view.cells.iter().filter(|cell| cell.slot > 0).map(|cell| cell.cell.as_str()).collect();
    coloured.sort_unstable();
    assert_eq!(coloured, ["train[adam,64]", "train[sgd,64]"]);
    assert_eq!(view.meaning, "colours: the cells that may be the best by accuracy");
    let single = view_cells(&table(&[2, 4, 8, 16, 32], 1), &wanted(&[])).unwrap();
    assert_eq!(single.cells.iter().filter(|cell| cell.slot > 0).count(), COLOURS);
    assert_eq!(single.meaning, "colours: the 7 best means of accuracy (not ranked)");
    let none = view_cells(&table(&[16, 64], 3), &wanted(&[("states", "16")])).unwrap();
    assert_eq!(none.meaning, "no line has a colour: the best cells by accuracy are not kept");
}

#[test]
fn lines_have_gaps_and_the_better_end_is_at_the_top() {
    let view = view_cells(&table(&[16, 32, 64], 2), &wanted(&[])).unwrap();
    let plot = plot_cells(&view).unwrap();
    let line = |cell: &str| plot.lines.iter().find(|line| line.cell == cell).unwrap();
    assert_eq!(line("train[sgd,64]").path.matches('L').count(), 3);
    assert_eq!(line("train[adam,64]").path.matches('L').count(), 2, "without a loss");
    let ys = |cell: &str| -> Vec<f64> {
        let points = line(cell).path.split(['M', 'L']).filter_map(|point| point.split(' ').nth(1)?.parse().ok());
        points.collect()
    };
    let (best, worst) = (ys("train[sgd,64]"), ys("train[sgd,16]"));
    assert!(best[2] < worst[2] && best[3] < worst[3], "{best:?} {worst:?}");
    assert_eq!(plot.axes.iter().map(|axis| axis.better).collect::<Vec<_>>(), ["", "", "higher", "lower"]);
    assert!(plot.lines.last().unwrap().slot > 0, "coloured lines are above grey ones");
    let alone = Wanted { columns: vec![0], ..wanted(&[]) };
    assert_eq!(plot_cells(&view_cells(&table(&[16], 1), &alone).unwrap()).unwrap().axes.len(), 3);
    assert!(view_cells(&table(&[], 1), &wanted(&[])).is_none());
}
