//! The conformance suite of all backends, on this device.

use assay_conformance::{
    Report, Tolerance, check_adamw, check_attention_bf16, check_operations, check_recurrences, check_refusals,
    check_same_bits, check_storage, check_sums,
};
use assay_models::FUSED_OPS;
use assay_tensor::{DType, Device};

/// The problems found, part by part.
pub fn check(device: &Device) -> Vec<String> {
    type Part = (&'static str, fn(&Device) -> Report);
    let parts: [Part; 9] = [
        ("values and gradients", |device| assay_conformance::check(device, DType::F32, Tolerance::F32)),
        ("operations of models", |device| {
            check_operations(std::slice::from_ref(device), DType::F32, Tolerance::F32, &FUSED_OPS)
        }),
        ("AdamW", |device| check_adamw(device, DType::F32, Tolerance::F32)),
        ("recurrences", |device| check_recurrences(device, DType::F32)),
        ("refusals", |device| check_refusals(device, DType::F32)),
        ("bf16 storage", check_storage),
        ("bf16 attention", check_attention_bf16),
        ("sums of gradients", |device| check_sums(device, DType::F32, 1e-5)),
        ("the same bits twice", |device| check_same_bits(device, device, DType::F32)),
    ];
    let run = |(name, part): Part| {
        let report = part(device);
        eprintln!("  {name}: {}", if report.is_good() { "good" } else { "WRONG" });
        (!report.is_good()).then(|| format!("{name}: {report}"))
    };
    parts.into_iter().filter_map(run).collect()
}
