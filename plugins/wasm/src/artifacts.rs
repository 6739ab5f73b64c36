//! The files and metrics of a running step, and the functions of `assay:plugin/artifacts` over them.
//!
//! A plugin names inputs and outputs by the names in the workflow file. It never sees a path.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use assay_protocol::{
    FrameError, Packet, PluginAnswer, PluginLimit, PluginLimits, PluginReply, PluginValue, write_packet,
};
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentNamedList, Lift, Linker, Lower};

use crate::answers::is_metric_path;
use crate::interface::{PACKAGE, Value};
use crate::store::{HostFailure, InstanceState, LimitReached, charge_fuel};

/// The shortest time between two reports of progress.
const PROGRESS_PAUSE: Duration = Duration::from_millis(100);

/// The output of the process, which replies and the reports of a running step share.
#[derive(Clone)]
pub(crate) struct Replies(Arc<Mutex<Box<dyn Write + Send>>>);

impl Replies {
    pub fn new(output: impl Write + Send + 'static) -> Self {
        Replies(Arc::new(Mutex::new(Box::new(output))))
    }

    pub fn send(&self, reply: &Packet<PluginReply>) -> Result<(), FrameError> {
        write_packet(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), reply)
    }
}

/// An output: its path, and its file once it was created.
struct Output {
    path: PathBuf,
    file: Option<File>,
}

/// What a running step may use.
pub(crate) struct StepPorts {
    inputs: BTreeMap<String, File>,
    outputs: BTreeMap<String, Output>,
    replies: Replies,
    bytes: u64,
    points: u64,
    reported: Option<Instant>,
}

impl StepPorts {
    /// Opens the inputs.
    ///
    /// # Errors
    /// A message about an input that cannot be opened.
    pub fn open(
        inputs: BTreeMap<String, PathBuf>,
        outputs: BTreeMap<String, PathBuf>,
        replies: Replies,
    ) -> Result<Self, String> {
        let open = |(name, path): (String, PathBuf)| match File::open(&path) {
            Ok(file) => Ok((name, file)),
            Err(error) => Err(format!("cannot read the input `{name}`: `{}`: {error}", path.display())),
        };
        let inputs = inputs.into_iter().map(open).collect::<Result<_, _>>()?;
        let outputs = outputs.into_iter().map(|(name, path)| (name, Output { path, file: None })).collect();
        Ok(StepPorts { inputs, outputs, replies, bytes: 0, points: 0, reported: None })
    }

    /// The outputs that were written.
    pub fn written(&self) -> Vec<String> {
        self.outputs.iter().filter(|(_, output)| output.file.is_some()).map(|(name, _)| name.clone()).collect()
    }

    fn input(&self, name: &str) -> Result<&File, String> {
        self.inputs.get(name).ok_or_else(|| unknown_name("input", name, self.inputs.keys()))
    }

    fn size(&self, name: &str) -> Result<u64, String> {
        let data = self.input(name)?.metadata();
        data.map(|data| data.len()).map_err(|error| format!("cannot read the input `{name}`: {error}"))
    }

    fn read(&self, name: &str, at: u64, count: u32, limits: &PluginLimits) -> Result<Vec<u8>, String> {
        let left = self.size(name)?.saturating_sub(at);
        if u64::from(count) > limits.transfer {
            return Err(format!("cannot read {count} bytes at once; the limit is {}", limits.transfer));
        }
        let mut bytes = vec![0; usize::try_from(left.min(u64::from(count))).unwrap_or_default()];
        let read = self.input(name)?.read_exact_at(&mut bytes, at);
        read.map(|()| bytes).map_err(|error| format!("cannot read the input `{name}`: {error}"))
    }

    /// Appends to an output. The outer error ends the step; the inner one is an answer to the plugin.
    fn write(&mut self, name: &str, bytes: &[u8], limits: &PluginLimits) -> wasmtime::Result<Result<(), String>> {
        let total = self.bytes.saturating_add(bytes.len() as u64);
        if total > limits.output {
            let message = format!("wrote more than {} bytes of outputs", limits.output);
            return Err(LimitReached { limit: PluginLimit::Output, message }.into());
        }
        if !self.outputs.contains_key(name) {
            return Ok(Err(unknown_name("output", name, self.outputs.keys())));
        }
        let Some(Output { path, file }) = self.outputs.get_mut(name) else { return Ok(Ok(())) };
        let written = match file {
            Some(file) => file.write_all(bytes),
            None => File::create(&path).and_then(|created| file.insert(created).write_all(bytes)),
        };
        written.map_err(|error| HostFailure(format!("cannot write the output `{name}`: {error}")))?;
        self.bytes = total;
        Ok(Ok(()))
    }

    fn report_metrics(
        &mut self,
        step: u64,
        values: &[Value],
        report: impl FnOnce(PluginAnswer) -> Packet<PluginReply>,
        limits: &PluginLimits,
    ) -> wasmtime::Result<Result<(), String>> {
        for Value { name, value } in values {
            if !is_metric_path(name) {
                return Ok(Err(format!("{name:?} cannot be the name of a metric: use letters, digits, `_ - . /`")));
            }
            if !value.is_finite() {
                return Ok(Err(format!("the metric `{name}` is {value} at step {step}; metrics must be finite")));
            }
        }
        self.points = self.points.saturating_add(values.len() as u64);
        if self.points > limits.points {
            let message = format!("reported more than {} values of metrics", limits.points);
            return Err(LimitReached { limit: PluginLimit::Points, message }.into());
        }
        let values = values.iter().map(|Value { name, value }| PluginValue::new(name.as_str(), *value)).collect();
        self.send(&report(PluginAnswer::Metrics { step, values }))?;
        Ok(Ok(()))
    }

    fn send(&self, report: &Packet<PluginReply>) -> wasmtime::Result<()> {
        Ok(self.replies.send(report).map_err(|error| HostFailure(format!("cannot send a report: {error}")))?)
    }

    /// Whether progress was last reported some time ago, so that it may be reported again.
    fn is_progress_due(&mut self) -> bool {
        let is_due = self.reported.is_none_or(|last| last.elapsed() >= PROGRESS_PAUSE);
        if is_due {
            self.reported = Some(Instant::now());
        }
        is_due
    }
}

fn unknown_name<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a String>) -> String {
    let known: Vec<&str> = known.map(String::as_str).collect();
    let known = if known.is_empty() { "there are none".to_owned() } else { format!("known: {}", known.join(", ")) };
    format!("unknown {what} `{name}` ({known})")
}

/// Reports progress, if a step is running and the last report is some time ago.
pub(crate) fn report_progress(
    store: &mut StoreContextMut<'_, InstanceState>,
    done: u64,
    total: Option<u64>,
    unit: String,
) -> wasmtime::Result<()> {
    let Some(mut ports) = store.data_mut().ports.take() else { return Ok(()) };
    let sent = if ports.is_progress_due() {
        ports.send(&report_of(store.data_mut(), PluginAnswer::Progress { done, total, unit }))
    } else {
        Ok(())
    };
    store.data_mut().ports = Some(ports);
    sent
}

/// A report of a running step, with the lines that it has logged.
fn report_of(state: &mut InstanceState, answer: PluginAnswer) -> Packet<PluginReply> {
    Packet { message: PluginReply { answer, fuel: 0, log: state.drain_log() }, lists: Vec::new() }
}

/// Adds the functions of `assay:plugin/artifacts`.
pub(crate) fn add_artifact_functions(linker: &mut Linker<InstanceState>) -> wasmtime::Result<()> {
    let mut artifacts = linker.instance(&format!("{PACKAGE}/artifacts@0.1.0"))?;
    artifacts.func_wrap("size", port_function(|ports, _, (name,): (String,)| Ok((ports.size(&name), name.len()))))?;
    let read = |ports: &mut StepPorts, state: &mut InstanceState, (name, at, count): (String, u64, u32)| {
        let bytes = ports.read(&name, at, count, &state.limits);
        let cost = name.len() + bytes.as_ref().map_or(0, Vec::len);
        Ok((bytes, cost))
    };
    artifacts.func_wrap("read", port_function(read))?;
    let write = |ports: &mut StepPorts, state: &mut InstanceState, (name, bytes): (String, Vec<u8>)| {
        Ok((ports.write(&name, &bytes, &state.limits)?, name.len() + bytes.len()))
    };
    artifacts.func_wrap("write", port_function(write))?;
    let metrics = |ports: &mut StepPorts, state: &mut InstanceState, (step, values): (u64, Vec<Value>)| {
        let cost = values.iter().map(|value| value.name.len() + size_of::<f64>()).sum();
        let limits = state.limits.clone();
        let reported = ports.report_metrics(step, &values, |answer| report_of(state, answer), &limits)?;
        Ok((reported, cost))
    };
    artifacts.func_wrap("metrics", port_function(metrics))?;
    Ok(())
}

/// The answer of a function to the plugin, and the bytes to charge for.
type Charged<R> = (Result<R, String>, usize);

/// Wraps a function over the ports of the running step, and charges its fuel.
fn port_function<P, R>(
    function: impl Fn(&mut StepPorts, &mut InstanceState, P) -> wasmtime::Result<Charged<R>> + Send + Sync + 'static,
) -> impl Fn(StoreContextMut<'_, InstanceState>, P) -> wasmtime::Result<(Result<R, String>,)> + Send + Sync + 'static
where
    P: ComponentNamedList + Lift + 'static,
    R: Lower + Send + Sync + 'static,
{
    move |mut store, params| {
        let Some(mut ports) = store.data_mut().ports.take() else {
            return Err(HostFailure("called a function of `artifacts` outside of `step.run`".into()).into());
        };
        let answered = function(&mut ports, store.data_mut(), params);
        store.data_mut().ports = Some(ports);
        let (answer, bytes) = answered?;
        charge_fuel(&mut store, bytes)?;
        Ok((answer,))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(folder: &std::path::Path) -> StepPorts {
        std::fs::write(folder.join("in"), b"0123456789").unwrap();
        let named = |name: &str, file: &str| BTreeMap::from([(name.to_owned(), folder.join(file))]);
        StepPorts::open(named("data", "in"), named("made", "out"), Replies::new(std::io::sink())).unwrap()
    }

    #[test]
    fn inputs_are_read_in_parts_and_unknown_names_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        let ports = ports(folder.path());
        let limits = PluginLimits { transfer: 8, ..PluginLimits::default() };
        assert_eq!(ports.size("data"), Ok(10));
        assert_eq!(ports.read("data", 8, 8, &limits), Ok(b"89".to_vec()));
        assert_eq!(ports.read("data", u64::MAX, 8, &limits), Ok(Vec::new()));
        assert_eq!(ports.read("data", 0, 9, &limits), Err("cannot read 9 bytes at once; the limit is 8".into()));
        assert_eq!(ports.size("other"), Err("unknown input `other` (known: data)".into()));
    }

    #[test]
    fn outputs_grow_up_to_their_limit() {
        let folder = tempfile::tempdir().unwrap();
        let mut ports = ports(folder.path());
        let limits = PluginLimits { output: 5, ..PluginLimits::default() };
        assert!(ports.written().is_empty());
        assert_eq!(ports.write("made", b"abc", &limits).unwrap(), Ok(()));
        assert_eq!(ports.write("made", b"de", &limits).unwrap(), Ok(()));
        assert_eq!(ports.write("x", b"", &limits).unwrap(), Err("unknown output `x` (known: made)".into()));
        let error = ports.write("made", b"f", &limits).unwrap_err();
        assert_eq!(error.downcast_ref::<LimitReached>().unwrap().limit, PluginLimit::Output);
        assert_eq!(
            (ports.written(), std::fs::read(folder.path().join("out")).unwrap()),
            (vec!["made".into()], b"abcde".to_vec())
        );
    }

    #[test]
    fn metrics_are_finite_named_and_limited() {
        let folder = tempfile::tempdir().unwrap();
        let mut ports = ports(folder.path());
        let limits = PluginLimits { points: 1, ..PluginLimits::default() };
        let mut report = |name: &str, value: f64| {
            let wrap = |answer| Packet { message: PluginReply { answer, fuel: 0, log: Vec::new() }, lists: Vec::new() };
            ports.report_metrics(3, &[Value { name: name.into(), value }], wrap, &limits)
        };
        assert!(report("a b", 1.0).unwrap().unwrap_err().contains("cannot be the name of a metric"));
        assert!(report("loss", f64::NAN).unwrap().unwrap_err().contains("`loss` is NaN at step 3"));
        assert_eq!(report("valid/loss", 1.0).unwrap(), Ok(()));
        let error = report("valid/loss", 1.0).unwrap_err();
        assert_eq!(error.downcast_ref::<LimitReached>().unwrap().limit, PluginLimit::Points);
    }
}
