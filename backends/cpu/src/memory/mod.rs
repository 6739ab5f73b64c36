//! The memory of a device: mappings, blocks that are used again, scratch of threads, and the storage of arrays.

pub(crate) mod pages;
pub(crate) mod small_blocks;

pub(crate) mod blocks;
pub(crate) mod scratch;

pub(crate) mod packed;
pub(crate) mod storage;
