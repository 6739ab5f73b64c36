//! The tasks of one run, the input of claims.

use std::collections::BTreeMap;

use serde_json::Value;

/// The data of a task that claims use.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// Its index in the run.
    pub task: usize,
    /// The job's name.
    pub job: &'a str,
    /// The matrix values.
    pub matrix: &'a BTreeMap<String, Value>,
    /// The number of the replicate, from 1; `None` if the job has none.
    pub replicate: Option<u32>,
    /// How it ended.
    pub outcome: Outcome,
    /// The last value of each metric.
    pub metrics: &'a BTreeMap<String, f64>,
    /// Tasks with the same key did the same work once, and are one observation.
    pub work: Option<&'a str>,
}

/// How a task ended, in the categories of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its values are final.
    Finished,
    /// It has not ended yet.
    Pending,
    /// It failed, was skipped or was cancelled.
    Failed,
}
