//! The CPU backend against the reference, and against itself on other numbers of threads.

use assay_conformance::{
    Report, Tolerance, check, check_adamw, check_random, check_recurrences, check_refusals, check_same_bits,
    check_storage, check_sums,
};
use assay_tensor::{DType, Device, Tensor};

fn assert_good(report: &Report) {
    assert!(report.is_good(), "{report}");
}

fn cpu(threads: usize) -> Device {
    assay_cpu::device(threads).unwrap()
}

#[test]
fn values_and_gradients() {
    assert_good(&check(&cpu(1), DType::F32, Tolerance::F32));
    assert_good(&check_adamw(&cpu(1), DType::F32, Tolerance::F32));
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for threads in [2, 3] {
        assert_good(&check_same_bits(&cpu(1), &cpu(threads), DType::F32));
    }
}

#[test]
fn random_operations_on_random_shapes() {
    assert_good(&check_random(&[cpu(1), cpu(2), cpu(3)], DType::F32, Tolerance::F32, 1, |done| done < 400));
}

#[test]
fn gradients_are_added_up() {
    assert_good(&check_sums(&cpu(2), DType::F32, 1e-5));
}

#[test]
fn recurrences() {
    assert_good(&check_recurrences(&cpu(2), DType::F32));
}

#[test]
fn refusals() {
    assert_good(&check_refusals(&cpu(2), DType::F32));
}

#[test]
fn bf16_is_storage() {
    assert_good(&check_storage(&cpu(2)));
}

#[test]
fn f64_is_refused() {
    let error = Tensor::from_f64(&cpu(1), vec![1.0], 1).unwrap_err().to_string();
    assert!(error.contains("f64") && error.contains("reference"), "{error}");
}

/// This program again, with an instruction set and arguments.
fn run_again(level: &str, arguments: &[&str]) -> std::process::Output {
    let program = std::env::current_exe().unwrap();
    std::process::Command::new(program).args(arguments).env("ASSAY_ISA", level).output().unwrap()
}

/// The other tests, with each instruction set below the one that they run with otherwise.
#[test]
fn every_instruction_set_passes() {
    if std::env::var_os("ASSAY_ISA").is_some() {
        return;
    }
    let levels = assay_cpu::supported_levels();
    for level in &levels[..levels.len() - 1] {
        let run = run_again(level, &["--skip", "instruction_set"]);
        assert!(run.status.success(), "{level}: {}", String::from_utf8_lossy(&run.stdout));
    }
}

#[test]
fn an_unknown_instruction_set_is_refused() {
    let run = run_again("sse9", &["--exact", "f64_is_refused", "--nocapture"]);
    let text = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && text.contains("ASSAY_ISA is `sse9`, not an instruction set"), "{text}");
}

/// A decaying state passes through the denormal numbers; on this backend it becomes zero instead.
#[cfg(target_arch = "x86_64")]
#[test]
fn denormals_are_flushed_on_every_thread() {
    for threads in [1, 2] {
        let x = Tensor::full(&cpu(threads), 1 << 20, DType::F32, 1e-39).unwrap();
        assert!(x.scale(1e3).unwrap().to_f32_vec().unwrap().iter().all(|&y| y == 0.0));
        let small = Tensor::full(&cpu(threads), 1 << 20, DType::F32, 1e-30).unwrap();
        assert!(small.scale(1e-9).unwrap().to_f32_vec().unwrap().iter().all(|&y| y == 0.0));
        // The caller's own arithmetic is left as it was.
        assert_ne!(std::hint::black_box(1e-39f32) * std::hint::black_box(1e3), 0.0);
    }
}
