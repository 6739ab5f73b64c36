//! `claims:`: statements about the results of a workflow, each with the check that tests it.
//!
//! [`model`] is what a claim means, [`constant`] evaluates formulas of numbers alone, [`formula`] is the language of `check` and `arithmetic`, [`read`] reads the section,
//! and [`resolve`] looks up every job, axis, value, metric and unit that a check names.

mod constant;
pub(crate) mod formula;
mod lexer;
mod model;
mod quantity;
mod read;
mod resolve;
mod schema;

pub use formula::parse as parse_formula;
pub use model::{
    Axis, CellRef, Check, Claim, Claimed, Comparison, Formula, FormulaError, Function, Operator, Selection, Tolerance,
};
pub(crate) use resolve::{ClaimScope, JobView};
pub(crate) use schema::claims_schema;
