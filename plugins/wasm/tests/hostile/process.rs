//! Failures of the process itself: it is killed, it is too slow, or it is not a plugin host.

use assay_host::{PluginCommand, PluginProcess};
use assay_protocol::{PluginLimit, PluginLimits, PluginSplit};

use crate::guests::{dataset, failure_of, load, write_file};

#[test]
fn a_process_that_is_killed_costs_an_error() {
    let mut process = load(&dataset("", "", ""), PluginLimits::default()).unwrap();
    process.open_dataset(0, "{}").unwrap();
    let killed = std::process::Command::new("kill").args(["-9", &process.process_id().to_string()]).status().unwrap();
    assert!(killed.success());
    let failure = failure_of(process.batch(0, 1, PluginSplit::Train, 0, 2));
    assert_eq!((failure.plugin.as_str(), failure.function.as_str()), ("evil", "dataset.batch"));
    assert!(failure.message.contains("ended its process (signal: 9 (SIGKILL))"), "{failure}");
    assert_eq!(failure_of(process.open_dataset(0, "{}")), failure, "later calls fail in the same way");
}

/// A function of many nested additions, which takes more than a second to compile.
fn compile_bomb() -> Vec<u8> {
    let mut body = String::new();
    for at in 0..60_000 {
        body.push_str(&format!(
            "(local.set {} (i32.add (local.get {}) (i32.mul (local.get {}) (i32.const {at}))))\n",
            at % 997 + 2,
            at % 991 + 2,
            at % 983 + 2
        ));
    }
    let locals = "i32 ".repeat(1000);
    let functions: String =
        (0..20).map(|at| format!("(func $f{at} (param i32 i32) (local {locals}) {body})")).collect();
    dataset("", "", &functions)
}

#[test]
fn a_compile_bomb_costs_a_process() {
    let limits = PluginLimits { compile_seconds: 1, ..PluginLimits::default() };
    let failure = failure_of(load(&compile_bomb(), limits));
    assert_eq!((failure.function.as_str(), failure.limit), ("load", Some(PluginLimit::CompileTime)), "{failure}");
    assert!(failure.message.contains("took longer than 1 s to compile"), "{failure}");
}

#[test]
fn a_program_that_is_not_a_plugin_host_is_refused() {
    let (_folder, file) = write_file(&dataset("", "", ""));
    let start = |program: &str, arguments: &[&str]| {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let command = PluginCommand { program: program.into(), arguments };
        failure_of(PluginProcess::start(&command, "evil", &file, PluginLimits::default())).message
    };
    assert!(start("/nonexistent", &[]).contains("cannot be run: `/nonexistent`"));
    let message = start("/bin/sh", &["-c", "echo hello world; cat > /dev/null"]);
    assert!(message.contains("text was received instead of a message"), "{message}");
    let message = start("/bin/sh", &["-c", "exit 3"]);
    assert!(message.contains("ended its process (exit status: 3)"), "{message}");
}
