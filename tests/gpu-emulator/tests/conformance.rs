//! The CUDA backend on the emulator, held to the suite that every backend runs.

use std::sync::Arc;

use assay_conformance::{
    Report, Tolerance, check, check_adamw, check_recurrences, check_refusals, check_same_bits, check_storage,
};
use assay_cuda::Cuda;
use assay_gpu_emulator::{Emulated, emulated};
use assay_tensor::{DType, Device};

fn cuda() -> Device {
    assay_gpu::device(Arc::new(Cuda::open(0, None).unwrap()))
}

fn passes(report: &Report) {
    assert!(report.is_good(), "{report}");
}

/// Runs a check where the vendors' libraries are the emulator, which must find nothing wrong.
fn holds(name: &str, seed: &str, body: impl FnOnce()) {
    emulated(name, &[("ASSAY_GPU_EMULATOR_SEED", seed)], body, |found: &Emulated| {
        assert_eq!(found.problems, [""; 0]);
    });
}

#[test]
fn values_and_gradients() {
    holds("values_and_gradients", "0", || {
        passes(&check(&cuda(), DType::F32, Tolerance::F32));
        passes(&check_adamw(&cuda(), DType::F32, Tolerance::F32));
    });
}

#[test]
fn values_and_gradients_in_another_order() {
    holds("values_and_gradients_in_another_order", "7", || {
        passes(&check(&cuda(), DType::F32, Tolerance::F32));
        passes(&check_adamw(&cuda(), DType::F32, Tolerance::F32));
    });
}

#[test]
fn the_same_bits_every_time() {
    holds("the_same_bits_every_time", "3", || passes(&check_same_bits(&cuda(), &cuda(), DType::F32)));
}

#[test]
fn recurrences() {
    holds("recurrences", "5", || passes(&check_recurrences(&cuda(), DType::F32)));
}

#[test]
fn refusals() {
    holds("refusals", "0", || passes(&check_refusals(&cuda(), DType::F32)));
}

#[test]
fn bf16_is_storage() {
    holds("bf16_is_storage", "0", || passes(&check_storage(&cuda())));
}
