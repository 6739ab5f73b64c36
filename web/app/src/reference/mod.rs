//! The reference: step kinds and the workflow file as a person reads them, for `assay help KIND` in the terminal and for the
//! pages of the book. Everything comes from what the step kinds declare, except for the meanings of metrics and the examples.

mod examples;
mod fields;
mod metrics;
mod pages;
mod terminal;

pub use pages::write_pages;
pub use terminal::describe_kind;
