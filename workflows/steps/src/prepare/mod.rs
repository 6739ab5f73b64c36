//! `prepare`: makes a dataset out of nothing but a seed.

mod listops;
mod step;

pub use step::Prepare;
