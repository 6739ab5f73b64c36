//! The executor side of the protocol: turns requests into steps and steps into reports.
//!
//! An executor is one process that runs one attempt of one step. An author of a backend fills in a [`Setup`] (its name, its
//! device, the step kinds) and calls [`serve_requests`] from `main`; this crate handles the protocol, the batching of reports,
//! panics and cancellation. [`run_single_step`] runs one step from a file instead, for debugging.
//!
//! Invariants:
//!
//! - Only frames are written to the standard output that the worker reads: the output of a step or a library goes to
//!   standard error, and its standard input is empty.
//! - The last report is `completed` or `failed`, even if the step panics. Only if the process itself dies, such as by a
//!   signal or a refused allocation, the worker determines the outcome.
//! - When the worker closes the input because it exited, the process ends immediately.
//! - Reports of one attempt keep their order; only outdated positions are omitted.

mod context;
mod further;
mod outbox;
mod panics;
mod plugin;
mod run;
mod serve;
mod single_step;
mod stdio;
#[cfg(test)]
mod testing;

use assay_protocol::{DEVICE, DeviceInfo, StepKindInfo, WORKER};
use assay_steps::Step;
use assay_tensor::Device;

pub use serve::serve_requests;
pub use single_step::run_single_step;

/// The backend of an executor and the steps that it can run.
pub struct Setup {
    /// The backend's name, as in `resources: [{backend: cpu}]`.
    pub backend: String,
    /// The device as recorded with every measurement.
    pub device_info: DeviceInfo,
    /// How many such devices the machine has, if each serves one attempt at a time.
    pub devices: Option<u32>,
    /// Opens the device with the given number of compute threads. Called once, just before the step starts; the error
    /// is a lower-case fragment with the reason.
    pub device: DeviceFactory,
    /// The step kinds. The built-in executors use [`assay_steps::registry`].
    pub steps: Vec<Box<dyn Step>>,
}

impl Setup {
    /// The kinds of the steps, in their order.
    pub(crate) fn kinds(&self) -> Vec<StepKindInfo> {
        let kinds = self.steps.iter().map(|step| step.kind());
        kinds.map(|kind| StepKindInfo { name: kind.name.to_owned(), version: kind.version }).collect()
    }
}

/// The number of the device that the worker selected ([`DEVICE`]); the first one by default.
///
/// # Errors
/// A lower-case fragment, if the value is not a number.
pub fn device_asked() -> Result<usize, String> {
    match std::env::var(DEVICE) {
        Err(std::env::VarError::NotPresent) => Ok(0),
        said => said.ok().and_then(|text| text.parse().ok()).ok_or_else(|| format!("{DEVICE} does not name a number")),
    }
}

/// Asks the kernel to kill this process when the worker dies, if the worker relies on that ([`WORKER`]). Call this before
/// anything that takes time. If the worker is already dead, the process ends here.
pub fn die_with_worker() {
    #[cfg(target_os = "linux")]
    if let Some(worker) = std::env::var(WORKER).ok().and_then(|worker| worker.parse().ok()) {
        use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
        // If the kernel refuses, the end of the input ends the process.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        if getppid() != Pid::from_raw(worker) {
            std::process::exit(0);
        }
    }
}

/// See [`Setup::device`].
pub type DeviceFactory = Box<dyn FnOnce(usize) -> Result<Device, String>>;
