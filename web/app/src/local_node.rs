//! What this machine offers to the tasks of a workflow: backends with what they compute on, processors, memory, devices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_core::{Capacity, Resource};
use assay_host::{ExecutorCommand, Limits, NotFound, greet_executor};
use assay_protocol::{DeviceInfo, FOR_TESTS, Failure, FailureClass, Hello, KERNELS};
use assay_spec::{Task, Workflow};
use assay_statistics::format::quantity;
use serde_json::{Value, json};

use crate::cli::CommandError;

/// Finds the executors of backends, both built-in executors and separate programs.
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
    pub fn find_executor(&self, backend: &str) -> Result<ExecutorCommand, NotFound> {
        let optional = assay_native::optional_backends().iter().find(|optional| optional.name == backend);
        let with_command = |error: NotFound| match optional {
            Some(optional) => NotFound { hint: format!("in the source tree: `{}`", optional.install), ..error },
            None => error,
        };
        let found = ExecutorCommand::find_backend(backend, &assay_native::backend_names(), &self.own);
        let mut command = found.map_err(with_command)?;
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
pub fn processor_count() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// What an executor may take that is only asked who it is. One without a device ends at once, which on a busy machine may
/// take its time.
pub fn greeting_limits() -> Limits {
    Limits { grace: Duration::from_secs(10), ..Limits::default() }
}

/// This machine as a node.
pub struct LocalNode {
    /// What it offers.
    pub capacity: Capacity,
    /// Where the executors are.
    pub finder: Finder,
    /// The backends that are here, of those that tasks of the workflow ask for.
    pub backends: BTreeMap<String, Backend>,
    /// Why a backend that some task asks for is not here.
    pub missing: BTreeMap<String, String>,
}

impl LocalNode {
    /// Looks for the backends that tasks of the workflow ask for, and greets those that may lack their device.
    ///
    /// # Errors
    /// If this program's own file cannot be found.
    pub async fn probe_backends(workflow: &Workflow, home: &Path) -> Result<LocalNode, CommandError> {
        Self::probe_named(workflow.backends(), Finder::new(home)?).await
    }

    /// Looks for every backend, built in or a separate program, except those for tests.
    ///
    /// # Errors
    /// If this program's own file cannot be found.
    pub async fn probe_all(home: &Path) -> Result<LocalNode, CommandError> {
        let finder = Finder::new(home)?;
        let mut names: Vec<String> = assay_native::backend_names().iter().map(ToString::to_string).collect();
        for command in ExecutorCommand::discover_all(&finder.own) {
            let greeting = greet_executor(&command, &greeting_limits()).await;
            let for_tests = |hello: &Hello| hello.features.iter().any(|feature| feature == FOR_TESTS);
            if greeting.as_ref().is_ok_and(|hello| !for_tests(hello)) {
                names.push(command.backend);
            }
        }
        Self::probe_named(names, finder).await
    }

    async fn probe_named(names: impl IntoIterator<Item = String>, finder: Finder) -> Result<LocalNode, CommandError> {
        let (mut backends, mut missing) = (BTreeMap::new(), BTreeMap::new());
        for name in names {
            match look_for(&name, &finder).await {
                Ok(backend) => drop(backends.insert(name, backend)),
                Err(why) => drop(missing.insert(name, why)),
            }
        }
        // A step that goes too far is ended by us, with words, before the kernel ends it without.
        let memory = assay_host::machine_memory().map_or(u64::MAX, |bytes| bytes / 10 * 9);
        let counted = |(name, backend): (&String, &Backend)| Some((name.clone(), backend.devices?));
        let capacity = Capacity {
            name: "here".to_owned(),
            cpus: processor_count(),
            memory,
            backends: backends.keys().cloned().collect(),
            devices: backends.iter().filter_map(counted).collect(),
            attempts: None,
            labels: Default::default(),
        };
        Ok(LocalNode { capacity, finder, backends, missing })
    }

    /// What each backend computes on.
    pub fn devices(&self) -> BTreeMap<String, Value> {
        self.backends.iter().map(|(name, backend)| (name.clone(), backend.description.clone())).collect()
    }

    /// Why no variant of a task can ever run here; `None` if one can.
    pub fn refusal(&self, task: &Task) -> Option<String> {
        let reasons: Vec<String> = task.resources.iter().map(|variant| self.reason(variant)).collect::<Option<_>>()?;
        Some(reasons.join("; and "))
    }

    /// Why a variant cannot run here.
    fn reason(&self, variant: &assay_spec::Resource) -> Option<String> {
        let assay_spec::Resource { backend, cpus, memory, exclusive, label } = variant.clone();
        let resource = Resource { backend: backend.clone(), cpus, memory, exclusive, label: label.clone() };
        if self.capacity.could_ever_run(&resource) {
            return None;
        }
        if let Some(label) = label {
            return Some(format!(
                "it is pinned to worker nodes with the label `{label}`: submit it to a server that has one (`assay submit`)"
            ));
        }
        if let Some(why) = self.missing.get(&backend) {
            return Some(why.clone());
        }
        let Capacity { cpus: all_cpus, memory: all_memory, .. } = self.capacity;
        if cpus > all_cpus {
            return Some(format!("it asks for {cpus} processors, and this machine has {all_cpus}"));
        }
        if let Some(bytes) = memory.filter(|bytes| *bytes > all_memory) {
            let [asked, offered] = [bytes, all_memory].map(|bytes| quantity(bytes as f64, "B"));
            return Some(format!("it asks for {asked} of memory, and this machine offers {offered}"));
        }
        Some(format!("the backend `{backend}` has no device here"))
    }

    /// Tells the workflow what its measurements would be made on, for their cache keys.
    pub fn describe_to(&self, workflow: &mut Workflow) {
        workflow.describe_machine(self.devices());
    }
}

/// Why some of these backends are not here.
///
/// # Errors
/// If this program's own file cannot be found.
pub async fn missing_backends(
    names: impl Iterator<Item = &String>,
    home: &Path,
) -> Result<BTreeMap<String, String>, CommandError> {
    let finder = Finder::new(home)?;
    let mut missing = BTreeMap::new();
    for name in names.cloned().collect::<std::collections::BTreeSet<String>>() {
        if let Err(why) = look_for(&name, &finder).await {
            missing.insert(name, why);
        }
    }
    Ok(missing)
}

/// A backend, if it is here. Where it is not, why.
async fn look_for(name: &str, finder: &Finder) -> Result<Backend, String> {
    let command = finder.find_executor(name).map_err(|error| format!("{error}; {}", error.hint))?;
    if let Some(built_in) = assay_native::find_backend(name).filter(|backend| backend.everywhere) {
        let description = (built_in.probe)(0).map_or(Value::Null, |device| describe_device(&device, None));
        return Ok(Backend { devices: None, description });
    }
    match greet_executor(&command, &greeting_limits()).await {
        Err(Failure { class: FailureClass::Unavailable, message, .. }) => Err(message),
        Ok(hello) => Ok(Backend { devices: hello.devices, description: describe_device(&hello.device, hello.devices) }),
        // Whatever else is wrong with it, an attempt will tell.
        Err(_) => Ok(Backend { devices: None, description: Value::Null }),
    }
}

/// The driver is among the details of a device.
fn describe_device(device: &DeviceInfo, count: Option<u32>) -> Value {
    json!({"name": device.name, "details": device.details, "count": count.unwrap_or_else(processor_count)})
}
