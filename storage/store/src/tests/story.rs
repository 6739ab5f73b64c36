//! A run as recorded by the server, for the tests: three tasks, one of which needs two attempts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use assay_core::{Epoch, RunId, TaskIx};
use assay_protocol::{Failure, FailureClass, LogLevel, MetricPoint};
use assay_server::{
    CachedResult, GitState, LogLine, Lookup, Marks, NewRun, NewTask, Record, RunStateName, TaskStateName,
};
use assay_spec::{ArtifactRef, Output, Outputs};
use serde_json::json;

use crate::{Store, StoreError};

pub(super) fn key(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// The result under a cache key, if it is known and intact.
pub(super) async fn known_result(store: &Store, digit: char) -> Option<CachedResult> {
    match store.look_up_result(&key(digit)).await.unwrap() {
        Lookup::Known(result) => Some(result),
        Lookup::Unknown | Lookup::Lost { .. } => None,
    }
}

pub(super) fn new_run() -> NewRun {
    let task = |address: &str, job: &str, needs: &[u32], each: Option<u32>| NewTask {
        address: address.into(),
        cell: address.split("#1").next().unwrap_or_default().into(),
        job: job.into(),
        kind: if job == "data" { "prepare".into() } else { job.into() },
        matrix: BTreeMap::new(),
        replicate: None,
        needs: needs.iter().copied().map(TaskIx).collect(),
        each: each.map(TaskIx),
    };
    let mut train = task("train[chunk=64,states=16]#1", "train", &[0], None);
    train.matrix = [("chunk".to_owned(), json!(64)), ("states".to_owned(), json!(16))].into();
    train.replicate = Some(1);
    NewRun {
        name: "small".into(),
        file: "workflows/small.yaml".into(),
        source: "name: small\njobs: {}\n".into(),
        params: json!({"seed": 17}),
        machine: json!({"cores": 2}),
        version: "0.1.0".into(),
        marks: Marks {
            tags: vec!["sweep".into(), "baseline".into()],
            note: "as in the paper".into(),
            git: Some(GitState { commit: "abc".into(), dirty: true }),
        },
        tasks: vec![task("data", "data", &[], None), train, task("export", "export", &[1], Some(1))],
    }
}

pub(super) fn metric_point(name: &str, step: u64, value: f64) -> MetricPoint {
    MetricPoint { name: name.into(), step, value }
}

pub(super) fn attempt_began(task: u32, epoch: u32, at: u64) -> Record {
    Record::AttemptBegan { task: TaskIx(task), epoch: Epoch(epoch), worker: "here".into(), backend: "cpu".into(), at }
}

pub(super) fn attempt_ended(task: u32, epoch: u32, failure: Option<Failure>, at: u64) -> Record {
    Record::AttemptEnded { task: TaskIx(task), epoch: Epoch(epoch), failure, at }
}

pub(super) fn metrics_record(task: u32, epoch: u32, points: Vec<MetricPoint>) -> Record {
    Record::Metrics { task: TaskIx(task), epoch: Epoch(epoch), points }
}

pub(super) fn state_record(task: u32, state: TaskStateName, detail: &str, at: u64) -> Record {
    Record::State { task: TaskIx(task), state, detail: detail.into(), at }
}

pub(super) fn journal_entry(seq: u64) -> Record {
    Record::Journal { seq, entry: format!("{{\"entry\":{seq}}}") }
}

pub(super) fn log_record(task: u32, epoch: u32, at: u64, text: &str) -> Record {
    let line = LogLine { at, level: LogLevel::Info, text: text.into() };
    Record::Logs { task: TaskIx(task), epoch: Epoch(epoch), lines: vec![line] }
}

pub(super) fn resolved_record(task: u32, digit: char) -> Record {
    Record::Resolved { task: TaskIx(task), config: json!({"task": task}), key: key(digit) }
}

pub(super) fn succeeded_record(task: u32, epoch: u32, outputs: Outputs, metrics: &[(&str, f64)], at: u64) -> Record {
    let metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Record::Succeeded { task: TaskIx(task), epoch: Epoch(epoch), outputs, metrics, at }
}

fn file_output(artifact: ArtifactRef) -> Outputs {
    [("file".to_owned(), Output::Artifact(artifact)), ("rows".to_owned(), Output::Value(json!([1, 2.5, "x"])))].into()
}

/// A step of the story: an operation on a store.
pub(super) enum Deed {
    Begin,
    /// Stores a file with this content; later batches may name it.
    Ingest(&'static str),
    Record(fn(&ArtifactRef) -> Vec<Record>),
}

/// The number of steps of the story.
pub(super) const LENGTH: usize = 13;

/// The whole story, in order.
pub(super) fn story_steps() -> Vec<Deed> {
    use TaskStateName as S;
    vec![
        Deed::Begin,
        Deed::Record(|_| {
            vec![
                journal_entry(1),
                resolved_record(0, 'a'),
                state_record(0, S::Ready, "", 1),
                state_record(0, S::Running, "", 2),
                attempt_began(0, 1, 2),
            ]
        }),
        Deed::Ingest("some data"),
        Deed::Record(|data| {
            let executor = json!({"backend": "cpu", "version": "0.1.0"});
            vec![
                journal_entry(2),
                Record::AttemptGreeted { task: TaskIx(0), epoch: Epoch(1), executor },
                log_record(0, 1, 3, "4000 rows"),
                succeeded_record(0, 1, file_output(data.clone()), &[], 4),
                attempt_ended(0, 1, None, 4),
            ]
        }),
        Deed::Record(|_| {
            vec![journal_entry(3), resolved_record(1, 'b'), state_record(1, S::Running, "", 5), attempt_began(1, 1, 5)]
        }),
        Deed::Record(|_| {
            vec![
                metrics_record(1, 1, vec![metric_point("train/loss", 1, 2.5), metric_point("train/loss", 2, f64::NAN)]),
                log_record(1, 1, 6, "step 2"),
                metrics_record(1, 1, vec![metric_point("train/loss", 3, -0.0)]),
            ]
        }),
        Deed::Record(|_| {
            let failure =
                Failure { class: FailureClass::Oom, message: "it took 9 GB".into(), hint: Some("take less".into()) };
            vec![
                journal_entry(4),
                attempt_ended(1, 1, Some(failure), 7),
                state_record(1, S::BackingOff, "out of memory", 7),
            ]
        }),
        Deed::Record(|_| {
            vec![
                journal_entry(5),
                state_record(1, S::Running, "", 9),
                attempt_began(1, 2, 9),
                log_record(1, 2, 9, "once more"),
            ]
        }),
        Deed::Record(|_| metrics_of_the_second_attempt()),
        Deed::Ingest("a model"),
        Deed::Record(|model| {
            let last = [("train/loss", 1.25), ("valid/accuracy", f64::INFINITY)];
            vec![
                journal_entry(6),
                succeeded_record(1, 2, file_output(model.clone()), &last, 10),
                attempt_ended(1, 2, None, 10),
            ]
        }),
        Deed::Record(|model| {
            let outputs = file_output(model.clone());
            let result = CachedResult {
                run: RunId(1),
                task: TaskIx(1),
                epoch: Epoch(2),
                outputs,
                metrics: [("train/loss".to_owned(), 1.25)].into(),
            };
            vec![journal_entry(7), resolved_record(2, 'c'), Record::Cached { task: TaskIx(2), result, at: 11 }]
        }),
        Deed::Record(|_| vec![journal_entry(8), Record::Ended { state: RunStateName::Succeeded, at: 12 }]),
    ]
}

fn metrics_of_the_second_attempt() -> Vec<Record> {
    vec![metrics_record(
        1,
        2,
        vec![
            metric_point("train/loss", 1, 2.5),
            metric_point("valid/accuracy", 1, f64::INFINITY),
            metric_point("train/loss", u64::MAX, 1.25),
        ],
    )]
}

/// The last artifact that was stored before a step.
fn artifact_before(story: &[Deed], nth: usize) -> ArtifactRef {
    let content = story[..nth].iter().rev().find_map(|deed| match deed {
        Deed::Ingest(content) => Some(*content),
        _ => None,
    });
    let content = content.unwrap_or_default();
    let hash = blake3::hash(content.as_bytes()).to_hex().to_string();
    ArtifactRef { hash, name: "file.bin".into(), bytes: content.len() as u64 }
}

/// Performs these steps of the story, up to the first that fails.
pub(super) async fn play_story(store: &Store, outside: &Path, which: Range<usize>) -> Result<(), StoreError> {
    let story = story_steps();
    for nth in which {
        match &story[nth] {
            Deed::Begin => {
                store.begin_run(new_run()).await?;
            }
            Deed::Ingest(content) => {
                let path = outside.join("file.bin");
                std::fs::write(&path, content).unwrap();
                let taken = store.ingest_file(&path, "file.bin").await?;
                assert_eq!(taken, artifact_before(&story, nth + 1));
            }
            Deed::Record(batch) => store.append_records(RunId(1), batch(&artifact_before(&story, nth))).await?,
        }
    }
    Ok(())
}
