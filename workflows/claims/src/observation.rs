//! The tasks of one run, which claims are judged by.

use std::collections::BTreeMap;

use serde_json::Value;

/// A task of a run, as far as claims go.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// Its place in the run.
    pub task: usize,
    /// The job's name.
    pub job: &'a str,
    /// The matrix values.
    pub matrix: &'a BTreeMap<String, Value>,
    /// Which replicate, from 1; `None` where the job has none.
    pub replicate: Option<u32>,
    /// How it ended.
    pub outcome: Outcome,
    /// The last value of each metric.
    pub metrics: &'a BTreeMap<String, f64>,
    /// Tasks with the same work were done once, and are one observation.
    pub work: Option<&'a str>,
}

/// How a task ended, as far as claims go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its values are final.
    Finished,
    /// It has not ended yet.
    Pending,
    /// It failed, was skipped or was cancelled.
    Failed,
}
