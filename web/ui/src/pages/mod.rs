//! The pages, a folder each: its handler, its view and its template.

pub(crate) mod api;
pub(crate) mod artifact;
pub(crate) mod audit;
pub(crate) mod cell;
pub(crate) mod claims;
pub(crate) mod compare;
pub(crate) mod error;
pub(crate) mod length;
pub(crate) mod regressions;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod sweep;
pub(crate) mod task;
pub(crate) mod workers;
