//! `prepare`: makes a dataset, either generated from a seed or read from published local files.
//!
//! Each kind of dataset has a separate file, such as `listops.rs` and `images.rs`, which makes a `PreparedDataset`; `step.rs`
//! describes, reports and writes it. `facts.rs` reports facts for people before training.

mod babi;
mod copy;
mod facts;
mod images;
mod listops;
mod lra;
mod pathfinder;
mod planned;
mod plugin;
mod prepared;
mod recall;
mod retrieval;
mod source;
mod splits;
mod step;
mod table;
mod text;
mod tokenizer;
#[cfg(all(test, feature = "tokenizers"))]
mod trained_tests;

pub use planned::plan_task;
#[cfg(feature = "tokenizers")]
pub use source::{LocalFile, MOST_BYTES};
pub use step::Prepare;
