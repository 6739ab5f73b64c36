//! The checked workflow: the meaning of a file without problems. Only this can be planned and run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::check::WithoutCells;
use crate::claims::Claim;
use crate::draft::Draft;
use crate::problem::Problems;
use crate::resolve::{JobTemplate, Shared};
use crate::suggest;

/// A checked workflow: every job's tasks are expanded, and every need refers to an earlier task.
///
/// Only [`check`](crate::check) creates it, so its existence means that the file had no problem.
#[derive(Debug, Clone)]
pub struct Workflow {
    /// The file's `name:`, or the file name without its extension.
    pub name: String,
    /// The file's `description:`.
    pub description: Option<String>,
    /// The parameters after overrides, in the order of the file.
    pub params: Map<String, Value>,
    /// In the order of the file.
    pub jobs: Vec<Job>,
    /// In topological order; within a job, all cells of the first replicate come before those of the second.
    pub tasks: Vec<Task>,
    /// The claims about its results, in the order of the file.
    pub claims: Vec<Claim>,
    /// Warnings: valid input that is probably not intended, such as an unused axis. Empty for most files.
    pub warnings: Problems,
    /// The `with:` of each job, in the order of `jobs`.
    pub(crate) templates: Vec<JobTemplate>,
    /// The file, and the variables that every expression in it can use.
    pub(crate) shared: Shared,
    /// The description of this machine's backends; see [`Workflow::describe_machine`].
    pub(crate) machine: BTreeMap<String, Value>,
    /// The jobs whose cells could not be computed, and why.
    pub(crate) without_cells: WithoutCells,
}

impl Workflow {
    /// The files that the workflow file includes, each with its text.
    pub fn included(&self) -> impl Iterator<Item = (&str, &str)> {
        self.shared.source.included()
    }

    /// The part of the workflow that consists of these jobs and of all their direct and indirect needs.
    ///
    /// # Errors
    /// If a job does not exist; the message lists the names.
    pub fn only(&self, jobs: &[String]) -> Result<Workflow, String> {
        let mut kept = vec![false; self.jobs.len()];
        let mut open = Vec::new();
        for name in jobs {
            let place = self.jobs.iter().position(|job| job.name == *name).ok_or_else(|| {
                let hint = suggest::hint(name, self.jobs.iter().map(|job| job.name.as_str()), "jobs");
                format!("the workflow has no job `{name}`: {}", hint.unwrap_or_else(|| "see the file".to_owned()))
            })?;
            open.push(place);
        }
        while let Some(place) = open.pop() {
            if !std::mem::replace(&mut kept[place], true) {
                open.extend(&self.jobs[place].needs);
            }
        }
        let kept_tasks: Vec<bool> = self.tasks.iter().map(|task| kept[task.job_index]).collect();
        // The new index of each kept job and task; their needs are kept too.
        let (of_job, of_task) = (renumber(&kept), renumber(&kept_tasks));
        let job = |place: usize| Job {
            needs: self.jobs[place].needs.iter().map(|&need| of_job[need]).collect(),
            tasks: self.jobs[place].tasks.iter().map(|&task| of_task[task]).collect(),
            awaits: self.jobs[place].awaits.as_ref().map(|jobs| jobs.iter().map(|&job| of_job[job]).collect()),
            ..self.jobs[place].clone()
        };
        let task = |place: usize| Task {
            needs: self.tasks[place].needs.iter().map(|&need| of_task[need]).collect(),
            each: self.tasks[place].each.map(|each| of_task[each]),
            job_index: of_job[self.tasks[place].job_index],
            ..self.tasks[place].clone()
        };
        let drafts = places(&kept).map(|place| self.shared.draft.jobs[place].clone()).collect();
        let draft = Draft { jobs: drafts, ..Draft::clone(&self.shared.draft) };
        Ok(Workflow {
            shared: Shared { draft: Arc::new(draft), ..self.shared.clone() },
            jobs: places(&kept).map(job).collect(),
            tasks: places(&kept_tasks).map(task).collect(),
            templates: places(&kept).map(|place| self.templates[place].clone()).collect(),
            ..self.clone()
        })
    }
}

/// The kept indices.
fn places(kept: &[bool]) -> impl Iterator<Item = usize> {
    kept.iter().enumerate().filter(|(_, kept)| **kept).map(|(place, _)| place)
}

/// For each index, the number of kept elements before it.
fn renumber(kept: &[bool]) -> Vec<usize> {
    let mut next = 0;
    let number = |&kept: &bool| {
        next += usize::from(kept);
        next - usize::from(kept)
    };
    kept.iter().map(number).collect()
}

/// A job: tasks that differ only in their matrix values and replicate.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its key under `jobs:`.
    pub name: String,
    /// The step kind in `uses:`.
    pub kind: String,
    /// The jobs that it needs through `needs` or `strategy.each`, as indices of [`Workflow::jobs`].
    pub needs: Vec<usize>,
    /// Its tasks, as indices of [`Workflow::tasks`], in order.
    pub tasks: Vec<usize>,
    /// If its cells depend on results: the jobs that must have ended before it has tasks, as indices of [`Workflow::jobs`].
    /// [`Workflow::expand`] creates its tasks and sets this to `None`. [`Workflow::deciders`] are those among them whose
    /// results determine the cells.
    pub awaits: Option<Vec<usize>>,
    /// The maximum number of its tasks that run at the same time.
    pub max_parallel: Option<u32>,
    /// Whether the job's other tasks are cancelled when one of them has finally failed.
    pub fail_fast: bool,
}

/// A task: a step with its cell and replicate.
///
/// Its identity is the job, the matrix values and the replicate. `cell` and `address` are that identity as people write
/// it; no code parses them.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its name, such as `train[chunk=64,states=16]#2`: axes in alphabetical order, replicates counted from 1.
    pub address: String,
    /// The name of its cell, such as `train[chunk=64,states=16]`, which its replicates share.
    pub cell: String,
    /// The job's name.
    pub job: String,
    /// The index of the job in [`Workflow::jobs`].
    pub job_index: usize,
    /// The step kind.
    pub kind: String,
    /// The matrix values of this cell, including inherited ones.
    pub matrix: BTreeMap<String, Value>,
    /// The number of the replicate, from 1; `None` if the job has none.
    pub replicate: Option<u32>,
    /// The tasks that it needs, as indices of [`Workflow::tasks`]: ascending, and all smaller than its own.
    pub needs: Vec<usize>,
    /// The task that it is derived from by `strategy: {each: ..}`; also among `needs`.
    pub each: Option<usize>,
    /// The resources that it can run on, in order of preference; never empty.
    pub resources: Vec<Resource>,
    /// The retry policy.
    pub retry: Retry,
    /// The time limit of one attempt.
    pub timeout: Duration,
    /// The maximum number of tasks of this job that run at the same time (the same for all of them).
    pub max_parallel: Option<u32>,
    /// When its needs are met, so that it can be decided whether it runs.
    pub trigger: TriggerRule,
    /// Whether its failure fails neither the run nor dependent tasks.
    pub continue_on_error: bool,
}

/// When the needs of a task are met, so that its condition is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerRule {
    /// When all have succeeded; if one did not succeed, the task is skipped.
    AllSuccess,
    /// When all have ended, with any outcome: the condition decides, because of `always()` or another status function.
    AllDone,
    /// When all have ended, with all their ancestors: the condition uses `failure()`, which includes ancestors, and a need may
    /// be skipped while one of its ancestors still runs.
    AncestorsDone,
}

/// One alternative of the resources that a task can run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The backend, such as `cpu`.
    pub backend: String,
    /// Compute threads, at least 1.
    pub cpus: u32,
    /// The memory limit of an attempt in bytes; `None` means no separate limit.
    pub memory: Option<u64>,
    /// Whether no other attempt may run on the node at the same time, as a benchmark requires.
    pub exclusive: bool,
    /// The label that a worker node must have to run it; `None` for any node.
    pub label: Option<String>,
}

/// The retry policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// The maximum number of retries; 0 for none.
    pub max: u32,
    /// The classes of failure that are retried, from [`FAILURE_CLASSES`].
    pub when: Vec<String>,
    /// The delay before the next attempt.
    pub backoff: Backoff,
    /// The growth of memory and timeout from one attempt to the next.
    pub escalate: Escalation,
    /// Whether the next attempt avoids the nodes on which attempts failed, if another node could run it.
    pub exclude_node: bool,
}

/// The factors by which the requirements of the next attempt grow; each is above 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Escalation {
    /// The factor of the memory after a failure of the class `oom`.
    pub memory: Option<f64>,
    /// The factor of the timeout after a failure of the class `timeout`.
    pub timeout: Option<f64>,
}

/// The delay before a retry: `duration * factor^n` before the retry number n, counted from 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Backoff {
    /// The first delay.
    pub duration: Duration,
    /// The factor of each further delay; at least 1.
    pub factor: f64,
}

/// The classes of failure in `retry.when`, in the order of the documentation. The protocol's `FailureClass` has the
/// same names; that crate is further right in the layering, so a test there compares them.
pub const FAILURE_CLASSES: &[(&str, &str)] = &[
    ("step", "the step reported an error"),
    ("check", "a check of the step on its own result failed"),
    ("timeout", "it ran longer than `timeout-minutes`"),
    ("oom", "it used more memory than it was given, or the device ran out"),
    ("output", "it printed more than the log limit"),
    ("protocol", "its process sent an invalid message"),
    ("crashed", "its process exited unexpectedly: a signal, a panic, an exit without a result"),
    ("unavailable", "no executor for the backend could be started"),
    ("preempted", "its worker was lost, or abandoned the attempt"),
    ("cancelled", "a person cancelled it"),
];

/// The default of `retry.when` if a file only gives `retry.max`: failures that may well not happen again.
pub const RETRIED_BY_DEFAULT: &[&str] = &["crashed", "unavailable", "preempted"];

/// The default time limit of an attempt (`timeout-minutes: 360`, as in GitHub Actions).
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(360 * 60);

impl Default for Resource {
    fn default() -> Self {
        Resource { backend: "cpu".into(), cpus: 1, memory: None, exclusive: false, label: None }
    }
}

impl Default for Retry {
    fn default() -> Self {
        let when = RETRIED_BY_DEFAULT.iter().map(|&class| class.to_owned()).collect();
        Retry { max: 0, when, backoff: Backoff::default(), escalate: Escalation::default(), exclude_node: false }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { duration: Duration::from_secs(1), factor: 2.0 }
    }
}
