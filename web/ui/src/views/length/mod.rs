//! A metric over the length of sequences: families on logarithmic axes, the exponents of their power laws, and where they cross.

pub(crate) mod families;
pub(crate) mod fits;
pub(crate) mod plot;
