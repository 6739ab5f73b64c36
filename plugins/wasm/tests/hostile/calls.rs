//! Guests that misbehave when they are called.

use assay_protocol::{PluginFailure, PluginLimit, PluginLimits, PluginSplit, PluginStage};
use assay_wasm::PluginWorld;

use crate::guests::{component_of, dataset, failure_of, load};

/// The failure of a dataset whose `batch` runs this code.
fn batch_failure(batch: &str, extra: &str, limits: PluginLimits) -> PluginFailure {
    let mut process = load(&dataset("", batch, extra), limits).expect("it loads");
    process.open_dataset(0, "{}").expect("it opens");
    let failure = failure_of(process.batch(0, 1, PluginSplit::Train, 0, 2));
    assert_eq!((failure.plugin.as_str(), failure.function.as_str()), ("evil", "dataset.batch"));
    failure
}

#[track_caller]
fn expect(failure: &PluginFailure, limit: Option<PluginLimit>, message: &str) {
    assert_eq!(failure.limit, limit, "{failure}");
    assert!(failure.message.contains(message), "{failure}");
}

fn refused(batch: &str, limit: Option<PluginLimit>, message: &str) {
    expect(&batch_failure(batch, "", PluginLimits::default()), limit, message);
}

#[test]
fn the_guest_without_malice_is_served() {
    let mut process = load(&dataset("", "", ""), PluginLimits::default()).unwrap();
    assert_eq!(
        (process.about().name.as_str(), process.about().interfaces.as_slice()),
        ("evil", ["dataset".to_owned()].as_slice())
    );
    let facts = process.open_dataset(0, "{}").unwrap();
    assert_eq!((facts.vocabulary, facts.classes, facts.max_length), (vec!["e".to_owned(), "v".to_owned()], 2, 4));
    let batch = process.batch(0, 1, PluginSplit::Train, 0, 2).unwrap();
    assert_eq!((batch.tokens, batch.offsets, batch.labels), (vec![0, 1], vec![0, 1, 2], vec![0, 1]));
    let fuel = process.fuel();
    assert!(fuel > 0);
    process.batch(0, 1, PluginSplit::Train, 0, 2).unwrap();
    assert_eq!(process.fuel(), fuel, "the same call costs the same");
}

#[test]
fn an_infinite_loop_runs_out_of_fuel() {
    let failure = batch_failure("(loop $l (br $l))", "", PluginLimits::default());
    expect(&failure, Some(PluginLimit::Fuel), "ran out of fuel; the limit of this call was 2020000000 units");
}

#[test]
fn a_loop_with_fuel_left_is_ended_by_the_clock() {
    let limits = PluginLimits { fuel_per_call: u64::MAX / 4, call_seconds: 1, ..PluginLimits::default() };
    expect(&batch_failure("(loop $l (br $l))", "", limits), Some(PluginLimit::Time), "took longer than 1 s");
}

#[test]
fn memory_and_tables_end_at_their_limits() {
    let grow = "(loop $l (br_if $l (i32.ne (memory.grow (i32.const 100)) (i32.const -1))))";
    refused(grow, Some(PluginLimit::Memory), "bytes of memory; the limit is 268435456");
    let table = "(table $t 1 funcref)";
    let grow = "(drop (table.grow $t (ref.null func) (i32.const 100000)))";
    let failure = batch_failure(grow, table, PluginLimits::default());
    expect(&failure, Some(PluginLimit::Table), "needs a table of 100001 elements; the limit is 100000");
}

#[test]
fn what_a_component_asks_for_at_its_start_counts_too() {
    let bytes = dataset("", "", "").len();
    let large = component_of(
        r#"(module (memory (export "memory") 5000)
            (func (export "assay:plugin/plugin@0.1.0#describe") (result i32) i32.const 0)
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 0)
            (func (export "assay:plugin/metric@0.1.0#open") (param i32 i32) (result i32) i32.const 0)
            (func (export "assay:plugin/metric@0.1.0#add") (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) i32.const 0)
            (func (export "assay:plugin/metric@0.1.0#save") (result i32) i32.const 0)
            (func (export "assay:plugin/metric@0.1.0#merge") (param i32 i32) (result i32) i32.const 0)
            (func (export "assay:plugin/metric@0.1.0#values") (result i32) i32.const 0))"#,
        PluginWorld::Metric,
    );
    assert!(large.len() < 10 * bytes, "it is small as a file");
    let failure = failure_of(load(&large, PluginLimits::default()));
    expect(&failure, Some(PluginLimit::Memory), "needs 327680000 bytes of memory");
    let looping = dataset("", "", "(func $go (loop $l (br $l))) (start $go)");
    let failure = failure_of(load(&looping, PluginLimits::default()));
    assert_eq!(failure.function, "load");
    expect(&failure, Some(PluginLimit::Fuel), "ran out of fuel");
}

#[test]
fn a_huge_result_is_not_copied() {
    // 20 million tokens of 4 bytes are within the memory limit, but exceed the limit of an answer.
    let batch = "(drop (memory.grow (i32.const 2000))) (i32.store (i32.const 520) (i32.const 20000000))";
    refused(batch, Some(PluginLimit::Transfer), "passed too much data; the limit is 67108864 bytes");
}

#[test]
fn invalid_pointers_discriminants_and_texts_are_refused() {
    refused("(i32.store (i32.const 516) (i32.const -16))", None, "gave an invalid answer");
    refused("(i32.store8 (i32.const 512) (i32.const 7))", None, "gave an invalid answer");
    let mut process =
        load(&dataset("(i32.store8 (i32.const 1024) (i32.const 255))", "", ""), PluginLimits::default()).unwrap();
    expect(&failure_of(process.open_dataset(0, "{}")), None, "gave an invalid answer");
}

#[test]
fn a_storm_of_host_calls_costs_fuel() {
    let storm = "(loop $l (call $log (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)) (br $l))";
    refused(storm, Some(PluginLimit::Fuel), "ran out of fuel");
    // A call with 100 bytes costs a tenth more than one without: the fuel for 1,000 empty calls is not enough for 1,000 of them.
    let counted = |length: u32| {
        format!(
            "(global.set $n (i32.const 1000)) (loop $l (call $log (i32.const 0) (i32.const 0) (i32.const 2048) (i32.const {length}))
             (global.set $n (i32.sub (global.get $n) (i32.const 1))) (br_if $l (global.get $n)))"
        )
    };
    let limits = PluginLimits { fuel_per_call: 1_050_000, fuel_per_sample: 0, ..PluginLimits::default() };
    let count = "(global $n (mut i32) (i32.const 0))";
    let mut process = load(&dataset("", &counted(0), count), limits.clone()).unwrap();
    process.open_dataset(0, "{}").unwrap();
    process.batch(0, 1, PluginSplit::Train, 0, 2).unwrap();
    expect(
        &batch_failure(&counted(100), count, limits),
        Some(PluginLimit::Fuel),
        "the limit of this call was 1050000 units",
    );
}

#[test]
fn a_flood_of_log_lines_is_cut_and_counted() {
    let flood = "(global.set $n (i32.const 5000)) (loop $l (call $log (i32.const 1024) (i32.const 4) (i32.const 1024) (i32.const 4))
         (global.set $n (i32.sub (global.get $n) (i32.const 1))) (br_if $l (global.get $n)))";
    let mut process =
        load(&dataset("", flood, "(global $n (mut i32) (i32.const 0))"), PluginLimits::default()).unwrap();
    process.open_dataset(0, "{}").unwrap();
    process.batch(0, 1, PluginSplit::Train, 0, 2).unwrap();
    let log = process.drain_log();
    assert_eq!((log.len(), log[0].clone()), (1001, ("info".to_owned(), "evil".to_owned())));
    assert_eq!(log[1000].1, "4000 lines were dropped: at most 1000 lines and 65536 bytes are kept");
}

#[test]
fn a_trap_names_its_function_and_keeps_the_log() {
    let fall = "(call $log (i32.const 0) (i32.const 0) (i32.const 1024) (i32.const 4)) (call $fall)";
    let failure = batch_failure(fall, "(func $fall unreachable)", PluginLimits::default());
    expect(&failure, None, "aborted");
    assert!(failure.trace.as_ref().is_some_and(|trace| trace.contains("fall")), "{failure}");
    assert_eq!(failure.log, ["info: evil"]);
    refused("(drop (i32.div_u (i32.const 1) (i32.const 0)))", None, "trapped: integer divide by zero");
    refused("(drop (i32.load (i32.const -4)))", None, "trapped: out of bounds memory access");
}

#[test]
fn an_instance_is_unusable_after_a_trap_and_a_new_one_works() {
    let once = "(if (i32.eqz (local.get 1)) (then unreachable))";
    let mut process = load(&dataset("", once, ""), PluginLimits::default()).unwrap();
    process.open_dataset(0, "{}").unwrap();
    failure_of(process.batch(0, 1, PluginSplit::Train, 0, 2));
    let failure = failure_of(process.batch(0, 1, PluginSplit::Valid, 0, 2));
    expect(&failure, None, "an earlier call to this instance was cut off");
    process.open_dataset(0, "{}").unwrap();
    process.batch(0, 1, PluginSplit::Valid, 0, 2).unwrap();
}

#[test]
fn recursion_ends_at_the_stack() {
    let failure = batch_failure("(call $deep)", "(func $deep (call $deep) (call $deep))", PluginLimits::default());
    expect(&failure, Some(PluginLimit::Stack), "needs more stack than 1048576 bytes");
}

#[test]
fn wrong_lengths_tokens_and_labels_are_refused() {
    refused("(i32.store (i32.const 528) (i32.const 2))", None, "2 offsets instead of 3 for 2 sequences");
    refused("(i32.store (i32.const 620) (i32.const 2))", None, "sequence 1 has 0 tokens, outside 1..=4");
    refused("(i32.store (i32.const 624) (i32.const 9))", None, "offsets from 0 to 9 for 2 tokens");
    refused("(i32.store (i32.const 600) (i32.const 2))", None, "token 2 is outside the vocabulary of 2");
    refused("(i32.store (i32.const 536) (i32.const 1))", None, "1 labels instead of 2");
    refused("(i32.store (i32.const 632) (i32.const 2))", None, "label 2 is outside the 2 classes");
}

#[test]
fn a_call_that_the_plugin_does_not_export_is_refused() {
    let mut process = load(&dataset("", "", ""), PluginLimits::default()).unwrap();
    let failure = failure_of(process.open_metric(0, "{}"));
    assert_eq!(failure.function, "metric.open");
    expect(&failure, None, "does not export it from `assay:plugin/metric@0.1.0`");
    expect(&failure_of(process.batch(3, 1, PluginSplit::Train, 0, 2)), None, "cannot be called before `open`");
    expect(&failure_of(process.open_dataset(4, "{}")), None, "there is no instance 4");
}

/// A curriculum with a state of `state` bytes, whose stages all end at this step.
fn curriculum(state: u32, until: u64) -> Vec<u8> {
    let text = format!(
        r#"(module (memory (export "memory") 64)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 8192)
        (func (export "assay:plugin/plugin@0.1.0#describe") (result i32) i32.const 256)
        (func (export "assay:plugin/curriculum@0.1.0#open") (param i32 i32 i64 i32 i32) (result i32)
          (i32.store (i32.const 24) (i32.const {state})) i32.const 16)
        (func (export "assay:plugin/curriculum@0.1.0#next") (param i32 i32 i64 i32 i32) (result i32)
          (i64.store (i32.const 72) (i64.const {until})) (i32.store (i32.const 80) (i32.const 5)) i32.const 64))"#
    );
    component_of(&text, PluginWorld::Curriculum)
}

#[test]
fn states_have_a_limit_and_stages_end_after_the_current_step() {
    let limits = PluginLimits { state: 1000, ..PluginLimits::default() };
    let mut process = load(&curriculum(1001, 10), limits.clone()).unwrap();
    let failure = failure_of(process.open_curriculum(0, "{}", 1, &[1, 2]));
    expect(&failure, Some(PluginLimit::State), "gave a state of 1001 bytes; the limit is 1000");
    let mut process = load(&curriculum(0, 10), limits).unwrap();
    let state = process.open_curriculum(0, "{}", 1, &[1, 2]).unwrap();
    let (stage, _) = process.next(0, state.clone(), 9, Vec::new()).unwrap();
    assert_eq!(stage, PluginStage { until_step: 10, max_length: 5, note: String::new() });
    let failure = failure_of(process.next(0, state, 10, Vec::new()));
    expect(&failure, None, "a stage until step 10 at step 10: it must end later");
}
