//! Tests of the store as a whole.

mod artifacts;
mod claims;
mod crashes;
mod dump;
mod housekeeping;
mod lifecycle;
mod model;
mod neighbours;
mod opening;
mod story;
mod usage;
mod volume;
