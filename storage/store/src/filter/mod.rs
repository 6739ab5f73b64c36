//! The filter of runs: its language, and the SQL that carries it out.

mod condition;
mod literal;
mod parse;
mod select;

pub use condition::RunFilter;
pub use parse::{FilterError, quote_filter_value};
pub(crate) use select::Present;
