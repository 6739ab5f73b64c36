//! The options of `assay results`.

use clap::{Args, ValueEnum};

/// `assay results`
#[derive(Args)]
pub struct ResultsArgs {
    /// The run's number, or `latest`
    pub run: String,
    /// The format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Only these metrics, separated by commas; `*` stands for any text
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub metrics: Vec<String>,
}

/// The formats of a table of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For a terminal
    Table,
    /// For spreadsheets
    Csv,
    /// For programs
    Json,
    /// For documents
    Markdown,
}
