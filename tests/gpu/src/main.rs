//! Checks and measures the CUDA backend on the GPU of this machine; see `run.sh` in the same folder.
//!
//! ```text
//! assay-gpu-check [--tiny] [--commit ID] [--results FOLDER]
//! assay-gpu-check --profile [--tiny]
//! assay-gpu-check --serve
//! ```
//!
//! First the conformance suite: a device with wrong results is not measured. Then the measurements, each compared with its
//! bound, alternately in one run. The table comes last, and is also written to the folder as JSON. `--tiny` uses sizes for
//! which an emulated device needs seconds; its numbers are meaningless. With `--profile` it only prints the time of each kernel
//! in a training step; with `--serve` it answers the requests of `peers.py` on standard input.

mod alone;
mod conformance;
mod measure;
mod published;
mod report;
mod serve;
mod training;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use assay_cuda::Cuda;
use assay_gpu::Driver;

use crate::measure::Sizes;
use crate::report::GpuReport;

type Failure = Box<dyn std::error::Error>;

/// The arguments of the command line.
#[derive(Default)]
struct Arguments {
    tiny: bool,
    serve: bool,
    profile: bool,
    commit: Option<String>,
    results: Option<PathBuf>,
}

impl Arguments {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut found = Arguments::default();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("`{argument}` needs a value"));
            match argument.as_str() {
                "--tiny" => found.tiny = true,
                "--serve" => found.serve = true,
                "--profile" => found.profile = true,
                "--commit" => found.commit = Some(value()?),
                "--results" => found.results = Some(value()?.into()),
                other => {
                    let known = "--tiny, --serve, --profile, --commit ID and --results FOLDER";
                    return Err(format!("`{other}` is unknown; there is {known}").into());
                }
            }
        }
        Ok(found)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether the device computes correctly.
fn run() -> Result<bool, Failure> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let driver: Arc<dyn Driver> = Arc::new(Cuda::open(0, None)?);
    let device = assay_gpu::device(driver.clone());
    if arguments.serve {
        return serve::serve(&*driver, &device).map(|()| true);
    }
    let sizes = if arguments.tiny { Sizes::tiny() } else { Sizes::real() };
    if arguments.profile {
        return training::print_profile(driver, &sizes).map(|()| true);
    }
    eprintln!("{}: conformance", driver.properties().name);
    let wrong = conformance::check(&device);
    if !wrong.is_empty() {
        wrong.iter().for_each(|problem| println!("{problem}"));
        println!("{} of the suite's parts fail: nothing is measured", wrong.len());
        return Ok(false);
    }
    let mut report = GpuReport::new(driver.properties(), arguments.commit);
    measure::all(&*driver, &device, &sizes, &mut report)?;
    published::all(&*driver, &device, &sizes, &mut report)?;
    training::all(&*driver, &device, &sizes, &mut report)?;
    training::beside_its_kernels(driver.clone(), &sizes, &mut report)?;
    if let Some(folder) = arguments.results {
        println!("results: {}", report.write(&folder)?.display());
    }
    println!("{report}");
    Ok(true)
}
