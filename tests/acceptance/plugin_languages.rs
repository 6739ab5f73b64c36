//! The templates of plugins in Python and JavaScript are built with their tools, and keep their promises.

use std::path::{Path, PathBuf};
use std::process::Command;

use assay_tests::assay;

/// The version of componentize-qjs that `docs/src/plugins.md` names.
const QJS: &str = "componentize-qjs@0.4.5";

/// Creates, builds and checks a plugin, with this folder first on PATH. Returns what the check prints.
fn build_and_check(tools: &Path, language: &str, purpose: &str, more: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(tools.to_owned()).chain(std::env::split_paths(&path)));
    let path = path.expect("a path");
    let plugin = |args: &[&str]| {
        let mut command = assay();
        command.current_dir(folder.path()).env("PATH", &path).arg("plugin").args(args);
        let output = command.output().expect("assay starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
        let (out, errors) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "{language} {purpose} {args:?}:\n{out}{errors}");
        out
    };
    std::fs::write(folder.path().join("text"), "a b a").expect("a file");
    plugin(&["new", "mine", "--for", purpose, "--lang", language]);
    assert!(plugin(&["build", "mine"]).contains(": built ("));
    assert!(plugin(&["build", "mine"]).contains(": is up to date ("));
    plugin(&[&["check", "mine/mine.wasm"], more].concat())
}

/// The files that a step of a template names.
const FILES: [&str; 4] = ["--input", "data=text", "--output", "counts=counts"];

#[test]
fn a_step_in_python_is_built() {
    let python = std::env::var_os("ASSAY_TEST_CLIENTS").map(PathBuf::from);
    let python = python.expect("tests/run sets ASSAY_TEST_CLIENTS to a Python with the packages of tests/clients");
    let out = build_and_check(python.parent().expect("a folder"), "python", "step", &FILES);
    assert!(out.contains("mine 1.0.0 (step)") && out.ends_with("all laws hold\n"), "{out}");
}

#[test]
fn every_plugin_in_javascript_is_built() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(QJS);
    let tools = folder.join("node_modules/.bin");
    if !tools.join("componentize-qjs").is_file() {
        std::fs::create_dir_all(&folder).expect("a folder");
        let args = ["install", "--no-audit", "--no-fund", "--prefix"];
        let installed = Command::new("npm").args(args).arg(&folder).arg(QJS).status();
        assert!(installed.expect("npm is installed").success(), "npm cannot install {QJS}");
    }
    for purpose in ["dataset", "curriculum", "metric", "searcher"] {
        let out = build_and_check(&tools, "javascript", purpose, &[]);
        assert!(out.contains(&format!("mine 1.0.0 ({purpose})")) && out.ends_with("all laws hold\n"), "{out}");
    }
    assert!(build_and_check(&tools, "javascript", "step", &FILES).ends_with("all laws hold\n"));
}
