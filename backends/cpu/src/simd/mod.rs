//! Arithmetic on vectors. The instruction set is chosen at run time and changes no bit of a result.

pub(crate) mod instructions;
pub(crate) mod reduction;

pub(crate) mod math;

pub(crate) mod lanes;
pub(crate) mod rows;

pub(crate) mod gelu;
