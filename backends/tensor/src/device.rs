//! The handle on a backend that every tensor carries.

use std::fmt;
use std::sync::Arc;

use crate::kernels::{DeviceInfo, Kernels};

/// A cheap handle on a backend. Two handles are equal if they are clones of one.
#[derive(Clone)]
pub struct Device(Arc<dyn Kernels>);

impl Device {
    /// A device that computes with `kernels`.
    pub fn new(kernels: impl Kernels) -> Device {
        Device(Arc::new(kernels))
    }

    /// The backend's name, such as `cpu`.
    pub fn name(&self) -> String {
        self.info().name
    }

    /// What the device is.
    pub fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    /// The kernels themselves, below shapes' checks and the tape.
    #[inline]
    pub fn kernels(&self) -> &dyn Kernels {
        &*self.0
    }
}

impl PartialEq for Device {
    #[inline]
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}
