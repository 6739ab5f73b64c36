//! The checked workflow: what a file means once nothing is wrong with it. Only this can be planned and run.

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

/// A checked workflow: every job's tasks are expanded, and every need points to an earlier task.
///
/// Made by [`check`](crate::check) alone, so that holding one means that the file had no problem.
#[derive(Debug, Clone)]
pub struct Workflow {
    /// The file's `name:`, or the file's own name without its ending.
    pub name: String,
    /// The file's `description:`.
    pub description: Option<String>,
    /// The parameters after overrides, in the order of the file.
    pub params: Map<String, Value>,
    /// In the order of the file.
    pub jobs: Vec<Job>,
    /// In an order in which they could run one after another; within a job, all cells of the first replicate come
    /// before those of the second.
    pub tasks: Vec<Task>,
    /// What is claimed of its results, in the order of the file.
    pub claims: Vec<Claim>,
    /// Warnings: what is valid but probably not intended, such as an axis that nothing uses. Empty for most files.
    pub warnings: Problems,
    /// What each job's `with:` says, in the order of `jobs`.
    pub(crate) templates: Vec<JobTemplate>,
    /// The file, and what every expression in it can use.
    pub(crate) shared: Shared,
    /// What the backends compute on here; see [`Workflow::describe_machine`].
    pub(crate) machine: BTreeMap<String, Value>,
    /// The jobs whose cells could not be decided, and why.
    pub(crate) without_cells: WithoutCells,
}

impl Workflow {
    /// The files that the workflow file includes, each with its text.
    pub fn included(&self) -> impl Iterator<Item = (&str, &str)> {
        self.shared.source.included()
    }

    /// The part of the workflow that consists of these jobs and of all that they need, directly or not.
    ///
    /// # Errors
    /// If there is no such job; says which names there are.
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
        // The new place of each kept job and task; what a kept one names is kept too.
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

/// The places that are kept.
fn places(kept: &[bool]) -> impl Iterator<Item = usize> {
    kept.iter().enumerate().filter(|(_, kept)| **kept).map(|(place, _)| place)
}

/// For each place, how many kept ones stand before it.
fn renumber(kept: &[bool]) -> Vec<usize> {
    let mut next = 0;
    let number = |&kept: &bool| {
        next += usize::from(kept);
        next - usize::from(kept)
    };
    kept.iter().map(number).collect()
}

/// A job: tasks that differ in their matrix values and replicate only.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its key under `jobs:`.
    pub name: String,
    /// The step kind, as in `uses:`.
    pub kind: String,
    /// The jobs that it needs, as places in [`Workflow::jobs`], through `needs` or through `strategy.each`.
    pub needs: Vec<usize>,
    /// Its tasks, as places in [`Workflow::tasks`], in order.
    pub tasks: Vec<usize>,
    /// Where its cells depend on results: the jobs that must be over before it has tasks, as places in [`Workflow::jobs`]. It
    /// gets its tasks by [`Workflow::expand`], and this is `None` from then on. [`Workflow::deciders`] are those among them
    /// whose results decide the cells.
    pub awaits: Option<Vec<usize>>,
    /// At most so many of its tasks run at once.
    pub max_parallel: Option<u32>,
    /// Whether the job's other tasks are cancelled as soon as one of them has failed for good.
    pub fail_fast: bool,
}

/// One task: a step with its place in the sweep.
///
/// Its identity is the job, the matrix values and the replicate. `cell` and `address` are that identity as people write
/// it; nothing is ever read back out of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its name, such as `train[chunk=64,states=16]#2`: axes in alphabetical order, replicates counted from 1.
    pub address: String,
    /// The name of its cell, such as `train[chunk=64,states=16]`: what its replicates share.
    pub cell: String,
    /// The job's name.
    pub job: String,
    /// The job, as a place in [`Workflow::jobs`].
    pub job_index: usize,
    /// The step kind.
    pub kind: String,
    /// The matrix values of this cell, inherited ones included.
    pub matrix: BTreeMap<String, Value>,
    /// Which replicate, from 1; `None` where the job has none.
    pub replicate: Option<u32>,
    /// The tasks that it waits for, as places in [`Workflow::tasks`]: ascending, and all smaller than its own.
    pub needs: Vec<usize>,
    /// The task that it is derived from by `strategy: {each: ..}`; also among `needs`.
    pub each: Option<usize>,
    /// What it can run on, the preferred variant first; never empty.
    pub resources: Vec<Resource>,
    /// What happens when an attempt fails.
    pub retry: Retry,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// At most so many tasks of this job run at once (the same for all of them).
    pub max_parallel: Option<u32>,
    /// What must have become of its needs before it is decided whether it runs.
    pub trigger: TriggerRule,
    /// Whether its failure neither fails the run nor keeps back what needs it.
    pub continue_on_error: bool,
}

/// What must have become of a task's needs before its condition is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerRule {
    /// All have succeeded; as soon as one has not, the task is skipped.
    AllSuccess,
    /// All have ended, with any outcome: the condition decides, by `always()`.
    AllDone,
    /// All have ended, and so has everything that they need, directly or not: the condition asks for failures anywhere above, by
    /// `failure()`, and a need may be skipped while something above it still runs.
    AncestorsDone,
}

/// One variant of what a task can run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The backend, such as `cpu`.
    pub backend: String,
    /// Compute threads, at least 1.
    pub cpus: u32,
    /// Memory in bytes that an attempt may use; `None` for no limit of its own.
    pub memory: Option<u64>,
    /// Whether nothing else shall run on the node meanwhile, as a benchmark wants it.
    pub exclusive: bool,
    /// The label that a worker node must have to run it; `None` for any node.
    pub label: Option<String>,
}

/// What happens when an attempt fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// Further attempts after the first one; 0 for none.
    pub max: u32,
    /// The classes of failure that are worth another attempt, out of [`FAILURE_CLASSES`].
    pub when: Vec<String>,
    /// How long to wait before the next attempt.
    pub backoff: Backoff,
}

/// How long to wait before another attempt: `duration * factor^n` before the retry number n, counted from 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Backoff {
    /// The first wait.
    pub duration: Duration,
    /// What each further wait is multiplied by; at least 1.
    pub factor: f64,
}

/// The classes of failure that `retry.when` may name, in the order of the documentation. The protocol's
/// `FailureClass` has the same names; that crate is further right in the layering, so a test there compares them.
pub const FAILURE_CLASSES: &[(&str, &str)] = &[
    ("step", "the step reported that it cannot do what was asked"),
    ("check", "a check of the step on its own result failed"),
    ("timeout", "it ran longer than `timeout-minutes`"),
    ("oom", "it used more memory than it was given, or the device ran out"),
    ("output", "it printed more than the log limit"),
    ("protocol", "its process sent a message that the protocol does not have"),
    ("crashed", "its process died: a signal, a panic, an exit without a result"),
    ("unavailable", "no executor for the backend could be started"),
    ("preempted", "its worker was lost, or gave the attempt up"),
    ("cancelled", "a person cancelled it"),
];

/// What `retry.when` is where a file gives `retry.max` alone: the failures that may well not happen again.
pub const RETRIED_BY_DEFAULT: &[&str] = &["crashed", "unavailable", "preempted"];

/// How long an attempt may take where a file does not say (`timeout-minutes: 360`, as GitHub Actions has it).
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(360 * 60);

impl Default for Resource {
    fn default() -> Self {
        Resource { backend: "cpu".into(), cpus: 1, memory: None, exclusive: false, label: None }
    }
}

impl Default for Retry {
    fn default() -> Self {
        let when = RETRIED_BY_DEFAULT.iter().map(|&class| class.to_owned()).collect();
        Retry { max: 0, when, backoff: Backoff::default() }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { duration: Duration::from_secs(1), factor: 2.0 }
    }
}
