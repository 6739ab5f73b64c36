//! The executor of the backend `rocm`. Put it into the folder of `assay` or on `PATH`; `resources: [{backend: rocm}]` then uses it.
//!
//!     assay-executor-rocm                    communicates with a worker over standard input and output
//!     assay-executor-rocm --step STEP.json   runs a single step, for debugging

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use assay_executor::{Setup, device_asked, run_single_step, serve_requests};
use assay_protocol::{DeviceInfo, KERNELS, NO_DEVICE};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let step = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => None,
        ["--step", file] => Some(file),
        _ => {
            eprintln!("error: the only argument is `--step FILE`");
            return ExitCode::from(2);
        }
    };
    match (new_setup(), step) {
        (Ok(setup), Some(file)) => run_single_step(setup, Path::new(file)),
        (Ok(setup), None) => serve_requests(setup),
        (Err(why), _) => {
            eprintln!("error: the backend `rocm` cannot be used here: {why}");
            ExitCode::from(NO_DEVICE)
        }
    }
}

/// The device that the worker selected, and every step kind.
fn new_setup() -> Result<Setup, String> {
    let number = device_asked()?;
    let (facts, count) = (assay_rocm::probe(number)?, assay_rocm::count()?);
    let gib = facts.memory as f64 / f64::from(1 << 30);
    let mut details = vec![facts.architecture.to_string(), format!("{gib:.1} GiB"), facts.driver, facts.compiler];
    if count > 1 {
        details.push(format!("device {number}"));
    }
    Ok(Setup {
        backend: "rocm".to_owned(),
        device_info: DeviceInfo { name: facts.name, details },
        devices: Some(count),
        device: Box::new(move |_| assay_rocm::device(number, std::env::var_os(KERNELS).map(PathBuf::from))),
        steps: assay_steps::registry(),
    })
}
