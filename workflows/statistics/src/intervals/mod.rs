//! Intervals of one quantity: of a mean, a median, a proportion, or any statistic.

pub mod bootstrap;
pub mod proportion;
pub mod student;
