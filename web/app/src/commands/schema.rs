//! `assay schema`: the JSON Schema of the workflow file, or the reference pages of the book.

use std::process::ExitCode;

use crate::cli::{CommandError, SchemaArgs};
use crate::reference;

pub fn run(args: &SchemaArgs) -> Result<ExitCode, CommandError> {
    let kinds = super::step_kinds();
    match &args.pages {
        Some(folder) => {
            let shown = folder.display();
            let count = reference::write_pages(kinds, folder)
                .map_err(|error| format!("cannot write the pages into `{shown}`: {error}"))?;
            super::print_out(&format!("{count} pages in {shown}"))?;
        }
        None => super::print_json(&assay_spec::json_schema(kinds))?,
    }
    Ok(ExitCode::SUCCESS)
}
