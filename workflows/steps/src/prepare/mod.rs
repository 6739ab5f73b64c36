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
mod source;
mod splits;
mod step;
mod table;
mod text;

pub use planned::plan_task;
pub use step::Prepare;
