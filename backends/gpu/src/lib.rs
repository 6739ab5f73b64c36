//! What the backends of two GPU vendors share.
//!
//! A vendor is a [`Driver`]: memory, kernels compiled at run time, launches, matrix products, graphs. All else, the
//! kernels themselves included, is here once.

mod driver;
mod images;

pub use driver::{
    Address, Architecture, Argument, Driver, DriverError, Element, Epilogue, Facts, Function, Graph, Launch, Operand,
    Product,
};
pub use images::Source;
