//! `assay artifacts`: the files that a run's tasks made.

use std::path::Path;
use std::process::ExitCode;

use assay_statistics::format;

use crate::cli::{ArtifactsArgs, CommandError};
use crate::tables::format_table;
use crate::terminal::{command_line, print_line};

pub async fn run(home: &Path, args: &ArtifactsArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let run = super::find_run(&store, &args.run).await?;
    let artifacts = store.artifacts(run).await?;
    if args.json {
        super::print_json(&serde_json::json!({ "artifacts": artifacts }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if artifacts.is_empty() {
        print_line(format_args!("no task of run {run} has made a file yet"));
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["task", "output", "file", "size", "hash"].map(str::to_owned);
    let rows = artifacts.iter().map(|artifact| {
        let missing = if artifact.present { "" } else { "  (missing)" };
        let hash = format!("{}{missing}", artifact.hash.get(..16).unwrap_or(&artifact.hash));
        let size = format::quantity(artifact.bytes as f64, "B");
        vec![artifact.address.clone(), artifact.output.clone(), artifact.name.clone(), size, hash]
    });
    super::print_out(&format_table(&head, &rows.collect::<Vec<_>>()))?;
    let command = command_line(home, &["get", &run.to_string(), "TASK", "OUTPUT"]);
    print_line(format_args!("\n`{command}` copies one of them out of the store"));
    Ok(ExitCode::SUCCESS)
}
