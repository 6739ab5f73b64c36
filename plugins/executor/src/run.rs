//! One attempt of one step, from the request to its last report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use assay_protocol::{Failure, FailureClass, Report, RunRequest, StepKindInfo};
use assay_steps::{LimitKind, StepError};
use serde_json::Value;

use crate::Setup;
use crate::context::{Attempt, Stop};
use crate::outbox::SharedOutbox;
use crate::panics::{Panic, catch_panic};

/// Runs the step and sends all reports from `started` to the last one. `kinds` are those of the setup's steps. Returns whether
/// the step completed.
pub(crate) fn execute_request(
    setup: Setup,
    kinds: &[StepKindInfo],
    request: RunRequest,
    stop: Stop,
    outbox: &SharedOutbox,
) -> bool {
    let epoch = request.epoch;
    outbox.lock_outbox().report_started();
    let result = catch_panic(|| run_step(setup, kinds, request, stop, outbox));
    let report = match result.unwrap_or_else(|panic| Err(panic_failure(&panic))) {
        Ok(values) => Report::Completed { epoch, values },
        Err(failure) => Report::Failed { epoch, failure },
    };
    let sent = outbox.lock_outbox().report_last(&report);
    if let Err(error) = sent {
        // The messages below are short enough for a frame.
        let hint = Some("write large values to a file, and declare the file as an output".into());
        let failure =
            Failure { class: FailureClass::Step, message: format!("the step's values are too large: {error}"), hint };
        let _ = outbox.lock_outbox().report_last(&Report::Failed { epoch, failure });
        return false;
    }
    matches!(report, Report::Completed { .. })
}

fn run_step(
    setup: Setup,
    kinds: &[StepKindInfo],
    request: RunRequest,
    stop: Stop,
    outbox: &SharedOutbox,
) -> Result<BTreeMap<String, Value>, Failure> {
    let step = kinds.iter().position(|kind| kind.name == request.kind).and_then(|place| setup.steps.get(place));
    let step = step.ok_or_else(|| unknown_kind(kinds, &request.kind))?;
    let workdir = check_workdir(request.workdir)?;
    let threads = usize::try_from(request.threads).unwrap_or(1).max(1);
    let device = (setup.device)(threads).map_err(|why| Failure {
        class: FailureClass::Unavailable,
        message: format!("the backend `{}` has no device here: {why}", setup.backend),
        hint: Some("`assay backends` lists what this machine can run".into()),
    })?;
    let mut attempt = Attempt {
        device,
        threads,
        replicate: request.replicate.max(1),
        epoch: request.epoch,
        artifacts: request.artifacts,
        workdir,
        resume: request.resume,
        outbox,
        stop,
        values: BTreeMap::new(),
        files: BTreeSet::new(),
    };
    step.run(request.config, &mut attempt).map_err(step_failure)?;
    match attempt.values.keys().find(|name| attempt.files.contains(*name)) {
        None => Ok(attempt.values),
        Some(name) => Err(step_failure(StepError::failed(format!("the output `{name}` is both a file and a value")))),
    }
}

fn unknown_kind(kinds: &[StepKindInfo], kind: &str) -> Failure {
    let known = kinds.iter().map(|kind| format!("`{}`", kind.name)).collect::<Vec<_>>().join(", ");
    Failure {
        class: FailureClass::Unavailable,
        message: format!("there is no step kind `{kind}`"),
        hint: Some(format!("this executor knows {known}")),
    }
}

fn check_workdir(path: PathBuf) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| Failure {
        class: FailureClass::Unavailable,
        message: format!("the work folder `{}` cannot be used: {error}", path.display()),
        hint: None,
    })
}

fn step_failure(error: StepError) -> Failure {
    let message = error.to_string();
    let (class, hint) = match error {
        StepError::Failed { hint, .. } => (FailureClass::Step, hint),
        StepError::Check { hint, .. } => (FailureClass::Check, hint),
        StepError::OutOfMemory(_) => (FailureClass::Oom, Some("make the batch or the model smaller".into())),
        StepError::PluginLimit { kind: LimitKind::Memory, hint, .. } => (FailureClass::Oom, hint),
        StepError::PluginLimit { kind: LimitKind::Time, hint, .. } => (FailureClass::Timeout, hint),
        StepError::Fault(_) => (FailureClass::Crashed, Some("the next attempt starts with a fresh device".into())),
        StepError::Lost(_) => (FailureClass::Unavailable, Some("check the machine: its device is gone".into())),
        StepError::Cancelled => (FailureClass::Cancelled, None),
    };
    Failure { class, message, hint }
}

fn panic_failure(panic: &Panic) -> Failure {
    let place = panic.place.as_deref().unwrap_or("an unknown place");
    Failure {
        class: FailureClass::Crashed,
        message: format!("the step panicked at {place}: {}", panic.message),
        hint: Some("this is a bug; the log contains the output before it".into()),
    }
}
