//! Tests of the store as a whole.

mod artifacts;
mod crashes;
mod dump;
mod lifecycle;
mod model;
mod neighbours;
mod opening;
mod story;
mod volume;
