//! Builds hostile guests, and calls them.

use std::path::Path;

use assay_host::{PluginCommand, PluginProcess};
use assay_protocol::{PluginFailure, PluginLimits};
use assay_wasm::{PluginWorld, encode_component};
use tempfile::TempDir;

/// The common parts of these tests' datasets: two sequences of one token. `$extra` and the bodies of `open` and `batch` vary.
///
/// Addresses: 16 `about`, 64 facts, 256 the vocabulary, 512 sequences, 600 tokens, 616 offsets, 632 labels, 1024 texts.
const DATASET: &str = r#"(module
  (import "assay:plugin/host@0.1.0" "log" (func $log (param i32 i32 i32 i32)))
  (memory (export "memory") 2)
  (global $top (mut i32) (i32.const 65536))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    global.get $top
    (global.set $top (i32.add (global.get $top) (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -16)))))
  (func (export "assay:plugin/plugin@0.1.0#describe") (result i32) i32.const 16)
  (func (export "assay:plugin/dataset@0.1.0#open") (param i32 i32) (result i32) OPEN i32.const 64)
  (func (export "assay:plugin/dataset@0.1.0#batch") (param i64 i32 i64 i32) (result i32) BATCH i32.const 512)
  (data (i32.const 16) "\00\04\00\00\04\00\00\00\00\04\00\00\04\00\00\00\00\04\00\00\04\00\00\00\00\04\00\00\00\00\00\00")
  (data (i32.const 64) "\00\00\00\00\00\01\00\00\02\00\00\00\02\00\00\00\04\00\00\00")
  (data (i32.const 256) "\00\04\00\00\01\00\00\00\01\04\00\00\01\00\00\00")
  (data (i32.const 512) "\00\00\00\00\58\02\00\00\02\00\00\00\68\02\00\00\03\00\00\00\78\02\00\00\02\00\00\00")
  (data (i32.const 600) "\00\00\00\00\01\00\00\00")
  (data (i32.const 616) "\00\00\00\00\01\00\00\00\02\00\00\00")
  (data (i32.const 632) "\00\00\00\00\01\00\00\00")
  (data (i32.const 1024) "evil")
  EXTRA)"#;

/// A dataset whose `open` and `batch` run this code before they return, with further definitions.
pub fn dataset(open: &str, batch: &str, extra: &str) -> Vec<u8> {
    let text = DATASET.replace("OPEN", open).replace("BATCH", batch).replace("EXTRA", extra);
    component_of(&text, PluginWorld::Dataset)
}

/// Converts a core module in text form into a component.
pub fn component_of(text: &str, world: PluginWorld) -> Vec<u8> {
    encode_component(&wat::parse_str(text).expect("the text is WebAssembly"), world).expect("the module fits its world")
}

/// A file in a new folder.
pub fn write_file(bytes: &[u8]) -> (TempDir, std::path::PathBuf) {
    let folder = TempDir::new().expect("a folder for the test");
    let file = folder.path().join("evil.wasm");
    std::fs::write(&file, bytes).expect("the file is written");
    (folder, file)
}

/// Loads a file in a new process.
pub fn load_file(file: &Path, limits: PluginLimits) -> Result<PluginProcess, PluginFailure> {
    let command = PluginCommand { program: env!("CARGO_BIN_EXE_assay-plugin-host").into(), arguments: Vec::new() };
    PluginProcess::start(&command, "evil", file, limits)
}

/// Loads a component in a new process.
pub fn load(component: &[u8], limits: PluginLimits) -> Result<PluginProcess, PluginFailure> {
    let (_folder, file) = write_file(component);
    load_file(&file, limits)
}

/// The failure of a call that must fail.
pub fn failure_of<T>(result: Result<T, PluginFailure>) -> PluginFailure {
    match result {
        Ok(_) => panic!("it should have been refused"),
        Err(failure) => failure,
    }
}
