//! `assay gc`: the files that no run refers to.

use std::path::Path;
use std::process::ExitCode;

use assay_statistics::format;
use assay_store::Store;

use crate::cli::{CommandError, GcArgs};
use crate::tables::format_table;
use crate::terminal::{command_line, print_line};

pub async fn run(home: &Path, args: &GcArgs) -> Result<ExitCode, CommandError> {
    let garbage = if args.delete {
        // Opened for reading first: a store is not made only to be cleared.
        super::existing_store(home).await?.close().await;
        let store = Store::open(home).await?;
        let garbage = store.remove_garbage().await;
        store.close().await;
        garbage?
    } else {
        super::existing_store(home).await?.find_garbage().await?
    };
    if args.json {
        let mut value = serde_json::to_value(&garbage)?;
        value["deleted"] = args.delete.into();
        super::print_json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    let all = || garbage.artifacts.iter().chain(&garbage.segments);
    if all().next().is_some() {
        let head = ["file", "size"].map(str::to_owned);
        let rows: Vec<Vec<String>> =
            all().map(|file| vec![file.name.clone(), format::quantity(file.bytes as f64, "B")]).collect();
        super::print_out(&format_table(&head, &rows))?;
    }
    let size = format::quantity(all().map(|file| file.bytes).sum::<u64>() as f64, "B");
    let what = format!("{} artifacts and {} metric segments", garbage.artifacts.len(), garbage.segments.len());
    match args.delete {
        true => print_line(format_args!("{what} were removed ({size})")),
        false => {
            let command = command_line(home, &["gc", "--delete"]);
            print_line(format_args!("{what} are not referred to by any run ({size}); `{command}` removes them"));
        }
    }
    if garbage.kept > 0 {
        print_line(format_args!("{} files were kept that a run in progress may have made", garbage.kept));
    }
    Ok(ExitCode::SUCCESS)
}
