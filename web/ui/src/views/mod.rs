//! What is shown, made from plain data by pure functions: no store, no clock, no HTML.

pub(crate) mod curves;
pub(crate) mod figure;
pub(crate) mod format;
pub(crate) mod graph;
pub(crate) mod interval;
pub(crate) mod numbers;
pub(crate) mod results;
pub(crate) mod states;
pub(crate) mod sweep;
