//! Sweeps of thousands of cells: the first tasks start before the last ones are resolved, and the run can be stopped.

use std::process::Stdio;

use crate::support::{Home, Ran, signal, wait_for};

#[test]
fn the_first_cells_of_a_large_sweep_run_while_the_others_wait() {
    let (home, folder) = (Home::new(), tempfile::tempdir().expect("a temporary folder"));
    let file = folder.path().join("many.yaml");
    let numbers = (0..4000).map(|n| format!("{n},")).collect::<String>();
    let text = format!(
        "name: many\njobs:\n  data:\n    uses: prepare\n    strategy: {{matrix: {{seed: [{numbers}]}}}}\n    with: {{dataset: listops, \
         train: 5, valid: 2, test: 2, max_length: 24, max_depth: 2, max_args: 4, seed: \"${{{{ matrix.seed }}}}\"}}\n"
    );
    std::fs::write(&file, text).expect("written");
    let mut command = home.command(&["run", &file.display().to_string(), "--json"]);
    let run = command.stdout(Stdio::piped()).spawn().expect("assay starts");
    // When the first tasks have succeeded, most are still waiting and not even resolved.
    wait_for("the first task to succeed", || {
        let runs: serde_json::Value = serde_json::from_slice(&home.output(&["runs", "--json"]).stdout).ok()?;
        let states = &runs["runs"][0]["states"];
        let (succeeded, waiting) = (states["succeeded"].as_u64()?, states["waiting"].as_u64()?);
        (succeeded > 0 && waiting > 0).then_some(())
    });
    signal(run.id(), "INT");
    let ran = Ran::of(run.wait_with_output().expect("assay ends"));
    assert_eq!((ran.state(), ran.code), ("cancelled", Some(130)));
    assert_eq!(ran.tasks().len(), 4000);
}
