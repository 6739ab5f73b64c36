//! The same file and seed give the same bits in checkpoint and metrics, with one thread or two.

use serde_json::Value;

use crate::support::{Home, Ran, fixture};

/// Runs the tiny workflow in a new store, with `threads` threads per training.
fn run(threads: u32) -> Ran {
    let home = Home::new();
    let text = std::fs::read_to_string(fixture("tiny.yaml")).expect("the fixture");
    let text = text.replace(
        "    uses: train\n",
        &format!("    resources: [{{backend: cpu, cpus: {threads}}}]\n    uses: train\n"),
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("threads.yaml");
    std::fs::write(&file, text).expect("the workflow is written");
    let output = home.output(&["run", &file.display().to_string(), "--json"]);
    Ran::of(output)
}

/// The metrics except times, rates and memory sizes.
fn numbers(task: &Value) -> Vec<(String, String)> {
    let metrics = task["metrics"].as_object().expect("metrics");
    let measured = |name: &str| name.contains("per_second") || name.contains("seconds") || name.starts_with("memory/");
    let timeless = metrics.iter().filter(|(name, _)| !measured(name));
    timeless.map(|(name, value)| (name.clone(), value.to_string())).collect()
}

#[test]
fn one_thread_or_two_give_the_same_bits() {
    let [one, again, two] = [run(1), run(1), run(2)];
    for other in [&again, &two] {
        for (expected, task) in std::iter::zip(one.succeeded().tasks(), other.succeeded().tasks()) {
            assert_eq!(expected["outputs"], task["outputs"], "{}", task["address"]);
            assert_eq!(numbers(expected), numbers(task), "{}", task["address"]);
        }
    }
}

#[test]
fn another_replicate_is_another_sample() {
    let ran = run(1);
    let loss = |address: &str| ran.task(address)["metrics"]["train/loss"].clone();
    assert_ne!(loss("train[states=8]#1"), loss("train[states=8]#2"));
}
