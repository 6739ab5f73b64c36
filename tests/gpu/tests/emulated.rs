//! The program on an emulated device: everything in it runs, and the device finds no problem.

use std::io::Write;
use std::process::{Command, Stdio};

use assay_gpu_emulator::Emulated;
use serde_json::Value;

#[test]
fn the_script_checks_measures_and_keeps_its_table() {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/run.sh"));
    command.args(["--with", env!("CARGO_BIN_EXE_assay-gpu-check")]).env("OUT", scratch.path());
    command.env("CHECK_FLAGS", "--tiny").env("ASSAY_PEERS_PYTHON", "python-that-is-not-there");
    Emulated::set_up(&mut command, scratch.path());
    let output = command.output().unwrap();
    let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{told}");
    assert_eq!(Emulated::report(scratch.path()), [""; 0]);
    let rows = [
        "matmul bf16 16",
        "linear with GELU [16, 8] [32, 8]",
        "copy on the device",
        "scan backward [2, 8, 16]",
        "flash attention forward, bf16, causal [1, 1, 8, 8]",
        "TEN's layer as published, forward and backward [2, 8, 8], K 4",
        "of the published form",
        "training TEN tiny, bf16",
        "of the sum of its kernels alone",
        "peers: skipped: there is no python-that-is-not-there",
    ];
    for row in rows {
        assert!(said.contains(row), "no `{row}` in\n{said}");
    }
    let kept: Vec<_> = std::fs::read_dir(scratch.path().join("results")).unwrap().collect();
    assert_eq!(kept.len(), 1);
}

/// The other side of `peers.py`, without PyTorch: each kind of work answers requests.
#[test]
fn work_is_done_on_request() {
    let training = r#"{"model": {"family": "ten", "dim": 8, "layers": 1, "states": 4, "chunk": 4},
        "optimizer": {"name": "adamw", "lr": 1e-3}, "vocabulary": 5, "batch": 2, "length": 8, "seed": 1, "threads": 1}"#;
    let works = [
        r#"{"work": "recurrence", "batch": 2, "length": 8, "states": 3, "chunk": 4}"#.to_owned(),
        r#"{"work": "attention", "batch": 1, "heads": 2, "length": 8, "width": 4, "precision": "f32", "backward": false}"#
            .to_owned(),
        r#"{"work": "attention", "batch": 1, "heads": 2, "length": 8, "width": 4, "precision": "bf16", "backward": true}"#
            .to_owned(),
        format!(r#"{{"work": "training", "setup": {}}}"#, training.replace('\n', " ")),
    ];
    for work in works {
        let answers = ask(&[&work, r#"{"do": "check"}"#, r#"{"do": "steps", "count": 2}"#]);
        assert_eq!(answers.len(), 2, "{work}: {answers:?}");
        for key in ["loss", "gradient_norm"] {
            assert!(answers[0][key].as_f64().is_some_and(f64::is_finite), "{work}: {answers:?}");
        }
        assert!(answers[0]["gradient_norm"].as_f64() > Some(0.0), "{work}: {answers:?}");
        assert!(answers[1]["seconds"].as_f64() > Some(0.0), "{work}: {answers:?}");
    }
}

fn ask(lines: &[&str]) -> Vec<Value> {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay-gpu-check"));
    command.arg("--serve").stdin(Stdio::piped()).stdout(Stdio::piped());
    Emulated::set_up(&mut command, scratch.path());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{lines:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn an_unknown_argument_is_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_assay-gpu-check")).arg("--fast").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("`--fast` is unknown"), "{text}");
}
