//! `assay rm`: runs are removed from the store.

use std::path::Path;
use std::process::ExitCode;

use assay_store::Store;

use crate::cli::{CommandError, RmArgs};

pub async fn run(home: &Path, args: &RmArgs) -> Result<ExitCode, CommandError> {
    let reader = super::existing_store(home).await?;
    let mut runs = Vec::new();
    for text in &args.runs {
        runs.push(super::find_run(&reader, text).await?);
    }
    reader.close().await;
    let store = Store::open(home).await?;
    for run in runs {
        let removed = store.remove_run(run).await?;
        eprintln!("run {run} ({}) was removed", removed.name);
        for heir in removed.passed_on {
            eprintln!("  run {} was answered from it: its task {} now keeps that attempt", heir.run, heir.ix);
        }
    }
    store.close().await;
    eprintln!("`assay gc` shows which files are no longer referred to");
    Ok(ExitCode::SUCCESS)
}
