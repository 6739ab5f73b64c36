//! The other end: turns requests into steps and steps into reports.
//!
//! An executor is one process that runs one attempt of one step. Whoever writes a backend fills in a [`Setup`] (its
//! name, its device, the step kinds) and calls [`serve_requests`] from `main`; the protocol, the batching of reports, panics and
//! cancellation are seen to here. [`run_single_step`] runs one step from a file instead, for debugging.
//!
//! What always holds:
//!
//! - Nothing but frames goes to the standard output that the worker reads: what a step or a library prints goes to
//!   standard error, and what it reads from standard input is empty.
//! - The last report is `completed` or `failed`, also when the step panics. Only what ends the process, such as a signal
//!   or a refused allocation, leaves the last word to the worker.
//! - When the worker is gone, so that the input ends, the process ends at once.
//! - Reports of one attempt keep their order; only positions that were overtaken are left out.

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

/// What makes an executor: the backend and the steps that it can run.
pub struct Setup {
    /// The backend's name, as in `resources: [{backend: cpu}]`.
    pub backend: String,
    /// The device as it is recorded beside every measurement.
    pub device_info: DeviceInfo,
    /// How many such devices the machine has, if each is for one attempt at a time.
    pub devices: Option<u32>,
    /// Opens the device, with so many compute threads. Called once, when the step is about to begin; the error is a
    /// lower-case fragment that says why there is no device.
    pub device: DeviceFactory,
    /// The step kinds. The built-in executors take [`assay_steps::registry`].
    pub steps: Vec<Box<dyn Step>>,
}

impl Setup {
    /// The kinds of the steps, in their order.
    pub(crate) fn kinds(&self) -> Vec<StepKindInfo> {
        let kinds = self.steps.iter().map(|step| step.kind());
        kinds.map(|kind| StepKindInfo { name: kind.name.to_owned(), version: kind.version }).collect()
    }
}

/// Which of the backend's devices the worker wants to be used ([`DEVICE`]): the first one, if it does not say.
///
/// # Errors
/// A lower-case fragment, where what it says is no number.
pub fn device_asked() -> Result<usize, String> {
    match std::env::var(DEVICE) {
        Err(std::env::VarError::NotPresent) => Ok(0),
        said => said.ok().and_then(|text| text.parse().ok()).ok_or_else(|| format!("{DEVICE} does not name a number")),
    }
}

/// Asks the kernel to end this process when the worker dies, where the worker relies on that ([`WORKER`]). To be called before
/// anything that takes time. If the worker is gone already, the process ends here.
pub fn die_with_worker() {
    #[cfg(target_os = "linux")]
    if let Some(worker) = std::env::var(WORKER).ok().and_then(|worker| worker.parse().ok()) {
        use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
        // A kernel that refuses leaves the end of the input to tell.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        if getppid() != Pid::from_raw(worker) {
            std::process::exit(0);
        }
    }
}

/// See [`Setup::device`].
pub type DeviceFactory = Box<dyn FnOnce(usize) -> Result<Device, String>>;
