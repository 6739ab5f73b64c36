//! The pages, a folder each: its handler, its view and its template.

pub(crate) mod aggregate;
pub(crate) mod api;
pub(crate) mod artifact;
pub(crate) mod audit;
pub(crate) mod cell;
pub(crate) mod claims;
pub(crate) mod compare;
pub(crate) mod editor;
pub(crate) mod error;
pub(crate) mod importance;
pub(crate) mod length;
pub(crate) mod machine;
pub(crate) mod models;
pub(crate) mod notes;
pub(crate) mod parallel;
pub(crate) mod pareto;
pub(crate) mod regressions;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod sweep;
pub(crate) mod task;
