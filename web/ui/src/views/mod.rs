//! What is shown, made from plain data by pure functions: no store, no clock, no HTML.

pub(crate) mod aggregate;
pub(crate) mod bins;
pub(crate) mod brush;
pub(crate) mod curve_plot;
pub(crate) mod curves;
pub(crate) mod format;
pub(crate) mod graph;
pub(crate) mod heat_map;
pub(crate) mod importance;
pub(crate) mod interval;
pub(crate) mod interval_plot;
pub(crate) mod length;
pub(crate) mod marks;
pub(crate) mod models;
pub(crate) mod numbers;
pub(crate) mod parallel;
pub(crate) mod pareto;
pub(crate) mod plot;
pub(crate) mod regressions;
pub(crate) mod results;
pub(crate) mod run_columns;
pub(crate) mod states;
pub(crate) mod strips;
pub(crate) mod sweep;
pub(crate) mod usage;
