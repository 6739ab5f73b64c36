//! Jobs that use other workflows.

use std::collections::BTreeMap;

use assay_spec::{ArtifactRef, Finished, Output, Problems, Workflow, check_with_files};
use serde_json::json;

mod fake;

/// Checks the first file; jobs can use the others.
fn checked(files: &[(&str, &str)]) -> Result<Workflow, Problems> {
    let texts: BTreeMap<&str, &str> = files.iter().copied().collect();
    let load = |name: &str| texts.get(name).map(|text| (*text).to_owned()).ok_or_else(|| "no such file".to_owned());
    let (file, text) = files[0];
    check_with_files(file, text, &fake::kinds(), &[], &load)
}

fn good(files: &[(&str, &str)]) -> Workflow {
    checked(files).unwrap_or_else(|problems| panic!("{problems}"))
}

fn bad(files: &[(&str, &str)]) -> String {
    checked(files).map(|_| ()).unwrap_err().to_string()
}

/// The cache keys of all tasks, after a run in which outputs depend only on keys. Names are not part of a key, so a workflow that uses
/// others has the keys of one in which everything is written out.
fn keys(workflow: &Workflow) -> Vec<String> {
    let (mut done, mut keys) = (Vec::<Finished>::new(), Vec::new());
    for place in 0..workflow.tasks.len() {
        let step = workflow.resolve(place, &|task| done.get(task).cloned()).unwrap_or_else(|error| panic!("{error}"));
        let artifact = |name: &str| {
            let hash = blake3::hash(format!("{}/{name}", step.key).as_bytes()).to_hex().to_string();
            (name.to_owned(), Output::Artifact(ArtifactRef { hash, name: format!("{name}.bin"), bytes: 7 }))
        };
        let size = ("tokenizer".to_owned(), Output::Value(json!({"size": 15})));
        done.push(Finished::with_outputs([artifact("dataset"), artifact("model"), size].into()));
        keys.push(step.key);
    }
    keys.sort();
    keys
}

fn names(workflow: &Workflow) -> Vec<&str> {
    workflow.jobs.iter().map(|job| job.name.as_str()).collect()
}

const TRAIN: &str = r#"
params: {seed: 3, rate: 0.1, model: {family: ten, dim: 8, states: 4}, length: 16, note: plain}
jobs:
  data:
    uses: prepare
    with: {dataset: listops, train: 10, max_length: "${{ params.length }}", seed: "${{ params.seed }}"}
  train:
    needs: [data]
    uses: train
    with:
      data: "${{ needs.data.outputs.dataset }}"
      model: "${{ params.model }}"
      optimizer: {lr: "${{ params.rate * 2 }}"}
      note: "${{ params.note }}-${{ params['rate'] }}"
outputs:
  model: "${{ needs.train.outputs.model }}"
  size: "${{ needs.train.outputs.tokenizer.size }}"
  twice: "${{ needs.train.outputs.tokenizer.size * 2 }}"
"#;

#[test]
fn the_jobs_of_a_workflow_take_the_place_of_the_job_that_uses_it() {
    let main = r#"
params: {seed: 7}
jobs:
  pre: {uses: ./parts/train.yaml, with: {seed: "${{ params.seed + 1 }}", rate: 0.5}}
  small: {needs: pre, uses: quantize, with: {model: "${{ needs.pre.outputs.model }}", bits: 4}}
  last: {needs: [pre], uses: report, with: {values: {n: "${{ needs.pre.outputs.size + needs.pre.outputs.twice }}"}}}
"#;
    let flat = r#"
params: {seed: 7}
jobs:
  d: {uses: prepare, with: {dataset: listops, train: 10, max_length: 16, seed: 8}}
  t:
    needs: d
    uses: train
    with: {data: "${{ needs.d.outputs.dataset }}", model: {family: ten, dim: 8, states: 4}, optimizer: {lr: 1.0}, note: plain-0.5}
  s: {needs: t, uses: quantize, with: {model: "${{ needs.t.outputs.model }}", bits: 4}}
  l: {needs: t, uses: report, with: {values: {n: 45}}}
"#;
    let workflow = good(&[("lab/main.yaml", main), ("lab/parts/train.yaml", TRAIN)]);
    assert_eq!(names(&workflow), ["pre/data", "pre/train", "small", "last"]);
    assert_eq!(keys(&workflow), keys(&good(&[("flat.yaml", flat)])));
    // Only parameters of the main file can be overridden.
    assert_eq!(workflow.params.keys().collect::<Vec<_>>(), ["seed"]);
    assert_eq!(workflow.included().map(|(file, _)| file).collect::<Vec<_>>(), ["lab/parts/train.yaml"]);
    assert!(workflow.warnings.problems.is_empty(), "{}", workflow.warnings);
    // The same file is a workflow by itself.
    assert_eq!(names(&good(&[("train.yaml", TRAIN)])), ["data", "train"]);
}

#[test]
fn a_matrix_runs_the_workflow_once_for_each_cell() {
    let main = r#"
jobs:
  pre:
    uses: ./train.yaml
    strategy: {matrix: {rate: [0.5, 1.5], dim: [4, 8]}, replicates: 2}
    with:
      rate: "${{ matrix.rate }}"
      seed: "${{ replicate }}"
      model: {family: ten, dim: "${{ matrix.dim }}", states: 4}
      note: "d${{ matrix.dim }}"
  small:
    needs: [pre]
    uses: quantize
    strategy: {each: pre/train}
    with: {model: "${{ each.outputs.model }}", bits: 4}
  best: {needs: pre, uses: report, with: {values: {m: "${{ best(needs['pre/train'], 'valid/loss').matrix.rate }}"}}}
"#;
    let flat = r#"
jobs:
  d:
    uses: prepare
    strategy: {matrix: {rate: [0.5, 1.5], dim: [4, 8]}, replicates: 2}
    with: {dataset: listops, train: 10, max_length: 16, seed: "${{ replicate }}"}
  t:
    needs: d
    uses: train
    strategy: {matrix: {rate: [0.5, 1.5], dim: [4, 8]}, replicates: 2}
    with:
      data: "${{ needs.d.outputs.dataset }}"
      model: {family: ten, dim: "${{ matrix.dim }}", states: 4}
      optimizer: {lr: "${{ matrix.rate * 2 }}"}
      note: "d${{ matrix.dim }}-${{ matrix.rate }}"
  s: {needs: t, uses: quantize, strategy: {each: t}, with: {model: "${{ each.outputs.model }}", bits: 4}}
"#;
    let workflow = good(&[("main.yaml", main), ("train.yaml", TRAIN)]);
    let last = workflow.tasks.iter().position(|task| task.job == "best").expect("a job");
    assert_eq!(workflow.tasks[last].needs.len(), 16, "all tasks of both jobs");
    assert_eq!(workflow.tasks[1].address, "pre/data[dim=8,rate=0.5]#1");
    assert!(workflow.warnings.problems.is_empty(), "{}", workflow.warnings);
    let shorter = main.replace(main.lines().last().expect("a line"), "");
    let workflow = good(&[("main.yaml", &shorter), ("train.yaml", TRAIN)]);
    assert_eq!(keys(&workflow), keys(&good(&[("flat.yaml", flat)])));
    // A job of the workflow with a matrix has the axes of both.
    let own = TRAIN.replace("    uses: train\n", "    uses: train\n    strategy: {matrix: {depth: [1, 2, 3]}}\n");
    let workflow = good(&[("main.yaml", &shorter.replace(", replicates: 2", "")), ("train.yaml", &own)]);
    assert_eq!(workflow.tasks.iter().filter(|task| task.job == "pre/train").count(), 12);
}

#[test]
fn results_are_passed_from_workflow_to_workflow() {
    let outer = r#"
params: {seed: 1, weights: null, title: {a: [1, "x'\"\\"]}}
jobs:
  inner: {uses: ../train.yaml, with: {seed: "${{ params.seed }}"}}
  small:
    needs: inner
    uses: quantize
    with: {model: "${{ params.weights or needs.inner.outputs.model }}", bits: 8}
  report: {needs: inner, uses: report, with: {values: "${{ params }}"}}
outputs: {model: "${{ needs.small.outputs.model }}"}
"#;
    let main = r#"
jobs:
  first: {uses: ./parts/outer.yaml}
  second: {needs: first, uses: ./parts/outer.yaml, with: {weights: "${{ needs.first.outputs.model }}", seed: 2}}
  last: {needs: [second], uses: quantize, with: {model: "${{ needs.second.outputs.model }}", bits: 4}}
"#;
    let flat = r#"
jobs:
  d1: {uses: prepare, with: {dataset: listops, train: 10, max_length: 16, seed: 1}}
  t1: &train
    needs: d1
    uses: train
    with: {data: "${{ needs.d1.outputs.dataset }}", model: {family: ten, dim: 8, states: 4}, optimizer: {lr: 0.2}, note: plain-0.1}
  s1: {needs: t1, uses: quantize, with: {model: "${{ needs.t1.outputs.model }}", bits: 8}}
  r1: {uses: report, with: {values: {seed: 1, weights: null, title: {a: [1, "x'\"\\"]}}}}
  d2: {uses: prepare, with: {dataset: listops, train: 10, max_length: 16, seed: 2}}
  t2:
    needs: d2
    uses: train
    with: {data: "${{ needs.d2.outputs.dataset }}", model: {family: ten, dim: 8, states: 4}, optimizer: {lr: 0.2}, note: plain-0.1}
  s2: {needs: s1, uses: quantize, with: {model: "${{ needs.s1.outputs.model }}", bits: 8}}
  r2: {needs: s1, uses: report, with: {values: {seed: 2, weights: "${{ needs.s1.outputs.model }}", title: {a: [1, "x'\"\\"]}}}}
  l: {needs: s2, uses: quantize, with: {model: "${{ needs.s2.outputs.model }}", bits: 4}}
"#;
    let workflow = good(&[("f/main.yaml", main), ("f/parts/outer.yaml", outer), ("f/train.yaml", TRAIN)]);
    let jobs = ["inner/data", "inner/train", "small", "report"];
    let expected: Vec<String> =
        ["first", "second"].iter().flat_map(|call| jobs.map(|job| format!("{call}/{job}"))).collect();
    assert_eq!(names(&workflow)[..8], expected);
    assert_eq!(keys(&workflow), keys(&good(&[("flat.yaml", flat)])));
    // Everything in the second waits for everything in the first.
    let data = workflow.tasks.iter().find(|task| task.job == "second/inner/data").expect("a task");
    assert_eq!(data.needs.len(), 4);
}

#[track_caller]
fn refused(main: &str, words: &[&str]) {
    let files = [
        ("main.yaml", main),
        ("train.yaml", TRAIN),
        ("self.yaml", "jobs: {a: {uses: ./other.yaml}}"),
        ("other.yaml", "jobs:\n  b: {uses: ./self.yaml}"),
    ];
    let text = bad(&files);
    for words in words {
        assert!(text.contains(words), "`{words}` is not in\n{text}");
    }
}

#[test]
fn what_is_wrong_is_shown_at_its_place() {
    refused("jobs: {a: {uses: ./absent.yaml}}", &["main.yaml:1:18: cannot use `./absent.yaml`: no such file"]);
    refused("jobs: {a: {uses: ./main.yaml}}", &["workflows use each other in a cycle: main.yaml -> main.yaml"]);
    refused(
        "jobs: {a: {uses: ./self.yaml}}",
        &["other.yaml:2:13: workflows use each other in a cycle: self.yaml -> other.yaml -> self.yaml"],
    );
    refused(
        "jobs: {a: {uses: ./train.yaml, with: {sed: 1, seed: one, model: 3}}}",
        &["main.yaml:1:39: the workflow has no parameter `sed`", "did you mean `seed`?"],
    );
    refused(
        "jobs: {a: {uses: ./train.yaml, with: {seed: one, model: 3}}}",
        &[
            "the parameter `seed` takes a number, not the text `one`",
            "its default is in train.yaml:2",
            "`model` takes a mapping",
        ],
    );
    refused("jobs: {a: {uses: ./train.yaml, with: [1]}}", &["takes a mapping of its parameters"]);
    refused(
        "jobs:\n  a: {uses: ./train.yaml}\n  b: {needs: a, uses: report, with: {values: {m: \"${{ needs.a.outputs.modle }}\"}}}",
        &["main.yaml:3:71: the workflow of `a` declares no output `modle`", "did you mean `model`?"],
    );
    refused(
        "jobs:\n  a: {uses: ./train.yaml}\n  b: {needs: a, uses: report, with: {values: {m: \"${{ needs.a.metrics.x }}\", n: \"${{ best(needs.a, 'x') }}\"}}}",
        &["only its declared outputs can be read", "`best` takes a job with a step kind", "needs['a/data']"],
    );
    refused(
        "jobs: {a: {uses: ./train.yaml, if: 'true', retry: {max: 1}, resources: {cpus: 2}, strategy: {max-parallel: 2}}}",
        &["`if` belongs to a job with a step kind", "`retry` belongs", "`resources` belongs", "`max-parallel` belongs"],
    );
    refused(
        "jobs:\n  a: {uses: ./train.yaml, needs: b}\n  b: {uses: ./train.yaml, needs: a}",
        &["need each other in a cycle: `a`, `b`"],
    );
    refused(
        "jobs: {a: {uses: ./train.yaml}, b: {uses: report, strategy: {each: a}}}",
        &["`each` takes jobs", "`each: a/data`"],
    );
    refused(
        "jobs: {a: {uses: report}}\noutputs: {x: \"${{ needs.b.outputs.y }}\", 1a: 2, y: \"${{ matrix.z }}\"}",
        &["unknown job `b`", "`1a` cannot be the name of an output", "`matrix` cannot be used in `outputs`"],
    );
    // The cells of `a` are three; `b` must say which.
    refused(
        "jobs:\n  a: {uses: ./train.yaml, strategy: {matrix: {x: [1, 2, 3]}}}\n  b: {needs: a, uses: quantize, with: {bits: 4, model: \"${{ needs.a.outputs.model }}\"}}",
        &["train.yaml:16:21:", "take the list `needs['a/train'].cells`", "`b` has 3 tasks of `a/train` to choose from"],
    );
}

#[test]
fn problems_in_a_used_workflow_are_shown_in_its_file() {
    let with = |sub: &str| bad(&[("main.yaml", "jobs: {a: {uses: ./train.yaml}}"), ("train.yaml", sub)]);
    let unknown = with(&TRAIN.replace("params.length", "params.lenght"));
    assert!(unknown.starts_with("train.yaml:6:65: unknown parameter `lenght`"), "{unknown}");
    assert!(unknown.contains("did you mean `length`?"), "{unknown}");
    let job = with(&TRAIN.replace("needs: [data]", "needs: [dta]"));
    assert!(
        job.contains("train.yaml:8:13: unknown job `a/dta` in `needs`") && job.contains("did you mean `a/data`?"),
        "{job}"
    );
    let value = with(&TRAIN.replace("length: 16", "length: 2"));
    assert!(value.contains("train.yaml:6:") && value.contains('2'), "{value}");
    let broken = with("jobs: [");
    assert!(broken.starts_with("train.yaml:"), "{broken}");
    let axes =
        TRAIN.replace("    uses: train\n", "    uses: train\n    strategy: {matrix: {x: [1, 2]}, replicates: 2}\n");
    let main = "jobs:\n  a: {uses: ./train.yaml, strategy: {replicates: 3, matrix: {x: [1, 2, 3]}}}";
    let both = bad(&[("main.yaml", main), ("train.yaml", &axes)]);
    assert!(both.contains("the axis `x` is in the matrix of the job `a/train`, too"), "{both}");
    assert!(both.contains("`a` has `replicates`, and so has its job `a/train`"), "{both}");
}

#[test]
fn depth_and_number_of_jobs_are_limited() {
    let names: Vec<String> = (0..20).map(|number| format!("f{number}.yaml")).collect();
    let text = |uses: usize, next: usize| -> String {
        let jobs = (0..uses).map(|job| format!("  j{job}: {{uses: ./f{next}.yaml}}\n"));
        format!("jobs:\n{}", jobs.collect::<String>())
    };
    let chain = |uses: usize, length: usize| -> String {
        let texts: Vec<String> = (0..length).map(|number| text(uses, number + 1)).collect();
        let leaf = "jobs: {a: {uses: report}}".to_owned();
        let files: Vec<(&str, &str)> = std::iter::zip(&names, texts.iter().chain([&leaf]))
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        match checked(&files) {
            Ok(workflow) => format!("{} jobs", workflow.jobs.len()),
            Err(problems) => problems.to_string(),
        }
    };
    assert_eq!(chain(1, 8), "1 jobs");
    assert!(chain(1, 9).contains("at most 8 workflows use each other in a row"), "{}", chain(1, 9));
    assert_eq!(chain(2, 8), "256 jobs");
    assert!(chain(10, 8).contains("more than 1000 jobs"), "{}", chain(10, 8));
    // Neither files without jobs, nor large values, nor nested arguments take unbounded time.
    let calls = |file: &str, with: &str| -> String {
        let jobs = (0..300)
            .map(|job| format!("  j{job}: {{uses: ./{file}, strategy: {{matrix: {{x: [1]}}}}, with: {with}}}\n"));
        format!("params: {{v: 1}}\njobs:\n{}", jobs.collect::<String>())
    };
    let empty = [
        ("a.yaml", calls("b.yaml", "{}")),
        ("b.yaml", calls("c.yaml", "{}")),
        ("c.yaml", calls("d.yaml", "{}")),
        ("d.yaml", "params: {v: 1}\nclaims: []".to_owned()),
    ];
    let told =
        |files: &[(&str, String)]| bad(&files.iter().map(|(name, text)| (*name, text.as_str())).collect::<Vec<_>>());
    assert!(told(&empty).contains("more than 1000 jobs"), "{}", told(&empty));
    let large =
        format!("params: {{v: 1}}\njobs: {{a: {{uses: report, with: {{values: {{t: [{}]}}}}}}}}", "1, ".repeat(40_000));
    let large = [("a.yaml", calls("b.yaml", "{}")), ("b.yaml", large)];
    assert!(told(&large).contains("contain too many values"), "{}", told(&large));
    let argument = format!("{{v: [\"${{{{ matrix.x }}}}\", {}]}}", "1, ".repeat(2_000));
    let nested =
        [("a.yaml", calls("b.yaml", &argument)), ("b.yaml", "params: {v: null}\njobs: {a: {uses: report}}".to_owned())];
    assert!(told(&nested).contains("the value of `v` has more than 4000 bytes"), "{}", told(&nested));
    let many = "\"${{ params.v ~ params.v ~ params.v ~ params.v ~ params.v ~ params.v ~ params.v ~ params.v }}\"";
    let deep: Vec<(String, String)> = (0..8)
        .map(|number| {
            let with = if number == 0 { "\"${{ matrix.x }}\"" } else { many };
            let strategy = if number == 0 { ", strategy: {matrix: {x: [1]}}" } else { "" };
            (
                format!("f{number}.yaml"),
                format!(
                    "params: {{v: null}}\njobs: {{j: {{uses: ./f{}.yaml{strategy}, with: {{v: {with}}}}}}}",
                    number + 1
                ),
            )
        })
        .chain([("f8.yaml".to_owned(), "params: {v: null}\njobs: {a: {uses: report}}".to_owned())])
        .collect();
    let deep: Vec<(&str, &str)> = deep.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert!(bad(&deep).contains("too long with the parameters"), "{}", bad(&deep));
}
