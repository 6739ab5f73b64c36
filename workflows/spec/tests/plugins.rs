//! `plugins:`: problems are reported with their lines, and the cache key counts the components that a config names.

use assay_spec::{ArtifactRef, PLUGIN_NAME, ResolvedStep, StepKind, Workflow, check, plugins_in};
use serde_json::{Value, json};

fn kinds() -> [StepKind; 1] {
    let one = json!({"type": "object", "properties": {
        "plugin": {"type": "string", "format": PLUGIN_NAME}, "config": {"type": "object"},
    }, "required": ["plugin"], "additionalProperties": false});
    let schema = json!({"type": "object", "properties": {"metrics": {"type": "array", "items": one}, "seed": {"type": "integer"}},
        "additionalProperties": false});
    [StepKind {
        name: "evaluate",
        version: 1,
        measures: false,
        about: "Scores.",
        schema: schema.into(),
        outputs: &[],
        metrics: &[],
        check: |_| Vec::new(),
    }]
}

fn checked(text: &str) -> Workflow {
    check("flows/f.yaml", text, &kinds(), &[]).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Line, message and hint of each problem.
fn problems(text: &str) -> Vec<(usize, String, String)> {
    let problems = check("f.yaml", text, &kinds(), &[]).expect_err("nothing was found wrong").problems;
    problems.into_iter().map(|problem| (problem.line, problem.message, problem.hint.unwrap_or_default())).collect()
}

const TWO: &str = "
plugins:
  sort: {file: plugins/sort.wasm, memory: 1MiB}
  rank: {file: /rank.wasm}
jobs:
  a: {uses: evaluate, with: {metrics: [{plugin: sort, config: {plugin: nothing}}]}}
  b: {uses: evaluate, with: {metrics: [{plugin: sort}, {plugin: rank}]}}
  c: {uses: evaluate, with: {seed: 1}}
";

/// A step whose plugins have contents with these hashes.
fn pinned(workflow: &Workflow, task: usize, hash: &dyn Fn(&str) -> String) -> ResolvedStep {
    let mut step = workflow.resolve(task, &|_| None).unwrap();
    let content = |file: &assay_spec::LocalFile| ArtifactRef { hash: hash(&file.key), name: "x".into(), bytes: 1 };
    let contents: Vec<_> = step.files.iter().map(|file| (file.clone(), content(file))).collect();
    step.pin_all(&contents);
    step
}

#[test]
fn problems_are_reported_with_their_lines() {
    let found = problems(
        "plugins:
  2sort: {file: a.wasm}
  none: {}
  rank: {file: r.wasm, blake3: abc, memory: 4GiB, fuel: 3}
  list: [a.wasm]
  computed: {file: \"${{ params.x }}\"}
jobs:
  a: {uses: evaluate, with: {metrics: [{plugin: rnak}]}}
",
    );
    let at = |line: usize, part: &str| found.iter().any(|(place, message, _)| *place == line && message.contains(part));
    for (line, part) in [
        (2, "`2sort` cannot be the name of a plugin"),
        (3, "the plugin `none` has no `file`"),
        (4, "`blake3` takes 64 hexadecimal digits"),
        (4, "`memory` is more than the 2147483648 bytes"),
        (4, "unknown key `fuel` in the plugin `rank`"),
        (5, "the plugin `list` takes a mapping"),
        (6, "`file` takes a text without expressions"),
        (8, "unknown plugin `rnak`"),
    ] {
        assert!(at(line, part), "line {line}: {part} is not in {found:#?}");
    }
    assert!(found.iter().any(|(_, _, hint)| hint.contains("did you mean `rank`?")), "{found:#?}");
}

#[test]
fn a_plugin_that_is_not_declared_is_unknown() {
    let found = problems("jobs: {a: {uses: evaluate, with: {metrics: [{plugin: sort}]}}}");
    assert_eq!((found.len(), found[0].1.as_str()), (1, "unknown plugin `sort`"));
    assert!(found[0].2.contains("plugins: {sort: {file: plugins/sort.wasm}}"), "{}", found[0].2);
    let of_cells = "plugins: {sort: {file: s.wasm}}
jobs:
  a: {uses: evaluate, strategy: {matrix: {m: [sort, rank]}}, with: {metrics: [{plugin: \"${{ matrix.m }}\"}]}}";
    let found = problems(of_cells);
    assert_eq!((found[0].0, found[0].1.as_str()), (3, "unknown plugin `rank` (in `a[m=rank]`)"));
}

#[test]
fn a_config_names_the_component_and_its_files_lie_beside_the_workflow() {
    let workflow = checked(TWO);
    let step = workflow.resolve(1, &|_| None).unwrap();
    let paths: Vec<String> = step.files.iter().map(|file| file.path.display().to_string()).collect();
    assert_eq!(paths, ["/rank.wasm", "flows/plugins/sort.wasm"]);
    assert_eq!(workflow.named_files(1), step.files);
    let step = pinned(&workflow, 0, &|_| "0".repeat(64));
    let plugin = &step.config["metrics"][0]["plugin"];
    assert_eq!((plugin["$plugin"].as_str(), &plugin["limits"]), (Some("sort"), &json!({"memory": 1 << 20})));
    assert_eq!(plugin["component"]["$artifact"], "0".repeat(64));
    assert_eq!(step.config["metrics"][0]["config"], json!({"plugin": "nothing"}), "the config of a plugin is its own");
    assert_eq!(step.artifacts.len(), 1);
    assert_eq!(plugins_in(&step.config).len(), 1);
}

#[test]
fn a_changed_component_changes_the_keys_of_the_tasks_that_use_it() {
    let keys = |text: &str, sort: &str, rank: &str| -> Vec<String> {
        let workflow = checked(text);
        let hash = |key: &str| if key == "plugins.sort" { sort.repeat(64) } else { rank.repeat(64) };
        (0..3).map(|task| pinned(&workflow, task, &hash).key).collect()
    };
    let changed = |one: &[String], other: &[String]| -> Vec<bool> {
        std::iter::zip(one, other).map(|(one, other)| one != other).collect()
    };
    let before = keys(TWO, "0", "1");
    assert_eq!(changed(&before, &keys(TWO, "2", "1")), [true, true, false]);
    assert_eq!(changed(&before, &keys(TWO, "0", "2")), [false, true, false]);
    let other_limits = TWO.replace("1MiB", "2MiB").replace("/rank.wasm", "/other.wasm");
    assert_eq!(changed(&before, &keys(&other_limits, "0", "1")), [false, false, false]);
}

#[test]
fn the_key_has_the_interface_and_the_semantics() {
    let workflow = checked("plugins: {s: {file: s.wasm}}\njobs: {a: {uses: evaluate, with: {metrics: [{plugin: s}]}}}");
    let step = pinned(&workflow, 0, &|_| "0".repeat(64));
    let plugin = format!(
        r#"{{"$plugin":"s","component":{{"$artifact":"{}"}},"interface":"{}","semantics":{}}}"#,
        "0".repeat(64),
        assay_spec::PLUGIN_INTERFACE,
        assay_spec::PLUGIN_SEMANTICS
    );
    let text =
        format!(r#"{{"config":{{"metrics":[{{"plugin":{plugin}}}]}},"kind":"evaluate","replicate":1,"version":1}}"#);
    assert_eq!(step.key, blake3::hash(text.as_bytes()).to_hex().to_string());
    let unpinned: Value = workflow.resolve(0, &|_| None).unwrap().config;
    assert_eq!(plugins_in(&unpinned), []);
}
