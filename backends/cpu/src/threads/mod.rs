//! The threads of a device and how work is split over them.

pub(crate) mod denormals;
pub(crate) mod sync;

pub(crate) mod pool;
pub(crate) mod work_stealing;

pub(crate) mod split;
