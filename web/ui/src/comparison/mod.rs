//! Comparisons of runs, jobs and cells: what differs in their configs, and by how much their metrics differ. The page `/compare` and
//! `assay compare` take all of it from here.

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
