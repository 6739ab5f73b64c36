//! Tests of models and their lineage.

use assay_core::{RunId, TaskIx};
use serde_json::json;

use super::*;

fn task(ix: u32, kind: &str, config: Value, outputs: &[(&str, &str)], metrics: &[(&str, f64)]) -> TaskView {
    let output = |(name, hash): &(&str, &str)| {
        let file = OutputView::Artifact { hash: (*hash).to_owned(), name: format!("{name}.bin"), bytes: 2048 };
        ((*name).to_owned(), file)
    };
    TaskView {
        run: RunId(3),
        ix: TaskIx(ix),
        address: format!("{kind}#{ix}"),
        cell: kind.to_owned(),
        job: kind.to_owned(),
        kind: kind.to_owned(),
        matrix: BTreeMap::new(),
        replicate: None,
        needs: Vec::new(),
        each: None,
        state: TaskStateName::Succeeded,
        detail: String::new(),
        config: Some(config),
        cache_key: None,
        outputs: outputs.iter().map(output).collect(),
        metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        source: None,
        attempts: 1,
        started_at: None,
        ended_at: None,
    }
}

fn file(hash: &str) -> Value {
    json!({"$artifact": hash, "name": "x", "bytes": 1})
}

fn addresses(tasks: &[TaskRef]) -> Vec<&str> {
    tasks.iter().map(|task| task.address.as_str()).collect()
}

#[test]
fn lineage_follows_the_hashes_of_files() {
    let train = json!({"data": file("d"), "model": {"family": "ten", "dim": 8}});
    let benchmark = json!({"models": {"f32": file("m"), "int8": file("q")}});
    let latencies =
        [("latency/f32/16/median", 1e-4), ("latency/f32/128/median", 8e-4), ("latency/int8/128/median", 3e-4)];
    let tasks = [
        task(0, "prepare", json!({}), &[("dataset", "d")], &[]),
        task(1, "train", train, &[("model", "m"), ("profile", "p")], &[("model/parameters", 12_345.0)]),
        task(2, "quantize", json!({"model": file("m"), "data": file("d"), "scheme": "int8"}), &[("model", "q")], &[]),
        task(
            3,
            "export",
            json!({"model": file("m"), "list": [[file("d")]]}),
            &[("onnx", "o"), ("safetensors", "s"), ("reference", "r")],
            &[("export/max_difference", 2e-6)],
        ),
        task(4, "benchmark", benchmark, &[], &latencies),
    ];
    let models = find_models(&tasks);
    let shown: Vec<(&str, &str, &str)> =
        models.iter().map(|row| (row.hash.as_str(), row.family.as_str(), row.precision.as_str())).collect();
    let expected = [("m", "ten", "f32"), ("q", "ten", "int8"), ("o", "ten", "ONNX"), ("s", "ten", "safetensors")];
    assert_eq!(shown, expected);
    assert!(models.iter().all(|row| row.parameters == Some(12_345.0)), "from the trained model: {models:#?}");
    assert_eq!(addresses(&models[0].sources), ["prepare#0"]);
    assert_eq!(addresses(&models[0].readers), ["quantize#2", "export#3", "benchmark#4"]);
    assert_eq!(addresses(&models[1].sources), ["prepare#0", "train#1"]);
    assert_eq!(addresses(&models[3].readers), [] as [&str; 0]);
    let latencies: Vec<&str> = models.iter().map(|row| row.latency.as_str()).collect();
    assert_eq!(latencies, ["800 µs at length 128", "300 µs at length 128", "", ""]);
    assert_eq!(models.iter().map(|row| row.parity).collect::<Vec<_>>(), [None, None, Some(2e-6), None]);
}

#[test]
fn models_of_other_runs_and_of_unknown_kinds_are_shown_as_they_are() {
    let mut cached = task(0, "train", json!({}), &[("model", "m")], &[]);
    cached.state = TaskStateName::Cached;
    // A config that names its own output, which no real task does, must not be followed for ever.
    let odd = task(1, "command", json!({"model": file("x"), "family": "ten"}), &[("model", "x")], &[]);
    let models = find_models(&[cached, odd]);
    assert_eq!(models.len(), 1, "the work of the cached task was done elsewhere");
    let row = &models[0];
    assert_eq!((row.family.as_str(), row.precision.as_str(), row.parameters_text.as_str()), ("", "", ""));
    assert!(find_models(&[]).is_empty());
}
