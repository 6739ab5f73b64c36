//! The CUDA and ROCm backends on the emulator, tested with the suite of all backends.

use std::sync::Arc;

use assay_conformance::{
    Report, Tolerance, check, check_adamw, check_attention_bf16, check_operations, check_recurrences, check_refusals,
    check_same_bits, check_storage, check_sums,
};
use assay_cuda::Cuda;
use assay_gpu_emulator::{Emulated, emulated};
use assay_rocm::Rocm;
use assay_tensor::{AttentionKind, AttentionOptions, DType, Device, Tensor};

pub fn cuda() -> Device {
    assay_gpu::device(Arc::new(Cuda::open(0, None).unwrap()))
}

pub fn rocm() -> Device {
    assay_gpu::device(Arc::new(Rocm::open(0, None).unwrap()))
}

fn passes(report: &Report) {
    assert!(report.is_good(), "{report}");
}

/// Runs a check on the emulator, which must not find any problem. Blocks and threads are scheduled in an order that depends
/// on the seed; with 0, in their natural order.
fn holds(name: &str, seed: &str, wave: &str, body: impl FnOnce()) {
    let variables = [("ASSAY_GPU_EMULATOR_SEED", seed), ("ASSAY_GPU_EMULATOR_WAVE", wave)];
    emulated(&format!("conformance::{name}"), &variables, body, |found: &Emulated| assert_eq!(found.problems, [""; 0]));
}

fn values(device: &Device) {
    passes(&check(device, DType::F32, Tolerance::F32));
    passes(&check_adamw(device, DType::F32, Tolerance::F32));
    passes(&check_operations(std::slice::from_ref(device), DType::F32, Tolerance::F32, &assay_models::FUSED_OPS));
}

#[test]
fn values_and_gradients_on_cuda() {
    holds("values_and_gradients_on_cuda", "0", "32", || values(&cuda()));
}

#[test]
fn values_and_gradients_on_cuda_in_another_order() {
    holds("values_and_gradients_on_cuda_in_another_order", "7", "32", || values(&cuda()));
}

#[test]
fn values_and_gradients_on_rocm() {
    holds("values_and_gradients_on_rocm", "0", "32", || values(&rocm()));
}

#[test]
fn values_and_gradients_on_rocm_in_waves_of_64() {
    holds("values_and_gradients_on_rocm_in_waves_of_64", "11", "64", || values(&rocm()));
}

/// No bit depends on the order of threads, on earlier work, or on the width of a wave. One vendor's library has its own GELU,
/// which is not used here.
#[test]
fn both_vendors_give_the_same_bits() {
    let variables =
        [("ASSAY_GPU_EMULATOR_SEED", "3"), ("ASSAY_GPU_EMULATOR_WAVE", "64"), ("ASSAY_GPU_EMULATOR_GELU", "0")];
    let body = || passes(&check_same_bits(&cuda(), &rocm(), DType::F32));
    emulated("conformance::both_vendors_give_the_same_bits", &variables, body, |found: &Emulated| {
        assert_eq!(found.problems, [""; 0]);
    });
}

#[test]
fn gradients_are_added_up() {
    holds("gradients_are_added_up", "9", "32", || {
        passes(&check_sums(&cuda(), DType::F32, 1e-5));
        passes(&check_sums(&rocm(), DType::F32, 1e-5));
    });
}

#[test]
fn recurrences() {
    holds("recurrences", "5", "32", || {
        passes(&check_recurrences(&cuda(), DType::F32));
        passes(&check_recurrences(&rocm(), DType::F32));
    });
}

#[test]
fn refusals() {
    holds("refusals", "0", "32", || {
        passes(&check_refusals(&cuda(), DType::F32));
        passes(&check_refusals(&rocm(), DType::F32));
    });
}

#[test]
fn bf16_is_storage() {
    holds("bf16_is_storage", "0", "32", || {
        passes(&check_storage(&cuda()));
        passes(&check_storage(&rocm()));
    });
}

#[test]
fn attention_multiplies_bf16_on_cuda() {
    for seed in ["0", "7"] {
        holds("attention_multiplies_bf16_on_cuda", seed, "32", || passes(&check_attention_bf16(&cuda())));
    }
}

/// Waves of 64 are those of a gfx942, whose matrix cores are used; waves of 32 belong to another device, which widens to f32.
#[test]
fn attention_multiplies_bf16_on_rocm() {
    for (seed, wave) in [("0", "64"), ("7", "64"), ("0", "32")] {
        holds("attention_multiplies_bf16_on_rocm", seed, wave, || passes(&check_attention_bf16(&rocm())));
    }
}

/// Attention of bf16 and its gradient, as a hash of their bits.
fn bits_of_attention(device: &Device) -> String {
    let make = |rows: usize, seed: usize| {
        let values = (0..2 * rows * 40).map(|i| ((i * 7919 + seed) % 2003) as f32 / 1001.5 - 1.0).collect();
        let x = Tensor::from_f32(device, values, [1, 2, rows, 40]).unwrap();
        x.cast(DType::Bf16).unwrap().variable()
    };
    let (q, k, v) = (make(70, 1), make(90, 2), make(90, 3));
    let options = AttentionOptions { causal: true, scale: 0.4, kind: AttentionKind::Flash };
    let out = q.attention(&k, &v, options).unwrap();
    let found = out.square().unwrap().sum_all().unwrap().backward().unwrap();
    let all = [&q, &k, &v].map(|x| found.get(x).unwrap().clone());
    let bits = all.iter().chain([&out]).flat_map(|x| x.to_f64_vec().unwrap()).map(f64::to_bits);
    // FNV, a word at a time.
    let hash = bits.fold(0xcbf2_9ce4_8422_2325u64, |hash, word| (hash ^ word).wrapping_mul(0x0100_0000_01b3));
    format!("bits {hash:016x}")
}

#[test]
fn attention_of_bf16_has_the_same_bits_in_any_order() {
    let name = "conformance::attention_of_bf16_has_the_same_bits_in_any_order";
    if std::env::var_os("ASSAY_GPU_EMULATOR_INSIDE").is_some() {
        let wide = std::env::var("ASSAY_GPU_EMULATOR_WAVE").is_ok_and(|wave| wave == "64");
        return println!("{}", bits_of_attention(&if wide { rocm() } else { cuda() }));
    }
    for wave in ["32", "64"] {
        let mut lines = std::collections::BTreeSet::new();
        for seed in ["0", "3", "11"] {
            let variables = [("ASSAY_GPU_EMULATOR_SEED", seed), ("ASSAY_GPU_EMULATOR_WAVE", wave)];
            emulated(
                name,
                &variables,
                || (),
                |ran: &Emulated| {
                    assert_eq!(ran.problems, [""; 0]);
                    let said = String::from_utf8_lossy(&ran.output.stdout);
                    lines.extend(said.lines().filter_map(|line| line.find("bits ").map(|at| line[at..].to_owned())));
                },
            );
        }
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
}
