//! libtorch on the processor against the reference, by the suite that every backend runs.
#![cfg(feature = "libtorch")]

use assay_conformance::{
    Report, Tolerance, check, check_adamw, check_gradients, check_recurrences, check_refusals, check_same_bits,
    check_storage, check_sums,
};
use assay_tensor::{Class, DType, Device, Tensor};
use assay_torch::{Place, device, places};

fn passes(report: &Report) {
    assert!(report.is_good(), "{report}");
}

fn torch() -> Device {
    device(Place::Cpu, 2).unwrap()
}

#[test]
fn values_and_gradients() {
    for (float, tolerance) in [(DType::F32, Tolerance::F32), (DType::F64, Tolerance::F64)] {
        passes(&check(&torch(), float, tolerance));
        passes(&check_adamw(&torch(), float, tolerance));
    }
}

#[test]
fn gradients_are_the_slopes() {
    passes(&check_gradients(&torch()));
}

#[test]
fn the_same_threads_give_the_same_bits() {
    passes(&check_same_bits(&torch(), &torch(), DType::F32));
}

#[test]
fn gradients_are_added_up() {
    passes(&check_sums(&torch(), DType::F32, 1e-5));
}

#[test]
fn recurrences() {
    passes(&check_recurrences(&torch(), DType::F32));
    passes(&check_recurrences(&torch(), DType::F64));
}

#[test]
fn refusals() {
    passes(&check_refusals(&torch(), DType::F32));
}

#[test]
fn bf16_is_storage() {
    passes(&check_storage(&torch()));
}

/// More than any machine has, though it can be addressed.
#[test]
fn memory_that_is_not_there_is_told_from_what_is_refused() {
    let error = Tensor::zeros(&torch(), [1 << 24, 1 << 24], DType::F32).unwrap_err();
    assert_eq!(error.class(), Class::OutOfMemory, "{error}");
    let (a, b) = (Tensor::zeros(&torch(), 2, DType::F32), Tensor::zeros(&torch(), 3, DType::F32));
    assert_eq!(a.unwrap().add(&b.unwrap()).unwrap_err().class(), Class::Refused);
}

#[test]
fn a_place_that_is_not_there_is_answered_with_those_that_are() {
    assert!(places().contains(&Place::Cpu));
    assert_eq!(Place::parse("cpu"), Ok(Place::Cpu));
    let error = Place::parse("cuda:99").unwrap_err();
    assert!(error.contains("cuda:99") && error.contains("`cpu`"), "{error}");
    assert!(Tensor::zeros(&torch(), 3, DType::F32).is_ok());
}
