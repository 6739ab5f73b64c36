//! The reference backend against itself in f32, against the composed forms, and against central differences.

use assay_conformance::{
    Report, Tolerance, check, check_adamw, check_gradients, check_recurrences, check_refusals, check_storage,
    check_sums, composed_device,
};
use assay_tensor::DType;

fn assert_good(report: &Report) {
    assert!(report.is_good(), "{report}");
}

#[test]
fn gradients_are_the_slopes() {
    assert_good(&check_gradients(&assay_reference::device()));
}

#[test]
fn gradients_of_the_composed_forms_are_the_slopes() {
    assert_good(&check_gradients(&composed_device()));
}

#[test]
fn the_composed_forms_mean_what_the_loops_compute() {
    assert_good(&check(&composed_device(), DType::F64, Tolerance::F64));
    assert_good(&check_adamw(&composed_device(), DType::F64, Tolerance::F64));
}

#[test]
fn f32_is_f64_rounded() {
    assert_good(&check(&assay_reference::device(), DType::F32, Tolerance::F32));
    assert_good(&check_adamw(&assay_reference::device(), DType::F32, Tolerance::F32));
}

#[test]
fn gradients_are_added_up() {
    assert_good(&check_sums(&assay_reference::device(), DType::F64, 1e-12));
}

#[test]
fn recurrences() {
    for float in [DType::F32, DType::F64] {
        assert_good(&check_recurrences(&assay_reference::device(), float));
        assert_good(&check_recurrences(&composed_device(), float));
    }
}

#[test]
fn refusals() {
    for float in [DType::F32, DType::F64] {
        assert_good(&check_refusals(&assay_reference::device(), float));
        assert_good(&check_refusals(&composed_device(), float));
    }
}

#[test]
fn bf16_is_storage() {
    assert_good(&check_storage(&assay_reference::device()));
    assert_good(&check_storage(&composed_device()));
}
