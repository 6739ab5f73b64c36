//! `dataset: table`: the records of a CSV, TSV, JSON Lines, Parquet or Arrow file, of a folder of JSON files, or of a folder in the layout
//! of Hugging Face, byte by byte or by a tokenizer, with their labels or for a language model.
//!
//! A table is read twice and never held as a whole. The first pass collects labels and lengths, from which the records of each split are
//! chosen. The second pass reads the text of the chosen records. Both need about 25 bytes for each record of the table (250 MB for 10
//! million), in addition to the dataset and the part of the file in memory: for Parquet the selected columns of one row group, for Arrow
//! a whole batch.
//!
//! A pair of texts becomes one sequence, with the token `<sep>` between them; each text is truncated to half of `max_length`. With
//! `pairs: separate` it remains a pair.

mod config;
mod read;
mod record;
mod source;
#[cfg(test)]
mod tests;

pub use config::Table;
