//! The operations other than matrix products, one kind in each file.

pub(crate) mod strides;

pub(crate) mod convert;
pub(crate) mod gather;
pub(crate) mod movement;

pub(crate) mod elementwise;
pub(crate) mod reduce;
pub(crate) mod selection;

pub(crate) mod norm;
pub(crate) mod softmax;

pub(crate) mod bf16;
pub(crate) mod feed_forward;
pub(crate) mod int8;
pub(crate) mod linear;

pub(crate) mod attention;
pub(crate) mod heads;
pub(crate) mod token;

pub(crate) mod scan;
#[cfg(target_arch = "x86_64")]
pub(crate) mod scan_tile;

pub(crate) mod adamw;
