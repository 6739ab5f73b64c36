//! Matrix products: operands, packing, the kernels of each instruction set, and how products are split over threads.

pub(crate) mod matrix;
pub(crate) mod packed;

pub(crate) mod epilogue;

#[cfg(target_arch = "x86_64")]
pub(crate) mod kernel512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod pack512;

#[cfg(target_arch = "x86_64")]
pub(crate) mod blocking512;

pub(crate) mod product;
pub(crate) mod weights;

pub(crate) mod dots;
pub(crate) mod vnni;
