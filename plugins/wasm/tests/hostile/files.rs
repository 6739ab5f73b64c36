//! Files that are not plugins of this interface.

use assay_protocol::{PluginLimit, PluginLimits};

use crate::guests::{dataset, failure_of, load, load_file};

#[track_caller]
fn refused(bytes: &[u8], message: &str) {
    let failure = failure_of(load(bytes, PluginLimits::default()));
    assert_eq!((failure.plugin.as_str(), failure.function.as_str()), ("evil", "load"));
    assert!(failure.message.contains(message), "{failure}");
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text is WebAssembly")
}

#[test]
fn files_that_are_not_components_are_refused() {
    refused(&component("(module)"), "is a core module, not a component");
    refused(b"\x7fELF\x02\x01\x01", "is a precompiled file, which is never loaded");
    refused(b"(component)", "is not WebAssembly");
    refused(b"", "is not WebAssembly");
    refused(b"\0asm\x02\0\0\0", "is WebAssembly of an unknown version");
    let whole = dataset("", "", "");
    refused(&whole[..whole.len() / 2], "cannot be compiled");
    let mut damaged = whole.clone();
    damaged[whole.len() / 3..].iter_mut().for_each(|byte| *byte ^= 0x55);
    refused(&damaged, "cannot be compiled");
}

#[test]
fn imports_and_versions_are_refused_by_name() {
    refused(
        &component(r#"(component (import "foo:bar/baz@1.0.0" (instance (export "f" (func)))))"#),
        "imports `foo:bar/baz@1.0.0`, which does not exist",
    );
    refused(
        &component(r#"(component (import "wasi:clocks/wall-clock@0.2.0" (instance (export "now" (func)))))"#),
        "imports `wasi:clocks/wall-clock@0.2.0`: plugins have no clock, randomness, files or network",
    );
    refused(
        &component(r#"(component (import "assay:plugin/host@0.2.0" (instance (export "log" (func)))))"#),
        "was built for `assay:plugin/host@0.2.0`; this Assay has assay:plugin@0.1.0",
    );
    refused(
        &component(r#"(component (instance $i) (export "assay:plugin/dataset@0.9.1" (instance $i)))"#),
        "was built for `assay:plugin/dataset@0.9.1`; this Assay has assay:plugin@0.1.0",
    );
    refused(
        &component("(component)"),
        "exports none of `dataset`, `curriculum`, `metric`, `step`, `searcher`, but nothing",
    );
    refused(
        &component(r#"(component (instance $i) (export "assay:plugin/dataset@0.1.0" (instance $i)))"#),
        "does not export `assay:plugin/plugin@0.1.0`",
    );
}

#[test]
fn a_function_that_is_missing_or_another_is_refused() {
    let empty = r#"(component (instance $i) (export "assay:plugin/dataset@0.1.0" (instance $i))
        (instance $j) (export "assay:plugin/plugin@0.1.0" (instance $j)))"#;
    refused(&component(empty), "does not exist: the plugin does not export it from `assay:plugin/plugin@0.1.0`");
    // `host` of the right version with another `log`.
    let other = r#"(component (import "assay:plugin/host@0.1.0" (instance (export "log" (func (param "x" u32)))))
        (instance $i) (export "assay:plugin/dataset@0.1.0" (instance $i))
        (instance $j) (export "assay:plugin/plugin@0.1.0" (instance $j)))"#;
    refused(&component(other), "cannot be started");
}

#[test]
fn core_instances_have_a_limit() {
    let component_with = |count: usize| {
        let instances = "(core instance (instantiate $m))".repeat(count);
        component(&format!(
            r#"(component (core module $m) {instances}
            (instance $i) (export "assay:plugin/dataset@0.1.0" (instance $i))
            (instance $j) (export "assay:plugin/plugin@0.1.0" (instance $j)))"#
        ))
    };
    // The missing function is detected after the instances were started.
    refused(&component_with(100), "does not exist: the plugin does not export it from `assay:plugin/plugin@0.1.0`");
    refused(&component_with(101), "resource limit exceeded: instance count too high at 101");
}

#[test]
fn a_file_has_a_size_limit_and_must_be_readable() {
    let whole = dataset("", "", "");
    let limits = PluginLimits { file: 100, ..PluginLimits::default() };
    let failure = failure_of(load(&whole, limits));
    assert_eq!(failure.limit, Some(PluginLimit::File), "{failure}");
    let folder = tempfile::tempdir().unwrap();
    for file in [folder.path().join("none.wasm"), folder.path().to_owned()] {
        let failure = failure_of(load_file(&file, PluginLimits::default()));
        assert!(failure.message.contains("cannot be read"), "{failure}");
    }
}
