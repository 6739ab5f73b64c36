//! Claims and runs for the tests.

use std::collections::BTreeMap;

use assay_claims::{Observation, Outcome};
use assay_spec::{Claim, Claimed, parse_formula};
use serde_json::{Value, json};

/// A claim with a check, and optionally a claimed value.
pub fn claim(id: &str, check: &str, claimed: Option<Claimed>) -> Claim {
    Claim {
        id: id.to_owned(),
        says: None,
        source: None,
        place: ("f.yaml".to_owned(), 1),
        check: Some(parse_formula(check).unwrap_or_else(|error| panic!("{check}: {error:?}"))),
        claimed,
        arithmetic: Vec::new(),
        needs: Vec::new(),
        not_tested: None,
        scaled: None,
        exact: false,
        unit: String::new(),
    }
}

/// The tasks of a run.
#[derive(Default)]
pub struct Run {
    tasks: Vec<Task>,
}

struct Task {
    job: String,
    matrix: BTreeMap<String, Value>,
    replicate: Option<u32>,
    metrics: BTreeMap<String, f64>,
    outcome: Outcome,
    work: Option<String>,
}

impl Run {
    /// Adds the replicates of a cell: `values` are those of the metric `x`.
    pub fn add_cell(&mut self, job: &str, matrix: Value, values: &[f64]) -> &mut Self {
        for (replicate, value) in (1..).zip(values) {
            self.add_task(job, matrix.clone(), Some(replicate), &[("x", *value)]);
        }
        self
    }

    /// Adds a task.
    pub fn add_task(&mut self, job: &str, matrix: Value, replicate: Option<u32>, metrics: &[(&str, f64)]) -> &mut Self {
        self.tasks.push(Task {
            job: job.to_owned(),
            matrix: serde_json::from_value(matrix).unwrap_or_default(),
            replicate,
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            outcome: Outcome::Finished,
            work: None,
        });
        self
    }

    /// Adds the replicates of a job without a matrix.
    pub fn add_job(&mut self, job: &str, values: &[f64]) -> &mut Self {
        self.add_cell(job, json!({}), values)
    }

    /// Changes how the last task ended.
    pub fn set_outcome(&mut self, outcome: Outcome) -> &mut Self {
        if let Some(task) = self.tasks.last_mut() {
            task.outcome = outcome;
        }
        self
    }

    /// Gives the last task a cache key.
    pub fn set_work(&mut self, key: &str) -> &mut Self {
        if let Some(task) = self.tasks.last_mut() {
            task.work = Some(key.to_owned());
        }
        self
    }

    pub fn observations(&self) -> Vec<Observation<'_>> {
        self.tasks
            .iter()
            .enumerate()
            .map(|(at, task)| Observation {
                task: at,
                job: &task.job,
                matrix: &task.matrix,
                replicate: task.replicate,
                outcome: task.outcome,
                metrics: &task.metrics,
                work: task.work.as_deref(),
            })
            .collect()
    }
}
