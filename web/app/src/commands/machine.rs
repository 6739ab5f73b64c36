//! What this machine offers to the tasks of a workflow: backends, processors, memory, devices.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use assay_core::{Capacity, Resource};
use assay_host::{ExecutorCommand, NotFound, greet};
use assay_protocol::{Failure, FailureClass, KERNELS};
use assay_spec::{Task, Workflow};
use assay_statistics::format::quantity;
use assay_worker::FindExecutor;

use crate::cli::CommandError;

/// This machine as a node.
pub struct Machine {
    /// What it offers.
    pub capacity: Capacity,
    /// Where the executors are.
    pub find: Arc<FindExecutor>,
    /// Why a backend that some task asks for is not here.
    pub missing: BTreeMap<String, String>,
}

impl Machine {
    /// Looks for the backends that tasks of the workflow ask for, and greets those that may lack their device.
    pub async fn look(workflow: &Workflow, home: &Path) -> Result<Machine, CommandError> {
        let own = std::env::current_exe().map_err(|error| format!("cannot find this program's own file: {error}"))?;
        let built_in: Vec<&str> = assay_native::backends().iter().map(|backend| backend.name).collect();
        let kernels = std::path::absolute(home)?.join("kernels");
        let find = move |backend: &str| {
            let mut command = ExecutorCommand::find(backend, &built_in, &own)?;
            command.env.push((KERNELS.into(), kernels.clone().into()));
            Ok(command)
        };
        let wanted: BTreeSet<&str> =
            workflow.tasks.iter().flat_map(|task| &task.resources).map(|resource| resource.backend.as_str()).collect();
        let (mut backends, mut devices, mut missing) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        for backend in wanted {
            match is_here(backend, &find).await {
                Ok(count) => {
                    backends.insert(backend.to_owned());
                    devices.extend(count.map(|count| (backend.to_owned(), count)));
                }
                Err(why) => drop(missing.insert(backend.to_owned(), why)),
            }
        }
        // A step that goes too far is ended by us, with words, before the kernel ends it without.
        let memory = assay_host::machine_memory().map_or(u64::MAX, |bytes| bytes / 10 * 9);
        let capacity = Capacity {
            name: "here".to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            memory,
            backends,
            devices,
            attempts: None,
        };
        Ok(Machine { capacity, find: Arc::new(find), missing })
    }

    /// Why no variant of a task can ever run here; `None` if one can.
    pub fn refusal(&self, task: &Task) -> Option<String> {
        let reasons: Vec<String> = task.resources.iter().map(|variant| self.reason(variant)).collect::<Option<_>>()?;
        Some(reasons.join("; and "))
    }

    /// Why a variant cannot run here.
    fn reason(&self, variant: &assay_spec::Resource) -> Option<String> {
        let assay_spec::Resource { backend, cpus, memory, exclusive } = variant.clone();
        let resource = Resource { backend: backend.clone(), cpus, memory, exclusive };
        if self.capacity.could_ever_run(&resource) {
            return None;
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
}

/// A backend's number of devices, if its executor is here and each is for one attempt at a time. Where it is not here, why.
async fn is_here(
    backend: &str,
    find: &impl Fn(&str) -> Result<ExecutorCommand, NotFound>,
) -> Result<Option<u32>, String> {
    let command = find(backend).map_err(|error| Failure::from(error).message)?;
    if assay_native::find(backend).is_some_and(|backend| backend.everywhere) {
        return Ok(None);
    }
    match greet(&command, &super::greeting_limits()).await {
        Err(Failure { class: FailureClass::Unavailable, message, .. }) => Err(message),
        Ok(hello) => Ok(hello.devices),
        // Whatever else is wrong with it, an attempt will tell.
        Err(_) => Ok(None),
    }
}
