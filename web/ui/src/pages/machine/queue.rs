//! The tasks that wait, with the reason of each.

use std::collections::BTreeMap;

use assay_core::{RunId, TaskIx};
use assay_server::TaskStateName;
use assay_store::{RunSummary, TaskView, WorkerAttempt};
use serde::Serialize;

use crate::error::Failure;
use crate::server::Inner;
use crate::views::states::{StateView, is_final, of_task};

/// How many tasks are shown with their reasons.
const MOST_EXPLAINED: usize = 60;
/// How many of its needs a reason names.
const NAMED: usize = 5;

/// What waits.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Queue {
    /// How many runs are in progress.
    pub running_runs: usize,
    /// How many tasks run.
    pub running: usize,
    /// How many tasks wait.
    pub waiting: usize,
    /// The first of those that wait, ready ones first; tasks of a job with one reason are together.
    pub groups: Vec<QueueGroup>,
}

/// Tasks of a job that wait for the same.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct QueueGroup {
    /// The run.
    pub run: RunId,
    /// The name of its workflow.
    pub workflow: String,
    /// The job.
    pub job: String,
    /// How the tasks stand.
    pub state: StateView,
    /// The first tasks: their places and addresses.
    pub tasks: Vec<(u32, String)>,
    /// How many tasks these are.
    pub count: usize,
    /// Why they wait.
    pub why: String,
}

/// The unfinished tasks of runs in progress.
pub(super) async fn find_queue(
    site: &Inner,
    running: &[RunSummary],
    attempts: &[WorkerAttempt],
) -> Result<Queue, Failure> {
    let mut queue = Queue { running_runs: running.len(), ..Queue::default() };
    let open = attempts.iter().filter(|attempt| attempt.ended_at.is_none()).count();
    let mut explained = 0;
    for run in running {
        let tasks = site.store.tasks(run.id).await?;
        queue.running += tasks.iter().filter(|task| task.state == TaskStateName::Running).count();
        let mut waiting: Vec<&TaskView> =
            tasks.iter().filter(|task| !is_final(task.state) && task.state != TaskStateName::Running).collect();
        queue.waiting += waiting.len();
        waiting.sort_by_key(|task| (urgency(task.state), task.ix));
        for task in waiting {
            let why = match explained < MOST_EXPLAINED {
                true => explain_task(site, &tasks, task, open).await,
                // Most of many tasks wait for the same as those before them.
                false => String::new(),
            };
            explained += 1;
            add_task(&mut queue.groups, run, task, why);
        }
    }
    Ok(queue)
}

fn urgency(state: TaskStateName) -> u8 {
    match state {
        TaskStateName::Ready => 0,
        TaskStateName::BackingOff => 1,
        _ => 2,
    }
}

fn add_task(groups: &mut Vec<QueueGroup>, run: &RunSummary, task: &TaskView, why: String) {
    let state = of_task(task.state);
    let alike = groups.iter_mut().rfind(|group| {
        group.run == run.id && group.job == task.job && group.state == state && (group.why == why || why.is_empty())
    });
    let place = (task.ix.0, task.address.clone());
    match alike {
        Some(group) => {
            group.count += 1;
            if group.tasks.len() < NAMED {
                group.tasks.push(place);
            }
        }
        None => groups.push(QueueGroup {
            run: run.id,
            workflow: run.name.clone(),
            job: task.job.clone(),
            state,
            tasks: vec![place],
            count: 1,
            why,
        }),
    }
}

/// The reason as the server that runs it gives it; of a run of another process, as far as the store tells.
async fn explain_task(site: &Inner, tasks: &[TaskView], task: &TaskView, open: usize) -> String {
    let known = match &site.hub {
        Some(hub) => hub.explain_task(task.run, task.ix).await,
        None => None,
    };
    known.unwrap_or_else(|| explain_by_store(tasks, task, open))
}

fn explain_by_store(tasks: &[TaskView], task: &TaskView, open: usize) -> String {
    match task.state {
        TaskStateName::Ready => {
            let plural = if open == 1 { "attempt runs" } else { "attempts run" };
            format!("it is ready, and waits for free processors or memory: {open} {plural} now")
        }
        TaskStateName::BackingOff => "an attempt failed; the next one starts after a pause".to_owned(),
        TaskStateName::Waiting => {
            let places: BTreeMap<TaskIx, &TaskView> = tasks.iter().map(|task| (task.ix, task)).collect();
            let needs = task.needs.iter().filter_map(|need| places.get(need));
            let named: Vec<String> = needs
                .filter(|need| !is_final(need.state))
                .map(|need| format!("`{}` ({})", need.address, need.state))
                .collect();
            match named.len() {
                0 => "its config is being resolved, or enough tasks of its job are ready".to_owned(),
                few if few <= NAMED => format!("it waits for {}", named.join(", ")),
                many => format!("it waits for {} and {} more", named[..NAMED].join(", "), many - NAMED),
            }
        }
        other => format!("it is {other}"),
    }
}
