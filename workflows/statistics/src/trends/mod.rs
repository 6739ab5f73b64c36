//! How a quantity grows with another, and where it changes.

pub mod power_law;
