//! `assay executor`: this process becomes an executor, or runs one step alone.

use std::process::ExitCode;

use crate::cli::{CommandError, ExecutorArgs};

pub fn run(args: &ExecutorArgs) -> Result<ExitCode, CommandError> {
    Ok(assay_native::run_executor(&args.backend, args.step.as_deref()))
}
