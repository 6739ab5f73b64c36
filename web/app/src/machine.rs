//! The backends of this machine that a workflow asks for: whether they are here, and what they compute on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_host::{ExecutorCommand, Limits, NotFound, greet};
use assay_protocol::{DeviceInfo, Failure, FailureClass, KERNELS};
use assay_spec::Workflow;
use serde_json::{Value, json};

use crate::cli::CommandError;

/// Finds the executors of backends, those that are built in and those that are programs of their own.
#[derive(Clone)]
pub struct Finder {
    own: PathBuf,
    kernels: PathBuf,
}

impl Finder {
    /// A finder whose executors keep their compiled kernels in the store at `home`.
    ///
    /// # Errors
    /// If this program's own file cannot be found.
    pub fn new(home: &Path) -> Result<Finder, CommandError> {
        let own = std::env::current_exe().map_err(|error| format!("cannot find this program's own file: {error}"))?;
        Ok(Finder { own, kernels: std::path::absolute(home)?.join("kernels") })
    }

    /// The executor of a backend.
    ///
    /// # Errors
    /// If there is none; it says where was looked.
    pub fn find(&self, backend: &str) -> Result<ExecutorCommand, NotFound> {
        let mut command = ExecutorCommand::find(backend, &assay_native::names(), &self.own)?;
        command.env.push((KERNELS.into(), self.kernels.clone().into()));
        Ok(command)
    }
}

/// A backend that is here.
pub struct Backend {
    /// How many devices there are, if each is for one attempt at a time.
    pub devices: Option<u32>,
    /// The device, how many of it there are, and its driver. Null where it did not say.
    pub description: Value,
}

/// Logical processors that this process may use.
pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// What an executor may take that is only asked who it is. One without a device ends at once, which on a busy machine may
/// take its time.
pub fn greeting_limits() -> Limits {
    Limits { grace: Duration::from_secs(10), ..Limits::default() }
}

/// The backends that some task of the workflow asks for. Those that are not looked for are here on every machine.
pub fn wanted(workflow: &Workflow) -> BTreeSet<String> {
    workflow.tasks.iter().flat_map(|task| &task.resources).map(|resource| resource.backend.clone()).collect()
}

/// The same for the tasks whose results depend on the machine itself.
pub fn wanted_to_measure(workflow: &Workflow) -> BTreeSet<String> {
    let measures = |kind: &str| super::commands::kinds().iter().any(|known| known.name == kind && known.measures);
    let tasks = workflow.tasks.iter().filter(|task| measures(&task.kind));
    tasks.flat_map(|task| &task.resources).map(|resource| resource.backend.clone()).collect()
}

/// Looks for backends. Where one is missing, a person is told why.
pub async fn look_for(backends: BTreeSet<String>, finder: &Finder) -> BTreeMap<String, Backend> {
    let mut found = BTreeMap::new();
    for backend in backends {
        if let Some(here) = look(&backend, finder).await {
            found.insert(backend, here);
        }
    }
    found
}

async fn look(backend: &str, finder: &Finder) -> Option<Backend> {
    let command = finder.find(backend).ok()?;
    if let Some(built_in) = assay_native::find(backend).filter(|backend| backend.everywhere) {
        let description = (built_in.probe)(0).map_or(Value::Null, |device| describe(&device, None));
        return Some(Backend { devices: None, description });
    }
    match greet(&command, &greeting_limits()).await {
        Err(Failure { class: FailureClass::Unavailable, message, .. }) => {
            eprintln!("{message}");
            None
        }
        Ok(hello) => Some(Backend { devices: hello.devices, description: describe(&hello.device, hello.devices) }),
        // Whatever else is wrong with it, an attempt will tell.
        Err(_) => Some(Backend { devices: None, description: Value::Null }),
    }
}

/// The driver is among the details of a device.
fn describe(device: &DeviceInfo, count: Option<u32>) -> Value {
    json!({"name": device.name, "details": device.details, "count": count.unwrap_or_else(processors)})
}

/// Tells the workflow what its measurements would be made on, for their cache keys.
pub fn describe_to(workflow: &mut Workflow, backends: &BTreeMap<String, Backend>) {
    let described = backends.iter().map(|(name, backend)| (name.clone(), backend.description.clone()));
    workflow.describe_machine(described.collect());
}
