//! `assay-executor-torch`: the executor of the backend `torch`.
//!
//! The worker finds it in the folder of `assay` or on `PATH`, starts it, and uses the executor protocol on its standard input
//! and output. With `--step FILE` it runs a single step, as `assay executor` does. `ASSAY_TORCH_DEVICE` (`cpu`, `cuda`,
//! `cuda:1`) selects the device of libtorch; the default is the CUDA device that the worker selects, or the processor if
//! there is none.

use std::path::PathBuf;
use std::process::ExitCode;

use assay_executor::{Setup, device_asked, run_single_step, serve_requests};
use assay_protocol::{DeviceInfo, NO_DEVICE};
use assay_torch::{Place, device, places};

/// The environment variable for the device.
const DEVICE: &str = "ASSAY_TORCH_DEVICE";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let step = match arguments.as_slice() {
        [] => None,
        [flag, file] if flag == "--step" => Some(PathBuf::from(file)),
        _ => {
            eprintln!(
                "error: this is the executor of the backend `torch`, which `assay` starts; it accepts only --step FILE"
            );
            return ExitCode::from(2);
        }
    };
    let setup = match choose_place() {
        Ok(place) => new_setup(place),
        Err(why) => {
            eprintln!("error: the backend `torch` cannot be used here: {why}");
            return ExitCode::from(NO_DEVICE);
        }
    };
    match step {
        Some(file) => run_single_step(setup, &file),
        None => serve_requests(setup),
    }
}

/// Selects the device.
fn choose_place() -> Result<Place, String> {
    match std::env::var(DEVICE) {
        Ok(name) => Place::parse(&name).map_err(|why| format!("{DEVICE}: {why}")),
        Err(_) if count_devices().is_none() => Ok(Place::Cpu),
        Err(_) => {
            let number = device_asked()?;
            let found = places().into_iter().find(|place| *place == Place::Cuda(number));
            found.ok_or_else(|| format!("libtorch finds no CUDA device {number}"))
        }
    }
}

/// The number of CUDA devices to choose from: `None` without any, or if the environment selects one.
fn count_devices() -> Option<u32> {
    let devices = places().into_iter().filter(|place| *place != Place::Cpu).count() as u32;
    (devices > 0 && std::env::var_os(DEVICE).is_none()).then_some(devices)
}

fn new_setup(place: Place) -> Setup {
    Setup {
        backend: "torch".into(),
        device_info: DeviceInfo { name: format!("libtorch on {}", place.name()), details: vec![place.name()] },
        devices: count_devices(),
        device: Box::new(move |threads| device(place, threads).map_err(|error| error.to_string())),
        steps: assay_steps::registry(),
    }
}
