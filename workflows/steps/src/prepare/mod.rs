//! `prepare`: makes a dataset, out of nothing but a seed or out of a local text.
//!
//! A dataset is a file: `listops.rs`, `copy.rs`, `recall.rs`, `text.rs`. Each makes a `Made`, which `step.rs` describes,
//! reports and writes.

mod copy;
mod listops;
mod made;
mod planned;
mod recall;
mod step;
mod text;

pub use planned::plan_task;
pub use step::Prepare;
