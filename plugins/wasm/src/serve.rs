//! The process `assay plugin-host`: loads one component and answers calls until its input ends.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use assay_protocol::{
    FrameError, Packet, PluginAbout, PluginAnswer, PluginCall, PluginLimits, PluginReply, PluginRequest, f32_of_list,
    list_of_u32, read_packet, u32_of_list,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use wasmtime::Engine;
use wasmtime::component::Linker;

use crate::artifacts::{Replies, StepPorts};
use crate::component::{Plugin, load_component};
use crate::engine::start_engine;
use crate::failure::Cause;
use crate::instance::Instance;
use crate::interface::MetricBatch;
use crate::store::{InstanceState, host_functions};

/// Bytes for compiling and for the lists of a call, in addition to the memories of the instances.
const OWN_MEMORY: u64 = 2 << 30;

/// Sets a kernel limit on this process's memory, sufficient for a compilation and a few instances of the largest plugin.
///
/// # Errors
/// A message, if the kernel refuses.
pub fn limit_own_memory(plugin_memory: u64) -> Result<(), String> {
    let most = OWN_MEMORY + u64::from(PluginRequest::MOST_INSTANCES) * plugin_memory;
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Data, limit).map_err(|error| format!("the memory of the process cannot be limited: {error}"))
}

/// A loaded plugin.
struct Loaded {
    name: String,
    limits: PluginLimits,
    engine: Engine,
    linker: Linker<InstanceState>,
    plugin: Plugin,
}

/// A failed call with its log.
struct Refused {
    cause: Cause,
    log: Vec<(String, String)>,
}

impl From<Cause> for Refused {
    fn from(cause: Cause) -> Self {
        Refused { cause, log: Vec::new() }
    }
}

/// An answer, its lists, its fuel and the log.
type Answered = (PluginAnswer, Vec<Vec<u8>>, u64, Vec<(String, String)>);

struct Server {
    replies: Replies,
    loaded: Option<Loaded>,
    instances: BTreeMap<u32, Instance>,
}

/// Answers requests until the input ends.
///
/// # Errors
/// If a request cannot be read or an answer cannot be written: the peer has exited, or speaks another protocol.
pub fn serve_plugin(input: &mut impl Read, output: impl Write + Send + 'static) -> Result<(), FrameError> {
    let mut server = Server { replies: Replies::new(output), loaded: None, instances: BTreeMap::new() };
    while let Some(request) = read_packet::<PluginRequest>(input)? {
        let reply = server.answer(request);
        server.replies.send(&reply)?;
    }
    Ok(())
}

impl Server {
    fn answer(&mut self, request: Packet<PluginRequest>) -> Packet<PluginReply> {
        let Packet { message: PluginRequest { instance, call }, lists } = request;
        let function = call.function();
        let result = self.perform(instance, call, lists);
        let (answer, lists, fuel, log) = result.unwrap_or_else(|Refused { cause, log }| {
            let plugin = self.loaded.as_ref().map_or("?", |loaded| loaded.name.as_str());
            (PluginAnswer::Failed(cause.name(plugin, function, &log)), Vec::new(), 0, log)
        });
        Packet { message: PluginReply { answer, fuel, log }, lists }
    }

    fn perform(&mut self, number: u32, call: PluginCall, lists: Vec<Vec<u8>>) -> Result<Answered, Refused> {
        if number >= PluginRequest::MOST_INSTANCES {
            return Err(Cause::new(format!("cannot be called: there is no instance {number}")).into());
        }
        match call {
            PluginCall::Load { name, file, limits } => self.load(name, &file, limits),
            PluginCall::OpenDataset { .. }
            | PluginCall::OpenMetric { .. }
            | PluginCall::OpenCurriculum { .. }
            | PluginCall::OpenSearcher { .. }
            | PluginCall::RunStep { .. } => {
                let loaded = self.loaded.as_ref().ok_or_else(|| Cause::new("cannot be called before `load`"))?;
                self.instances.remove(&number);
                let instance = start_instance(loaded)?;
                let instance = self.instances.entry(number).or_insert(instance);
                call_instance(instance, call, lists, &self.replies)
            }
            _ => {
                let unopened = || Cause::new("cannot be called before `open`");
                let instance = self.instances.get_mut(&number).ok_or_else(unopened)?;
                call_instance(instance, call, lists, &self.replies)
            }
        }
    }

    fn load(&mut self, name: String, file: &std::path::Path, limits: PluginLimits) -> Result<Answered, Refused> {
        if self.loaded.is_some() {
            return Err(Cause::new("was called twice: a process runs one plugin").into());
        }
        let engine = start_engine(&limits).map_err(|error| Cause::new(format!("cannot start wasmtime: {error:#}")))?;
        let bytes = read_file(file, &limits)?;
        let plugin = load_component(&engine, &bytes, &limits)?;
        let linker =
            host_functions(&engine).map_err(|error| Cause::new(format!("cannot start wasmtime: {error:#}")))?;
        let loaded = self.loaded.insert(Loaded { name, limits, engine, linker, plugin });
        let mut instance = start_instance(loaded)?;
        let about = instance.describe();
        let log = instance.drain_log();
        match about {
            Ok(about) => {
                let about = PluginAbout {
                    name: about.name,
                    version: about.version,
                    description: about.description,
                    config_schema: about.config_schema,
                    interfaces: loaded.plugin.worlds.iter().map(|world| world.interface().to_owned()).collect(),
                    hash: loaded.plugin.hash.clone(),
                };
                Ok((PluginAnswer::Loaded(about), Vec::new(), instance.fuel, log))
            }
            Err(cause) => Err(Refused { cause, log }),
        }
    }
}

/// Reads a file up to one byte more than the limit, which is enough to refuse it.
fn read_file(file: &std::path::Path, limits: &PluginLimits) -> Result<Vec<u8>, Cause> {
    let unreadable =
        |error: std::io::Error| Cause::new(format!("is in a file that cannot be read: `{}`: {error}", file.display()));
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    let mut bytes = Vec::new();
    opened.take(limits.file.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn start_instance(loaded: &Loaded) -> Result<Instance, Refused> {
    Instance::start(&loaded.engine, &loaded.linker, &loaded.plugin, &loaded.limits)
        .map_err(|(cause, log)| Refused { cause, log })
}

/// Performs a call and adds the log and the fuel of the instance.
fn call_instance(
    instance: &mut Instance,
    call: PluginCall,
    lists: Vec<Vec<u8>>,
    replies: &Replies,
) -> Result<Answered, Refused> {
    let answered = dispatch_call(instance, call, lists, replies);
    let log = instance.drain_log();
    match answered {
        Ok((answer, lists)) => Ok((answer, lists, instance.fuel, log)),
        Err(cause) => Err(Refused { cause, log }),
    }
}

fn dispatch_call(
    instance: &mut Instance,
    call: PluginCall,
    lists: Vec<Vec<u8>>,
    replies: &Replies,
) -> Result<(PluginAnswer, Vec<Vec<u8>>), Cause> {
    let mut lists = Lists(lists.into_iter());
    Ok(match call {
        PluginCall::Load { .. } => return Err(Cause::new("is not a call to an instance")),
        PluginCall::OpenDataset { config } => (PluginAnswer::Facts(instance.open_dataset(&config)?), Vec::new()),
        PluginCall::Batch { seed, split, first, count } => {
            let made = instance.batch(seed, split, first, count)?;
            let lists = [&made.tokens, &made.offsets, &made.labels].map(|list| list_of_u32(list));
            (PluginAnswer::Sequences, lists.into())
        }
        PluginCall::OpenMetric { config } => {
            instance.open_metric(&config)?;
            (PluginAnswer::Done, Vec::new())
        }
        PluginCall::Add { classes } => {
            instance.add(lists.read_batch(classes)?)?;
            (PluginAnswer::Done, Vec::new())
        }
        PluginCall::Save => (PluginAnswer::State, vec![instance.save()?]),
        PluginCall::Merge => {
            instance.merge(lists.next_bytes()?)?;
            (PluginAnswer::Done, Vec::new())
        }
        PluginCall::Values => (PluginAnswer::Values { values: instance.values()? }, Vec::new()),
        PluginCall::OpenCurriculum { config, seed } => {
            (PluginAnswer::State, vec![instance.open_curriculum(&config, seed, lists.next_numbers()?)?])
        }
        PluginCall::Next { step, seen } => {
            let (stage, state) = instance.next(lists.next_bytes()?, step, &seen)?;
            (PluginAnswer::Stage(stage), vec![state])
        }
        PluginCall::RunStep { config, replicate, inputs, outputs } => {
            let ports = StepPorts::open(inputs, outputs, replies.clone())
                .map_err(|message| Cause::new(format!("failed: {message}")))?;
            let (result, written) = instance.run_step(&config, replicate, ports)?;
            (PluginAnswer::Result { result, written }, Vec::new())
        }
        PluginCall::OpenSearcher { config, space, seed } => {
            (PluginAnswer::State, vec![instance.open_searcher(&config, &space, seed)?])
        }
        PluginCall::Propose { results, count } => {
            let proposal = instance.propose(lists.next_bytes()?, results, count)?;
            let answer = PluginAnswer::Proposal { params: proposal.params, finished: proposal.finished };
            (answer, vec![proposal.state])
        }
    })
}

/// The lists of a request, in order.
struct Lists(std::vec::IntoIter<Vec<u8>>);

impl Lists {
    fn next_bytes(&mut self) -> Result<Vec<u8>, Cause> {
        self.0.next().ok_or_else(|| Cause::new("cannot be called: a list is missing"))
    }

    fn next_numbers(&mut self) -> Result<Vec<u32>, Cause> {
        u32_of_list(&self.next_bytes()?).ok_or_else(|| Cause::new("cannot be called: a list is cut"))
    }

    fn read_batch(&mut self, classes: u32) -> Result<MetricBatch, Cause> {
        let (inputs, offsets, targets) = (self.next_numbers()?, self.next_numbers()?, self.next_numbers()?);
        let scores = f32_of_list(&self.next_bytes()?).ok_or_else(|| Cause::new("cannot be called: a list is cut"))?;
        let spans = offsets.first() == Some(&0)
            && offsets.last().is_some_and(|last| *last as usize == inputs.len())
            && offsets.is_sorted();
        let fits = classes > 0
            && scores.len() as u64 == targets.len() as u64 * u64::from(classes)
            && targets.iter().all(|target| *target < classes);
        if spans && fits {
            Ok(MetricBatch { inputs, offsets, targets, scores, classes })
        } else {
            Err(Cause::new("cannot be called: offsets, targets and scores of the batch do not fit together"))
        }
    }
}
