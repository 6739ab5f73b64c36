//! A folder uses only folders to its left.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use assay_tests::root;
use serde_json::Value;

/// The layers, from left to right.
const LAYERS: [&str; 7] = ["backends", "workflows", "plugins", "orchestrator", "storage", "web", "tests"];

/// Only these crates may use what is behind a wall: a dependency, and the crates that own it.
const WALLS: &[(&str, &[&str])] = &[
    // Only storage knows SQL. Only metrics knows polars, and only the readers of datasets use its parts.
    ("sea-orm", &["assay-schema", "assay-store"]),
    ("sea-orm-migration", &["assay-schema", "assay-store"]),
    ("polars", &["assay-metrics"]),
    ("polars-arrow", &["assay-data"]),
    ("polars-error", &["assay-data"]),
    ("polars-parquet", &["assay-data"]),
    // Only the CUDA backend knows CUDA.
    ("cudarc", &["assay-cuda"]),
    ("tract-onnx", &["assay-steps"]),
    // Only the PyTorch backend knows libtorch, and only its executor is linked with it.
    ("tch", &["assay-torch"]),
    ("assay-torch", &["assay-executor-torch"]),
    // Only its own executor is built with candle.
    ("candle-core", &["assay-candle"]),
    ("candle-nn", &["assay-candle"]),
    ("assay-candle", &["assay-executor-candle"]),
    // Only the process of a plugin runs WebAssembly.
    ("wasmtime", &["assay-wasm"]),
    ("axum", &["assay-ui"]),
    // Only plugins/native names the concrete backends, besides the suite that tests them.
    ("assay-cpu", &["assay-native", "assay-conformance", "assay-models", "assay-steps"]),
    ("assay-cuda", &["assay-gpu-check", "assay-native"]),
    ("assay-rocm", &["assay-executor-rocm"]),
    ("assay-reference", &["assay-native", "assay-conformance", "assay-models", "assay-steps"]),
];

struct Package {
    layer: usize,
    folder: String,
    /// Name, and whether it is for tests only.
    dependencies: Vec<(String, bool)>,
}

fn packages() -> BTreeMap<String, Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo describes the workspace");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages is a list");
    packages.iter().map(|package| (text(&package["name"]), read(package))).collect()
}

fn read(package: &Value) -> Package {
    let manifest = text(&package["manifest_path"]);
    let folder = Path::new(&manifest).parent().and_then(|folder| folder.strip_prefix(root()).ok());
    let folder = folder.expect("every crate lies in the repository").display().to_string();
    let first = folder.split('/').next().unwrap_or_default();
    let layer = LAYERS.iter().position(|layer| *layer == first);
    let dependencies = package["dependencies"].as_array().expect("dependencies is a list");
    Package {
        layer: layer.unwrap_or_else(|| panic!("`{folder}` is in none of the layers {LAYERS:?}")),
        folder,
        dependencies: dependencies.iter().map(|d| (text(&d["name"]), d["kind"] == "dev")).collect(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_folder_uses_only_folders_to_its_left() {
    let packages = packages();
    let mut wrong = Vec::new();
    for (name, package) in &packages {
        for (used, _) in &package.dependencies {
            if let Some(other) = packages.get(used).filter(|other| other.layer > package.layer) {
                wrong.push(format!("{} ({name}) uses {} ({used})", package.folder, other.folder));
            }
        }
    }
    assert!(wrong.is_empty(), "these use a folder to their right:\n{}", wrong.join("\n"));
}

#[test]
fn what_is_behind_a_wall_is_used_by_its_owners_only() {
    let packages = packages();
    for (dependency, owners) in WALLS {
        for (name, package) in &packages {
            // Numbers are tested against the oracle below the walls too.
            let for_tests = |dev: bool| dev && (dependency.starts_with("assay-") || package.folder == "tests");
            let used = package.dependencies.iter().any(|(used, dev)| used == dependency && !for_tests(*dev));
            let allowed = owners.contains(&name.as_str());
            assert!(!used || allowed, "`{name}` uses `{dependency}`, which only {owners:?} may");
        }
    }
}

#[test]
fn the_protocol_and_the_core_stay_light() {
    let packages = packages();
    let light = ["serde", "serde_json", "thiserror", "assay-protocol"];
    for name in ["assay-protocol", "assay-core"] {
        for (used, dev) in &packages[name].dependencies {
            assert!(
                *dev || light.contains(&used.as_str()),
                "`{name}` uses `{used}`: it holds types and pure logic only"
            );
        }
    }
}
