//! Tests of which tasks make a row, and of what is said of it.

use assay_spec::{MetricKind, OutputKind};
use serde_json::json;

use super::*;

const fn metric(name: &'static str, better: Better, headline: &'static str) -> MetricKind {
    MetricKind { name, unit: "", better, headline: Some(headline), covers: "" }
}

const TRAIN: &[MetricKind] = &[
    MetricKind { covers: "± covers seeds.", ..metric("test/accuracy", Better::Higher, "accuracy") },
    MetricKind { headline: None, ..metric("train/loss", Better::Lower, "") },
];
const EVALUATE: &[MetricKind] = &[metric("*/accuracy", Better::Higher, "evaluated accuracy")];
const BENCHMARK: &[MetricKind] = &[metric("latency/*/*/median", Better::Lower, "latency")];
const NONE: &[OutputKind] = &[];

fn kinds() -> Vec<StepKind> {
    let kind = |name, metrics| StepKind {
        name,
        version: 1,
        measures: false,
        about: "",
        schema: Value::Null.into(),
        outputs: NONE,
        metrics,
        check: |_| Vec::new(),
    };
    vec![kind("train", TRAIN), kind("evaluate", EVALUATE), kind("benchmark", BENCHMARK)]
}

/// A task with all that a [`TaskResult`] borrows.
#[derive(Clone)]
struct Task {
    job: &'static str,
    kind: &'static str,
    cell: String,
    matrix: BTreeMap<String, Value>,
    replicate: Option<u32>,
    each: Option<u32>,
    state: TaskStateName,
    metrics: BTreeMap<String, f64>,
    seconds: Option<f64>,
    config: Option<Value>,
    work: Option<String>,
}

fn task(job: &'static str, kind: &'static str, matrix: Value, metrics: &[(&str, f64)]) -> Task {
    let matrix: BTreeMap<String, Value> = serde_json::from_value(matrix).unwrap();
    Task {
        job,
        kind,
        cell: format!("{job}{}", serde_json::to_string(&matrix).unwrap()),
        matrix,
        replicate: None,
        each: None,
        state: TaskStateName::Succeeded,
        metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        seconds: None,
        config: None,
        work: None,
    }
}

impl Task {
    fn each(self, parent: u32) -> Self {
        Task { each: Some(parent), ..self }
    }

    fn replicate(self, replicate: u32) -> Self {
        Task { replicate: Some(replicate), ..self }
    }

    fn work(self, work: &str) -> Self {
        Task { work: Some(work.to_owned()), ..self }
    }

    fn state(self, state: TaskStateName) -> Self {
        Task { state, ..self }
    }
}

fn borrow(tasks: &[Task]) -> Vec<TaskResult<'_>> {
    let borrowed = tasks.iter().map(|task| TaskResult {
        job: task.job,
        kind: task.kind,
        cell: &task.cell,
        matrix: &task.matrix,
        replicate: task.replicate,
        each: task.each.map(TaskIx),
        state: task.state,
        detail: "",
        metrics: &task.metrics,
        seconds: task.seconds,
        config: task.config.as_ref(),
        work: task.work.as_deref(),
    });
    borrowed.collect()
}

fn tabulate_tasks(tasks: &[Task], selection: &Selection) -> Results {
    tabulate_results(&borrow(tasks), &kinds(), selection)
}

fn tabulate_headlines(tasks: &[Task]) -> Results {
    tabulate_tasks(tasks, &Selection::Headlines)
}

fn titles(table: &Results) -> Vec<&str> {
    table.columns.iter().map(|column| column.title.as_str()).collect()
}

fn observed(row: &Row) -> Vec<&[f64]> {
    row.values.iter().map(|value| value.as_ref().map_or(&[][..], |value| &value.measured.values)).collect()
}

#[test]
fn replicates_are_drawn_together_and_followed_along_their_line() {
    let train = |replicate, value| {
        task("train", "train", json!({"states": 16}), &[("test/accuracy", value)]).replicate(replicate)
    };
    let latencies = [("latency/f32/128/median", 0.01), ("latency/f32/16/median", 0.02)];
    let tasks = [
        train(2, 0.7),
        train(1, 0.5),
        task("benchmark", "benchmark", json!({"states": 16}), &latencies).replicate(2).each(0),
    ];
    let table = tabulate_headlines(&tasks);
    assert_eq!(titles(&table), ["accuracy", "latency f32 16", "latency f32 128"]);
    assert_eq!(table.rows.len(), 1);
    assert_eq!(observed(&table.rows[0]), [&[0.5, 0.7][..], &[0.02], &[0.01]]);
    assert_eq!(table.rows[0].values[0].as_ref().unwrap().tasks, [1, 0]);
    assert_eq!(table.notes[1], "accuracy: ± covers seeds.");
}

#[test]
fn cells_are_distinguished_by_their_values_and_never_by_their_names() {
    let tasks: Vec<Task> = ["a#1", "a#2"]
        .into_iter()
        .flat_map(|tag| {
            let value = if tag == "a#1" { 0.9 } else { 0.1 };
            [8, 16].map(|wide| task("train", "train", json!({"tag": tag, "wide": wide}), &[("test/accuracy", value)]))
        })
        .map(|task| Task { cell: "one name for all".into(), ..task })
        .collect();
    let table = tabulate_headlines(&tasks);
    assert_eq!(table.rows.len(), 4);
    assert_eq!(table.axes, ["tag", "wide"]);
    assert_eq!(table.columns[0].verdict, "not ranked: a single observation has no uncertainty");
    // A number and a text that looks like it are two cells.
    let tasks = [json!(16), json!("16")].map(|n| task("train", "train", json!({"n": n}), &[("test/accuracy", 1.0)]));
    assert_eq!(tabulate_headlines(&tasks).rows.len(), 2);
}

#[test]
fn a_job_with_axes_of_its_own_has_rows_of_its_own() {
    let evaluate = |length: u32, value| {
        let matrix = json!({"states": 16, "length": length});
        task("evaluate", "evaluate", matrix, &[("test/accuracy", value)]).each(0)
    };
    let tasks = [
        task("train", "train", json!({"states": 16}), &[("test/accuracy", 0.9)]),
        evaluate(64, 0.8),
        evaluate(128, 0.6),
        task("score", "evaluate", json!({"states": 16}), &[("test/accuracy", 0.7)]).each(0),
    ];
    let table = tabulate_headlines(&tasks);
    assert_eq!(titles(&table), ["accuracy", "evaluated accuracy"]);
    assert_eq!(table.rows.iter().map(|row| row.job.as_str()).collect::<Vec<_>>(), ["train", "evaluate", "evaluate"]);
    assert_eq!(observed(&table.rows[0]), [[0.9], [0.7]], "one without axes of its own joins the row of its parent");
    assert_eq!((observed(&table.rows[1])[1], observed(&table.rows[2])[1]), (&[0.8][..], &[0.6][..]));
}

#[test]
fn two_jobs_of_a_kind_in_one_row_are_no_replicates() {
    let evaluate = |job, value| task(job, "evaluate", json!({}), &[("test/accuracy", value)]).each(0);
    let tasks =
        [task("train", "train", json!({}), &[("test/accuracy", 0.9)]), evaluate("short", 0.8), evaluate("long", 0.2)];
    let table = tabulate_headlines(&tasks);
    assert_eq!(titles(&table), ["accuracy", "evaluated accuracy short", "evaluated accuracy long"]);
    assert_eq!(observed(&table.rows[0]), [[0.9], [0.8], [0.2]]);
}

#[test]
fn one_piece_of_work_is_one_observation() {
    let train = |seed: u32, replicate: u32, value| {
        let task = task("train", "train", json!({"seed": seed}), &[("test/accuracy", value)]);
        task.replicate(replicate).work(&format!("work {replicate}"))
    };
    let other = |replicate, value| {
        task("other", "train", json!({}), &[("test/accuracy", value)])
            .replicate(replicate)
            .work(&format!("o {replicate}"))
    };
    let values = [(1, 0.50), (2, 0.51), (3, 0.52)];
    let mut tasks: Vec<Task> = [1, 2, 3].into_iter().flat_map(|s| values.map(|(r, v)| train(s, r, v))).collect();
    tasks.extend(values.map(|(replicate, value)| other(replicate, value + 0.4)));
    let table = tabulate_headlines(&tasks);
    let same: Vec<Option<usize>> = table.rows.iter().map(|row| row.same_as).collect();
    assert_eq!(same, [None, Some(0), Some(0), None]);
    let best = table.columns[0].best.clone().unwrap();
    assert_eq!((best.cell.as_str(), best.distinguishable, best.indistinguishable.len()), ("other{}", true, 0));
    assert!(table.notes.iter().any(|note| note.contains('=')), "{:?}", table.notes);
}

#[test]
fn what_failed_is_counted_and_what_is_unfinished_has_no_value() {
    let train = |states: u32, replicate, state| {
        let metrics = [("test/accuracy", 0.5), ("train/loss", 1.0)];
        task("train", "train", json!({"states": states}), &metrics).replicate(replicate).state(state)
    };
    use TaskStateName::{Failed, Running, Succeeded};
    let tasks =
        [train(1, 1, Succeeded), train(1, 2, Failed), train(2, 1, Failed), train(2, 2, Failed), train(3, 1, Running)];
    let table = tabulate_headlines(&tasks);
    assert_eq!(table.rows.iter().map(|row| row.failures[0]).collect::<Vec<_>>(), [1, 2, 0]);
    assert_eq!(table.rows.iter().map(|row| row.state).collect::<Vec<_>>(), [Some(Failed), Some(Failed), Some(Running)]);
    assert_eq!(table.rows.iter().map(|row| observed(row)[0].len()).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(table.columns[0].verdict, "", "not while a task is under way");
}

#[test]
fn an_interval_says_what_it_covers() {
    let metrics = [("test/accuracy", 0.9), ("test/accuracy_low", 0.8), ("test/accuracy_high", 0.95)];
    let evaluate = |replicate| task("evaluate", "evaluate", json!({}), &metrics).replicate(replicate);
    let alone = tabulate_headlines(&[evaluate(1)]);
    let value = &alone.rows[0].values[0].as_ref().unwrap().measured;
    assert_eq!((value.low, value.high, value.covers), (Some(0.8), Some(0.95), Some(Covers::Measurement)));
    assert!(alone.notes[1].contains("training seed"), "{:?}", alone.notes);
    let several = tabulate_headlines(&[evaluate(1), evaluate(2)]);
    let value = &several.rows[0].values[0].as_ref().unwrap().measured;
    assert_eq!((value.n, value.covers), (2, Some(Covers::Replicates)));
    assert_eq!(several.notes.len(), 1);
}

#[test]
fn metrics_can_be_chosen_by_name() {
    let tasks = [task("train", "train", json!({}), &[("test/accuracy", 0.9), ("train/loss", 1.5), ("odd", f64::NAN)])];
    let named = |patterns: &[&str]| Selection::Named(patterns.iter().map(|p| (*p).to_owned()).collect());
    assert_eq!(titles(&tabulate_tasks(&tasks, &named(&["train/*", "test/accuracy"]))), ["train/loss", "test/accuracy"]);
    let table = tabulate_tasks(&tasks, &named(&["odd"]));
    assert_eq!(table.rows[0].values[0].as_ref().unwrap().measured.text, "NaN");
    assert!(tabulate_tasks(&tasks, &named(&["nothing"])).rows.is_empty());
}

#[test]
fn the_best_cell_is_named_with_those_that_cannot_be_told_from_it() {
    let train = |states: u32, replicate, value| {
        task("train", "train", json!({"states": states}), &[("test/accuracy", value)]).replicate(replicate)
    };
    let cells = [(16, [0.90, 0.91, 0.92]), (32, [0.91, 0.92, 0.905]), (64, [0.5, 0.51, 0.49])];
    let tasks: Vec<Task> =
        cells.iter().flat_map(|(states, values)| (1..).zip(values).map(|(r, v)| train(*states, r, *v))).collect();
    let best = tabulate_headlines(&tasks).columns[0].best.clone().unwrap();
    assert_eq!(best.cell, "train{\"states\":32}");
    assert_eq!(
        (best.distinguishable, best.indistinguishable.as_slice()),
        (false, &["train{\"states\":16}".to_owned()][..])
    );
}

#[test]
fn a_verdict_names_cells_what_would_settle_it_and_the_cheapest() {
    const METRICS: &[MetricKind] = &[
        metric("test/accuracy", Better::Higher, "accuracy"),
        MetricKind { unit: "B", ..metric("bytes", Better::Lower, "size") },
    ];
    let kinds = [StepKind { metrics: METRICS, ..kinds().swap_remove(0) }];
    let train = |states: u32, replicate, value| {
        let metrics = [("test/accuracy", value), ("bytes", 1000.0 * f64::from(states))];
        Task { seconds: Some(10.0), ..task("train", "train", json!({"states": states}), &metrics).replicate(replicate) }
    };
    let cells = [(16, [0.90, 0.91, 0.92]), (32, [0.91, 0.92, 0.905]), (64, [0.5, 0.51, 0.49])];
    let mut tasks: Vec<Task> =
        cells.iter().flat_map(|(states, values)| (1..).zip(values).map(|(r, v)| train(*states, r, *v))).collect();
    tasks.push(train(128, 1, 0.99));
    tasks.push(train(128, 2, 0.99).state(TaskStateName::Failed));
    let table = tabulate_results(&borrow(&tasks), &kinds, &Selection::Headlines);
    let best = table.columns[0].best.clone().unwrap();
    let power = best.power.clone().unwrap();
    assert!((0.01..0.05).contains(&power.detectable.unwrap()), "{power:?}");
    let more = power.more_replicates.unwrap();
    assert_eq!(power.more_seconds, Some(more as f64 * 30.0), "the three cells that are compared, of ten seconds each");
    let excluded = Excluded { cell: "train{\"states\":128}".into(), reason: "1 of 2 failed".into() };
    assert_eq!(best.excluded, [excluded]);
    assert_eq!(
        best.cheapest.map(|cheapest| (cheapest.cell, cheapest.cost)),
        Some(("train{\"states\":16}".into(), "16 kB".into()))
    );
    let verdict = &table.columns[0].verdict;
    let parts = [
        "(2 of 3 cells) cannot be distinguished; n = 3 detects differences above 0.0",
        "would probably settle it (80 %, if the means stay; about ",
        "; the cheapest of them by size is train",
    ];
    assert!(parts.iter().all(|part| verdict.contains(part)), "{verdict}");
    let json = serde_json::to_value(&table).unwrap();
    assert!(
        json["columns"][0]["best"]["detectable"].is_number() && json["columns"][0]["best"]["error"]["kind"] == "pooled"
    );
}

/// Cells that cost the same, or whose costs scatter too much, have no cheapest among them; and two cells of one name are two.
#[test]
fn no_cell_is_called_the_cheapest_without_evidence() {
    const METRICS: &[MetricKind] = &[
        metric("test/accuracy", Better::Higher, "accuracy"),
        MetricKind { unit: "B", ..metric("bytes", Better::Lower, "size") },
        MetricKind { unit: "s", ..metric("latency", Better::Lower, "latency") },
    ];
    let kinds = [StepKind { metrics: METRICS, ..kinds().swap_remove(0) }];
    let draw = |costs: [(f64, [f64; 3]); 2]| {
        let accuracies = [[0.90, 0.91, 0.92], [0.91, 0.92, 0.905]];
        let cell = |states: usize| {
            let (bytes, latencies) = costs[states];
            (0..3).map(move |at| {
                let metrics = [("test/accuracy", accuracies[states][at]), ("bytes", bytes), ("latency", latencies[at])];
                let task = task("train", "train", json!({"states": states}), &metrics).replicate(at as u32 + 1);
                Task { cell: "one name for all".into(), ..task }
            })
        };
        let tasks: Vec<Task> = (0..2).flat_map(cell).collect();
        let found = tabulate_results(&borrow(&tasks), &kinds, &Selection::Headlines);
        let best = found.columns[0].best.clone().unwrap();
        (best.cheapest.map(|cheapest| (cheapest.column, cheapest.cost)), found.columns[0].verdict.clone())
    };
    let noisy = [1.0, 2.0, 3.0];
    let (tied, verdict) = draw([(1000.0, noisy), (1000.0, [1.1, 2.1, 2.9])]);
    assert_eq!(tied, None, "{verdict}");
    assert!(!verdict.contains("cheapest"), "{verdict}");
    let (by_size, _) = draw([(2000.0, noisy), (1000.0, [1.1, 2.1, 2.9])]);
    assert_eq!(by_size, Some(("size".into(), "1 kB".into())), "the second row, though the first has its name");
    let (by_latency, _) = draw([(1000.0, [3.0, 3.1, 2.9]), (1000.0, [1.0, 1.1, 0.9])]);
    assert_eq!(by_latency, Some(("latency".into(), "1 s".into())), "sizes are the same, latencies are not");
}

/// Two evaluations of one trained cell: a further replicate trains once and evaluates twice.
#[test]
fn further_replicates_include_what_they_are_derived_from() {
    let mut tasks = Vec::new();
    for replicate in 1..=3_u32 {
        let parent = tasks.len() as u32;
        let train = task("train", "train", json!({"states": 16}), &[("train/loss", 1.0)]).replicate(replicate);
        tasks.push(Task { seconds: Some(100.0), ..train });
        for length in [64, 128] {
            let value = 0.5 + f64::from(replicate * 7 % 5 * (length % 3)) / 100.0;
            let matrix = json!({"states": 16, "length": length});
            let evaluate = task("evaluate", "evaluate", matrix, &[("test/accuracy", value)]).each(parent);
            tasks.push(Task { seconds: Some(1.0), ..evaluate.replicate(replicate) });
        }
    }
    let table = tabulate_tasks(&tasks, &Selection::Named(vec!["test/accuracy".into()]));
    let power = table.columns[0].best.clone().unwrap().power.unwrap();
    assert_eq!(power.more_seconds, Some(power.more_replicates.unwrap() as f64 * 102.0));
    assert!(table.notes.iter().any(|note| note.contains("80 %")), "{:?}", table.notes);
}

#[test]
fn what_was_skipped_did_not_fail() {
    use TaskStateName::{Cancelled, Skipped, Succeeded};
    let train = |states: u32, replicate: u32, state| {
        let metrics = [("test/accuracy", 0.5 + f64::from(replicate) / 100.0 + f64::from(states))];
        task("train", "train", json!({"states": states}), &metrics).replicate(replicate).state(state)
    };
    let tasks = [
        train(1, 1, Succeeded),
        train(1, 2, Skipped),
        train(2, 1, Succeeded),
        train(2, 2, Succeeded),
        train(3, 1, Succeeded),
        train(3, 2, Succeeded),
        train(3, 3, Cancelled),
        train(4, 1, Skipped),
    ];
    let table = tabulate_headlines(&tasks);
    assert!(table.rows.iter().all(|row| row.failures == [0]));
    let missing: Vec<String> = table.rows.iter().map(|row| row.missing[0].describe(observed(row)[0].len())).collect();
    assert_eq!(missing, ["1 of 2 skipped", "", "1 of 3 cancelled", "1 of 1 skipped"]);
    let verdict = &table.columns[0].verdict;
    assert!(verdict.starts_with("best; distinguished from the other cell; not compared: "), "{verdict}");
    assert!(verdict.contains("(1 of 2 skipped)") && verdict.contains("(1 of 1 skipped)"), "{verdict}");
}

/// Every doubling of the states takes 0.1 away, and chunks do nothing; one cell lost a replicate.
#[test]
fn effects_of_axes_are_told_after_the_table() {
    let noise = [0.003, -0.002, 0.001, -0.004, 0.002, 0.0, -0.001];
    let mut tasks = Vec::new();
    for (power, states) in [16, 32, 64].into_iter().enumerate() {
        for chunk in ["8", "16"] {
            for replicate in 1..=3_u32 {
                let value = 1.0 - 0.1 * power as f64 + noise[tasks.len() % 7];
                let matrix = json!({"states": states, "chunk": chunk, "fixed": 1});
                tasks.push(task("train", "train", matrix, &[("test/accuracy", value)]).replicate(replicate));
            }
        }
    }
    let found = tabulate_headlines(&tasks).effects;
    let [effects] = &found[..] else { panic!("{found:?}") };
    assert_eq!(effects.axes.iter().map(|axis| axis.axis.as_str()).collect::<Vec<_>>(), ["chunk", "states"]);
    let states = &effects.axes[1];
    assert_eq!(states.levels.iter().map(|level| level.value.as_str()).collect::<Vec<_>>(), ["16", "32", "64"]);
    assert_eq!(states.levels.iter().map(|level| level.may_be_best).collect::<Vec<_>>(), [true, false, false]);
    assert!(states.finding.starts_with("has an effect (p < 0.001); 16 is best on average; -0.1"), "{}", states.finding);
    assert!(states.finding.ends_with(" for each doubling"), "{}", states.finding);
    assert!(effects.axes[0].finding.starts_with("no significant effect"), "{}", effects.axes[0].finding);
    assert!(effects.interactions[0].finding.starts_with("no significant interaction"));
    tasks[0].state = TaskStateName::Failed;
    let lost = &tabulate_headlines(&tasks).effects[0].left_out;
    assert!(lost[0].ends_with("(1 of 3 failed)"), "{lost:?}");
    tasks[0].state = TaskStateName::Running;
    assert!(tabulate_headlines(&tasks).effects.is_empty(), "not while a task is under way");
    let one_axis: Vec<Task> =
        (1..=3).map(|r| task("train", "train", json!({"states": 1}), &[("test/accuracy", 0.5)]).replicate(r)).collect();
    assert!(tabulate_headlines(&one_axis).effects.is_empty());
}

#[test]
fn a_config_may_declare_metrics_that_its_kind_does_not_know() {
    let run = |job, states, loss| {
        let config = json!({"metrics": {"loss": {"better": "lower", "unit": "s"}, "absent": {}}});
        let metrics = [("loss", loss), ("other", 1.0)];
        Task { config: Some(config), ..task(job, "command", json!({"states": states}), &metrics) }
    };
    let table = tabulate_headlines(&[run("train", 16, 0.5), run("train", 32, 0.25)]);
    assert_eq!(titles(&table), ["loss", "absent"]);
    assert_eq!((table.columns[0].unit.as_str(), table.columns[0].direction), ("s", "lower is better"));
    assert_eq!(observed(&table.rows[1])[0], [0.25]);
    let named = tabulate_tasks(&[run("train", 16, 0.5)], &Selection::Named(vec!["o*".into(), "loss".into()]));
    assert_eq!(titles(&named), ["other", "loss"]);
    assert_eq!(named.columns[1].direction, "lower is better");
}

/// Each job of a kind may declare its own metrics. A failure in one job is not a missing value of another job's metric.
#[test]
fn a_failure_is_counted_where_the_job_has_the_metric() {
    use TaskStateName::{Failed, Succeeded};
    let measured = |job, metric: &'static str, state, replicate| {
        let metrics = [(metric, 1.0)];
        let metrics = if state == Succeeded { &metrics[..] } else { &[] };
        let task = task(job, "command", json!({"job": job}), metrics).replicate(replicate).state(state);
        Task { config: Some(json!({"metrics": {metric: {"better": "lower"}}})), ..task }
    };
    let tasks = [
        measured("a", "v", Succeeded, 1),
        measured("a", "v", Failed, 2),
        measured("b", "w", Succeeded, 1),
        task("c", "command", json!({"job": "c"}), &[]).state(Failed),
    ];
    let table = tabulate_headlines(&tasks);
    assert_eq!(titles(&table), ["v", "w"]);
    let failures: Vec<Vec<usize>> = table.rows.iter().map(|row| row.failures.clone()).collect();
    // A job without metrics has no row.
    assert_eq!(failures, [vec![1, 0], vec![0, 0]]);
}

#[test]
fn a_disturbed_measurement_is_marked_in_every_selection() {
    let tasks = [task("bench", "benchmark", json!({}), &[("latency/median", 0.1), ("load/others", 2.0)])];
    let named = |pattern: &str| titles_of(&tasks, pattern);
    assert_eq!(named("latency/*"), ["latency/median", "load/others"]);
    assert!(named("nothing").is_empty());
}

fn titles_of(tasks: &[Task], pattern: &str) -> Vec<String> {
    let table = tabulate_tasks(tasks, &Selection::Named(vec![pattern.to_owned()]));
    titles(&table).into_iter().map(str::to_owned).collect()
}

#[test]
fn all_metrics_of_a_kind_that_nobody_describes_are_shown() {
    let logged = task("run", "mlflow", json!({}), &[("loss", 0.5), ("accuracy", 0.9)]);
    let table = tabulate_headlines(&[logged]);
    assert_eq!((titles(&table), observed(&table.rows[0])), (vec!["accuracy", "loss"], vec![&[0.9][..], &[0.5]]));
}
