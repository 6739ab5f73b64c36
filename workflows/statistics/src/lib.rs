//! Intervals, outliers, comparisons and corrections: the statistics of experiments.
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
//! Reading order: [`describe`] for the plain figures, [`outliers`], then the intervals in [`student`], [`bootstrap`]
//! and [`proportion`], which all give an [`Estimate`]; [`rank`] and [`correction`] for tests; [`compare`] puts them
//! together; [`mod@format`] prints the results for people.

pub mod bootstrap;
pub mod compare;
pub mod correction;
pub mod describe;
mod error;
mod estimate;
pub mod format;
pub mod outliers;
pub mod power;
pub mod proportion;
pub mod random;
pub mod rank;
pub mod special;
pub mod student;
mod summary;

pub use bootstrap::Bootstrap;
pub use compare::{Comparison, Direction, Rule, Test, Verdict};
pub use correction::holm;
pub use describe::{mean, median, quantile, standard_deviation, variance};
pub use error::StatisticsError;
pub use estimate::{Estimate, Interval, Method};
pub use outliers::{Fences, Trimmed, tukey};
pub use power::exponent;
pub use proportion::wilson;
pub use random::Random;
pub use summary::{Summary, replicates, summarize};
