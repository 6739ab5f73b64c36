//! Results that control later tasks: `best()`, cells computed while the run is in progress, `if:`, `continue-on-error`.

use serde_json::{Value, json};

use crate::support::{Home, Ran, fixture};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The states of the cells of a job, in order, with the task's state.
fn cells<'a>(ran: &'a Ran, job: &str) -> Vec<(i64, &'a str)> {
    let tasks = ran.tasks().iter().filter(|task| task["job"] == job);
    tasks.filter_map(|task| Some((task["matrix"]["states"].as_i64()?, task["state"].as_str()?))).collect()
}

fn plan(home: &Home, more: &[&str]) -> Value {
    let file = fixture("chosen.yaml");
    let args: Vec<&str> = ["plan", &file, "--json"].into_iter().chain(more.iter().copied()).collect();
    let output = home.output(&args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

#[test]
fn results_decide_what_follows_them() {
    let home = Home::new();
    let planned = plan(&home, &[]);
    let undecided: Vec<&str> =
        planned["undecided"].as_array().expect("a list").iter().filter_map(|job| job["job"].as_str()).collect();
    assert_eq!(undecided, ["refine", "small", "last"]);
    let deciders = |job: usize| planned["undecided"][job]["cells_decided_by"].clone();
    assert_eq!([deciders(0), deciders(1), deciders(2)], [json!(["sweep"]), json!(["refine"]), json!(["refine"])]);
    let shown = home.output(&["plan", &fixture("chosen.yaml")]);
    assert!(text(&shown.stdout).contains("refine[?]"), "{}", text(&shown.stdout));
    assert!(text(&shown.stdout).contains("has cells that `sweep` decides"), "{}", text(&shown.stdout));
    assert!(text(&shown.stderr).contains("refine: its cells are decided by `sweep` while"), "{}", text(&shown.stderr));

    let ran = home.run("chosen.yaml", &[]);
    ran.succeeded();
    let loss = |states: i64| ran.task(&format!("sweep[states={states}]"))["metrics"]["test/loss"].as_f64();
    let best = if loss(8) < loss(4) { 8 } else { 4 };
    let model = &ran.task(&format!("sweep[states={best}]"))["outputs"]["model"]["$artifact"];
    assert_eq!(ran.task("chosen")["config"]["model"]["$artifact"], *model);
    assert_eq!(cells(&ran, "refine"), [(best + 1, "succeeded"), (best + 2, "succeeded")]);
    assert_eq!(cells(&ran, "small"), [(best + 1, "succeeded"), (best + 2, "succeeded")]);
    assert_eq!(cells(&ran, "last").len(), 1);
    assert_eq!(ran.task("gate")["state"], "succeeded");
    assert_eq!(ran.task("always")["state"], "succeeded");
    let skipped = ran.task("on_failure");
    assert_eq!(
        (&skipped["state"], &skipped["reason"]),
        (&"skipped".into(), &"its condition `failure()` is false".into())
    );
    // The table has the cells that were added later (results along `each` share a row), and every task is shown.
    let rows = ran.json["results"]["rows"].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["cell"] == format!("refine[states={}]", best + 2)), "{rows:#?}");
    let shown = text(&home.output(&["show", "1"]).stdout);
    assert!(shown.contains(&format!("refine[states={}]", best + 1)), "{shown}");

    // Everything is known now, including the cells.
    let again = home.run("chosen.yaml", &[]);
    assert_eq!(again.succeeded().worked(), ["on_failure"], "a skipped task has no result to be cached");
    let planned = plan(&home, &[]);
    assert_eq!(planned["undecided"], serde_json::json!([]));
    let tasks = planned["tasks"].as_array().expect("tasks");
    assert_eq!(tasks.len(), ran.tasks().len());
    for task in tasks {
        let expected = if task["address"] == "on_failure" { "skip" } else { "cached" };
        assert_eq!(task["would"], expected, "{task:#}");
    }
}

#[test]
fn a_false_condition_skips_with_a_reason_and_fails_nothing() {
    let home = Home::new();
    let ran = home.run("chosen.yaml", &["-P", "threshold=0.0"]);
    ran.succeeded();
    let reason = |address: &str| ran.task(address)["reason"].as_str().unwrap_or_default().to_owned();
    assert_eq!(reason("gate"), "its condition `needs.chosen.metrics['test/loss'] < params.threshold` is false");
    assert_eq!(reason("after_gate"), "gate was skipped");
    assert_eq!(ran.task("after_gate")["state"], "skipped");
    assert_eq!(ran.task("always")["state"], "succeeded", "its own condition says so");
    assert_eq!(ran.task("on_failure")["state"], "skipped");
    let output = home.output(&["run", &fixture("chosen.yaml"), "-P", "threshold=0.0"]);
    assert!(text(&output.stderr).contains("gate skipped: its condition"), "{}", text(&output.stderr));
}

#[test]
fn a_tolerated_failure_leaves_its_cell_out_of_best_with_a_warning() {
    let home = Home::new();
    let ran = home.run("chosen.yaml", &["-P", "broken=[8]"]);
    assert_eq!(ran.task("sweep[states=8]")["state"], "failed");
    ran.succeeded();
    assert_eq!(cells(&ran, "refine"), [(5, "succeeded"), (6, "succeeded")]);
    let log = text(&home.output(&["logs", "1", "chosen"]).stdout);
    assert!(log.contains("`sweep[states=8]` is left out of `best(needs.sweep, 'test/loss')`"), "{log}");
    assert_eq!(ran.task("on_failure")["state"], "skipped", "a tolerated failure is none");
}

#[test]
fn a_plan_and_a_condition_pass_on_what_best_leaves_out() {
    let home = Home::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("warned.yaml");
    let workflow = "\
jobs:
  tune:
    strategy: {matrix: {n: [1, 2]}}
    uses: command
    with: {run: [echo, \"${{ 'loss=' if matrix.n == 1 else 'none=' }}${{ matrix.n }}\"], metrics: {loss: {better: lower}}}
  asks: {needs: [tune], if: \"best(needs.tune, 'loss').matrix.n > 1\", uses: command, with: {run: [echo]}}
  takes: {needs: [tune], uses: command, with: {run: [echo, \"${{ best(needs.tune, 'loss').matrix.n }}\"]}}
";
    std::fs::write(&file, workflow).expect("a file");
    let file = file.display().to_string();
    let ran = home.output(&["run", &file]);
    let warning = "`tune[n=2]` is left out of `best(needs.tune, 'loss')`";
    for address in ["asks", "takes"] {
        assert!(text(&ran.stderr).contains(&format!("{address}: {warning}")), "{address}: {}", text(&ran.stderr));
    }
    assert!(text(&ran.stderr).contains("asks skipped: its condition"), "{}", text(&ran.stderr));
    let planned = home.output(&["plan", &file]);
    for address in ["asks", "takes"] {
        let line = format!("{address}: warning: {warning}");
        assert!(text(&planned.stderr).contains(&line), "{address}: {}", text(&planned.stderr));
    }
}

#[test]
fn a_condition_on_failures_waits_for_everything_above_it() {
    let home = Home::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("above.yaml");
    let workflow = "\
jobs:
  fails: {uses: command, with: {run: [sh, -c, exit 3]}}
  slow: {uses: command, with: {run: [sleep, \"2\"]}}
  both: {needs: [fails, slow], uses: command, with: {run: [echo]}}
  asks: {needs: [both], if: failure(), uses: command, with: {run: [echo, it failed]}}
  cells: {needs: [both], if: failure(), strategy: {matrix: {x: \"${{ [needs.both.result] }}\"}}, uses: command, with: {run: [echo, \"${{ matrix.x }}\"]}}
  none: {needs: [both], if: not failure(), uses: command, with: {run: [echo]}}
";
    std::fs::write(&file, workflow).expect("a file");
    let output = home.output(&["run", "--json", &file.display().to_string()]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let tasks = json["tasks"].as_array().expect("tasks").iter();
    let states: Vec<_> = tasks.filter_map(|task| Some((task["address"].as_str()?, task["state"].as_str()?))).collect();
    let expected = [
        ("fails", "failed"),
        ("slow", "succeeded"),
        ("both", "skipped"),
        ("asks", "succeeded"),
        ("none", "skipped"),
        ("cells[x=skipped]", "succeeded"),
    ];
    assert_eq!(states, expected, "{}", text(&output.stderr));
}

#[test]
fn where_every_cell_failed_the_message_says_so() {
    let home = Home::new();
    let ran = home.run("chosen.yaml", &["-P", "broken=[4, 8]"]);
    assert_eq!((ran.state(), ran.code), ("failed", Some(1)), "{}", ran.stderr);
    for (address, words) in [
        ("chosen", "no cell of `sweep` has a usable `test/loss`"),
        ("refine", "the cells of `refine` cannot be decided"),
    ] {
        let task = ran.task(address);
        let message = task["error"]["message"].as_str().unwrap_or_default();
        assert!(task["state"] == "failed" && message.contains(words), "{task:#}");
    }
    assert_eq!(ran.task("small")["state"], "skipped");
    assert_eq!(ran.task("small")["reason"], "refine did not succeed");
    assert_eq!(ran.task("on_failure")["state"], "succeeded", "the failure of `chosen` stands above it");
}

#[test]
fn an_unknown_function_is_an_error_of_the_plan() {
    let home = Home::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("w.yaml");
    let workflow = "jobs:\n  data:\n    uses: prepare\n    if: sucess()\n    with: {dataset: listops}\n";
    std::fs::write(&file, workflow).expect("a file");
    let output = home.output(&["plan", &file.display().to_string()]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("w.yaml:4:9: unknown function `sucess`") && told.contains("did you mean `success`?"),
        "{told}"
    );
}

#[test]
fn the_examples_of_the_reference_are_planned() {
    let reference =
        std::fs::read_to_string(assay_tests::root().join("docs/src/expressions.md")).expect("the reference");
    let folder = tempfile::tempdir().expect("a folder");
    let (mut planned, home) = (0, Home::new());
    for block in reference.split("```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next()) {
        // A block that names its file belongs to the following blocks.
        if let Some(name) = block.lines().next().and_then(|line| line.strip_prefix("# file: ")) {
            std::fs::write(folder.path().join(name), block).expect("a file");
            continue;
        }
        let file = folder.path().join("example.yaml");
        std::fs::write(&file, block).expect("a file");
        let output = home.output(&["plan", &file.display().to_string(), "--json"]);
        assert!(output.status.success(), "{block}\n{}", text(&output.stderr));
        planned += 1;
    }
    assert!(planned > 3, "the reference has examples");
}
