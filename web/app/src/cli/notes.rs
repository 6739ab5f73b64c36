//! The options of `assay notes`.

use std::path::PathBuf;

use clap::Args;

/// `assay notes`
#[derive(Args)]
pub struct NotesArgs {
    /// The Markdown file; NAME.notes.md belongs to the workflow NAME.yaml
    pub file: PathBuf,
    /// Write the document to this file; `-` for standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}
