//! Where candle computes: the processor, an Apple GPU or a CUDA device.

use std::sync::Once;

use assay_tensor::{Device, TensorError};

use crate::kernels::Candle;
use crate::store::convert_error;

/// A device of candle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The processor.
    Cpu,
    /// The CUDA device of this number.
    Cuda(usize),
    /// The Metal device of this number.
    Metal(usize),
}

impl Place {
    /// The name, as a person writes it: `cpu`, `cuda:0`, `metal:0`.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Place::Cpu => "cpu".into(),
            Place::Cuda(index) => format!("cuda:{index}"),
            Place::Metal(index) => format!("metal:{index}"),
        }
    }

    /// The place of this name. `cuda` and `metal` are the first device of their kind.
    ///
    /// # Errors
    /// A fragment that lists the places.
    pub fn parse(name: &str) -> Result<Place, String> {
        let wanted = if matches!(name, "cuda" | "metal") { format!("{name}:0") } else { name.to_owned() };
        let known = places();
        let names = || known.iter().map(|place| format!("`{}`", place.name())).collect::<Vec<_>>().join(", ");
        let found = known.iter().find(|place| place.name() == wanted).copied();
        found.ok_or_else(|| format!("candle has no device `{name}` here; it has {}", names()))
    }
}

/// Every place where this build of candle can compute, the fastest kind first: CUDA devices, Apple GPUs, the processor.
#[must_use]
pub fn places() -> Vec<Place> {
    let cuda = (0..count_cuda_devices()).map(Place::Cuda);
    let metal = (0..count_metal_devices()).map(Place::Metal);
    cuda.chain(metal).chain([Place::Cpu]).collect()
}

#[cfg(feature = "cuda")]
fn count_cuda_devices() -> usize {
    use candle_core::cuda_backend::cudarc::driver::CudaContext;
    CudaContext::device_count().map_or(0, |count| count.max(0) as usize)
}

#[cfg(not(feature = "cuda"))]
fn count_cuda_devices() -> usize {
    0
}

/// A Mac has one GPU that computes; others are not offered.
fn count_metal_devices() -> usize {
    let found = candle_core::utils::metal_is_available() && candle_core::Device::new_metal(0).is_ok();
    usize::from(found)
}

/// What multiplies matrices on the processor: `gemm`, `mkl` or `accelerate`.
#[must_use]
pub fn describe_products() -> &'static str {
    match () {
        () if candle_core::utils::has_mkl() => "mkl",
        () if candle_core::utils::has_accelerate() => "accelerate",
        () => "gemm",
    }
}

/// A device that computes at `place`, on the processor with `threads` threads. The first call of a process decides the number of
/// threads: candle reads it from the environment, once.
///
/// # Errors
/// If candle cannot open the device.
pub fn device(place: Place, threads: usize) -> Result<Device, TensorError> {
    let threads = threads.max(1);
    static SET: Once = Once::new();
    SET.call_once(|| {
        // SAFETY: the standard library, through which candle and rayon read the environment, locks it against this call; no C
        // code that reads it runs at the same time, since an executor opens its device before it computes anything.
        unsafe {
            std::env::set_var("RAYON_NUM_THREADS", threads.to_string());
            std::env::set_var("CANDLE_NUM_THREADS", threads.to_string());
        }
    });
    let opened = match place {
        Place::Cpu => Ok(candle_core::Device::Cpu),
        Place::Cuda(index) => candle_core::Device::new_cuda(index),
        Place::Metal(index) => candle_core::Device::new_metal(index),
    };
    let device = opened.map_err(|error| convert_error("device", &error))?;
    Ok(Device::new(Candle { place, device, threads }))
}
