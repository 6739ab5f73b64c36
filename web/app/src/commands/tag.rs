//! `assay tag`: what a person says of a run.

use std::path::Path;
use std::process::ExitCode;

use assay_spec::{printable, printable_lines};
use assay_store::Store;

use crate::cli::{CommandError, TagArgs};

pub async fn run(home: &Path, args: TagArgs) -> Result<ExitCode, CommandError> {
    let reader = super::existing_store(home).await?;
    let run = super::find_run(&reader, &args.run).await?;
    let summary = if args.tags.is_empty() && args.remove.is_empty() && args.note.is_none() {
        reader.run(run).await?.ok_or_else(|| format!("run {run} is gone"))?.summary
    } else {
        reader.close().await;
        let store = Store::open(home).await?;
        let summary = store.mark_run(run, &args.tags, &args.remove, args.note).await;
        store.close().await;
        summary?
    };
    super::print_out(&format!("run {run}: {}", printable(&summary.tags.join(" "))))?;
    if !summary.note.is_empty() {
        super::print_out(&printable_lines(&summary.note))?;
    }
    Ok(ExitCode::SUCCESS)
}
