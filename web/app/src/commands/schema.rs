//! `assay schema`: the JSON Schema of the workflow file.

use std::process::ExitCode;

use crate::cli::CommandError;

pub fn run() -> Result<ExitCode, CommandError> {
    super::print_json(&assay_spec::json_schema(&super::step_kinds()))?;
    Ok(ExitCode::SUCCESS)
}
