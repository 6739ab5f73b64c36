//! Where libtorch computes: the processor, or a CUDA device.

use assay_tensor::{Device, TensorError};

use crate::kernels::Torch;

/// A device of libtorch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The processor.
    Cpu,
    /// The CUDA device of this number.
    Cuda(usize),
}

impl Place {
    /// The name, as a person writes it: `cpu`, `cuda:0`.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Place::Cpu => "cpu".into(),
            Place::Cuda(index) => format!("cuda:{index}"),
        }
    }

    /// The place of this name.
    ///
    /// # Errors
    /// A fragment that says which places there are.
    pub fn parse(name: &str) -> Result<Place, String> {
        let wanted = if name == "cuda" { "cuda:0" } else { name };
        let there = places();
        let names = || there.iter().map(|place| format!("`{}`", place.name())).collect::<Vec<_>>().join(", ");
        let found = there.iter().find(|place| place.name() == wanted).copied();
        found.ok_or_else(|| format!("libtorch has no device `{name}` here; it has {}", names()))
    }
}

/// Every place that this libtorch can compute at, the quickest first: CUDA devices if it was built for them and they are
/// there, then the processor.
#[must_use]
pub fn places() -> Vec<Place> {
    let devices = if tch::Cuda::is_available() { tch::Cuda::device_count().max(0) as usize } else { 0 };
    (0..devices).map(Place::Cuda).chain([Place::Cpu]).collect()
}

/// A device that computes at `place`, with so many threads where that is the processor. The number is one for the whole
/// process: libtorch has no other.
///
/// # Errors
/// If the number of threads is none.
pub fn device(place: Place, threads: usize) -> Result<Device, TensorError> {
    let count = i32::try_from(threads.max(1))
        .map_err(|_| TensorError::new("device", format!("{threads} threads are too many")))?;
    tch::set_num_threads(count);
    Ok(Device::new(Torch { place, threads: threads.max(1) }))
}
