//! `assay-executor-candle`: the executor of the backend `candle`.
//!
//!     assay-executor-candle                    speaks with a worker over standard input and output
//!     assay-executor-candle --step STEP.json   runs one step alone, for debugging
//!
//! `ASSAY_CANDLE_DEVICE` (`cpu`, `metal`, `cuda`, `cuda:1`) selects where candle computes. Without it, that is the GPU that the
//! worker assigns, or the processor if this build of candle finds no GPU.

use std::path::PathBuf;
use std::process::ExitCode;

use assay_candle::{Place, describe_products, device, places};
use assay_executor::{Setup, device_asked, run_single_step, serve_requests};
use assay_protocol::{DeviceInfo, NO_DEVICE};

/// The variable that selects where to compute.
const DEVICE: &str = "ASSAY_CANDLE_DEVICE";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let step = match arguments.as_slice() {
        [] => None,
        [flag, file] if flag == "--step" => Some(PathBuf::from(file)),
        _ => {
            eprintln!(
                "error: this is the executor of the backend `candle`, which `assay` starts; its only argument is --step FILE"
            );
            return ExitCode::from(2);
        }
    };
    let setup = match choose_place() {
        Ok(place) => new_setup(place),
        Err(why) => {
            eprintln!("error: the backend `candle` cannot be used here: {why}");
            return ExitCode::from(NO_DEVICE);
        }
    };
    match step {
        Some(file) => run_single_step(setup, &file),
        None => serve_requests(setup),
    }
}

/// Where to compute.
fn choose_place() -> Result<Place, String> {
    if let Ok(name) = std::env::var(DEVICE) {
        return Place::parse(&name).map_err(|why| format!("{DEVICE}: {why}"));
    }
    let number = device_asked()?;
    let gpus: Vec<Place> = places().into_iter().filter(|place| *place != Place::Cpu).collect();
    match (gpus.is_empty(), gpus.get(number)) {
        (true, _) => Ok(Place::Cpu),
        (false, Some(place)) => Ok(*place),
        (false, None) => Err(format!("candle finds no GPU {number}")),
    }
}

/// The number of GPUs from which a worker may choose: none if the environment has chosen.
fn count_devices() -> Option<u32> {
    let devices = places().into_iter().filter(|place| *place != Place::Cpu).count() as u32;
    (devices > 0 && std::env::var_os(DEVICE).is_none()).then_some(devices)
}

fn new_setup(place: Place) -> Setup {
    let mut details = vec![place.name()];
    if place == Place::Cpu {
        details.push(format!("products by {}", describe_products()));
    }
    Setup {
        backend: "candle".into(),
        device_info: DeviceInfo { name: format!("candle on {}", place.name()), details },
        devices: count_devices(),
        device: Box::new(move |threads| device(place, threads).map_err(|error| error.to_string())),
        steps: assay_steps::registry(),
    }
}
