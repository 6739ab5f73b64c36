//! The table of results is one table: in `run`, `show`, `results`, and the JSON of each.

use serde_json::Value;

use crate::support::{Home, Ran, fixture, signal, wait_for};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Home {
    /// The JSON output of a command.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let output = self.output(args);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {}", text(&output.stderr)))
    }
}

fn rows(results: &Value) -> &[Value] {
    results["rows"].as_array().map_or(&[], Vec::as_slice)
}

/// The value of a metric in a row, as the row's job measured it.
fn mean(results: &Value, row: &Value, title: &str) -> Option<f64> {
    let columns = results["columns"].as_array().expect("columns");
    let at = columns.iter().position(|column| column["title"] == title)?;
    row["values"][at]["mean"].as_f64()
}

#[test]
fn cells_are_never_merged_and_every_kind_has_its_results() {
    let home = Home::new();
    let ran = home.run("axes.yaml", &[]);
    let results = &ran.succeeded().json["results"];
    let of = |job: &str| rows(results).iter().filter(|row| row["job"] == job).collect::<Vec<_>>();
    assert_eq!((of("train").len(), of("evaluate").len(), of("again").len()), (4, 8, 3), "{results:#}");
    assert_eq!(results["axes"], serde_json::json!(["seed", "split", "tag", "wide"]));
    for row in of("train") {
        let address = row["cell"].as_str().expect("a cell");
        let accuracy = ran.task(address)["metrics"]["test/accuracy"].as_f64();
        assert_eq!(mean(results, row, "accuracy"), accuracy, "{address} has its own value");
        assert!(row["values"].as_array().expect("values").iter().all(|value| value.is_null() || value["n"] == 1));
    }
    // One column for each evaluated split; rows of the other split have no value there.
    for row in of("evaluate") {
        let address = row["cell"].as_str().expect("a cell");
        let split = row["matrix"]["split"].as_str().expect("the job's own axis");
        let metric = ran.task(address)["metrics"][format!("{split}/accuracy")].as_f64();
        assert!(metric.is_some());
        assert_eq!(mean(results, row, &format!("evaluated accuracy {split}")), metric, "{address}");
    }
    assert_eq!(home.json(&["show", "1", "--json"])["results"], *results);
    let chosen = home.json(&["results", "1", "--format", "json"]);
    assert_eq!((&chosen["rows"], &chosen["columns"]), (&results["rows"], &results["columns"]));
    for command in [&["show", "1"][..], &["results", "1", "--format", "markdown"], &["results", "1"]] {
        let shown = text(&home.output(command).stdout);
        assert!(shown.contains("a#1") && shown.contains("a#2") && shown.contains("training seeds"), "{shown}");
    }
}

#[test]
fn an_axis_that_nothing_uses_is_named_and_its_cells_run_once() {
    let home = Home::new();
    let plan = home.output(&["plan", &fixture("axes.yaml")]);
    assert!(text(&plan.stderr).contains("the axis `seed` changes nothing"), "{}", text(&plan.stderr));
    let ran = home.run("axes.yaml", &[]);
    assert!(ran.succeeded().stderr.contains("`again` does not use `matrix.seed`"), "{}", ran.stderr);
    assert!(ran.json["warnings"][0]["message"].as_str().is_some_and(|message| message.contains("`seed`")));
    let worked: Vec<&str> = ran.worked().into_iter().filter(|address| address.starts_with("again")).collect();
    assert_eq!(worked, ["again[seed=1]"]);
    let again: Vec<&Value> = rows(&ran.json["results"]).iter().filter(|row| row["job"] == "again").collect();
    assert!(again[0]["same_as"].is_null() && again[1]["same_as"].is_number() && again[2]["same_as"].is_number());
    let shown = text(&home.output(&["show", "1"]).stdout);
    assert!(shown.contains("again[seed=3]  = again[seed=1]"), "{shown}");
    // If the data exist, the plan also shows it.
    let planned = home.json(&["plan", &fixture("axes.yaml"), "-P", "steps=5", "--json"]);
    let of =
        |address: &str| planned["tasks"].as_array().expect("tasks").iter().find(|t| t["address"] == address).cloned();
    let third = of("again[seed=3]").expect("a task");
    assert_eq!((third["would"].as_str(), third["same_as"].as_str()), (Some("same"), Some("again[seed=1]")));
}

#[test]
fn run_and_show_say_the_same_of_a_run() {
    let home = Home::new();
    let mut ran = home.run("tiny.yaml", &["-P", "steps=5"]);
    ran.succeeded();
    let shown = home.json(&["show", "1", "--json"]);
    ran.json.as_object_mut().expect("an object").remove("warnings");
    assert_eq!(ran.json, shown);
    assert!(shown["file"].as_str().is_some_and(|file| file.ends_with("tiny.yaml")));
    assert_eq!(shown["params"]["steps"], 5);
    let task = ran.task("train[states=4]#2");
    assert_eq!(
        (task["backend"].as_str(), task["seed"].as_u64(), task["cell"].as_str()),
        (Some("cpu"), Some(5), Some("train[states=4]"))
    );
    assert!(task["device"].is_string() && task["config"]["model"]["states"] == 4, "{task:#}");
    assert!(task["cache_key"].as_str().is_some_and(|key| key.len() == 64) && task["reason"].is_string());
    let spent: f64 = task["history"].as_array().expect("attempts").iter().filter_map(|a| a["seconds"].as_f64()).sum();
    assert_eq!(task["seconds"].as_f64(), Some(spent));
    // A cached task names the attempt that did the work, and its hardware.
    home.run("tiny.yaml", &["-P", "steps=5"]).succeeded();
    let cached = Ran { code: Some(0), json: home.json(&["show", "2", "--json"]), stderr: String::new() };
    let task = cached.task("train[states=4]#2");
    assert_eq!((task["source"]["run"].as_i64(), task["backend"].as_str()), (Some(1), Some("cpu")));
    assert!(task["reason"].as_str().is_some_and(|reason| reason.contains("run 1")), "{task:#}");
}

#[test]
fn a_run_that_goes_on_or_died_is_not_called_failed() {
    let home = Home::new();
    let mut child = home.spawn("long.yaml", &[]);
    let started = || {
        let output = home.output(&["show", "1", "--json"]);
        let json: Value = serde_json::from_slice(&output.stdout).ok()?;
        json["tasks"].as_array()?.iter().any(|task| task["state"] == "running").then_some(json)
    };
    assert_eq!(wait_for("a running task", started)["state"], "running");
    let shown = text(&home.output(&["show", "1"]).stdout);
    assert!(shown.contains("run 1 is running") && !shown.contains("run 1 failed"), "{shown}");
    signal(child.id(), "KILL");
    child.wait().expect("it is gone");
    let json = home.json(&["show", "1", "--json"]);
    assert_eq!(json["state"], "interrupted");
    assert!(json["tasks"].as_array().expect("tasks").iter().all(|task| task["state"] != "running"), "{json:#}");
    let shown = text(&home.output(&["show", "1"]).stdout);
    assert!(shown.contains("run 1 was interrupted"), "{shown}");
    assert!(text(&home.output(&["runs"]).stdout).contains("interrupted"));
}

#[test]
fn results_come_in_every_form_with_the_metrics_that_are_asked_for() {
    let home = Home::new();
    home.run("tiny.yaml", &["-P", "steps=5"]).succeeded();
    let csv = text(&home.output(&["results", "1", "--format", "csv", "--metrics", "test/accuracy,quantized/*"]).stdout);
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3, "{csv}");
    assert_eq!(lines[0][..5], ["cell", "job", "states", "state", "same_as"]);
    let n = lines[0].iter().position(|name| *name == "test/accuracy n").expect("a column of counts");
    assert_eq!(
        lines[0][n..n + 6].iter().map(|name| name.rsplit(' ').next().unwrap_or("")).collect::<Vec<_>>(),
        ["n", "mean", "low", "high", "unit", "failures"]
    );
    for line in &lines[1..] {
        let number = |at: usize| line[at].parse::<f64>().unwrap_or_else(|_| panic!("`{}` in {csv}", line[at]));
        assert_eq!((number(n), number(n + 5)), (2.0, 0.0));
        assert!(number(n + 2) <= number(n + 1) && number(n + 1) <= number(n + 3));
    }
    let json = home.json(&["results", "latest", "--format", "json", "--metrics", "test/loss"]);
    let column = &json["columns"][0];
    assert_eq!((json["run"].as_i64(), column["metric"].as_str()), (Some(1), Some("test/loss")));
    let best = column["best"]["cell"].as_str().expect("the best cell");
    let told = column["best"]["distinguishable"].as_bool().expect("whether it is distinguishable");
    assert!(best.starts_with("train[states="));
    assert_eq!(column["best"]["indistinguishable"].as_array().expect("a list").is_empty(), told);
    let wrong = home.output(&["results", "1", "--metrics", "tset/loss"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("test/loss"), "the metrics there are, are named: {}", text(&wrong.stderr));
}

#[test]
fn two_runs_and_two_cells_are_compared() {
    let home = Home::new();
    home.run("tiny.yaml", &["-P", "steps=5"]).succeeded();
    home.run("tiny.yaml", &["-P", "steps=5", "-P", "lr=1e-2"]).succeeded();
    let json = home.json(&["compare", "1", "2", "--json"]);
    assert_eq!(json["params"][0]["path"], "lr");
    let changed: Vec<&str> =
        json["configs"].as_array().expect("a list").iter().filter_map(|d| d["path"].as_str()).collect();
    assert!(changed.contains(&"optimizer.lr"), "{changed:?}");
    let metrics = json["metrics"].as_array().expect("metrics");
    let accuracy = metrics.iter().find(|held| held["metric"] == "test/accuracy").expect("the accuracy");
    assert_eq!((accuracy["base"]["n"].as_i64(), accuracy["candidate"]["n"].as_i64()), (Some(2), Some(2)));
    assert!(accuracy["verdict"].as_str().is_some_and(|verdict| !verdict.is_empty()));
    let shown = text(&home.output(&["compare", "1", "2"]).stdout);
    let (config, table) =
        (shown.find("optimizer.lr").expect("the config"), shown.find("verdict").expect("the metrics"));
    assert!(config < table, "config differences come first: {shown}");
    let cells = text(&home.output(&["compare", "1:train[states=4]", "1:train[states=8]"]).stdout);
    assert!(cells.contains("model.states") && cells.contains("accuracy"), "{cells}");
    assert_eq!(accuracy["comparison"]["error"]["kind"], "pooled", "{accuracy:#}");
    assert!(shown.contains("detectable"), "{shown}");
    let markdown = text(&home.output(&["compare", "1", "2", "--format", "markdown"]).stdout);
    assert!(markdown.starts_with("### run 2 (tiny) against run 1 (tiny)\n\n**"), "{markdown}");
    assert!(
        markdown.contains("\n| cell | metric | base | candidate |") && markdown.contains("<details>"),
        "{markdown}"
    );
    let jobs = text(&home.output(&["compare", "1:train", "2:train", "--metrics", "test/loss"]).stdout);
    assert!(jobs.contains("train (2 cells)"), "all cells of two jobs: {jobs}");
    let same = home.json(&["compare", "1", "1", "--json"]);
    assert!(same["metrics"].as_array().expect("metrics").iter().all(|held| held["verdict"] == "the same work"));
    let wrong = home.output(&["compare", "1:train[states=5]", "1"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("train[states=8]"), "{}", text(&wrong.stderr));
}

/// Config differences are shown even if the runs have no cell in common.
#[test]
fn runs_without_a_common_cell_show_their_config_differences() {
    let home = Home::new();
    home.run("tiny.yaml", &["-P", "steps=5"]).succeeded();
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other.yaml");
    let tiny = std::fs::read_to_string(fixture("tiny.yaml")).expect("the fixture");
    let changed = tiny.replace("states: [4, 8]", "states: [16]");
    assert_ne!(changed, tiny);
    std::fs::write(&other, changed).expect("written");
    home.run(&other.display().to_string(), &["-P", "steps=5"]).succeeded();
    let output = home.output(&["compare", "1", "2"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", text(&output.stderr));
    assert!(shown.contains("model.states") && shown.contains("have no cell in common that has results"), "{shown}");
    assert!(shown.contains("only in 2: train[states=16]"), "{shown}");
    let judged = home.output(&["compare", "1", "2", "--threshold", "5%"]);
    assert_eq!(judged.status.code(), Some(2));
    let (out, err) = (text(&judged.stdout), text(&judged.stderr));
    assert!(out.contains("model.states") && err.contains("no regression can be judged"), "{out}{err}");
    let markdown = text(&home.output(&["compare", "1", "2", "--format", "markdown"]).stdout);
    assert!(markdown.contains("no cell in common") && markdown.contains("<details>"), "{markdown}");
}

/// Eight states need larger files than four, as trained and as quantized, in every replicate: the sizes are exact, and the changes are
/// regressions.
#[test]
fn a_regression_ends_a_comparison_with_code_one() {
    let home = Home::new();
    home.run("tiny.yaml", &["-P", "steps=5"]).succeeded();
    let (small, large) = ("1:train[states=4]", "1:train[states=8]");
    let names = home.json(&["compare", small, large, "--json"]);
    let metrics = names["metrics"].as_array().expect("metrics");
    let size = metrics.iter().find(|held| held["unit"] == "B").expect("a size")["metric"]
        .as_str()
        .expect("its name")
        .to_owned();
    let compare = |base: &str, candidate: &str, more: &[&str]| {
        let fixed = ["compare", base, candidate, "--metric", &size];
        home.output(&[&fixed[..], more].concat())
    };
    let worse = compare(small, large, &["--threshold", "0.1%"]);
    assert_eq!(worse.status.code(), Some(1), "{}", text(&worse.stdout));
    assert!(text(&worse.stdout).contains("2 significant regressions of 0.1 % or more: "), "{}", text(&worse.stdout));
    let markdown = text(&compare(small, large, &["--threshold", "0.1%", "--format", "markdown"]).stdout);
    assert!(markdown.contains("**2 significant regressions of 0.1 % or more: "), "{markdown}");
    assert_eq!(compare(large, small, &["--threshold", "0.1%"]).status.code(), Some(0), "smaller is better");
    assert_eq!(compare(small, large, &["--threshold", "1000%"]).status.code(), Some(0), "by less than the threshold");
    assert_eq!(compare(small, large, &[]).status.code(), Some(0), "nothing is gated without a threshold");
    let wrong = compare(small, large, &["--threshold", "much"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("such as 5% or 0.05"), "{}", text(&wrong.stderr));
}

#[test]
fn a_benchmark_has_a_column_for_each_length_and_says_what_its_intervals_cover() {
    let home = Home::new();
    let ran = home.run("lengths.yaml", &[]);
    let metrics = &ran.succeeded().task("benchmark")["metrics"];
    assert_eq!((&metrics["latency/one/8/processes"], &metrics["latency/one/8/samples"]), (&5.0.into(), &20.0.into()));
    let results = &ran.json["results"];
    let titles: Vec<&str> =
        results["columns"].as_array().expect("columns").iter().filter_map(|c| c["title"].as_str()).collect();
    let latencies: Vec<&str> =
        titles.into_iter().filter(|t| t.starts_with("latency") || t.starts_with("exponent")).collect();
    let expected = ["one 8", "one 16", "one 128", "two 8", "two 16", "two 128"].map(|which| format!("latency {which}"));
    assert_eq!(latencies[..6], expected, "lengths stand in the order of their size");
    assert_eq!(latencies[6..], ["exponent one", "exponent two"]);
    let columns = results["columns"].as_array().expect("columns");
    for (column, value) in std::iter::zip(columns, rows(results)[0]["values"].as_array().expect("values")) {
        let title = column["title"].as_str().unwrap_or_default();
        if title.starts_with("latency") || title.starts_with("exponent") {
            assert_eq!(value["covers"], "measurement", "{title}: {value:#}");
            assert!(value["low"].as_f64() < value["mean"].as_f64() && value["mean"].as_f64() < value["high"].as_f64());
        }
    }
    let notes = results["notes"].to_string();
    assert!(notes.contains("the processes that it was measured in"), "{notes}");
    let log = text(&home.output(&["logs", "1", "benchmark"]).stdout);
    assert!(log.contains("the intervals cover 5 processes"), "{log}");
}
