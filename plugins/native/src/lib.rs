//! The only crate of the main program that names the concrete backends.
//!
//! `assay executor NAME` is [`run_executor`], and `assay backends` lists [`backends`]. A backend that needs no native SDK at
//! build time is a line in [`BACKENDS`]; any other is a separate program, `assay-executor-NAME`, which the host finds in the
//! folder of `assay` or on `PATH`. [`OPTIONAL`] lists those of this repository, with the command that builds each.
//!
//! Probing a backend opens and computes nothing: it only describes its device, or states why none exists.

mod cuda;
mod processor;

use std::path::Path;
use std::process::ExitCode;

use assay_executor::{Setup, device_asked, die_with_worker, run_single_step, serve_requests};
use assay_protocol::{DeviceInfo, NO_DEVICE};
use assay_tensor::Device;

/// A backend that is built into the binary.
pub struct Backend {
    /// Its name, as in `resources: [{backend: cpu}]`.
    pub name: &'static str,
    /// The line for `assay backends`.
    pub about: &'static str,
    /// The device with this number, or the reason why it does not exist, as a lower-case fragment.
    pub probe: fn(usize) -> Result<DeviceInfo, String>,
    /// The number of devices, if each serves one attempt at a time. If no device is found, `probe` returns the reason.
    pub devices: fn() -> Option<u32>,
    /// Opens the device with this number (the first argument) with the given number of compute threads.
    pub device: fn(usize, usize) -> Result<Device, String>,
    /// Whether every machine has such a device, so that no probe is needed.
    pub everywhere: bool,
}

/// The list.
static BACKENDS: [Backend; 3] = [
    Backend {
        name: "cpu",
        about: "the processor, with all its vector instructions: the default",
        probe: |_| Ok(processor::device_info()),
        devices: || None,
        device: |_, threads| assay_cpu::device(threads).map_err(|error| error.to_string()),
        everywhere: true,
    },
    Backend {
        name: "cuda",
        about: "an NVIDIA GPU, one for each attempt, of those that CUDA_VISIBLE_DEVICES shows",
        probe: cuda::probe_device,
        devices: cuda::count_devices,
        device: |number, _| cuda::open_device(number),
        everywhere: false,
    },
    Backend {
        name: "reference",
        about: "plain loops on one thread: slow, the reference that every other backend is tested against",
        probe: |_| Ok(processor::device_info()),
        devices: || None,
        device: |_, _| Ok(assay_reference::device()),
        everywhere: true,
    },
];

/// A backend that is a separate program, because it needs an SDK or large libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalBackend {
    /// As in `resources: [{backend: torch}]`.
    pub name: &'static str,
    /// What it computes on.
    pub about: &'static str,
    /// The command that builds its executor, to be run in the source tree.
    pub install: &'static str,
}

/// Those of this repository.
static OPTIONAL: [OptionalBackend; 3] = [
    OptionalBackend {
        name: "candle",
        about: "candle on the processor, Apple's GPUs or a CUDA device",
        install: "cargo build --release -p assay-executor-candle --features candle",
    },
    OptionalBackend { name: "rocm", about: "an AMD GPU", install: "cargo build --release -p assay-executor-rocm" },
    OptionalBackend {
        name: "torch",
        about: "PyTorch's kernels on the processor or a CUDA device",
        install: "LIBTORCH=$(tests/torch/libtorch.sh) cargo build --release -p assay-executor-torch --features libtorch",
    },
];

/// The backends of this repository that are separate programs, by name.
#[must_use]
pub fn optional_backends() -> &'static [OptionalBackend] {
    &OPTIONAL
}

/// Every built-in backend, in order of preference.
#[must_use]
pub fn backends() -> &'static [Backend] {
    &BACKENDS
}

/// The names of the built-in backends, for finding executors.
#[must_use]
pub fn backend_names() -> Vec<&'static str> {
    BACKENDS.iter().map(|backend| backend.name).collect()
}

/// The built-in backend with this name.
#[must_use]
pub fn find_backend(name: &str) -> Option<&'static Backend> {
    BACKENDS.iter().find(|backend| backend.name == name)
}

/// `assay executor NAME`: runs the executor of a built-in backend until its attempt has ended, or the single step in a
/// file (`--step`). Call this first in `main`, and nothing after it.
#[must_use]
pub fn run_executor(name: &str, step: Option<&Path>) -> ExitCode {
    die_with_worker();
    let refused = |code: u8, error: String| {
        eprintln!("error: {error}");
        ExitCode::from(code)
    };
    let Some(backend) = find_backend(name) else {
        return refused(
            2,
            format!("there is no built-in backend `{name}`; there is `{}`", backend_names().join("`, `")),
        );
    };
    let setup = match device_asked().and_then(|number| new_setup(backend, number)) {
        Ok(setup) => setup,
        Err(error) => return refused(NO_DEVICE, error),
    };
    match step {
        Some(file) => run_single_step(setup, file),
        None => serve_requests(setup),
    }
}

fn new_setup(backend: &Backend, number: usize) -> Result<Setup, String> {
    let (name, device) = (backend.name, backend.device);
    let device_info =
        (backend.probe)(number).map_err(|why| format!("the backend `{name}` cannot be used here: {why}"))?;
    Ok(Setup {
        backend: name.to_owned(),
        device_info,
        devices: (backend.devices)(),
        device: Box::new(move |threads| device(number, threads)),
        steps: assay_steps::registry(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_has_a_name_of_its_own_and_can_be_set_up_or_says_why_not() {
        for backend in backends() {
            assert_eq!(backend_names().iter().filter(|name| **name == backend.name).count(), 1);
            match new_setup(backend, 0) {
                Ok(setup) => {
                    assert_eq!(setup.backend, backend.name);
                    assert!(!setup.steps.is_empty() && !setup.device_info.name.is_empty());
                }
                Err(why) => assert!(!backend.everywhere && !why.contains('\n'), "{}: {why}", backend.name),
            }
        }
    }

    #[test]
    fn every_device_opens_and_bears_its_backends_name() {
        for backend in backends().iter().filter(|backend| (backend.probe)(0).is_ok()) {
            for threads in [1, 2] {
                assert_eq!((backend.device)(0, threads).unwrap().name(), backend.name);
            }
        }
    }

    #[test]
    fn an_unknown_backend_is_none() {
        assert!(find_backend("abacus").is_none());
    }
}
