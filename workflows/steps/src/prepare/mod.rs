//! `prepare`: makes a dataset, out of nothing but a seed or out of local files as their authors publish them.
//!
//! Each kind of dataset has its own file, such as `listops.rs` and `images.rs`. Each makes a `PreparedDataset`, which `step.rs`
//! describes, reports and writes. `facts.rs` reports the facts that a person should know before training.

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
