//! A sweep as a factorial experiment: main effects, interactions and trends of its axes.

mod analysis;
mod design;
mod importance;
pub(crate) mod linear;

pub use analysis::{Analysis, Effect, LevelEffect, Trend, analyse};
pub use design::{Axis, FactorialObservation};
pub use importance::{Importance, VarianceShare, variance_shares};
