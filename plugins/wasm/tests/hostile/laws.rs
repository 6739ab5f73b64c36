//! Guests that break a promise without breaking a limit.

use assay_host::{check_curriculum, check_dataset};
use assay_protocol::{PluginLimits, PluginSplit};
use assay_wasm::PluginWorld;

use crate::guests::{component_of, dataset, load};

/// Sets the lengths of the answer to this number of sequences, and fills in offsets. All tokens except the first are zero.
const ANY_COUNT: &str = "
    (i32.store (i32.const 516) (i32.const 4096)) (i32.store (i32.const 520) (local.get 3))
    (i32.store (i32.const 524) (i32.const 8192)) (i32.store (i32.const 528) (i32.add (local.get 3) (i32.const 1)))
    (i32.store (i32.const 532) (i32.const 4096)) (i32.store (i32.const 536) (local.get 3))
    (global.set $n (i32.const 0))
    (loop $l
      (i32.store (i32.add (i32.const 8192) (i32.mul (global.get $n) (i32.const 4))) (global.get $n))
      (global.set $n (i32.add (global.get $n) (i32.const 1)))
      (br_if $l (i32.le_u (global.get $n) (local.get 3))))";

fn broken_laws(batch: &str) -> Vec<&'static str> {
    let extra = "(global $n (mut i32) (i32.const 0)) (global $calls (mut i32) (i32.const 0))";
    let component = dataset("", &format!("{ANY_COUNT} {batch}"), extra);
    let mut process = load(&component, PluginLimits::default()).unwrap();
    let mut laws: Vec<_> = check_dataset(&mut process, "{}", 7).unwrap().into_iter().map(|broken| broken.law).collect();
    laws.dedup();
    laws
}

#[test]
fn a_dataset_that_counts_its_calls_breaks_a_law() {
    assert!(broken_laws("").is_empty());
    // The first token depends on the number of calls.
    let counting = "(i32.store (i32.const 4096) (i32.and (global.get $calls) (i32.const 1)))
        (global.set $calls (i32.add (global.get $calls) (i32.const 1)))";
    let laws = broken_laws(counting);
    assert!(laws.contains(&"the same call gives the same answer"), "{laws:?}");
}

#[test]
fn a_dataset_whose_sequences_depend_on_the_batch_breaks_a_law() {
    // The first sequence of a batch differs from the same sequence within a larger batch.
    assert_eq!(broken_laws("(i32.store (i32.const 4096) (i32.const 1))"), ["a batch equals its parts in any order"]);
}

#[test]
fn a_curriculum_that_keeps_more_than_its_state_breaks_a_law() {
    let text = r#"(module (memory (export "memory") 1) (global $calls (mut i32) (i32.const 0))
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) i32.const 8192)
        (func (export "assay:plugin/plugin@0.1.0#describe") (result i32) i32.const 256)
        (func (export "assay:plugin/curriculum@0.1.0#open") (param i32 i32 i64 i32 i32) (result i32) i32.const 16)
        (func (export "assay:plugin/curriculum@0.1.0#next") (param i32 i32 i64 i32 i32) (result i32)
          (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
          (i64.store (i32.const 72) (i64.add (local.get 2) (i64.const 10)))
          (i32.store (i32.const 80) (global.get $calls)) i32.const 64))"#;
    let mut process = load(&component_of(text, PluginWorld::Curriculum), PluginLimits::default()).unwrap();
    let broken = check_curriculum(&mut process, "{}", 1).unwrap();
    assert_eq!(broken[0].law, "a restored state equals the uninterrupted one");
    assert_eq!(broken.len(), 7, "of eight stages the first is the same");
}

#[test]
fn a_new_instance_begins_where_every_instance_does() {
    let batch = "(i32.store (i32.const 632) (global.get $calls)) (global.set $calls (i32.const 1))";
    let component = dataset("", batch, "(global $calls (mut i32) (i32.const 0))");
    let mut process = load(&component, PluginLimits::default()).unwrap();
    for _ in 0..2 {
        process.open_dataset(0, "{}").unwrap();
        let batch = process.batch(0, 1, PluginSplit::Train, 0, 2).unwrap();
        assert_eq!(batch.labels, [0, 1]);
    }
}
