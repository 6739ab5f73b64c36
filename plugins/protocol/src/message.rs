//! The messages: [`Hello`], [`Request`] and [`Report`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of this protocol. A worker refuses an executor that greets with another.
pub const PROTOCOL: u32 = 1;

/// The feature that marks an executor which serves tests, and is no backend to choose.
pub const FOR_TESTS: &str = "for_tests";

/// The variable of an executor's environment that names the folder in which it may keep compiled kernels. Without it, it
/// keeps none.
pub const KERNELS: &str = "ASSAY_KERNELS";

/// The variable of an executor's environment that says which of its backend's devices it is to use, counted from 0. It is
/// the first one without.
pub const DEVICE: &str = "ASSAY_DEVICE";

/// The variable of an executor's environment that holds the process id of its worker, where the worker relies on the executor to ask
/// the kernel for its own end when the worker dies (`PR_SET_PDEATHSIG`). The worker does so itself for programs that it does not
/// know, which costs a fork of its whole address space.
pub const WORKER: &str = "ASSAY_WORKER";

/// The exit code of an executor whose device is not there: EX_UNAVAILABLE of `sysexits.h`. Before it ends, it says why on
/// standard error, in one line.
pub const NO_DEVICE: u8 = 69;

/// What an executor says first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] as the executor was built.
    pub protocol: u32,
    /// The executor's own version, for the records.
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
    /// How many such devices this machine has, if each is for one attempt at a time; [`DEVICE`] chooses among them. `None`:
    /// attempts share what there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<u32>,
}

/// A step kind, by name and by the version of its semantics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepKindInfo {
    /// As in `uses:`.
    pub name: String,
    /// Raised whenever the same config and inputs would give other results.
    pub version: u32,
}

/// The device behind a backend, as a person would name it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// For example the processor's model name.
    pub name: String,
    /// Instruction sets or limits worth recording beside a measurement, such as `avx512f`.
    #[serde(default)]
    pub details: Vec<String>,
}

/// What a worker asks of an executor.
// A worker makes one or two of these in the life of an executor: their size does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Run one attempt of one step. An executor gets at most one of these in its life.
    Run(RunRequest),
    /// Give the attempt up. An executor that does not end soon is killed.
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
    /// The attempt's epoch; every report repeats it.
    pub epoch: u32,
    /// The step kind.
    pub kind: String,
    /// The step's resolved config: no expression is left in it.
    pub config: Value,
    /// Where each artifact that the config names lies, by hash. Read-only.
    pub artifacts: BTreeMap<String, PathBuf>,
    /// An empty folder of this attempt's own; outputs are written below it.
    pub workdir: PathBuf,
    /// Where attempts of this task leave what a later one can resume from. It is shared by all attempts at the same work,
    /// outlives them and the run, and goes when one of them completes. It need not exist. `None`: there is no such place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<PathBuf>,
    /// How many compute threads to use.
    pub threads: u32,
    /// Which replicate this is, from 1; 1 where the job has none. Steps mix it into their seed.
    pub replicate: u32,
}

/// What an executor says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// The greeting, once, before anything else.
    Hello(Hello),
    /// The step has begun.
    Started {
        /// The attempt's epoch.
        epoch: u32,
    },
    /// How far the step is.
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
        /// In the order in which they were made.
        points: Vec<MetricPoint>,
    },
    /// A line for the log.
    Log {
        /// The attempt's epoch.
        epoch: u32,
        /// How much it matters.
        level: LogLevel,
        /// The line, without a line break at its end.
        text: String,
    },
    /// A file below the work folder is finished and shall become an artifact.
    Artifact {
        /// The attempt's epoch.
        epoch: u32,
        /// The output's name, as in `needs.JOB.outputs.NAME`.
        name: String,
        /// Relative to the work folder.
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
        /// Why.
        failure: Failure,
    },
}

impl Report {
    /// The attempt that it belongs to; `None` for the greeting, which comes before any.
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
    /// Units in all, where known.
    pub total: Option<u64>,
    /// What is counted, in the plural: `steps`, `samples`.
    pub unit: String,
    /// A few words on the present state, such as `loss 1.93`.
    #[serde(default)]
    pub note: String,
}

/// One value of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricPoint {
    /// Such as `train/loss`.
    pub name: String,
    /// The x axis: the training step, or 0 where there is none.
    pub step: u64,
    /// The value. NaN and the infinities are legal (a diverged loss is a finding) and cross as strings.
    #[serde(with = "float")]
    pub value: f64,
}

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Worth a line.
    Info,
    /// Worth a look.
    Warn,
    /// Something failed.
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
    /// What to do about it, where that is known.
    #[serde(default)]
    pub hint: Option<String>,
}

/// The kinds of failure. They are distinguished because they call for different reactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The step itself says that it cannot do what was asked.
    Step,
    /// A check that the step makes on its own result did not hold.
    Check,
    /// The step ran longer than `timeout-minutes`.
    Timeout,
    /// It used more memory than it was given, or the device ran out.
    Oom,
    /// It printed more than the log limit.
    Output,
    /// It sent something that is no message of the protocol, or a message out of turn.
    Protocol,
    /// Its process died: a signal, a panic, an unexpected exit.
    Crashed,
    /// No executor for the backend could be started on the worker.
    Unavailable,
    /// The worker took the attempt away, or was lost with it.
    Preempted,
    /// A person cancelled it.
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
        Self::ALL.into_iter().find(|class| class.name() == text).ok_or_else(|| format!("`{text}` is no failure class"))
    }
}

/// Floats in JSON, with NaN and the infinities as strings.
mod float {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)] // Written by programs only, so that the poor messages of `untagged` reach no person.
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
