//! Steps and pipes for tests.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use assay_protocol::{DeviceInfo, Report, RunRequest, read_frame};
use assay_spec::{ArtifactRef, StepKind};
use assay_steps::{Context, Step, StepError, no_findings};
use serde_json::{Value, json};

use crate::Setup;

/// A step defined by a function.
struct Fake(&'static str, fn(&mut dyn Context) -> Result<(), StepError>);

impl Step for Fake {
    fn kind(&self) -> StepKind {
        StepKind {
            name: self.0,
            version: 3,
            measures: false,
            about: "A step for tests.",
            schema: Value::Bool(true).into(),
            outputs: &[],
            metrics: &[],
            check: no_findings,
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        assert_eq!(config, json!({"seed": 17}));
        self.1(context)
    }
}

/// An executor with a step for every case.
pub(crate) fn test_setup() -> Setup {
    let steps = [
        Fake("good", complete_step),
        Fake("waits", wait_for_stop),
        Fake("fails", |_| Err(StepError::failed("nothing to learn"))),
        Fake("check", |_| {
            Err(StepError::Check { message: "0.1 is more than 0.0001".into(), hint: Some("look closer".into()) })
        }),
        Fake("out of memory", |_| Err(StepError::OutOfMemory("80 GiB".into()))),
        Fake("fault", |_| Err(StepError::Fault("a kernel failed on the device: it read beyond its array".into()))),
        Fake("lost", |_| Err(StepError::Lost("the device was lost: it fell off the bus".into()))),
        Fake("cancelled", |_| Err(StepError::Cancelled)),
        Fake("panics", |context| panic!("{} states", context.threads() + 1)),
        Fake("panics on a thread", |_| {
            let thread = std::thread::spawn(|| panic!("on a compute thread"));
            thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
        }),
        Fake("missing output", |context| context.artifact("model", Path::new("nothing"))),
        Fake("output outside", |context| context.artifact("model", Path::new("/etc/passwd"))),
        Fake("output twice", |context| {
            write(context, "a.txt")?;
            context.artifact("a", Path::new("a.txt"))?;
            context.artifact("a", Path::new("a.txt"))
        }),
        Fake("both file and value", |context| {
            write(context, "a.txt")?;
            context.value("a", json!(1));
            context.artifact("a", Path::new("a.txt"))
        }),
        Fake("huge value", |context| {
            context.value("a", json!("x".repeat(5 << 20)));
            Ok(())
        }),
        Fake("missing input", |context| {
            let artifact = ArtifactRef { hash: "00".into(), name: "corpus".into(), bytes: 1 };
            context.input(&artifact).map(drop)
        }),
    ];
    Setup {
        backend: "test".into(),
        device_info: DeviceInfo { name: "a pocket calculator".into(), details: Vec::new() },
        devices: None,
        device: Box::new(|threads| {
            assert_eq!(threads, 2);
            Ok(assay_reference::device())
        }),
        steps: steps.into_iter().map(|step| Box::new(step) as Box<dyn Step>).collect(),
    }
}

pub(crate) fn test_request(kind: &str, workdir: &Path) -> RunRequest {
    RunRequest {
        task: "job[a=1]#2".into(),
        epoch: 7,
        kind: kind.into(),
        config: json!({"seed": 17}),
        artifacts: BTreeMap::new(),
        workdir: workdir.to_path_buf(),
        resume: Some(workdir.join("resume")),
        threads: 2,
        replicate: 2,
    }
}

/// Reports one item of every kind.
fn complete_step(context: &mut dyn Context) -> Result<(), StepError> {
    context.log(&format!("replicate {} with {} threads", context.replicate(), context.threads()));
    context.metric("train/loss", 0, 2.0);
    context.metric("train/loss", 1, f64::NAN);
    context.progress(1, Some(2), "steps", "loss NaN");
    let file = write(context, "deep/model.txt")?;
    context.artifact("model", &file)?;
    context.value("classes", json!(10));
    Ok(())
}

/// Reports positions until it must stop.
fn wait_for_stop(context: &mut dyn Context) -> Result<(), StepError> {
    for done in 0.. {
        if context.cancelled() {
            break;
        }
        context.progress(done, None, "looks", "");
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(StepError::Cancelled)
}

fn write(context: &dyn Context, name: &str) -> Result<std::path::PathBuf, StepError> {
    let file = context.workdir().join(name);
    let folder = file.parent().map(std::fs::create_dir_all).transpose();
    folder.and_then(|_| std::fs::write(&file, "content")).map_err(|error| StepError::failed(error.to_string()))?;
    Ok(file)
}

/// The end of a pipe that a test can read while another thread writes.
#[derive(Clone, Default)]
pub(crate) struct Shelf(Arc<Mutex<Vec<u8>>>);

impl Write for Shelf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shelf {
    pub(crate) fn reports(&self) -> Vec<Report> {
        let bytes = self.0.lock().unwrap().clone();
        let mut bytes = bytes.as_slice();
        std::iter::from_fn(|| read_frame(&mut bytes).unwrap()).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}
