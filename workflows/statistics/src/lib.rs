//! The statistics of experiments: intervals, comparisons, power, factorial analysis, aggregates over tasks, trends.
//!
//! Steps, the dashboard and the command line all take their statistics from here, so that one number never has two
//! uncertainties. What always holds:
//!
//! - A sample that is not finite is refused, with its index; nothing is dropped in silence. Outliers are removed only
//!   where that was asked for, and are counted.
//! - One observation has no interval. [`Estimate::interval`] is then `None`; it is never filled with a guess.
//! - Everything random is drawn from ChaCha8 with a seed that the caller gives: the same samples and seed give the
//!   same bits on every machine.
//! - Quantiles are of Hyndman and Fan's type 7 (R's and NumPy's default) everywhere.
//! - A comparison that the data cannot settle is [`Verdict::CannotTell`]; no winner is drawn.
//!
//! Reading order: [`describe`] for the plain figures, [`outliers`], then [`intervals`], which all give an [`Estimate`];
//! [`comparisons`] for tests, the set of best cells and the power of an experiment; [`factorial`] for the axes of sweeps;
//! [`rliable`] for aggregates over tasks (no command uses them yet), [`trends`] for power laws, crossovers and change points;
//! [`distributions`] for what they rest on; [`mod@format`] prints the results for people.

pub mod comparisons;
pub mod describe;
pub mod distributions;
mod error;
mod estimate;
pub mod factorial;
pub mod format;
pub mod intervals;
pub mod outliers;
pub mod random;
pub mod rliable;
mod summary;
pub mod trends;

pub use comparisons::best::{BestComparison, BestRule, compare_with_best};
pub use comparisons::cells::{ErrorTerm, Observation};
pub use comparisons::compare::{self, Comparison, Direction, Rule, Test, Verdict};
pub use comparisons::correction::{holm, holm_of_tested};
pub use comparisons::pairs::{GroupPair, Pair, PairComparisons, PairDifference, compare_groups, compare_pairs};
pub use comparisons::scale::Scale;
pub use describe::{mean, median, quantile, standard_deviation, variance};
pub use error::StatisticsError;
pub use estimate::{Estimate, Interval, Method};
pub use intervals::bootstrap::Bootstrap;
pub use intervals::proportion::wilson;
pub use outliers::{Fences, Trimmed, tukey};
pub use random::Random;
pub use summary::{Summary, replicates, summarize};
pub use trends::power_law::exponent;
