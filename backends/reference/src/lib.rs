//! The reference backend: plain loops in f64, the specification of every kernel.
