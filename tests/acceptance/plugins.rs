//! `assay plugin`: shipped plugins are run and checked, a new one is created, and an invalid one is refused.

use std::path::PathBuf;

use assay_tests::{assay, root};

fn shipped(name: &str) -> PathBuf {
    root().join("plugins/wasm/shipped").join(name).join(format!("{name}.wasm"))
}

/// Exit code, standard output and standard error of `assay plugin ARGS`.
fn plugin(args: &[&str]) -> (Option<i32>, String, String) {
    let output = assay().arg("plugin").args(args).output().expect("assay starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_plugins_that_ship_keep_their_promises() {
    for name in ["dyck", "calibration", "pace", "climb"] {
        let (code, out, errors) = plugin(&["check", shipped(name).to_str().unwrap()]);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{out}");
        assert!(out.starts_with(&format!("{name} 1.0.0")) && out.ends_with("all laws hold\n"), "{out}");
    }
}

#[test]
fn a_plugin_is_run_alone() {
    let file = shipped("dyck");
    let run = |more: &[&str]| plugin(&[&["run", file.to_str().unwrap()], more].concat());
    let (code, out, _) = run(&["--count", "3", "--config", r#"{"kinds": 1, "min_pairs": 2, "max_pairs": 2}"#]);
    assert_eq!((code, out.lines().count()), (Some(0), 6), "{out}");
    let first = out.lines().nth(2).unwrap_or_default();
    assert_eq!(first.chars().filter(|c| "()".contains(*c)).count(), 4, "{out}");
    let (code, _, errors) = run(&["--config", r#"{"kinds": 9}"#]);
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("plugin `dyck`: `dataset.open` failed: kinds is outside 1..=8 (at `/kinds` of its config)"),
        "{errors}"
    );
    let pace = shipped("pace");
    let (_, out, _) = plugin(&["run", pace.to_str().unwrap(), "--count", "2"]);
    assert!(out.contains("until step 50: at most 16 tokens (as before)"), "{out}");
    let (_, out, _) =
        plugin(&["run", shipped("climb").to_str().unwrap(), "--count", "2", "--space", r#"{"a": [1, 2]}"#]);
    assert!(
        out.contains("round 1\n") && out.contains("round 3 (the last one)") && out.contains("    {\"a\":"),
        "{out}"
    );
    let folder = tempfile::tempdir().unwrap();
    let (text, counts) = (folder.path().join("text"), folder.path().join("counts.csv"));
    std::fs::write(&text, "aab").unwrap();
    let named = [format!("data={}", text.display()), format!("counts={}", counts.display())];
    let bytes = shipped("bytes");
    let step = |command: &str| {
        plugin(&[command, bytes.to_str().unwrap(), "--input", named[0].as_str(), "--output", named[1].as_str()])
    };
    let (code, out, _) = step("run");
    assert!(
        code == Some(0) && out.contains("result: {\"bytes\":3}\n  distinct = 2\n  output counts: 10 bytes\n"),
        "{out}"
    );
    assert_eq!(std::fs::read_to_string(&counts).unwrap(), "97,2\n98,1\n");
    let (code, out, _) = step("check");
    assert!(code == Some(0) && out.ends_with("all laws hold\n"), "{out}");
    let calibration = shipped("calibration");
    let (_, out, _) = plugin(&["run", calibration.to_str().unwrap()]);
    assert!(out.contains("  ece = 0."), "{out}");
}

#[test]
fn a_new_plugin_can_be_begun_once_and_what_is_no_plugin_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("mine");
    let args = ["new", new.to_str().unwrap(), "--for", "metric", "--lang", "c"];
    assert_eq!(plugin(&args).0, Some(0));
    assert!(new.join("plugin.c").is_file() && new.join("assay_plugin.h").is_file() && new.join("plugin.wit").is_file());
    let (code, _, errors) = plugin(&args);
    assert_eq!(code, Some(2));
    assert!(errors.contains("cannot make"), "{errors}");
    let (code, _, errors) = plugin(&["check", new.join("plugin.c").to_str().unwrap()]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("plugin `plugin` cannot be loaded: it is not WebAssembly"), "{errors}");
    let (_, _, errors) = plugin(&["build", folder.path().to_str().unwrap()]);
    assert!(errors.contains("has no `plugin.c`, `app.py` or `app.js`"), "{errors}");
}
