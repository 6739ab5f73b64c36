//! Configs with known outputs, and their cache keys.

use std::collections::{BTreeMap, BTreeSet};

use assay_spec::{ArtifactRef, Finished, Output, Outputs, ResolveError, Workflow, check};
use proptest::prelude::*;
use serde_json::{Value, json};

mod fake;

fn checked(text: &str) -> Workflow {
    check("f.yaml", text, &fake::kinds(), &[]).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The outputs that a task would produce: artifacts whose content depends only on the task's key.
fn outputs_for(key: &str) -> Outputs {
    let artifact = |name: &str| {
        let hash = blake3::hash(format!("{key}/{name}").as_bytes()).to_hex().to_string();
        Output::Artifact(ArtifactRef { hash, name: format!("{name}.bin"), bytes: 7 })
    };
    let mut outputs: Outputs = ["dataset", "model"].map(|name| (name.to_owned(), artifact(name))).into();
    outputs.insert("tokenizer".into(), Output::Value(json!({"size": 15})));
    outputs
}

/// Runs a whole workflow without computing anything: every task's config and key, by address.
fn run(workflow: &Workflow) -> BTreeMap<String, (Value, String)> {
    let mut done: Vec<Finished> = Vec::new();
    let mut resolved = BTreeMap::new();
    for (place, task) in workflow.tasks.iter().enumerate() {
        let step = workflow.resolve(place, &|task| done.get(task).cloned()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(step.kind, task.kind);
        done.push(Finished::with_outputs(outputs_for(&step.key)));
        resolved.insert(task.address.clone(), (step.config, step.key));
    }
    resolved
}

fn keys(text: &str) -> BTreeMap<String, String> {
    run(&checked(text)).into_iter().map(|(address, (_, key))| (address, key)).collect()
}

const SWEEP: &str = include_str!("good/sweep.yaml");

#[test]
fn configs_are_filled_in() {
    let resolved = run(&checked(SWEEP));
    let shown: BTreeMap<&str, &Value> = resolved
        .iter()
        .filter(|(address, _)| !address.contains("chunk") || address.ends_with("states=64]#2"))
        .map(|(address, (config, _))| (address.as_str(), config))
        .collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&shown).unwrap());
}

#[test]
fn a_key_is_the_hash_of_canonical_json() {
    let workflow =
        checked("jobs: {a: {uses: report, with: {title: \"é\\\"\", ratio: 0.5, values: {b: 1, a: [true, null]}}}}");
    let text = r#"{"config":{"ratio":0.5,"title":"é\"","values":{"a":[true,null],"b":1}},"kind":"report","replicate":1,"version":1}"#;
    let step = workflow.resolve(0, &|_| None).unwrap();
    assert_eq!(step.key, blake3::hash(text.as_bytes()).to_hex().to_string());
}

#[test]
fn artifacts_count_by_content_alone() {
    let workflow = checked(
        "jobs:\n  t: {uses: prepare, with: {dataset: text, file: x}}\n  q: {uses: quantize, needs: t, with: {bits: 8, model: \"${{ needs.t.outputs.dataset }}\"}}",
    );
    let resolve = |hash: &str, name: &str, bytes: u64| {
        let artifact = ArtifactRef { hash: hash.into(), name: name.into(), bytes };
        let outputs = Outputs::from([("dataset".to_owned(), Output::Artifact(artifact))]);
        workflow.resolve(1, &|task| (task == 0).then(|| Finished::with_outputs(outputs.clone()))).unwrap()
    };
    let (hash, other) = ("a".repeat(64), "b".repeat(64));
    let step = resolve(&hash, "a.bin", 3);
    assert_eq!(step.artifacts, [ArtifactRef { hash: hash.clone(), name: "a.bin".into(), bytes: 3 }]);
    assert_eq!(step.config["model"], json!({"$artifact": hash, "name": "a.bin", "bytes": 3}));
    assert_eq!(resolve(&hash, "b.bin", 3).key, step.key);
    assert_ne!(resolve(&other, "a.bin", 3).key, step.key);
}

/// The addresses whose keys differ, or that occur in only one workflow.
fn changed(before: &str, after: &str) -> BTreeSet<String> {
    let (before, after) = (keys(before), keys(after));
    let all: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    all.into_iter().filter(|address| before.get(*address) != after.get(*address)).cloned().collect()
}

fn in_sweep(find: &str, put: &str) -> String {
    assert!(SWEEP.contains(find), "{find}");
    SWEEP.replace(find, put)
}

#[test]
fn a_changed_value_changes_what_depends_on_it_and_nothing_else() {
    let all: BTreeSet<String> = keys(SWEEP).into_keys().collect();
    let of = |jobs: &[&str]| -> BTreeSet<String> {
        let job = |address: &str| address.split(['[', '#']).next().unwrap_or_default().to_owned();
        all.iter().filter(|address| jobs.contains(&job(address).as_str())).cloned().collect()
    };
    assert_eq!(changed(SWEEP, &in_sweep("train: 4000", "train: 4001")), all, "everything is made from the data");
    let transformers = changed(SWEEP, &in_sweep("heads: 4", "heads: 8"));
    let expected: BTreeSet<String> = all.iter().filter(|address| address.contains("transformer")).cloned().collect();
    assert_eq!(transformers, expected);
    assert_eq!(changed(SWEEP, &in_sweep("title: seed", "title: Seed")), of(&["compare"]));
    // The comparison uses the cells in their order.
    assert_eq!(changed(SWEEP, &in_sweep("chunk: [16, 64]", "chunk: [64, 16]")), of(&["compare"]));
    for irrelevant in [
        in_sweep("timeout-minutes: 0.5", "timeout-minutes: 5"),
        in_sweep("max-parallel: 2", "max-parallel: 3"),
        in_sweep("name: ten-states-by-chunk", "name: other"),
        in_sweep("model: {family: transformer, dim: 64, heads: 4}", "model: {heads: 4, dim: 64, family: transformer}"),
        in_sweep("{seed: 17, states: [16, 32], lr: 3.0e-3}", "{lr: 0.003, states: [16, 32], seed: 17, unused: 1}"),
        in_sweep("seed: \"${{ params.seed }}\"}", "seed: 17}"),
    ] {
        assert_eq!(changed(SWEEP, &irrelevant), BTreeSet::new(), "{irrelevant}");
    }
}

#[test]
fn another_cell_or_replicate_leaves_the_others_alone() {
    // Without the comparison, which depends on every cell.
    let sweep = SWEEP
        .replace("needs: [ten, quantize]", "needs: [data]")
        .replace("models: \"${{ needs.ten.cells | map(attribute='outputs.model') | list }}\"", "values: {}");
    let wider = sweep.replace("states: [16, 32]", "states: [16, 24, 32]");
    let new = changed(&sweep, &wider);
    assert!(!new.is_empty() && new.iter().all(|address| address.contains("states=24")), "{new:?}");
    let deeper = sweep.replace("replicates: 2", "replicates: 3");
    let new = changed(&sweep, &deeper);
    assert!(!new.is_empty() && new.iter().all(|address| address.ends_with("#3")), "{new:?}");
    // A first replicate has the same key as the task without replicates.
    let once = keys("jobs: {a: {uses: report, with: {title: x}}}");
    let twice = keys("jobs: {a: {uses: report, with: {title: x}, strategy: {replicates: 2}}}");
    assert_eq!(once["a"], twice["a#1"]);
    assert_ne!(once["a"], twice["a#2"]);
}

#[test]
fn each_reaches_up_the_line() {
    let workflow = checked(
        "jobs:\n  data: {uses: prepare, with: {dataset: text, file: x}}\n  train:\n    needs: data\n    uses: train\n    \
         strategy: {matrix: {states: [4, 8]}}\n    with: {data: \"${{ needs.data.outputs.dataset }}\", model: {family: ten, dim: 1, states: \"${{ matrix.states }}\"}}\n  \
         small: {uses: quantize, strategy: {each: train}, with: {model: \"${{ each.outputs.model }}\", bits: 4}}\n  \
         show:\n    uses: report\n    needs: train\n    strategy: {each: small}\n    with:\n      models: [\"${{ each.outputs.model }}\", \"${{ each.each.outputs.model }}\", \"${{ needs.train.outputs.model }}\"]\n      \
         values: {up: \"${{ each.job }}\", top: \"${{ each.each.address }}\", states: \"${{ each.each.matrix.states + matrix.states }}\", size: \"${{ each.each.outputs.tokenizer.size }}\"}\n",
    );
    let resolved = run(&workflow);
    let (config, _) = &resolved["show[states=8]"];
    assert_eq!(config["values"], json!({"up": "small", "top": "train[states=8]", "states": 16, "size": 15}));
    assert_eq!(config["models"][1], config["models"][2]);
    assert_ne!(config["models"][0], config["models"][1]);
}

#[test]
fn what_is_missing_is_named() {
    let workflow = checked(SWEEP);
    let none = |_: usize| None;
    assert_eq!(workflow.resolve(99, &none), Err(ResolveError::NoSuchTask(99)));
    let error = workflow.resolve(1, &none).unwrap_err();
    assert_eq!(error.to_string(), "`ten[chunk=16,states=16]#1` cannot be resolved before `data` has finished");
}

#[test]
fn outputs_that_do_not_fit_are_told_at_their_place() {
    let workflow = checked(SWEEP);
    let with = |output: Option<Output>| {
        let outputs: Outputs = output.map(|output| ("dataset".to_owned(), output)).into_iter().collect();
        workflow.resolve(9, &|_| Some(Finished::with_outputs(outputs.clone()))).unwrap_err().to_string()
    };
    insta::assert_snapshot!("an_output_of_another_type", with(Some(Output::Value(json!("a text")))));
    insta::assert_snapshot!("an_output_that_is_not_there", with(None));
}

#[test]
fn what_was_left_open_is_checked_with_the_outputs() {
    // The kind's own check needs the whole config, which is known only now.
    let workflow = checked(
        "jobs:\n  data: {uses: prepare, with: {dataset: text, file: x}}\n  first: {uses: train, needs: data, with: {data: \"${{ needs.data.outputs.dataset }}\", model: {family: ten, dim: 1, states: 1}}}\n  \
         then:\n    uses: train\n    needs: [data, first]\n    with:\n      data: ${{ needs.data.outputs.dataset }}\n      model: {family: ten, dim: 1, states: 1}\n      \
         curriculum: [{until_step: 100, max_length: 8}, {until_step: \"${{ needs.first.outputs.tokenizer.size }}\", max_length: 8}]\n",
    );
    let done = |_: usize| Some(Finished::with_outputs(outputs_for("x")));
    let error = workflow.resolve(2, &done).unwrap_err().to_string();
    assert!(error.contains("f.yaml:10:67: stage 2 ends before it begins: `until_step: 15`"), "{error}");
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Value::from),
        "[a-z$é\"\\\\ ]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The same value with the keys of every mapping in reverse order.
fn turned(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.iter().rev().map(|(key, value)| (key.clone(), turned(value))).collect())
        }
        Value::Array(items) => items.iter().map(turned).collect(),
        other => other.clone(),
    }
}

/// JSON is YAML, unless it contains something that looks like an expression.
fn key_of(values: &Value) -> (String, Value) {
    let text = json!({"jobs": {"a": {"uses": "report", "with": {"values": {"v": values}}}}}).to_string();
    let step = checked(&text).resolve(0, &|_| None).unwrap();
    (step.key, step.config["values"]["v"].clone())
}

proptest! {
    #[test]
    fn a_key_tells_values_apart_and_not_their_order(one in value(), other in value()) {
        let ((key, back), (turned_key, _), (other_key, other_back)) = (key_of(&one), key_of(&turned(&one)), key_of(&other));
        prop_assert_eq!(&back, &one);
        prop_assert_eq!(&key, &turned_key);
        prop_assert_eq!(key == other_key, back == other_back);
    }
}

#[test]
fn overrides_reach_parts_of_mappings() {
    let file = "params: {model: {dim: 8, deep: {a: [1]}}, x: 1}\njobs: {a: {uses: report}}\n";
    let read = |name: &str, text: &str| {
        let overrides = [(name.to_owned(), text.to_owned()), ("model.deep.a".to_owned(), "[2]".to_owned())];
        check("f.yaml", file, &fake::kinds(), &overrides).map(|workflow| serde_json::json!(workflow.params))
    };
    let expected = serde_json::json!({"model": {"dim": 32, "deep": {"a": [2]}}, "x": 1});
    assert_eq!(read("model.dim", "32").unwrap(), expected);
    for (name, text, message) in [
        ("model.dim", "x", "does not fit: `model.dim` is a whole number"),
        ("model.dmi", "3", "names a part that is not in `model`"),
        ("x.y", "3", "names a part of a value that has no parts"),
        ("modle.dim", "3", "is not a parameter"),
    ] {
        let error = read(name, text).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_part_of_a_workflow_keeps_what_it_needs() {
    let file = "jobs:\n  data: {uses: report}\n  other: {uses: report}\n  train:\n    needs: data\n    uses: report\n    \
                strategy: {matrix: {n: [1, 2]}}\n  last: {uses: report, strategy: {each: train}}\n";
    let whole = check("f.yaml", file, &fake::kinds(), &[]).unwrap();
    let names = |jobs: &[&str]| {
        let jobs: Vec<String> = jobs.iter().map(|&job| job.to_owned()).collect();
        whole.only(&jobs).map(|part| {
            for (place, task) in part.tasks.iter().enumerate() {
                assert!(task.needs.iter().all(|&need| need < place));
                assert_eq!(
                    part.resolve(place, &|_| Some(Finished::with_outputs(Outputs::new())))
                        .map(|step| step.key)
                        .ok()
                        .map(|key| key.len()),
                    Some(64)
                );
            }
            for job in &part.jobs {
                assert!(job.tasks.iter().all(|&task| part.tasks[task].job == job.name));
            }
            part.tasks.into_iter().map(|task| task.address).collect::<Vec<_>>()
        })
    };
    assert_eq!(names(&["train"]).unwrap(), ["data", "train[n=1]", "train[n=2]"]);
    assert_eq!(names(&["last"]).unwrap().len(), 5);
    assert_eq!(names(&["other", "data"]).unwrap(), ["data", "other"]);
    assert_eq!(names(&["trian"]).unwrap_err(), "the workflow has no job `trian`: did you mean `train`?");
}
