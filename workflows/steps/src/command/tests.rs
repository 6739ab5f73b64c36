//! Runs real programs as steps: `sh` scripts that behave well or badly.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::RunCommand;
use crate::context::StepError;
use crate::step::Step;
use crate::testing::TestContext;

fn context() -> TestContext {
    TestContext::new(assay_cpu::device(2).unwrap())
}

fn script(text: &str) -> Value {
    json!({"run": ["sh", "-c", text]})
}

fn with(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

#[test]
fn a_program_reads_inputs_and_leaves_metrics_and_outputs() {
    let mut context = context();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data.txt"), "12\n").unwrap();
    std::fs::write(folder.path().join("double.sh"), "#!/bin/sh\necho $((2 * $(cat \"$1\")))\n").unwrap();
    let data = context.provide(&folder.path().join("data.txt"));
    let double = context.provide(&folder.path().join("double.sh"));
    let text = r#"
        double=$(tools/double.sh "$ASSAY_INPUTS/data") && echo "$double" > "$ASSAY_OUTPUTS/result.txt"
        echo "{\"step\": 1, \"loss\": 0.5}" >> "$ASSAY_METRICS"
        echo "{\"step\": 2, \"loss\": 0.25}" >> "$ASSAY_METRICS"
        printf '{"answer": %s}' "$double" >> "$ASSAY_METRICS"
        echo "accuracy=97.5%"
        echo "[1, $ASSAY_THREADS, $ASSAY_REPLICATE, \"$ASSAY_DEVICE\", \"$EXTRA\", \"$1\"]" > "$ASSAY_OUTPUTS/seen.json"
    "#;
    let config = json!({
        "run": ["sh", "-c", text, "sh", "$ASSAY_THREADS threads", 3, true],
        "files": {"tools/double.sh": double},
        "inputs": {"data": data},
        "params": {"states": 64},
        "env": {"EXTRA": 7},
        "metrics": {"accuracy": {"better": "higher", "unit": "%"}},
        "outputs": {"result": "result.txt", "seen": {"json": "seen.json"}},
    });
    context.run(&RunCommand, config).unwrap();
    assert_eq!(std::fs::read_to_string(&context.artifacts["result"]).unwrap(), "24\n");
    assert_eq!(context.values["seen"], json!([1, 1, 1, "cpu", "7", "1 threads"]));
    let point = |name: &str, step, value| (name.to_owned(), step, value);
    assert_eq!(context.metrics.iter().filter(|(name, ..)| name == "loss").count(), 2);
    assert!(context.metrics.contains(&point("loss", 2, 0.25)));
    assert!(context.metrics.contains(&point("answer", 0, 24.0)));
    assert!(context.metrics.contains(&point("accuracy", 0, 97.5)));
    assert!(context.logs.contains(&"accuracy=97.5%".to_owned()));
}

#[test]
fn a_program_starts_in_an_empty_folder_without_variables_of_the_executor() {
    let mut context = context();
    let text = r#"ls -A; env | grep ^ASSAY_ | sort | cut -d= -f1; cat "$ASSAY_PARAMS""#;
    context.run(&RunCommand, with(script(text), "params", json!({"a": [1, "b"]}))).unwrap();
    let names = ["DEVICE", "INPUTS", "METRICS", "OUTPUTS", "PARAMS", "REPLICATE", "RESUME", "SEED", "THREADS"];
    let names = names.map(|name| format!("ASSAY_{name}"));
    assert_eq!(context.logs[..names.len()], names);
    let params: Value = serde_json::from_str(&context.logs[names.len()..].concat()).unwrap();
    assert_eq!(params, json!({"a": [1, "b"]}));
}

#[test]
fn a_failure_shows_the_exit_code_and_the_last_lines() {
    let fail = |text: &str| context().run(&RunCommand, script(text)).unwrap_err();
    let error = fail("for i in $(seq 20); do echo line $i; done; exit 3");
    assert!(matches!(error, StepError::Failed { .. }));
    let message = error.to_string();
    assert!(message.starts_with("`sh` exited with code 3"), "{message}");
    assert!(message.contains("line 20") && !message.contains("line 9\n"), "{message}");
    // Errors come before other output of the program.
    let message = fail("echo 'no such column' >&2; for i in $(seq 20); do echo line $i; done; exit 3").to_string();
    assert!(message.ends_with("its last lines:\n  no such column"), "{message}");
}

#[test]
fn a_signal_is_a_crash() {
    let Err(StepError::Fault(message)) = context().run(&RunCommand, script("kill -SEGV $$")) else { panic!() };
    assert!(message.contains("signal 11 (SIGSEGV)"), "{message}");
}

#[test]
fn a_missing_or_unreadable_output_is_a_failure() {
    let check = |text: &str, output: Value, why: &str| {
        let config = with(script(text), "outputs", json!({"model": output}));
        let error = context().run(&RunCommand, config).unwrap_err().to_string();
        assert!(error.contains("`model`") && error.contains(why), "{error}");
    };
    check("true", json!("model.bin"), "is not there");
    check("mkdir $ASSAY_OUTPUTS/model", json!("model"), "is not a file");
    check("echo nonsense > $ASSAY_OUTPUTS/a", json!({"json": "a"}), "not JSON");
    check("head -c 2000000 /dev/zero > $ASSAY_OUTPUTS/a", json!({"json": "a"}), "larger than 1 MiB");
    check("ln -s /etc/passwd $ASSAY_OUTPUTS/a", json!("a"), "outside");
}

#[test]
fn a_metric_that_is_not_finite_ends_the_program_at_once() {
    let text = r#"echo '{"step": 3, "loss": NaN}' >> "$ASSAY_METRICS"; sleep 60"#;
    let Err(StepError::Check { message, .. }) = context().run(&RunCommand, script(text)) else { panic!() };
    assert_eq!(message, "the metric `loss` is NaN at step 3");
}

#[test]
fn a_bad_line_of_metrics_is_a_failure_with_its_number() {
    let text = r#"echo '{"loss": 1}' >> "$ASSAY_METRICS"; echo 'loss: 2' >> "$ASSAY_METRICS""#;
    let mut context = context();
    let error = context.run(&RunCommand, script(text)).unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    assert_eq!(context.last("loss"), Some(1.0));
    // Output before a failure does not hide the cause of the failure.
    let error = context.run(&RunCommand, script("printf nonsense >> $ASSAY_METRICS; exit 4")).unwrap_err().to_string();
    assert!(error.contains("code 4"), "{error}");
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let error = context().run(&RunCommand, json!({"run": ["no-such-program"]})).unwrap_err().to_string();
    assert!(error.contains("cannot start `no-such-program`"), "{error}");
}

#[test]
fn a_cancelled_program_leaves_no_process_behind() {
    let mut context = context();
    let resume = tempfile::tempdir().unwrap();
    context.resume = Some(resume.path().to_owned());
    context.cancelled_by = Some(resume.path().join("ready"));
    // The child runs in another session and ignores SIGTERM.
    let text = r#"
        setsid sh -c 'trap "" TERM; echo $$ > "$ASSAY_RESUME/child"; touch "$ASSAY_RESUME/ready"; while :; do sleep 1; done' &
        while :; do sleep 0.02; done
    "#;
    assert_eq!(context.run(&RunCommand, script(text)).unwrap_err(), StepError::Cancelled);
    let child = std::fs::read_to_string(resume.path().join("child")).unwrap();
    assert_ends(child.trim());
}

#[test]
fn what_a_program_leaves_running_is_killed_when_it_ends() {
    let mut context = context();
    let text = r#"setsid sleep 600 & echo $! > "$ASSAY_OUTPUTS/pid""#;
    context.run(&RunCommand, with(script(text), "outputs", json!({"pid": {"json": "pid"}}))).unwrap();
    assert_ends(&context.values["pid"].to_string());
    assert!(context.logs.iter().any(|line| line.contains("left a process running")), "{:?}", context.logs);
}

#[test]
fn a_process_that_cannot_be_found_does_not_hold_up_the_step() {
    // The process holds the output of the program, but has another session and environment.
    let text = r#"
        setsid env -i sh -c 'echo $$ > "$1"; mv "$1" "$1.ready"; exec sleep 100000' sh "$ASSAY_RESUME/pid" &
        until [ -e "$ASSAY_RESUME/pid.ready" ]; do sleep 0.01; done; echo done
    "#;
    let mut context = context();
    let resume = tempfile::tempdir().unwrap();
    context.resume = Some(resume.path().to_owned());
    context.run(&RunCommand, script(text)).unwrap();
    assert_eq!(context.logs, ["done"]);
    let pid = std::fs::read_to_string(resume.path().join("pid.ready")).unwrap();
    let killed = std::process::Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
    assert!(killed.success(), "the process still ran");
}

/// Waits until a process has exited: its adoptive parent may not have reaped it yet.
fn assert_ends(pid: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z') && !rest.is_empty())
    };
    while runs() {
        assert!(Instant::now() < deadline, "process {pid} still runs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_lot_of_output_on_both_streams_does_not_block() {
    let text =
        "i=0; while [ $i -lt 3000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; printf 'a\\rb\\r%0100000d' 7";
    let mut context = context();
    context.run(&RunCommand, script(text)).unwrap();
    assert!(context.logs.contains(&"out 2999".to_owned()));
    assert!(context.logs.iter().all(|line| line.len() <= 16 * 1024));
}

#[test]
fn a_config_that_no_program_can_have_is_refused_with_its_place() {
    let check = |config: Value, place: &[&str], why: &str| {
        let findings = (RunCommand.kind().check)(&config);
        let found = findings.iter().find(|finding| finding.path == place);
        assert!(found.is_some_and(|finding| finding.message.contains(why)), "{findings:?}");
    };
    check(json!({"run": ["a", "$ASSAY_OUTPUT/x"]}), &["run", "1"], "$ASSAY_OUTPUT");
    check(json!({"run": [""]}), &["run", "0"], "empty");
    check(json!({"run": ["a"], "outputs": {"m": "../m"}}), &["outputs", "m"], "not a path inside");
    check(json!({"run": ["a"], "outputs": {"m": {"json": "/m"}}}), &["outputs", "m"], "not a path inside");
    check(json!({"run": ["a"], "env": {"ASSAY_SEED": 1}}), &["env", "ASSAY_SEED"], "reserved");
    check(json!({"run": ["a"], "env": {"A=B": 1}}), &["env", "A=B"], "cannot be a variable");
    check(json!({"run": ["a"], "metrics": {"a b\u{0}": {}}}), &["metrics", "a b\u{0}"], "cannot be the name");
    check(json!({"run": ["a"], "files": ["x.py"], "env": {"ASSAY_X": 1}}), &["env", "ASSAY_X"], "reserved");
}

#[test]
fn a_program_finds_the_python_of_its_environment() {
    let mut context = context();
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("venv");
    let made = std::process::Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&prefix).status();
    assert!(made.unwrap().success());
    let site = prefix.join("lib").read_dir().unwrap().next().unwrap().unwrap().path().join("site-packages");
    let install = |version: &str| {
        let info = site.join("thing-1.dist-info");
        std::fs::create_dir_all(&info).unwrap();
        std::fs::write(info.join("METADATA"), format!("Metadata-Version: 2.1\nName: thing\nVersion: {version}\n"))
            .unwrap();
    };
    install("1.0");
    let description = assay_environment::PythonDescription::read(&prefix.join("bin/python")).unwrap();
    assert_eq!(description.packages, ["thing==1.0"]);
    std::fs::write(folder.path().join("python"), description.to_json()).unwrap();
    let artifact = context.provide(&folder.path().join("python"));
    let config = json!({
        "run": ["python", "-c", "import sys; print(sys.prefix)"],
        "environment": {"python": artifact},
    });
    context.run(&RunCommand, config.clone()).unwrap();
    assert_eq!(context.logs, [prefix.display().to_string()]);
    // Another version of a package than the run was planned with is refused.
    install("1.1");
    let error = context.run(&RunCommand, config).unwrap_err().to_string();
    assert!(error.contains("thing==1.0 is missing, thing==1.1 was added"), "{error}");
}

#[test]
fn a_measured_program_is_run_again_and_again_in_new_folders() {
    let mut context = context();
    // A run that sees a file of an earlier one fails.
    let text = r#"
        test -z "$(ls "$ASSAY_OUTPUTS" "$ASSAY_RESUME" | grep seen)" || exit 1
        touch "$ASSAY_OUTPUTS/seen" "$ASSAY_RESUME/seen"
        echo "{\"step\": 1, \"loss\": 2}" >> "$ASSAY_METRICS"
        echo "{\"step\": 2, \"loss\": 1.5}" >> "$ASSAY_METRICS"
        sleep 0.01
    "#;
    // The fences remove at most a quarter of the samples on each side, so that six of twelve are left, enough for an interval.
    let config = with(script(text), "measures", json!({"samples": 12, "warmup": 2}));
    context.run(&RunCommand, with(config, "outputs", json!({"seen": "seen"}))).unwrap();
    let last = |name: &str| context.last(name).unwrap_or_else(|| panic!("{name} is missing"));
    assert_eq!((last("time/samples"), last("loss"), last("loss_low"), last("loss_high")), (12.0, 1.5, 1.5, 1.5));
    assert!(last("time/median") >= 0.01 && last("time/median_low") <= last("time/median"));
    let runs: Vec<u64> = context.metrics.iter().filter(|(name, ..)| name == "time/run").map(|point| point.1).collect();
    assert_eq!(runs, (1..=12).collect::<Vec<u64>>());
    assert_eq!(context.progress, (14, Some(14)));
    assert!(context.artifacts.contains_key("seen"));
}

#[test]
fn several_programs_are_measured_in_turns_and_compared() {
    let mut context = context();
    let folder = tempfile::tempdir().unwrap();
    let order = folder.path().join("order");
    let program = |name: &str, more: &str| json!(["sh", "-c", format!("echo {name} >> {}; {more}", order.display())]);
    let config = json!({
        "run": {"slow": program("slow", "sleep 0.1; echo size=7"), "quick": program("quick", "echo size=3")},
        "measures": {"samples": 8, "warmup": 0, "compare": "slow"},
        "metrics": {"size": {}},
    });
    context.run(&RunCommand, config).unwrap();
    assert_eq!((context.last("quick/size"), context.last("slow/size")), (Some(3.0), Some(7.0)));
    assert!(context.last("speedup/quick/ratio").unwrap() > 1.0 && context.last("speedup/slow/ratio").is_none());
    assert!(context.last("speedup/quick/p").is_some() && context.last("speedup/slow/p").is_none());
    let order = std::fs::read_to_string(order).unwrap();
    let order: Vec<&str> = order.lines().collect();
    let rounds: Vec<&[&str]> = order.chunks(2).collect();
    assert!(rounds.len() == 8 && rounds.iter().all(|round| round.contains(&"slow") && round.contains(&"quick")));
    // Neither is always the first.
    assert!(rounds.iter().any(|round| round[0] == "slow") && rounds.iter().any(|round| round[0] == "quick"));
}

#[test]
fn a_run_that_fails_fails_the_measurement() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let text = format!("echo x >> {0}; test $(wc -l < {0}) -lt 4", count.display());
    let error = context().run(&RunCommand, with(script(&text), "measures", json!(true))).unwrap_err();
    assert!(error.to_string().contains("exited with code 1"), "{error}");
}

#[test]
fn a_measurement_that_makes_no_sense_is_refused() {
    let check = |config: Value, path: &[&str], message: &str| {
        let findings = (RunCommand.kind().check)(&config);
        let found = findings.iter().find(|finding| finding.path == path);
        let found = found.unwrap_or_else(|| panic!("{findings:?}"));
        assert!(found.message.contains(message), "{}", found.message);
    };
    let several = json!({"run": {"a": ["true"], "b": ["true"]}});
    check(several.clone(), &["run"], "only `measures: true` runs");
    check(json!({"run": {}, "measures": true}), &["run"], "has no program");
    check(json!({"run": {"a/b": ["true"]}, "measures": true}), &["run", "a/b"], "cannot name a program");
    check(json!({"run": {"a": ["$ASSAY_X"]}, "measures": true}), &["run", "a", "0"], "there is no variable `$ASSAY_X`");
    check(json!({"run": {"a": []}, "measures": true}), &["run", "a", "0"], "is empty");
    check(with(script("true"), "measures", json!({"samples": 5})), &["measures", "samples"], "fewer than 6");
    let compared = with(several.clone(), "measures", json!({"compare": "c"}));
    check(compared, &["measures", "compare"], "is not one of the programs");
    check(with(script("true"), "measures", json!({"compare": "a"})), &["measures", "compare"], "is not one");
    let output = with(with(several, "measures", json!(true)), "outputs", json!({"model": "model"}));
    check(output, &["outputs"], "several programs");
}
