//! Comparisons of runs, jobs and cells: the differences of their configs and of their metrics. The page `/compare` and `assay compare` both
//! use them.

mod configs;
mod difference;
mod metrics;
mod report;
mod side;

pub use configs::ConfigDifference;
pub use difference::{Difference, differences};
pub use metrics::{ComparedMetric, MetricComparison};
pub use report::{CandidateComparison, ComparisonReport, DEFAULT_THRESHOLD, compare_sides};
pub use side::{RunPart, Side, UnknownPart};
