//! Random operations on random shapes, on the CPU backend with one to three threads against the reference, for a bounded time:
//!
//! ```text
//! cargo run --release -p assay-conformance --example fuzz_tensors -- [SECONDS] [SEED]
//! ```
//!
//! `tests/sanitize` runs it under AddressSanitizer. It prints its first seed; a failure names the seed of its case, and
//! `fuzz_tensors 0 SEED` runs that one alone.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use assay_conformance::{Tolerance, check_random};
use assay_tensor::DType;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let (seconds, seed) = match (arguments.next().unwrap_or(Ok(30)), arguments.next().transpose()) {
        (Ok(seconds), Ok(seed)) => (seconds, seed),
        _ => {
            eprintln!("usage: fuzz_tensors [SECONDS] [SEED], both whole numbers");
            return ExitCode::from(2);
        }
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // A thousand million cases apart for each second.
    let seed = seed.unwrap_or(now.as_secs().wrapping_mul(1_000_000_000) >> 1);
    let devices = [1, 2, 3].map(assay_cpu::device).into_iter().collect::<Result<Vec<_>, _>>();
    let devices = match devices {
        Ok(devices) => devices,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("seed {seed}, {seconds} s, on: {}", devices[0].info().features.join(", "));
    let end = Instant::now() + Duration::from_secs(seconds);
    let report = check_random(&devices, DType::F32, Tolerance::F32, seed, |done| done == 0 || Instant::now() < end);
    println!("{report}");
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
