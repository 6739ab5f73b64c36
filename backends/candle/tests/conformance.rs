//! candle on the processor against the reference, by the suite that every backend runs.
#![cfg(feature = "candle")]

use assay_candle::{Place, device, places};
use assay_conformance::{
    Report, Tolerance, check, check_adamw, check_gradients, check_random, check_recurrences, check_refusals,
    check_same_bits, check_storage, check_sums,
};
use assay_tensor::{Class, DType, Device, Tensor};

fn assert_good(report: &Report) {
    assert!(report.is_good(), "{report}");
}

fn candle() -> Device {
    device(Place::Cpu, 2).unwrap()
}

#[test]
fn values_and_gradients() {
    for (float, tolerance) in [(DType::F32, Tolerance::F32), (DType::F64, Tolerance::F64)] {
        assert_good(&check(&candle(), float, tolerance));
        assert_good(&check_adamw(&candle(), float, tolerance));
    }
}

#[test]
fn gradients_are_the_slopes() {
    assert_good(&check_gradients(&candle()));
}

#[test]
fn two_runs_give_the_same_bits() {
    assert_good(&check_same_bits(&candle(), &candle(), DType::F32));
}

#[test]
fn random_operations_on_random_shapes() {
    assert_good(&check_random(&[candle()], DType::F32, Tolerance::F32, 1, |done| done < 400));
}

#[test]
fn gradients_are_added_up() {
    assert_good(&check_sums(&candle(), DType::F32, 1e-5));
}

#[test]
fn recurrences() {
    assert_good(&check_recurrences(&candle(), DType::F32));
    assert_good(&check_recurrences(&candle(), DType::F64));
}

#[test]
fn refusals() {
    assert_good(&check_refusals(&candle(), DType::F32));
}

#[test]
fn bf16_is_storage() {
    assert_good(&check_storage(&candle()));
}

/// Sizes that can be written down, of which no machine has the memory.
#[test]
fn missing_memory_is_an_error_of_its_class() {
    let error = Tensor::zeros(&candle(), [1 << 24, 1 << 24], DType::F32).unwrap_err();
    assert_eq!(error.class(), Class::OutOfMemory, "{error}");
    let long = Tensor::zeros(&candle(), [1 << 23, 1], DType::F32).unwrap();
    let product = long.matmul_with(&long, false, true).unwrap_err();
    assert_eq!(product.class(), Class::OutOfMemory, "{product}");
    let device = candle();
    let (a, b) = (Tensor::zeros(&device, 2, DType::F32).unwrap(), Tensor::zeros(&device, 3, DType::F32).unwrap());
    assert_eq!(a.add(&b).unwrap_err().class(), Class::Refused);
}

/// candle itself skips the largest id without an error.
#[test]
fn the_largest_id_is_refused_too() {
    let device = candle();
    let table = Tensor::zeros(&device, [3, 2], DType::F32).unwrap().variable();
    let ids = Tensor::from_u32(&device, vec![u32::MAX], 1).unwrap();
    let error = table.rows(&ids).unwrap_err().to_string();
    assert!(error.contains("id 4294967295 is beyond the 3 rows"), "{error}");
}

#[test]
fn an_unknown_place_is_answered_with_the_known_ones() {
    assert!(places().contains(&Place::Cpu));
    assert_eq!(Place::parse("cpu"), Ok(Place::Cpu));
    let error = Place::parse("cuda:99").unwrap_err();
    assert!(error.contains("cuda:99") && error.contains("`cpu`"), "{error}");
}
