//! Steps and searchers: the shipped ones work, and hostile ones meet their limits.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use assay_host::{PluginProcess, StepEnd, StepFiles, StepReport, check_searcher, check_step};
use assay_protocol::{PluginFailure, PluginLimit, PluginLimits, PluginTrial};
use assay_wasm::PluginWorld;

use crate::guests::{component_of, failure_of, load, load_file};
use crate::shipped::shipped;

/// A step whose `run` executes this code, and then returns the JSON at 1024, `7`.
///
/// Addresses: 16 `about`, 64 the result of `run`, 128 results of host calls, 1024 texts, 2048 a value of a metric named `x`.
fn step(run: &str) -> Vec<u8> {
    let text = r#"(module
      (import "assay:plugin/artifacts@0.1.0" "write" (func $write (param i32 i32 i32 i32 i32)))
      (import "assay:plugin/artifacts@0.1.0" "read" (func $read (param i32 i32 i64 i32 i32)))
      (import "assay:plugin/artifacts@0.1.0" "metrics" (func $metrics (param i64 i32 i32 i32)))
      (memory (export "memory") 2)
      (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 4096)
      (func (export "assay:plugin/plugin@0.1.0#describe") (result i32) i32.const 16)
      (func (export "assay:plugin/step@0.1.0#run") (param i32 i32 i32) (result i32) RUN i32.const 64)
      (data (i32.const 64) "\00\00\00\00\00\04\00\00\01\00\00\00")
      (data (i32.const 1024) "7out")
      (data (i32.const 2048) "\10\08\00\00\01\00\00\00\00\00\00\00\00\00\f0\3fx"))"#;
    component_of(&text.replace("RUN", run), PluginWorld::Step)
}

fn files(folder: &Path) -> StepFiles {
    let named = |name: &str| BTreeMap::from([(name.to_owned(), folder.join(name))]);
    StepFiles { inputs: BTreeMap::new(), outputs: named("out") }
}

/// Runs a step with these limits; its reports are counted.
fn run(code: &str, limits: PluginLimits, folder: &Path) -> (Result<StepEnd, PluginFailure>, usize) {
    let mut process = load(&step(code), limits).unwrap();
    let mut reports = 0;
    let end = process.run_step(0, "{}", 1, files(folder), &mut |report| {
        reports += usize::from(matches!(report, StepReport::Metrics { .. }));
        ControlFlow::Continue(())
    });
    (end, reports)
}

const WRITE: &str = "(call $write (i32.const 1025) (i32.const 3) (i32.const 1024) (i32.const 100) (i32.const 128))";
const REPORT: &str = "(call $metrics (i64.const 3) (i32.const 2048) (i32.const 1) (i32.const 128))";

#[test]
fn a_step_writes_and_reports_and_meets_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let forever = |code: &str| format!("(loop $l {code} (br $l))");
    let (end, reports) = run(&format!("{WRITE} {WRITE} {REPORT}"), PluginLimits::default(), folder.path());
    assert_eq!(end.unwrap(), StepEnd::Done { result: "7".into(), written: vec!["out".into()] });
    assert_eq!((reports, std::fs::metadata(folder.path().join("out")).unwrap().len()), (1, 200));
    let limit_of = |code: &str, limits: PluginLimits| {
        let (end, reports) = run(code, limits, folder.path());
        let failure = failure_of(end);
        assert_eq!(failure.function, "step.run");
        (failure.limit, reports, failure.message)
    };
    let limits = || PluginLimits { fuel_per_step: 50_000_000, ..PluginLimits::default() };
    let (limit, _, message) = limit_of(&forever(""), limits());
    assert_eq!(
        (limit, message.as_str()),
        (Some(PluginLimit::Fuel), "ran out of fuel; the limit of this call was 50000000 units")
    );
    let (limit, _, message) = limit_of(&forever(WRITE), PluginLimits { output: 1000, ..limits() });
    assert_eq!((limit, message.as_str()), (Some(PluginLimit::Output), "wrote more than 1000 bytes of outputs"));
    let (limit, reports, message) = limit_of(&forever(REPORT), PluginLimits { points: 5, ..limits() });
    assert_eq!(
        (limit, reports, message.as_str()),
        (Some(PluginLimit::Points), 5, "reported more than 5 values of metrics")
    );
    let (limit, _, _) =
        limit_of(&forever(""), PluginLimits { step_seconds: 0, fuel_per_step: u64::MAX / 2, ..limits() });
    assert_eq!(limit, Some(PluginLimit::Time));
    // A call costs 1000 units at least, so that a storm of calls ends.
    let (limit, reports, _) = limit_of(&forever(REPORT), PluginLimits { fuel_per_step: 100_000, ..limits() });
    assert!(limit == Some(PluginLimit::Fuel) && reports <= 100, "{reports}");
}

#[test]
fn a_step_is_cancelled_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let limits = PluginLimits { fuel_per_step: u64::MAX / 2, ..PluginLimits::default() };
    let mut process = load(&step("(loop $l (br $l))"), limits).unwrap();
    let end = process.run_step(0, "{}", 1, files(folder.path()), &mut |_| ControlFlow::Break(()));
    assert_eq!(end.unwrap(), StepEnd::Cancelled);
}

#[test]
fn a_result_that_is_not_json_and_files_in_another_world_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    // The result is then `7o`.
    let (end, _) = run("(i32.store (i32.const 72) (i32.const 2))", PluginLimits::default(), folder.path());
    let failure = failure_of(end);
    assert!(failure.message.starts_with("gave an invalid answer: the result is not JSON"), "{failure}");
    let mut metric = step("");
    let (from, to) = (b"assay:plugin/step@0.1.0", b"assay:plugin/none@0.1.0");
    while let Some(at) = metric.windows(from.len()).position(|part| part == from) {
        metric[at..at + from.len()].copy_from_slice(to);
    }
    let failure = failure_of(load(&metric, PluginLimits::default()));
    assert!(
        failure.message.contains("exports none of `dataset`, `curriculum`, `metric`, `step`, `searcher`"),
        "{failure}"
    );
}

#[test]
fn the_shipped_step_counts_bytes_and_explains_a_missing_input() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in");
    // Several parts of 64 KiB.
    std::fs::write(&input, [b"ab".repeat(100_000), b"c".to_vec()].concat()).unwrap();
    let mut process = shipped("bytes");
    let named = |name: &str, file: &str| BTreeMap::from([(name.to_owned(), folder.path().join(file))]);
    let files = |output: &str| StepFiles { inputs: named("data", "in"), outputs: named("counts", output) };
    assert_eq!(check_step(&mut process, "{}", [files("one"), files("two")]).unwrap(), []);
    assert_eq!(std::fs::read_to_string(folder.path().join("one")).unwrap(), "97,100000\n98,100000\n99,1\n");
    let mut run =
        |config: &str, files: StepFiles| process.run_step(0, config, 1, files, &mut |_| ControlFlow::Continue(()));
    let StepEnd::Done { result, .. } = run(r#"{"limit":5}"#, files("three")).unwrap() else {
        panic!("it is not cancelled")
    };
    assert_eq!(result, r#"{"bytes":5}"#);
    let failure = failure_of(run("{}", StepFiles::default()));
    assert_eq!(failure.message, "failed: unknown input `data` (there are none)");
}

/// The trials of the next round, after these values.
fn next_trials(process: &mut PluginProcess, state: &mut Vec<u8>, results: Vec<PluginTrial>) -> Vec<String> {
    let proposed = process.propose(0, std::mem::take(state), results, 6).unwrap();
    *state = proposed.state;
    proposed.params
}

#[test]
fn the_shipped_searcher_changes_one_parameter_of_the_best_trial() {
    let space = r#"{"states":[4,8,16],"name":["a,b","c]"],"list":[[1,2],[3]]}"#;
    let mut process = shipped("climb");
    assert_eq!(check_searcher(&mut process, ("{}", space), 3).unwrap(), []);
    let mut state = process.open_searcher(0, "{}", space, 3).unwrap();
    let first = next_trials(&mut process, &mut state, Vec::new());
    assert_eq!(first.len(), 6);
    let read = |text: &str| serde_json::from_str::<BTreeMap<String, serde_json::Value>>(text).unwrap();
    let values: BTreeMap<String, Vec<serde_json::Value>> = serde_json::from_str(space).unwrap();
    let is_inside =
        |text: &String| read(text).iter().all(|(name, value)| values[name].contains(value)) && read(text).len() == 3;
    assert!(first.iter().all(is_inside), "{first:?}");
    // The first trial failed, and the third is best.
    let bits = [None, Some(2.0), Some(1.0), Some(3.0), Some(4.0), Some(5.0)];
    let results = first
        .iter()
        .zip(bits)
        .map(|(params, value)| PluginTrial { params: params.clone(), bits: value.map(f64::to_bits) });
    let second = next_trials(&mut process, &mut state, results.collect());
    let best = read(&first[2]);
    for trial in &second {
        let changed = read(trial).iter().filter(|(name, value)| best[*name] != **value).count();
        assert!(is_inside(trial) && changed <= 1, "{trial} against {best:?}");
    }
    let other = process.open_searcher(0, "{}", space, 4).unwrap();
    assert_ne!(next_trials(&mut process, &mut other.clone(), Vec::new()), first, "another seed proposes other trials");
    let failure = failure_of(process.open_searcher(0, "{}", r#"{"states":3}"#, 3));
    assert_eq!(failure.message, "failed: the space is not a list of values for each parameter");
}

#[test]
fn a_searcher_that_proposes_too_much_is_refused() {
    // Its proposal: an empty state, the parameters at 2048, and a count that exceeds the request.
    let text = r#"(module (memory (export "memory") 1)
      (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 8192)
      (func (export "assay:plugin/plugin@0.1.0#describe") (result i32) i32.const 256)
      (func (export "assay:plugin/searcher@0.1.0#open") (param i32 i32 i32 i32 i64) (result i32) i32.const 16)
      (func (export "assay:plugin/searcher@0.1.0#propose") (param i32 i32 i32 i32 i32) (result i32) i32.const 64)
      (data (i32.const 64) "\00\00\00\00\00\04\00\00\00\00\00\00\00\08\00\00\02\00\00\00\00\00\00\00")
      (data (i32.const 2048) "\00\0c\00\00\02\00\00\00\00\0c\00\00\02\00\00\00")
      (data (i32.const 3072) "{}"))"#;
    let (_folder, file) = crate::guests::write_file(&component_of(text, PluginWorld::Searcher));
    let mut process = load_file(&file, PluginLimits::default()).unwrap();
    let state = process.open_searcher(0, "{}", "{}", 0).unwrap();
    assert_eq!(process.propose(0, state.clone(), Vec::new(), 2).unwrap().params, ["{}", "{}"]);
    let failure = failure_of(process.propose(0, state, Vec::new(), 1));
    assert_eq!(failure.message, "gave an invalid answer: 2 trials; at most 1 were requested");
}
