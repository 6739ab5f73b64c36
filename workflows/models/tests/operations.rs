//! The fused operations that models declare, on the CPU backend against the reference, and on other numbers of threads.

use std::collections::BTreeSet;

use assay_conformance::{Tolerance, check_examples, check_operations};
use assay_models::pulse::ROUTE_TOKEN;
use assay_models::{ATTEND_TOKEN, FUSED_OPS};
use assay_tensor::{DType, Device, Example, ExampleInput};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

fn cpus() -> [Device; 3] {
    [1, 2, 3].map(|threads| assay_cpu::device(threads).unwrap())
}

#[test]
fn examples_on_any_number_of_threads() {
    let report = check_operations(&cpus(), DType::F32, Tolerance::F32, &FUSED_OPS);
    assert!(report.is_good(), "{report}");
}

/// A kernel under a name that no operation has would never run.
#[test]
fn every_kernel_of_a_backend_belongs_to_an_operation() {
    let all: Vec<&str> = FUSED_OPS.iter().chain(&assay_tensor::FUSED_OPS).map(|op| op.name).collect();
    let known: BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!(known.len(), all.len(), "two operations have one name");
    for name in assay_cpu::fused_kernel_names().chain(assay_reference::fused_kernel_names()) {
        assert!(known.contains(name), "no operation is called `{name}`");
    }
}

#[test]
fn routing_on_random_shapes() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut example = || {
        let [b, s, p] = [4, 40, 90].map(|most| rng.random_range(1..most));
        let mut inputs = vec![ExampleInput::floats([b, 1, 2 * p]), ExampleInput::floats([b, s, 2 * p])];
        if rng.random() {
            inputs.extend([ExampleInput::floats([b, s, p]), ExampleInput::between(0.0, 3.0, [b, s, 1])]);
        }
        let top_k = rng.random_bool(0.5).then(|| ("top_k", rng.random_range(1..=s) as f64));
        Example { inputs, settings: Vec::from_iter(top_k) }
    };
    let examples: Vec<Example> = (0..150).map(|_| example()).collect();
    let report = check_examples(&cpus(), DType::F32, Tolerance::F32, &ROUTE_TOKEN, examples);
    assert!(report.is_good(), "{report}");
}

#[test]
fn attention_of_one_token_on_random_shapes() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut example = || {
        let [b, h, half] = [4, 4, 40].map(|most| rng.random_range(1..most));
        let mut inputs = vec![ExampleInput::floats([b, 1, 6 * h * half])];
        let segments = rng.random_range(0..4usize);
        let joined = rng.random_range(0..=segments);
        let mut settings = vec![("heads", h as f64), ("scale", 0.6), ("joined", joined as f64)];
        if rng.random() {
            let first = rng.random_range(0..4);
            inputs.extend([0, 1].map(|_| ExampleInput::between(-1.0, 1.0, [first + 1, half])));
            settings.push(("first", first as f64));
        }
        for _ in 0..segments {
            let length = rng.random_range(1..60);
            inputs.extend([0, 1].map(|_| ExampleInput::floats([b, h, length, 2 * half])));
        }
        Example { inputs, settings }
    };
    let examples: Vec<Example> = (0..150).map(|_| example()).collect();
    let report = check_examples(&cpus(), DType::F32, Tolerance::F32, &ATTEND_TOKEN, examples);
    assert!(report.is_good(), "{report}");
}
