//! Processes of plugins that misbehave: each fails a call with an error that explains the cause.

use std::ops::ControlFlow;

use assay_host::{
    PluginCommand, PluginProcess, StepEnd, StepFiles, check_curriculum, check_dataset, check_metric, check_searcher,
    check_step, demonstrate_curriculum, demonstrate_metric, demonstrate_searcher,
};
use assay_protocol::{PluginFailure, PluginLimit, PluginLimits, PluginSplit};

/// Short limits, since some calls wait for them.
fn limits() -> PluginLimits {
    PluginLimits { compile_seconds: 60, call_seconds: 60, ..PluginLimits::default() }
}

fn start(behaviour: &str, limits: PluginLimits) -> Result<PluginProcess, PluginFailure> {
    let program = env!("CARGO_BIN_EXE_assay-executor-chaos").into();
    let command = PluginCommand { program, arguments: vec!["plugin".into(), behaviour.into()] };
    PluginProcess::start(&command, "dice", "unused.wasm".as_ref(), limits)
}

fn started(behaviour: &str) -> PluginProcess {
    start(behaviour, limits()).unwrap_or_else(|failure| panic!("{behaviour}: {failure}"))
}

/// The failure of a call that must fail.
fn failure_of<T>(result: Result<T, PluginFailure>) -> PluginFailure {
    match result {
        Ok(_) => panic!("it should have failed"),
        Err(failure) => failure,
    }
}

#[test]
fn an_honest_plugin_is_asked_and_its_log_is_kept() {
    let mut process = started("honest");
    assert_eq!((process.about().name.as_str(), process.about().interfaces.len()), ("chaos", 5));
    let facts = process.open_dataset(0, "{}").unwrap();
    assert_eq!((facts.vocabulary.len(), facts.classes, facts.max_length), (2, 2, 3));
    let made = process.batch(0, 5, PluginSplit::Valid, 10, 4).unwrap();
    assert_eq!((made.offsets.len(), made.labels.len()), (5, 4));
    assert_eq!(made.offsets[4] as usize, made.tokens.len());
    assert_eq!(process.fuel(), 7);
    let log = process.drain_log();
    assert_eq!(log.last(), Some(&("info".to_owned(), "call 3".to_owned())));
    assert!(process.drain_log().is_empty());
}

#[test]
fn a_process_that_ends_or_speaks_otherwise_is_explained() {
    let failure = failure_of(start("exit", limits()));
    assert_eq!(failure.to_string(), "plugin `dice` cannot be loaded: it ended its process (exit status: 3)");
    let failure = failure_of(start("garbage", limits()));
    assert!(failure.message.contains("text was received instead of a message: \"hell\""), "{failure}");
    let command = PluginCommand { program: "/nonexistent".into(), arguments: Vec::new() };
    let failure = failure_of(PluginProcess::start(&command, "dice", "unused.wasm".as_ref(), limits()));
    assert!(failure.message.contains("cannot be run: `/nonexistent`"), "{failure}");
    let failure = failure_of(started("misunderstand").open_dataset(0, "{}"));
    assert!(failure.message.contains("the plugin's process is of another version"), "{failure}");
}

#[test]
fn a_process_that_runs_out_of_memory_names_the_limit() {
    let mut process = started("exhaust");
    let failure = failure_of(process.open_dataset(0, "{}"));
    assert_eq!((failure.function.as_str(), failure.limit), ("dataset.open", Some(PluginLimit::Memory)));
    assert_eq!(failure.trace.as_deref(), Some("memory allocation of 99 bytes failed"));
    assert_eq!(failure_of(process.open_dataset(0, "{}")), failure, "later calls fail in the same way");
}

#[test]
fn a_process_that_does_not_answer_is_ended() {
    let none = PluginLimits { compile_seconds: 0, ..limits() };
    let failure = failure_of(start("slow_compiler", none));
    assert_eq!((failure.function.as_str(), failure.limit), ("load", Some(PluginLimit::CompileTime)));
    let mut process = start("loop", PluginLimits { call_seconds: 0, ..limits() }).unwrap();
    let failure = failure_of(process.open_metric(0, "{}"));
    assert_eq!((failure.function.as_str(), failure.limit), ("metric.open", Some(PluginLimit::Time)), "{failure}");
    assert_eq!(failure_of(process.values(0)), failure, "later calls fail in the same way");
}

#[test]
fn a_process_that_is_killed_costs_the_next_call() {
    let mut process = started("honest");
    let killed = std::process::Command::new("kill").args(["-9", &process.process_id().to_string()]).status().unwrap();
    assert!(killed.success());
    let failure = failure_of(process.open_dataset(0, "{}"));
    let expected = "plugin `dice`: `dataset.open` ended its process (signal: 9 (SIGKILL))";
    assert_eq!(failure.to_string(), expected);
}

#[test]
fn the_laws_hold_for_an_honest_plugin() {
    let mut process = started("honest");
    assert_eq!(check_dataset(&mut process, "{}", 3).unwrap(), []);
    assert_eq!(check_metric(&mut process, "{}").unwrap(), []);
    assert_eq!(check_curriculum(&mut process, "{}", 3).unwrap(), []);
    assert_eq!(check_step(&mut process, "{}", Default::default()).unwrap(), []);
    assert_eq!(check_searcher(&mut process, ("{}", "{}"), 1).unwrap(), []);
    let rounds = demonstrate_searcher(&mut process, ("{}", "{}"), 1, 2).unwrap();
    let rounds: Vec<_> = rounds.iter().map(|round| (round.params.join(" "), round.finished)).collect();
    let expected =
        [("{\"x\": 1} {\"x\": 2}", false), ("{\"x\": 2} {\"x\": 3}", false), ("{\"x\": 3} {\"x\": 4}", true)];
    assert_eq!(rounds, expected.map(|(params, finished)| (params.to_owned(), finished)));
    let stages = demonstrate_curriculum(&mut process, "{}", 3, 3).unwrap();
    let stages: Vec<_> = stages.iter().map(|stage| (stage.until_step, stage.max_length)).collect();
    assert_eq!(stages, [(10, 1), (20, 2), (30, 3)]);
    let values = demonstrate_metric(&mut process, "{}").unwrap();
    assert!(values[0].name == "accuracy" && (0.0..=1.0).contains(&values[0].value()));
}

#[test]
fn each_broken_law_is_named() {
    let laws = |violations: Vec<assay_host::Violation>| {
        let mut laws: Vec<_> = violations.into_iter().map(|violation| violation.law).collect();
        laws.sort_unstable();
        laws.dedup();
        laws
    };
    let broken = laws(check_dataset(&mut started("count_calls"), "{}", 3).unwrap());
    assert_eq!(broken, ["a batch equals its parts in any order", "the same call gives the same answer"]);
    let broken = laws(check_dataset(&mut started("depend_on_batch"), "{}", 3).unwrap());
    assert_eq!(broken, ["a batch equals its parts in any order"]);
    let broken = laws(check_metric(&mut started("forget"), "{}").unwrap());
    assert_eq!(broken, ["merged states give the values of the whole"]);
    let broken = laws(check_curriculum(&mut started("count_calls"), "{}", 3).unwrap());
    assert_eq!(broken, ["a restored state equals the uninterrupted one"]);
    let broken = laws(check_step(&mut started("count_calls"), "{}", Default::default()).unwrap());
    assert_eq!(broken, ["the same config and inputs give the same outputs"]);
    let broken = laws(check_searcher(&mut started("count_calls"), ("{}", "{}"), 3).unwrap());
    assert_eq!(broken, ["a restored state equals the uninterrupted one"]);
}

#[test]
fn a_step_is_ended_when_its_listener_cancels_it() {
    let mut process = start("loop", limits()).unwrap();
    let end = process.run_step(0, "{}", 1, StepFiles::default(), &mut |_| ControlFlow::Break(()));
    assert_eq!(end.unwrap(), StepEnd::Cancelled);
    let failure = failure_of(process.values(0));
    assert!(failure.message.contains("was cancelled"), "{failure}");
}
