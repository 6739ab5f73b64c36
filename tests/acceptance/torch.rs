//! `backend: torch`: the same models through libtorch, with the executor in the folder of the binary.

use crate::support::{Home, Ran};

const WORKFLOW: &str = "
name: torch
params:
  models:
    ten: {family: ten, dim: 16, layers: 1, states: 8, chunk: 8, pool: last}
    selective: {family: ten, dim: 16, layers: 1, states: 8, chunk: 8, pool: last, selective: true, truncate: false}
    pulse: {family: pulse, dim: 16, layers: 1, states: 4, chunk: 8, heads: 2, pool: last}
    transformer: {family: transformer, dim: 16, layers: 1, heads: 2, pool: last, dropout: 0.1}
jobs:
  data:
    uses: prepare
    with: {dataset: listops, train: 200, valid: 40, test: 40, max_length: 24, seed: 3}
  train:
    needs: [data]
    strategy:
      matrix: {backend: [cpu, torch], model: [ten, selective, pulse, transformer], precision: [f32, bf16]}
    resources: [{backend: \"${{ matrix.backend }}\", cpus: 1}]
    uses: train
    with:
      data: \"${{ needs.data.outputs.dataset }}\"
      model: \"${{ params.models[matrix.model] }}\"
      precision: \"${{ matrix.precision }}\"
      optimizer: {name: adamw, lr: 3e-3, clip_norm: 1.0}
      batch_size: 8
      curriculum: [{until_step: 30, max_length: 24}]
      log_every: 30
";

/// With the same parameters, samples and masks, both backends train the same model, up to the rounding of thirty updates.
#[test]
fn libtorch_trains_what_our_own_kernels_train() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let file = folder.path().join("torch.yaml");
    std::fs::write(&file, WORKFLOW).unwrap();
    let ran = Ran::of(home.output(&["run", &file.display().to_string(), "--json"]));
    ran.succeeded();
    for model in ["ten", "selective", "pulse", "transformer"] {
        for precision in ["f32", "bf16"] {
            let loss = |backend: &str| {
                let address = format!("train[backend={backend},model={model},precision={precision}]");
                ran.task(&address)["metrics"]["train/loss"].as_f64().unwrap_or_else(|| panic!("{address} has no loss"))
            };
            let (ours, theirs) = (loss("cpu"), loss("torch"));
            let limit = if precision == "f32" { 1e-4 } else { 5e-3 };
            assert!((ours - theirs).abs() < limit * ours, "{model} in {precision}: {ours} and {theirs}");
        }
    }
}
