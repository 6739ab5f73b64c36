//! `claims:`: statements about the results of a workflow, each with the check that tests it.
//!
//! [`model`] has the types of claims, [`constant`] evaluates formulas that contain only numbers, [`formula`] parses `check` and
//! `arithmetic`, [`read`] reads the section, and [`resolve`] looks up every job, axis, value, metric and unit in a check.

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
