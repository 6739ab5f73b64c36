//! Matrix products: operands, packing, the kernels of each instruction set, and how products are split over threads.

pub(crate) mod matrix;
pub(crate) mod packed;

pub(crate) mod epilogue;

#[cfg(target_arch = "x86_64")]
pub(crate) mod kernel512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod kernel_avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod pack512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod pack_avx2;

#[cfg(target_arch = "x86_64")]
pub(crate) mod blocking;

pub(crate) mod product;
pub(crate) mod weights;

#[cfg(target_arch = "x86_64")]
pub(crate) mod bytes_avx2;
pub(crate) mod dots;
pub(crate) mod vnni;
