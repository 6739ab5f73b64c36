//! `assay rm`: runs are removed from the store.

use std::path::Path;
use std::process::ExitCode;

use assay_spec::printable;
use assay_store::Store;

use crate::cli::{CommandError, RmArgs};
use crate::terminal::{command_line, print_line};

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
        print_line(format_args!("run {run} ({}) was removed", printable(&removed.name)));
        for heir in removed.passed_on {
            print_line(format_args!(
                "  run {} used its result from the cache: its task {} now keeps that attempt",
                heir.run, heir.ix
            ));
        }
    }
    store.close().await;
    print_line(format_args!("`{}` shows which files are no longer referred to", command_line(home, &["gc"])));
    Ok(ExitCode::SUCCESS)
}
