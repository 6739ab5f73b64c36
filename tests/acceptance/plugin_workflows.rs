//! Plugins in workflows: the workflow of the catalog, the tasks that run again after a component changed, problems that a plan finds,
//! plugins that misbehave, and a stopped and resumed training whose curriculum a plugin decides.

use std::path::Path;

use assay_tests::root;
use assay_wasm::{PluginWorld, encode_component};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Home, Ran, children, fixture, signal, wait_for};

/// Parameters for a small version of the catalog's workflow.
const SMALL: [&str; 6] = ["-P", "examples=256", "-P", "steps=16", "-P", "dim=8"];

/// A copy of the workflow of the catalog and its plugins.
fn copied() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let text = std::fs::read_to_string(fixture("plugins.yaml")).expect("the workflow");
    for name in ["dyck", "pace", "calibration"] {
        std::fs::copy(shipped(name), folder.path().join(format!("{name}.wasm"))).expect("a plugin");
    }
    let text = ["dyck", "pace", "calibration"].iter().fold(text, |text, name| {
        text.replace(&format!("../../plugins/wasm/shipped/{name}/{name}.wasm"), &format!("{name}.wasm"))
    });
    let file = folder.path().join("plugins.yaml");
    std::fs::write(&file, text).expect("a file");
    (folder, file.display().to_string())
}

fn shipped(name: &str) -> std::path::PathBuf {
    root().join("plugins/wasm/shipped").join(name).join(format!("{name}.wasm"))
}

/// Appends a custom section, which changes the hash of a component but not its behaviour.
fn change(component: &Path) {
    let mut bytes = std::fs::read(component).expect("the component");
    bytes.extend([0, 4, 3, b'n', b'e', b'w']);
    std::fs::write(component, bytes).expect("the component");
}

fn names(plugins: &Value) -> Vec<&str> {
    plugins.as_array().into_iter().flatten().filter_map(|plugin| plugin["name"].as_str()).collect()
}

#[test]
fn the_plugins_that_ship_work_in_one_workflow_and_the_results_name_them() {
    let home = Home::new();
    let ran = home.run("plugins.yaml", &SMALL);
    let train = &ran.succeeded().task("train");
    for metric in ["valid/plugin/calibration/ece", "test/plugin/calibration/ece", "test/plugin/calibration/mce"] {
        let value =
            train["metrics"][metric].as_f64().unwrap_or_else(|| panic!("no {metric} in {:#}", train["metrics"]));
        assert!((0.0..=1.0).contains(&value), "{metric} is {value}");
    }
    assert!(train["metrics"]["train/stage"].as_f64().is_some_and(|stage| stage >= 1.0), "pace gives several stages");
    let evaluated = ran.task("calibrated");
    assert!(evaluated["metrics"]["test/plugin/calibration/ece"].is_number());
    assert_eq!(evaluated["outputs"]["plugins"][0]["version"], "1.0.0");
    assert_eq!(names(&ran.task("data")["plugins"]), ["dyck"]);
    assert_eq!(names(&train["plugins"]), ["calibration", "dyck", "pace"]);
    assert_eq!(names(&evaluated["plugins"]), ["calibration", "dyck", "pace"]);
    let dyck = &evaluated["plugins"][1];
    let hash = blake3::hash(&std::fs::read(shipped("dyck")).expect("the plugin")).to_hex().to_string();
    assert_eq!((dyck["version"].as_str(), dyck["blake3"].as_str()), (Some("1.0.0"), Some(hash.as_str())));
    assert_eq!(dyck["tasks"], serde_json::json!(["data"]));
    let shown = String::from_utf8(home.output(&["show", "latest"]).stdout).expect("UTF-8");
    let line = format!("plugin dyck 1.0.0, BLAKE3 {}, behind: calibrated, data, train", &hash[..12]);
    assert!(shown.contains(&line), "{line} is not in\n{shown}");
    assert_eq!(home.run("plugins.yaml", &SMALL).succeeded().worked(), Vec::<&str>::new(), "all of it is cached");
}

#[test]
fn a_search_proposes_trials_from_results_and_a_step_reads_the_best_model() {
    let home = Home::new();
    let small = ["-P", "examples=64", "-P", "steps=4", "-P", "trials=3"];
    let ran = home.run("search.yaml", &small);
    ran.succeeded();
    let trials = |job: &str| ran.task(job)["outputs"]["trials"].as_array().cloned().unwrap_or_default();
    assert!(!trials("round1").is_empty() && !trials("round2").is_empty());
    assert_eq!(
        (&ran.task("round1")["outputs"]["finished"], &ran.task("round2")["outputs"]["finished"]),
        (&false.into(), &true.into())
    );
    let content = ran.task("content");
    assert!(content["metrics"]["distinct"].as_f64().is_some_and(|bytes| bytes > 10.0), "{content:#}");
    assert!(content["outputs"]["result"]["bytes"].as_u64().is_some_and(|bytes| bytes > 1000), "{content:#}");
    assert_eq!(names(&content["plugins"]), ["bytes", "climb"]);
    assert_eq!(home.run("search.yaml", &small).succeeded().worked(), Vec::<&str>::new(), "all of it is cached");
}

#[test]
fn a_changed_component_reruns_the_tasks_that_use_it_and_those_behind_them() {
    let (folder, file) = copied();
    let home = Home::new();
    home.run(&file, &SMALL).succeeded();
    change(&folder.path().join("calibration.wasm"));
    assert_eq!(home.run(&file, &SMALL).succeeded().worked(), ["train", "calibrated"]);
    change(&folder.path().join("dyck.wasm"));
    // A dataset records the plugin that generated it, so the tasks that read the dataset run again too.
    assert_eq!(home.run(&file, &SMALL).succeeded().worked(), ["data", "train", "calibrated"]);
    let text = std::fs::read_to_string(&file).expect("the workflow").replace("memory: 16MiB", "memory: 32MiB");
    std::fs::write(&file, text).expect("the workflow");
    assert_eq!(home.run(&file, &SMALL).succeeded().worked(), Vec::<&str>::new(), "a larger limit changes no result");
}

#[test]
fn a_plan_finds_missing_files_other_interfaces_other_hashes_and_unknown_names() {
    let (folder, file) = copied();
    let home = Home::new();
    let planned = || {
        let output = home.output(&["plan", &file]);
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout),
        )
    };
    let (is_fine, text) = planned();
    assert!(is_fine && text.contains("plugin pace: curriculum, "), "{text}");
    assert!(text.contains(", 2000000000 units of fuel a call and 10000000 a sample, 60 s a call"), "{text}");
    let original = std::fs::read_to_string(&file).expect("the workflow");
    let line = 1 + original.lines().position(|line| line.contains("dyck.wasm")).expect("dyck is declared");
    let refused = |text: &str, part: &str| {
        std::fs::write(&file, text).expect("the workflow");
        let (is_fine, told) = planned();
        assert!(!is_fine && told.contains(part) && told.contains(&format!("plugins.yaml:{line}:")), "{told}");
        std::fs::write(&file, &original).expect("the workflow");
    };
    refused(&original.replace("dyck.wasm", "duck.wasm"), "the plugin `dyck` cannot be used: cannot read its file");
    let demanded = format!("dyck.wasm, blake3: {}", "a".repeat(64));
    refused(&original.replace("dyck.wasm", &demanded), "the plugin `dyck` cannot be used: its file has the hash ");
    let component = folder.path().join("dyck.wasm");
    let good = std::fs::read(&component).expect("the component");
    let other = |from: &[u8], to: &[u8]| {
        let mut bytes = good.clone();
        while let Some(at) = bytes.windows(from.len()).position(|part| part == from) {
            bytes[at..at + from.len()].copy_from_slice(to);
        }
        std::fs::write(&component, bytes).expect("the component");
    };
    other(b"assay:plugin/dataset@0.1.0", b"assay:plugin/dataset@0.7.0");
    refused(&original, "it was built for `assay:plugin/dataset@0.7.0`; this Assay has assay:plugin@0.1.0");
    std::fs::write(&component, b"\0asm\x01\0\0\0").expect("the component");
    refused(&original, "it is a core module, not a component");
    std::fs::write(&component, &good).expect("the component");
    let unknown = original.replace("plugin: dyck", "plugin: duck");
    std::fs::write(&file, &unknown).expect("the workflow");
    let (is_fine, told) = planned();
    let line = 1 + unknown.lines().position(|line| line.contains("plugin: duck")).expect("the job");
    assert!(!is_fine && told.contains("unknown plugin `duck`") && told.contains("did you mean `dyck`?"), "{told}");
    assert!(told.contains(&format!("plugins.yaml:{line}:")), "{told}");
}

/// A dataset of one token whose `batch` starts with this code.
fn hostile(batch: &str) -> Vec<u8> {
    let module = format!(
        r#"(module
          (memory (export "memory") 2)
          (global $top (mut i32) (i32.const 65536))
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            global.get $top
            (global.set $top (i32.add (global.get $top) (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -16)))))
          (func (export "assay:plugin/plugin@0.1.0#describe") (result i32) i32.const 16)
          (func (export "assay:plugin/dataset@0.1.0#open") (param i32 i32) (result i32) i32.const 64)
          (func (export "assay:plugin/dataset@0.1.0#batch") (param i64 i32 i64 i32) (result i32) {batch} i32.const 512)
          (data (i32.const 16) "\00\04\00\00\04\00\00\00\00\04\00\00\04\00\00\00\00\04\00\00\04\00\00\00\00\04\00\00\00\00\00\00")
          (data (i32.const 64) "\00\00\00\00\00\01\00\00\02\00\00\00\02\00\00\00\04\00\00\00")
          (data (i32.const 256) "\00\04\00\00\01\00\00\00\01\04\00\00\01\00\00\00")
          (data (i32.const 1024) "evil"))"#
    );
    let module = wat::parse_str(module).expect("the text is WebAssembly");
    encode_component(&module, PluginWorld::Dataset).expect("the module is a dataset")
}

#[test]
fn plugins_that_misbehave_fail_their_own_tasks_with_plugin_call_and_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("a file");
    write("loop.wasm", &hostile("(loop $l (br $l))"));
    write("bomb.wasm", &hostile("(loop $l (br_if $l (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))"));
    write("evil.yaml", &std::fs::read(fixture("evil.yaml")).expect("the workflow"));
    let ran = Home::new().run(&folder.path().join("evil.yaml").display().to_string(), &[]);
    assert_eq!(ran.state(), "failed");
    for (task, class, message) in [
        (
            "endless",
            "step",
            "plugin `loop`: `dataset.batch` ran out of fuel; the limit of this call was 20004000 units",
        ),
        ("slow", "timeout", "plugin `sleeper`: `dataset.batch` took longer than 1 s"),
        ("large", "oom", "plugin `bomb`: `dataset.batch` needs "),
    ] {
        let task = ran.task(task);
        assert_eq!(
            (task["state"].as_str(), task["error"]["class"].as_str()),
            (Some("failed"), Some(class)),
            "{task:#}"
        );
        assert!(task["error"]["message"].as_str().is_some_and(|text| text.starts_with(message)), "{task:#}");
    }
    let message = ran.task("large")["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("bytes of memory; the limit is 8388608"), "{message}");
    assert_eq!((&ran.task("after")["state"], &ran.task("honest")["state"]), (&"skipped".into(), &"succeeded".into()));
}

/// The outputs and metrics of the training, except time and memory.
fn outcome(ran: &Ran) -> (Value, Value) {
    let train = ran.succeeded().task("train");
    let mut metrics = train["metrics"].clone();
    let measured = |name: &str| name.contains("per_second") || name.starts_with("memory/");
    metrics.as_object_mut().expect("metrics").retain(|name, _| !measured(name));
    (train["outputs"].clone(), metrics)
}

#[test]
fn a_training_with_a_curriculum_of_a_plugin_is_killed_and_resumed_with_the_same_bits() {
    let (_folder, file) = copied();
    let text = std::fs::read_to_string(&file).expect("the workflow");
    let text = text.replace("      eval_every:", "      checkpoints: {every_steps: 20}\n      eval_every:");
    std::fs::write(&file, text).expect("the workflow");
    let params = ["-P", "examples=256", "-P", "steps=800", "-P", "dim=8"];
    let whole = outcome(&Home::new().run(&file, &params));
    let home = Home::new();
    let mut run = home.spawn(&file, &params);
    let saved = || {
        let folders = std::fs::read_dir(home.store().join("resume")).into_iter().flatten().flatten();
        folders.map(|folder| folder.path().join("checkpoint.safetensors")).find(|file| file.is_file())
    };
    wait_for("the training to save its state", saved);
    let executor = children(run.id(), "executor").first().copied();
    signal(run.id(), "KILL");
    run.wait().expect("assay is gone");
    if let Some(executor) = executor {
        wait_for("the executor to end", || (!crate::support::is_alive(executor)).then_some(()));
    }
    assert_eq!(outcome(&home.run(&file, &params)), whole);
    let logs = home.output(&["logs", "latest", "train"]).stdout;
    assert!(String::from_utf8_lossy(&logs).contains("resuming from the checkpoint at step "));
}
