//! Terminal output and input: closed streams, lines in a log file, names that would move the cursor, commands to copy.

use std::process::{Command, Output, Stdio};

use crate::support::{Home, Ran, fixture, signal, wait_for};

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A workflow of one cheap step for each value of a matrix, in a separate folder.
fn cells(values: &str, with: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("cells.yaml");
    let text = format!(
        "name: cells\nparams: {{size: {{train: 20, valid: 5}}, seed: 1}}\njobs:\n  data:\n    uses: prepare\n    {with}\n    strategy: \
         {{matrix: {{n: [{values}]}}}}\n    with: {{dataset: listops, train: \"${{{{ params.size.train }}}}\", valid: \"${{{{ \
         params.size.valid }}}}\", test: 5, max_length: 24, max_depth: 2, max_args: 4, seed: \"${{{{ matrix.n | string | length \
         }}}}\"}}\n"
    );
    std::fs::write(&file, text).expect("written");
    (folder, file.display().to_string())
}

#[test]
fn a_closed_stderr_is_no_failure() {
    let home = Home::new();
    let (_folder, file) = cells("1", "");
    let copy = home.store().with_file_name("copy");
    let copy = copy.display().to_string();
    let get = ["get", "1", "data[n=1]", "dataset", "-o", &copy];
    for command in [
        &["run", &file][..],
        &["plan", &file],
        &["runs"],
        &["show", "1"],
        &["artifacts", "1"],
        &get,
        &["verify"],
        &["rm", "1"],
        &["gc"],
        &["gc", "--delete"],
    ] {
        let mut child = home.command(command).spawn().expect("assay starts");
        // From here on its output is discarded.
        drop(child.stderr.take());
        let output = child.wait_with_output().expect("assay ends");
        assert_eq!(output.status.code(), Some(0), "{command:?}");
    }
    let mut child = home.command(&["show", "77"]).spawn().expect("assay starts");
    drop(child.stderr.take());
    assert_eq!(child.wait().expect("assay ends").code(), Some(2));
}

#[test]
fn results_go_to_stdout_and_progress_to_stderr() {
    let home = Home::new();
    let file = fixture("tiny.yaml");
    let first = home.output(&["run", &file, "-P", "steps=5"]);
    assert!(out(&first).contains("train[states=4]") && out(&first).contains('±'), "{}", out(&first));
    assert!(!out(&first).contains("started") && !err(&first).contains('±'), "{}", err(&first));
    assert!(err(&first).contains("data succeeded") && err(&first).contains("run 1 succeeded"), "{}", err(&first));
    let second = home.output(&["run", &file, "-P", "steps=5"]);
    assert!(err(&second).contains("9 tasks cached") && !err(&second).contains("data cached"), "{}", err(&second));
    let quiet = home.output(&["run", &file, "-P", "steps=5", "--quiet"]);
    assert!(err(&quiet).is_empty() && out(&quiet) == out(&second), "{}", err(&quiet));
    let verbose = home.output(&["run", &file, "-P", "steps=5", "--verbose"]);
    assert!(err(&verbose).contains("data cached"), "{}", err(&verbose));
}

#[test]
fn hidden_characters_in_names_are_escaped() {
    let home = Home::new();
    let (_folder, file) = cells("\"a\\u202eb\", \"c\\e[31md\"", "");
    for command in [&["run", &file][..], &["show", "latest"], &["plan", &file], &["logs", "1", "no\u{202e}\u{1b}ne"]] {
        let output = home.output(command);
        let text = out(&output) + &err(&output);
        assert!(!text.contains(['\u{202e}', '\u{1b}']), "{command:?}: {text:?}");
        assert!(text.contains("\\u{202e}"), "{command:?}: {text:?}");
    }
}

#[test]
fn suggested_commands_can_be_copied() {
    let home = Home::new();
    let (_folder, file) = cells("\"it's $x\"", "resources: [{backend: nowhere}]");
    let output = home.output(&["run", &file]);
    assert_eq!(output.status.code(), Some(1));
    let text = err(&output);
    let line =
        text.lines().find_map(|line| line.trim().strip_prefix("its log: assay ")).unwrap_or_else(|| panic!("{text}"));
    let words = Command::new("bash").args(["-c", &format!("printf '%s\\n' {line}")]).stdin(Stdio::null()).output();
    let words = out(&words.expect("bash runs"));
    let store = home.store().display().to_string();
    assert_eq!(words.lines().collect::<Vec<_>>(), ["logs", "1", "data[n=\"it's $x\"]", "--home", &store]);
    assert!(text.contains(&format!("assay server --home {store}")), "{text}");
}

#[test]
fn a_part_of_a_workflow_runs_and_known_results_are_made_again() {
    let home = Home::new();
    let part = home.run("tiny.yaml", &["-P", "steps=5", "--only", "data"]);
    assert_eq!(part.succeeded().worked(), ["data"]);
    assert_eq!(part.tasks().len(), 1);
    let forced = home.run("tiny.yaml", &["-P", "steps=5", "--only", "train", "--force", "--jobs", "1"]);
    assert_eq!(forced.succeeded().worked().len(), 4, "the data are cached");
    let forced = home.run("tiny.yaml", &["-P", "steps=5", "--only", "train", "--force"]);
    assert_eq!(forced.succeeded().worked().len(), 4);
    let output = home.output(&["run", &fixture("tiny.yaml"), "--only", "trian"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("did you mean `train`?"), "{}", err(&output));
}

#[test]
fn one_attempt_at_a_time_is_one_attempt_at_a_time() {
    let home = Home::new();
    home.run("tiny.yaml", &["-P", "steps=5", "--jobs", "1"]).succeeded();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let attempts = runtime.block_on(async {
        let store = assay_store::Store::open_read_only(&home.store()).await.expect("the store");
        let mut all = Vec::new();
        for task in store.tasks(assay_core::RunId(1)).await.expect("the tasks") {
            all.extend(store.attempts(assay_core::RunId(1), task.ix).await.expect("the attempts"));
        }
        all.sort_by_key(|attempt| attempt.began_at);
        all
    });
    assert_eq!(attempts.len(), 9);
    for pair in attempts.windows(2) {
        assert!(pair[0].ended_at.is_some_and(|ended| ended <= pair[1].began_at), "{pair:?}");
    }
}

#[test]
fn parameters_come_from_files_and_reach_parts() {
    let home = Home::new();
    let (folder, file) = cells("1", "");
    let params = folder.path().join("params.yaml");
    std::fs::write(&params, "size: {train: 30}\nseed: 2\n").expect("written");
    let config = |more: &[&str]| {
        let args: Vec<&str> = ["run", &file, "--json"].into_iter().chain(more.iter().copied()).collect();
        let ran = Ran::of(home.output(&args));
        ran.succeeded();
        ran.task("data[n=1]")["metrics"]["data/generated"].as_f64()
    };
    let params = params.display().to_string();
    let small = config(&[]);
    assert_ne!(config(&["--params", &params]), small);
    assert_eq!(config(&["--params", &params, "-P", "size.train=20"]), small);
    let output = home.output(&["run", &file, "-P", "size.trian=3"]);
    assert!(err(&output).contains("names a part that is not in `size`"), "{}", err(&output));
}

#[test]
fn a_log_has_headings_and_the_failure() {
    let home = Home::new();
    let (folder, file) = cells("1", "");
    home.output(&["run", &file]);
    let log = out(&home.output(&["logs", "1", "data[n=1]"]));
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines[0].starts_with("── attempt 1 on here (cpu), 20"), "{log}");
    assert!(lines.last().is_some_and(|line| line.starts_with("── attempt 1 succeeded after")), "{log}");
    assert!(lines[1].as_bytes()[2] == b':' && lines[1].contains("info"), "{log}");
    let tail = out(&home.output(&["logs", "1", "data[n=1]", "--tail", "2"]));
    assert_eq!(tail.lines().collect::<Vec<_>>(), lines[lines.len() - 2..]);
    let errors = out(&home.output(&["logs", "1", "data[n=1]", "--level", "error"]));
    assert!(!errors.contains("info"), "{errors}");
    // A task without an attempt has a reason instead of a log.
    let alone = folder.path().join("alone.yaml");
    let jobs = "jobs:\n  a: {uses: command, resources: [{backend: nowhere}], with: {run: [echo]}}\n  b: {uses: command, needs: [a], with: {run: [echo]}}\n";
    std::fs::write(&alone, jobs).expect("written");
    assert_eq!(home.output(&["run", &alone.display().to_string()]).status.code(), Some(1));
    let told = |task: &str| out(&home.output(&["logs", "2", task]));
    assert_eq!(told("a"), "── no attempt; failed: unavailable: no worker has the backend `nowhere`\n");
    assert_eq!(told("b"), "── no attempt; skipped: a did not succeed\n");
    // Following a task that has ended returns immediately.
    assert_eq!(out(&home.output(&["logs", "1", "data[n=1]", "--follow"])), log);
    let text = folder.path().join("text.yaml");
    std::fs::write(folder.path().join("x.txt"), "short").expect("written");
    std::fs::write(&text, "jobs: {data: {uses: prepare, with: {dataset: text, file: x.txt, length: 8}}}")
        .expect("written");
    assert_eq!(home.output(&["run", &text.display().to_string()]).status.code(), Some(1));
    let log = out(&home.output(&["logs", "latest", "data"]));
    assert!(log.contains("── attempt 1 failed after") && log.contains("help: take a longer text"), "{log}");
}

#[test]
fn a_plan_says_what_cannot_run_and_how_long_the_rest_takes() {
    let home = Home::new();
    for (resources, words) in [
        ("[{backend: nowhere}]", "nowhere"),
        ("[{backend: cpu, cpus: 64000}]", "64000 processors"),
        ("[{backend: cpu, memory: 500000GiB}]", "of memory, and this machine offers"),
    ] {
        let (_folder, file) = cells("1", &format!("resources: {resources}"));
        let output = home.output(&["plan", &file]);
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
        assert!(out(&output).contains("CANNOT RUN") && err(&output).contains(words), "{}", err(&output));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Two tasks with the same work, neither of which could run.
    let file = folder.path().join("same.yaml");
    let step = "uses: command, with: {run: [echo]}";
    let workflow = format!(
        "jobs:\n  a: {{resources: [{{cpus: 64000}}], {step}}}\n  b: {{resources: [{{memory: 500000GiB}}], {step}}}\n  c: {{{step}}}\n"
    );
    std::fs::write(&file, workflow).expect("written");
    let output = home.output(&["plan", &file.display().to_string()]);
    assert_eq!(out(&output).matches("CANNOT RUN").count(), 2, "{}", out(&output));
    let file = folder.path().join("export.yaml");
    let workflow = "name: export\njobs:\n  data:\n    uses: prepare\n    with: {dataset: listops, train: 20, valid: 5, test: 5, max_length: 24, max_depth: 2, \
                    max_args: 4}\n  train:\n    needs: [data]\n    uses: train\n    with: {data: \"${{ needs.data.outputs.dataset }}\", model: {family: pulse, dim: \
                    16, layers: 1, states: 4}, optimizer: {name: adamw, lr: 1e-3}, batch_size: 4, curriculum: [{until_step: 2, max_length: 24}]}\n  \
                    export:\n    needs: [train]\n    uses: export\n    with: {model: \"${{ needs.train.outputs.model }}\"}\n";
    std::fs::write(&file, workflow).expect("written");
    let output = home.output(&["plan", &file.display().to_string()]);
    assert!(err(&output).contains("the family `pulse` cannot be exported to ONNX yet"), "{}", err(&output));
    let (_folder, file) = cells("1, 22", "");
    home.output(&["run", &file]);
    let output = home.output(&["plan", &file, "-P", "size.train=40"]);
    assert!(err(&output).contains("2 would take about"), "{}", err(&output));
}

#[test]
fn a_closed_terminal_and_another_one_stop_a_run_like_ctrl_c() {
    for hang_up in [true, false] {
        let home = Home::new();
        let run = home.spawn("long.yaml", &[]);
        wait_for("the training to be under way", || {
            let shown: serde_json::Value =
                serde_json::from_slice(&home.output(&["show", "latest", "--json"]).stdout).ok()?;
            let train = shown["tasks"].as_array()?.iter().find(|task| task["address"] == "train")?.clone();
            (train["state"] == "running").then_some(())
        });
        if hang_up {
            signal(run.id(), "HUP");
        } else {
            let cancelled = home.output(&["cancel", "latest"]);
            assert!(cancelled.status.success() && err(&cancelled).contains("cancelled"), "{}", err(&cancelled));
        }
        let ran = Ran::of(run.wait_with_output().expect("assay ends"));
        assert_eq!((ran.state(), ran.code), ("cancelled", Some(130)));
        let again = home.output(&["cancel", "1"]);
        assert!(again.status.code() == Some(2) && err(&again).contains("it is cancelled"), "{}", err(&again));
    }
}
