//! Tests of how a sweep chooses its axes and draws its cells.

use assay_core::{RunId, TaskIx};
use assay_server::TaskStateName;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::views::heat_map::{SHADES, colour_ends, draw_heat_map};
use crate::views::interval_plot::draw_intervals;

fn task(ix: u32, job: &str, matrix: Value, replicate: u32, metrics: &[(&str, f64)]) -> TaskView {
    let matrix: BTreeMap<String, Value> = serde_json::from_value(matrix).unwrap();
    TaskView {
        run: RunId(1),
        ix: TaskIx(ix),
        address: format!("{job}[{ix}]#{replicate}"),
        cell: format!("{job}[{ix}]"),
        job: job.into(),
        kind: "train".into(),
        matrix,
        replicate: Some(replicate),
        needs: Vec::new(),
        each: None,
        state: TaskStateName::Succeeded,
        detail: String::new(),
        config: None,
        cache_key: None,
        outputs: BTreeMap::new(),
        metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        source: None,
        attempts: 1,
        started_at: None,
        ended_at: None,
    }
}

/// Three states by two chunks by two widths, two replicates each, and a job without a matrix.
fn tasks() -> Vec<TaskView> {
    let mut tasks = vec![task(0, "baseline", json!({}), 1, &[("loss", 3.0)])];
    for states in [64, 16, 32] {
        for chunk in ["16", "long"] {
            for width in [128, 256] {
                for replicate in [2, 1] {
                    let matrix = json!({"states": states, "chunk": chunk, "width": width});
                    let value = f64::from(states) + f64::from(replicate) / 10.0;
                    let ix = tasks.len() as u32;
                    tasks.push(task(ix, "train", matrix, replicate, &[("loss", value), ("accuracy", 0.5)]));
                }
            }
        }
    }
    tasks
}

fn draw(choice: &Choice) -> Sweep {
    sweep(&tasks(), choice, &["loss".into()], &|_| ("s", Better::Lower))
}

fn chosen(pairs: &[(&str, &str)]) -> Choice {
    let get = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1.to_owned());
    let at = pairs.iter().filter_map(|(key, value)| Some((key.strip_prefix("at.")?.to_owned(), (*value).to_owned())));
    Choice { metric: get("metric"), job: get("job"), x: get("x"), y: get("y"), at: at.collect() }
}

#[test]
fn a_reader_who_chooses_nothing_sees_the_widest_axes_of_the_widest_job() {
    let sweep = draw(&Choice::default());
    assert_eq!((sweep.metric.as_str(), sweep.job.as_str()), ("loss", "train"));
    assert_eq!((sweep.x.as_deref(), sweep.y.as_deref()), (Some("states"), Some("chunk")));
    assert_eq!(sweep.values(&sweep.x), ["16", "32", "64"]);
    assert_eq!(sweep.values(&sweep.y), ["\"16\"", "long"], "a text that reads as a number is quoted");
    assert_eq!(sweep.fixed, BTreeMap::from([("width".to_owned(), "128".to_owned())]));
    assert_eq!(sweep.cells.len(), 6);
    let cell = sweep.cell("32", "long").unwrap();
    assert_eq!((cell.measured.values.clone(), cell.measured.n), (vec![32.1, 32.2], 2));
}

#[test]
fn axes_and_what_is_fixed_can_be_chosen() {
    let sweep = draw(&chosen(&[("x", "width"), ("y", "states"), ("at.chunk", "long")]));
    assert_eq!((sweep.x.as_deref(), sweep.y.as_deref()), (Some("width"), Some("states")));
    assert_eq!(sweep.fixed["chunk"], "long");
    let swapped = draw(&chosen(&[("y", "states")]));
    assert_eq!((swapped.x.as_deref(), swapped.y.as_deref()), (Some("chunk"), Some("states")));
}

#[test]
fn one_axis_and_none_make_sense() {
    let line = draw(&chosen(&[("y", NO_AXIS)]));
    assert_eq!((line.x.as_deref(), line.y, line.cells.len()), (Some("states"), None, 3));
    let single = draw(&chosen(&[("x", NO_AXIS), ("y", NO_AXIS)]));
    assert_eq!(single.cells.len(), 1);
    let baseline = draw(&chosen(&[("job", "baseline")]));
    assert_eq!((baseline.axes.len(), baseline.cells[0].measured.text.as_str()), (0, "3 s"));
}

#[test]
fn what_does_not_exist_gives_an_empty_sweep() {
    let nothing = draw(&chosen(&[("metric", "nope"), ("x", "a")]));
    assert_eq!((nothing.cells.len(), nothing.job.as_str()), (0, ""));
    // What cannot be had of the other choices is chosen for the reader.
    let other = draw(&chosen(&[("job", "nope"), ("x", "nope"), ("y", "ü"), ("at.width", "9")]));
    assert_eq!((other.job.as_str(), other.x.as_deref(), other.cells.len()), ("train", Some("states"), 6));
    assert!(sweep(&[], &Choice::default(), &[], &|_| ("", Better::Neither)).cells.is_empty());
}

#[test]
fn a_heat_map_holds_the_spread_in_its_cells_and_every_observation_in_their_titles() {
    let sweep = draw(&Choice::default());
    assert_eq!(draw_intervals(&sweep), None);
    let map = draw_heat_map(&sweep).unwrap();
    assert_eq!((map.columns.len(), map.rows.len(), map.cells.len()), (3, 2, 6));
    assert_eq!(map.cells[0].lines, ["16.1", "± 0.6 s", "n = 2"]);
    let last = &map.cells[5];
    assert!(last.title.starts_with("states = 64, chunk = long\n"), "{}", last.title);
    assert!(last.title.ends_with("#1 64.1 s\n#2 64.2 s"), "{}", last.title);
    // The first row is at the bottom, and the columns go to the right.
    assert!(map.rows[0].at > map.rows[1].at && map.cells[0].y > last.y && map.cells[0].x < last.x);
    // A smaller loss is better, and the deepest shade means better.
    assert_eq!((map.cells[0].shade, last.shade), (Some(SHADES - 1), Some(0)));
    let scale = map.scale.unwrap();
    assert_eq!((scale.first_is, scale.last_is), ("worse", "better"));
}

#[test]
fn colours_span_the_scatter_and_the_verdict_says_what_can_be_distinguished() {
    let sweep = draw(&Choice::default());
    let start = "not ranked: states=16,chunk=\"16\" and states=16,chunk=long (2 of 6 cells) cannot be distinguished; n = 2 detects";
    assert!(sweep.verdict.starts_with(start), "{}", sweep.verdict);
    assert_eq!(sweep.cells.iter().filter(|cell| cell.may_be_best).count(), 2);
    let (low, high) = colour_ends(&sweep).unwrap();
    let half = sweep.cell("16", "\"16\"").unwrap().measured.half_width.unwrap();
    assert!((low - (16.15 - half)).abs() < 1e-9 && (high - (64.15 + half)).abs() < 1e-9, "{low} to {high}");

    let line = draw(&chosen(&[("y", NO_AXIS)]));
    assert_eq!(line.verdict, "the marked cell is best; distinguished from the 2 other cells");
    assert_eq!(line.cells.iter().filter(|cell| cell.best).map(|cell| cell.x.as_str()).collect::<Vec<_>>(), ["16"]);

    let mut unfinished = tasks();
    unfinished[1].state = TaskStateName::Running;
    let unfinished = super::sweep(&unfinished, &Choice::default(), &["loss".into()], &|_| ("s", Better::Lower));
    assert_eq!(unfinished.verdict, "");
}

#[test]
fn failed_tasks_keep_their_cells_and_are_never_the_best() {
    let mut tasks = tasks();
    for task in tasks.iter_mut().filter(|task| task.matrix.get("states") == Some(&json!(64))) {
        (task.state, task.metrics) = (TaskStateName::Failed, BTreeMap::new());
    }
    let lost = tasks.iter_mut().find(|task| task.matrix.get("states") == Some(&json!(16))).unwrap();
    // What diverged had reported a value before.
    lost.state = TaskStateName::Failed;
    let sweep = sweep(&tasks, &chosen(&[("y", NO_AXIS)]), &["loss".into()], &|_| ("s", Better::Lower));
    assert_eq!(sweep.values(&sweep.x), ["16", "32", "64"], "no value of the axis is gone");
    let counts: Vec<(usize, usize)> = sweep.cells.iter().map(|cell| (cell.measured.n, cell.missing.failed())).collect();
    assert_eq!(counts, [(1, 1), (2, 0), (0, 2)]);
    assert_eq!(sweep.cells[2].measured.text, "2 of 2 failed");
    assert!(sweep.cells.iter().all(|cell| !cell.best));
    let words = "not ranked: there are no two cells to compare; not compared: states=16 (1 of 2 failed) and states=64 (2 of 2 failed)";
    assert_eq!(sweep.verdict, words);
    assert_eq!(draw_intervals(&sweep).unwrap().points[2].mean, None);
    let map = draw_heat_map(&super::sweep(&tasks, &Choice::default(), &["loss".into()], &|_| ("s", Better::Lower)));
    let map = map.unwrap();
    let (lost, partial) = (&map.cells[2], &map.cells[0]);
    assert_eq!((lost.missing, lost.shade, &lost.lines[..]), (true, None, &["2 of 2 failed".to_owned()][..]));
    assert!(partial.partial && partial.shade.is_some(), "{partial:?}");
}

/// A cancelled task has reported values before, which are not its last.
#[test]
fn cancelled_tasks_are_not_counted_as_finished() {
    let mut tasks = tasks();
    let lost = tasks.iter_mut().find(|task| task.matrix.get("states") == Some(&json!(16))).unwrap();
    (lost.state, lost.metrics) = (TaskStateName::Cancelled, BTreeMap::from([("loss".to_owned(), 99.0)]));
    let sweep = sweep(&tasks, &chosen(&[("y", NO_AXIS)]), &["loss".into()], &|_| ("s", Better::Lower));
    let cell = sweep.cell("16", "").unwrap();
    assert_eq!((cell.measured.n, cell.missing_text.as_str()), (1, "1 of 2 cancelled"));
}

/// Tasks with one cache key are one observation, within a cell and between cells.
#[test]
fn one_piece_of_work_is_one_observation() {
    let mut tasks = tasks();
    for task in &mut tasks {
        // States 32 were answered by the work of 16, and both replicates of 64 are one piece of work.
        let states = task.matrix.get("states").and_then(Value::as_u64).unwrap_or(0);
        let work = match states {
            16 | 32 => format!("a {:?} {:?}", task.matrix.get("chunk"), task.replicate),
            _ => format!("b {states} {:?}", task.matrix.get("chunk")),
        };
        task.cache_key = Some(work);
    }
    let sweep = sweep(&tasks, &chosen(&[("y", NO_AXIS)]), &["loss".into()], &|_| ("s", Better::Lower));
    let counts: Vec<usize> = ["16", "32", "64"].iter().map(|x| sweep.cell(x, "").unwrap().measured.n).collect();
    assert_eq!(counts, [2, 2, 1]);
    assert_eq!(sweep.cell("32", "").unwrap().same_as.as_deref(), Some("states=16"));
    assert!(!sweep.verdict.contains("states=32"), "{}", sweep.verdict);
}

#[test]
fn cells_exist_from_the_plan() {
    let mut tasks = tasks();
    for task in tasks.iter_mut().filter(|task| task.matrix.get("states") == Some(&json!(64))) {
        (task.state, task.metrics) = (TaskStateName::Waiting, BTreeMap::new());
    }
    let sweep = sweep(&tasks, &Choice::default(), &["loss".into()], &|_| ("s", Better::Lower));
    let waiting = sweep.cell("64", "long").unwrap();
    assert_eq!((waiting.measured.text.as_str(), waiting.provisional), ("no value yet", true));
    assert_eq!(sweep.verdict, "");
}

#[test]
fn exact_values_leave_the_scale_to_the_chart() {
    let sweep = draw(&chosen(&[("metric", "accuracy")]));
    assert_eq!(sweep.verdict, "the same in every cell");
    assert_eq!(draw_heat_map(&sweep).unwrap().scale, None);
}

#[test]
fn one_axis_of_numbers_is_a_line_with_error_bars() {
    let sweep = draw(&chosen(&[("y", NO_AXIS)]));
    assert_eq!(draw_heat_map(&sweep), None);
    let plot = draw_intervals(&sweep).unwrap();
    assert_eq!(plot.columns.iter().map(|tick| tick.text.as_str()).collect::<Vec<_>>(), ["16", "32", "64"]);
    assert!(plot.points.iter().all(|point| point.interval.is_some() && point.observations.len() == 2));
    assert!(plot.line.starts_with('M') && plot.line.matches('L').count() == 2, "{}", plot.line);
    let words = draw_intervals(&draw(&chosen(&[("x", "chunk"), ("y", NO_AXIS)]))).unwrap();
    assert_eq!((words.line.as_str(), words.columns[0].text.as_str()), ("", "\"16\""));
}

proptest! {
    #[test]
    fn any_choice_can_be_drawn(metric in "(loss|accuracy|\\PC*)", job in "(train|\\PC*)", x in "(states|chunk|-|\\PC*)", y in "(width|chunk|-|\\PC*)") {
        let sweep = draw(&chosen(&[("metric", &metric), ("job", &job), ("x", &x), ("y", &y)]));
        let _ = (draw_heat_map(&sweep), draw_intervals(&sweep));
        prop_assert!(sweep.x.is_none() || sweep.x != sweep.y);
    }
}

#[test]
fn values_that_read_alike_are_cells_of_their_own() {
    let values = [json!(16), json!("16"), json!("a#1"), json!("a#2"), json!(null), json!("null")];
    let tasks: Vec<TaskView> = (0..)
        .zip(values)
        .map(|(ix, value)| task(ix, "train", json!({"tag": value}), 1, &[("loss", f64::from(ix))]))
        .collect();
    let sweep = sweep(&tasks, &Choice::default(), &[], &|_| ("", Better::Lower));
    assert_eq!(sweep.cells.len(), 6, "{:?}", sweep.cells);
    assert!(sweep.cells.iter().all(|cell| cell.measured.n == 1));
}
