//! The program on an emulated device: everything in it runs, and the device finds nothing wrong.

use std::process::Command;

use assay_gpu_emulator::Emulated;

#[test]
fn the_program_checks_measures_and_keeps_its_table() {
    let scratch = tempfile::tempdir().unwrap();
    let results = scratch.path().join("results");
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay-gpu-check"));
    command.args(["--tiny", "--commit", "abc", "--results"]).arg(&results);
    Emulated::set_up(&mut command, scratch.path());
    let output = command.output().unwrap();
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{told}");
    assert_eq!(Emulated::report(scratch.path()), [""; 0]);
    for row in ["matmul bf16 16", "copy on the device", "scan backward [2, 8, 16]", "training TEN tiny, bf16"] {
        assert!(said.contains(row), "no `{row}` in\n{said}");
    }
    let kept: Vec<_> = std::fs::read_dir(&results).unwrap().collect();
    assert_eq!(kept.len(), 1);
}

#[test]
fn an_unknown_argument_is_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_assay-gpu-check")).arg("--fast").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("`--fast` is unknown"), "{text}");
}
