//! The messages: [`Hello`], [`Request`] and [`Report`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of this protocol. A worker refuses an executor that greets with another version.
pub const PROTOCOL: u32 = 1;

/// The feature that marks an executor for tests, which `assay` does not offer as a backend.
pub const FOR_TESTS: &str = "for_tests";

/// The environment variable with the folder in which an executor may store compiled kernels. Without it, kernels are not
/// stored.
pub const KERNELS: &str = "ASSAY_KERNELS";

/// The environment variable with the number of the backend's device that the executor must use, from 0. The default is
/// the first device.
pub const DEVICE: &str = "ASSAY_DEVICE";

/// The environment variable with the process id of the worker, if the worker relies on the executor to request its own end when the
/// worker dies (`PR_SET_PDEATHSIG`). For unknown programs the worker does this itself, which costs a fork of its whole address
/// space.
pub const WORKER: &str = "ASSAY_WORKER";

/// The exit code of an executor whose device does not exist: EX_UNAVAILABLE of `sysexits.h`. Before it exits, it writes
/// the reason to standard error, in one line.
pub const NO_DEVICE: u8 = 69;

/// The first message of an executor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The value of [`PROTOCOL`] in the executor.
    pub protocol: u32,
    /// The executor's version, for the records.
    pub version: String,
    /// The backend's name, as in `resources: [{backend: cpu}]`.
    pub backend: String,
    /// Optional abilities, by name; unknown ones are ignored.
    #[serde(default)]
    pub features: Vec<String>,
    /// The step kinds that it can run.
    pub kinds: Vec<StepKindInfo>,
    /// The device that it computes on.
    pub device: DeviceInfo,
    /// The number of such devices of this machine, if each serves one attempt at a time; [`DEVICE`] selects one. `None`:
    /// attempts share the devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<u32>,
}

/// A step kind, by name and by the version of its semantics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepKindInfo {
    /// Its name in `uses:`.
    pub name: String,
    /// Incremented whenever the same config and inputs would give other results.
    pub version: u32,
}

/// The device of a backend, as people name it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Its name, for example the processor's model name.
    pub name: String,
    /// Instruction sets or limits that are worth recording with a measurement, such as `avx512f`.
    #[serde(default)]
    pub details: Vec<String>,
}

/// A message from a worker to an executor.
// A worker creates one or two of these per executor: their size does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Run one attempt of one step. An executor receives at most one of these.
    Run(RunRequest),
    /// Stop the attempt. An executor that does not end soon is killed.
    Cancel {
        /// The attempt's epoch.
        epoch: u32,
    },
}

/// One attempt of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The task's address, such as `train[chunk=64,states=16]#2`.
    pub task: String,
    /// The attempt's epoch; every report contains it.
    pub epoch: u32,
    /// The step kind.
    pub kind: String,
    /// The step's resolved config, without expressions.
    pub config: Value,
    /// The path of each artifact in the config, by hash. Read-only.
    pub artifacts: BTreeMap<String, PathBuf>,
    /// An empty folder for this attempt; outputs are written below it.
    pub workdir: PathBuf,
    /// The folder for state from which a later attempt can resume. All attempts at the same work share it. It outlives them and the run,
    /// and is removed when one of them completes. It need not exist. `None`: the folder is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<PathBuf>,
    /// The number of compute threads.
    pub threads: u32,
    /// The number of the replicate, from 1; 1 if the job has none. Steps mix it into their seed.
    pub replicate: u32,
}

/// A message from an executor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// The greeting: sent once, as the first message.
    Hello(Hello),
    /// The step has started.
    Started {
        /// The attempt's epoch.
        epoch: u32,
    },
    /// The position of the step.
    Progress {
        /// The attempt's epoch.
        epoch: u32,
        /// The position.
        progress: Progress,
    },
    /// New metric points.
    Metrics {
        /// The attempt's epoch.
        epoch: u32,
        /// In the order in which they were recorded.
        points: Vec<MetricPoint>,
    },
    /// A line for the log.
    Log {
        /// The attempt's epoch.
        epoch: u32,
        /// The level.
        level: LogLevel,
        /// The line, without its line break.
        text: String,
    },
    /// A file below the work folder is finished and becomes an artifact.
    Artifact {
        /// The attempt's epoch.
        epoch: u32,
        /// The output's name, as in `needs.JOB.outputs.NAME`.
        name: String,
        /// The path relative to the work folder.
        path: PathBuf,
    },
    /// The step is done. The last report of an attempt.
    Completed {
        /// The attempt's epoch.
        epoch: u32,
        /// Outputs that are plain values rather than artifacts.
        values: BTreeMap<String, Value>,
    },
    /// The step failed. The last report of an attempt.
    Failed {
        /// The attempt's epoch.
        epoch: u32,
        /// The reason.
        failure: Failure,
    },
}

impl Report {
    /// The epoch of its attempt; `None` for the greeting.
    #[must_use]
    pub fn epoch(&self) -> Option<u32> {
        match self {
            Report::Hello(_) => None,
            Report::Started { epoch }
            | Report::Progress { epoch, .. }
            | Report::Metrics { epoch, .. }
            | Report::Log { epoch, .. }
            | Report::Artifact { epoch, .. }
            | Report::Completed { epoch, .. }
            | Report::Failed { epoch, .. } => Some(*epoch),
        }
    }

    /// The report's name in JSON, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Report::Hello(_) => "hello",
            Report::Started { .. } => "started",
            Report::Progress { .. } => "progress",
            Report::Metrics { .. } => "metrics",
            Report::Log { .. } => "log",
            Report::Artifact { .. } => "artifact",
            Report::Completed { .. } => "completed",
            Report::Failed { .. } => "failed",
        }
    }
}

/// A position within a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// The total number of units, if known.
    pub total: Option<u64>,
    /// What is counted, in the plural: `steps`, `samples`.
    pub unit: String,
    /// A short description of the current state, such as `loss 1.93`.
    #[serde(default)]
    pub note: String,
}

/// One value of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricPoint {
    /// The name, such as `train/loss`.
    pub name: String,
    /// The x axis: the training step, or 0 if the metric has none.
    pub step: u64,
    /// The value. NaN and infinities are allowed (a diverged loss is a result) and are sent as strings.
    #[serde(with = "float")]
    pub value: f64,
}

/// The level of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Information.
    Info,
    /// A warning.
    Warn,
    /// An error.
    Error,
    /// Written to standard error by the step or a library in it.
    Stderr,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind of failure; `retry: {when: [..]}` names these.
    pub class: FailureClass,
    /// What happened, in a lower-case sentence fragment.
    pub message: String,
    /// How to fix it, if known.
    #[serde(default)]
    pub hint: Option<String>,
}

/// The failure classes. They are distinguished because they call for different reactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The step reports that it cannot do its task.
    Step,
    /// A check of the step's own result failed.
    Check,
    /// The step ran longer than `timeout-minutes`.
    Timeout,
    /// It exceeded its memory limit, or the device ran out of memory.
    Oom,
    /// It printed more than the log limit.
    Output,
    /// It sent an invalid or unexpected message.
    Protocol,
    /// Its process died: a signal, a panic, an unexpected exit.
    Crashed,
    /// No executor for the backend could be started on the worker.
    Unavailable,
    /// The worker stopped the attempt to run it elsewhere, or was lost with it.
    Preempted,
    /// A user cancelled it.
    Cancelled,
}

impl FailureClass {
    /// Every class, in the order of the documentation.
    pub const ALL: [FailureClass; 10] = [
        FailureClass::Step,
        FailureClass::Check,
        FailureClass::Timeout,
        FailureClass::Oom,
        FailureClass::Output,
        FailureClass::Protocol,
        FailureClass::Crashed,
        FailureClass::Unavailable,
        FailureClass::Preempted,
        FailureClass::Cancelled,
    ];

    /// The name in workflow files, messages and the store.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FailureClass::Step => "step",
            FailureClass::Check => "check",
            FailureClass::Timeout => "timeout",
            FailureClass::Oom => "oom",
            FailureClass::Output => "output",
            FailureClass::Protocol => "protocol",
            FailureClass::Crashed => "crashed",
            FailureClass::Unavailable => "unavailable",
            FailureClass::Preempted => "preempted",
            FailureClass::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for FailureClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for FailureClass {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|class| class.name() == text).ok_or_else(|| format!("unknown class `{text}`"))
    }
}

/// Floats in JSON, with NaN and the infinities as strings.
mod float {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)] // Written only by programs, so people never see the poor messages of `untagged`.
    enum Written {
        Number(f64),
        Text(String),
    }

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { serializer.serialize_f64(*value) } else { serializer.serialize_str(&value.to_string()) }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(value) => Ok(value),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_survives_json() {
        for value in [0.1, -0.0, f64::MIN_POSITIVE / 3.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let point = MetricPoint { name: "train/loss".into(), step: 3, value };
            let text = serde_json::to_string(&point).unwrap();
            let back: MetricPoint = serde_json::from_str(&text).unwrap();
            assert!(back.value.to_bits() == value.to_bits() || value.is_nan() && back.value.is_nan(), "{text}");
        }
    }

    #[test]
    fn a_value_without_a_point_is_a_number_too() {
        let point: MetricPoint =
            serde_json::from_str(r#"{"name": "n", "step": 18446744073709551615, "value": 2}"#).unwrap();
        assert_eq!((point.step, point.value), (u64::MAX, 2.0));
        assert!(serde_json::from_str::<MetricPoint>(r#"{"name": "n", "step": 0, "value": "two"}"#).is_err());
    }

    fn every_report() -> Vec<Report> {
        let epoch = 7;
        let progress = Progress { done: 1, total: None, unit: "Schritte".into(), note: "größer\n".into() };
        let failure = Failure { class: FailureClass::Oom, message: "too much".into(), hint: None };
        vec![
            Report::Hello(Hello {
                protocol: PROTOCOL,
                version: "1.0".into(),
                backend: "cpu".into(),
                features: vec!["f".into()],
                kinds: vec![StepKindInfo { name: "train".into(), version: 2 }],
                device: DeviceInfo::default(),
                devices: Some(2),
            }),
            Report::Started { epoch },
            Report::Progress { epoch, progress },
            Report::Metrics { epoch, points: vec![MetricPoint { name: "a/b".into(), step: 1, value: -0.1 }] },
            Report::Log { epoch, level: LogLevel::Warn, text: "\u{0}".into() },
            Report::Artifact { epoch, name: "model".into(), path: "a/b.safetensors".into() },
            Report::Completed { epoch, values: [("n".to_owned(), serde_json::json!([1, null, 0.1]))].into() },
            Report::Failed { epoch, failure },
        ]
    }

    #[test]
    fn every_report_survives_json_and_says_its_name_and_epoch() {
        for report in every_report() {
            let json = serde_json::to_value(&report).unwrap();
            assert_eq!(json["report"], report.name());
            assert_eq!(json.get("epoch").and_then(Value::as_u64), report.epoch().map(u64::from));
            let text = serde_json::to_string(&report).unwrap();
            assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        }
    }

    #[test]
    fn every_request_survives_json() {
        let run = RunRequest {
            task: "train[chunk=64]#2".into(),
            epoch: 3,
            kind: "train".into(),
            config: serde_json::json!({"lr": 3e-3, "model": {"dim": 64}}),
            artifacts: [("ab".repeat(32), PathBuf::from("/store/ab"))].into(),
            workdir: "/work".into(),
            resume: Some("/resume/key".into()),
            threads: 2,
            replicate: 1,
        };
        let alone = RunRequest { resume: None, ..run.clone() };
        assert!(!serde_json::to_string(&alone).unwrap().contains("resume"), "a worker that has none says nothing");
        for request in [Request::Run(run), Request::Run(alone), Request::Cancel { epoch: 3 }] {
            let text = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
        }
    }

    #[test]
    fn a_failure_class_has_one_name_everywhere() {
        for class in FailureClass::ALL {
            assert_eq!(class.name().parse::<FailureClass>().unwrap(), class);
            assert_eq!(serde_json::to_value(class).unwrap(), Value::from(class.name()));
        }
    }
}
