//! `backend: candle`: the quickstart's models through candle, by the executor beside the binary.

use crate::support::{Home, Ran};

/// The models of the quickstart at their size there. One TEN is in both precisions.
const WORKFLOW: &str = "
name: candle
params:
  models:
    ten-16-16: {family: ten, dim: 48, layers: 2, states: 16, chunk: 16, pool: max}
    ten-32-64: {family: ten, dim: 48, layers: 2, states: 32, chunk: 64, pool: max}
    transformer: {family: transformer, dim: 48, layers: 2, heads: 4, positions: rope, pool: max}
    pulse: {family: pulse, dim: 16, layers: 1, states: 4, chunk: 8, heads: 2, pool: last}
jobs:
  data:
    uses: prepare
    with: {dataset: listops, train: 400, valid: 40, test: 40, min_length: 8, max_length: 32, max_depth: 4, max_args: 5, seed: 17}
  train:
    needs: [data]
    strategy:
      matrix:
        backend: [cpu, candle]
        model: [ten-16-16, ten-32-64, transformer, pulse]
        precision: [f32]
        include: [{backend: cpu, model: ten-16-16, precision: bf16}, {backend: candle, model: ten-16-16, precision: bf16}]
    resources: [{backend: \"${{ matrix.backend }}\", cpus: 1}]
    uses: train
    with:
      data: \"${{ needs.data.outputs.dataset }}\"
      model: \"${{ params.models[matrix.model] }}\"
      precision: \"${{ matrix.precision }}\"
      optimizer: {name: adamw, lr: 3e-3, clip_norm: 1.0}
      batch_size: 8
      curriculum: [{until_step: 30, max_length: 32}]
      log_every: 30
      seed: 17
";

/// From the same parameters, samples and masks both backends train the same model, up to the rounding of thirty updates.
#[test]
fn candle_trains_what_our_own_kernels_train() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let file = folder.path().join("candle.yaml");
    std::fs::write(&file, WORKFLOW).unwrap();
    let ran = Ran::of(home.output(&["run", &file.display().to_string(), "--json"]));
    ran.succeeded();
    let f32 = ["ten-16-16", "ten-32-64", "transformer", "pulse"].map(|model| (model, "f32", 1e-4));
    for (model, precision, limit) in f32.into_iter().chain([("ten-16-16", "bf16", 5e-3)]) {
        let metric = |backend: &str, name: &str| {
            let address = format!("train[backend={backend},model={model},precision={precision}]");
            ran.task(&address)["metrics"][name].as_f64().unwrap_or_else(|| panic!("{address} has no {name}"))
        };
        for name in ["train/loss", "valid/loss"] {
            let (ours, theirs) = (metric("cpu", name), metric("candle", name));
            assert!((ours - theirs).abs() < limit * ours, "{name} of {model} in {precision}: {ours} and {theirs}");
        }
    }
}

/// Every step of the quickstart, made small: training, evaluation, int8, export and benchmark.
#[test]
fn the_quickstart_runs_on_candle() {
    let small = ["backend=candle", "examples=32", "steps=4", "dim=8", "batch_size=4", "replicates=1"];
    let options: Vec<&str> = small.iter().flat_map(|parameter| ["-P", parameter]).collect();
    let ran = Home::new().run("quickstart.yaml", &options);
    let tasks = ran.succeeded().tasks();
    let trained = tasks.iter().filter(|task| task["metrics"]["train/loss"].as_f64().is_some_and(f64::is_finite));
    assert!(trained.count() >= 5, "{:#}", ran.json);
}
