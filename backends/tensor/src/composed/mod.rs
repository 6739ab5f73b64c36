//! What the primitives mean that follow from others: their defaults.

mod layers;
mod update;

pub use layers::LEAST_PEAK;
pub(crate) use layers::{adamw, broadcast, linear_int8};
pub use update::clip_factor;
pub(crate) use update::{adamw_all, clip};
