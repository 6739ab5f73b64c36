//! The `assay` binary: the command line in `cli`, one file for each subcommand in `commands`, what a person sees while
//! a run in progress in `progress`, a stored run in `record`, its output in `report` and `tables`, and the step kinds as a
//! person reads them in `reference`.
//!
//! Results and other requested output go to standard output; progress and errors go to standard error.

mod claims;
mod cli;
mod commands;
mod commits;
mod exit;
mod git;
mod lab_args;
mod local_node;
mod progress;
mod record;
mod reference;
mod remote;
mod report;
mod signals;
mod tables;
mod terminal;
mod workflow_plugins;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::parse_and_run() {
        Ok(code) => code,
        Err(error) => {
            terminal::print_line(format_args!("{}: {error}", console::style("error").for_stderr().red().bold()));
            ExitCode::from(exit::code_of_error(&error))
        }
    }
}
