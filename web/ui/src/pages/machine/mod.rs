//! The workers and their executors, how busy they were, and what waits, with the reason.

mod queue;
mod workers;

use std::collections::BTreeMap;

use assay_core::RunId;
use assay_server::RunStateName;
use assay_store::{RunFilter, WorkerAttempt, WorkerExecutor};
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;
use serde_json::Value;

use self::queue::{Queue, find_queue};
use self::workers::{WorkerRow, list_workers};
use crate::claims::recorded_workflow;
use crate::error::Failure;
use crate::load;
use crate::query::Choices;
use crate::server::{Inner, Site, now};
use crate::templates::render;
use crate::views::format::{Moment, moment};
use crate::views::usage::{Usage, UsagePlot, Use, add_up, plot_usage};

/// The parameters of the query.
pub(crate) const PARAMETERS: [&str; 1] = ["span"];
/// The spans of time that can be shown, with their milliseconds.
const SPANS: [(&str, u64); 4] = [("1h", 3_600_000), ("6h", 21_600_000), ("1d", 86_400_000), ("7d", 604_800_000)];
/// The words of [`SPANS`].
pub(crate) const SPAN_WORDS: [&str; 4] = [SPANS[0].0, SPANS[1].0, SPANS[2].0, SPANS[3].0];
/// The most attempts that are added up.
const MOST_ATTEMPTS: u64 = 50_000;
/// The executors of how many of the latest runs are shown.
const EXECUTOR_RUNS: u64 = 500;
/// Of how many runs the resources of jobs are read.
const RESOURCE_RUNS: usize = 50;

#[derive(Debug, Serialize)]
struct MachinePage {
    title: &'static str,
    live: bool,
    machine: Machine,
    plot: UsagePlot,
    spans: [&'static str; 4],
    data: String,
}

/// The workers, and what they do.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// Whether this server has worker nodes; otherwise the workers are processes of `assay run` on this machine.
    pub has_nodes: bool,
    /// The workers.
    pub workers: Vec<WorkerRow>,
    /// The executors that answered.
    pub executors: Vec<ExecutorRow>,
    /// The span of time.
    pub span: &'static str,
    /// The use of processors.
    pub usage: Usage,
    /// How many attempts were counted as one processor, because the resources of their jobs are unknown.
    pub assumed: usize,
    /// Whether there were more attempts than are added up.
    pub is_cut: bool,
    /// What waits.
    pub queue: Queue,
}

/// An executor.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ExecutorRow {
    worker: String,
    backend: String,
    device: String,
    details: String,
    version: String,
    used: Moment,
}

/// The page.
pub(crate) async fn show(State(site): State<Site>, choices: Choices) -> Result<Html<String>, Failure> {
    choices.only(&PARAMETERS)?;
    let machine = describe_machine(&site, &choices).await?;
    let page = MachinePage {
        title: "Machine",
        live: machine.has_nodes || machine.queue.running_runs > 0,
        plot: plot_usage(&machine.usage),
        spans: SPAN_WORDS,
        data: format!("/api/machine?span={}", machine.span),
        machine,
    };
    render(&site, "machine.html", page)
}

/// The workers, their use over the span that a query asks for, and the queue.
pub(crate) async fn describe_machine(site: &Inner, choices: &Choices) -> Result<Machine, Failure> {
    let word = choices.one_of("span", &SPAN_WORDS)?.unwrap_or(SPANS[1].0);
    let (span, millis) = SPANS.into_iter().find(|(known, _)| *known == word).unwrap_or(SPANS[1]);
    let to = now();
    let from = to.saturating_sub(millis);
    let attempts = site.store.attempts_since(from, MOST_ATTEMPTS).await?;
    let running = RunFilter::default().with_state(RunStateName::Running);
    let running = site.store.find_runs(&running, u64::MAX >> 1, 0).await?;
    let workers = list_workers(site, &attempts).await?;
    let cpus = workers.iter().map(|worker| worker.cpus).sum::<Option<u32>>().filter(|cpus| *cpus > 0);
    let (uses, assumed) = read_uses(site, &attempts).await?;
    Ok(Machine {
        has_nodes: site.hub.is_some(),
        executors: site.store.executors(EXECUTOR_RUNS).await?.into_iter().map(executor_row).collect(),
        span,
        usage: add_up(&uses, from, to, cpus),
        assumed,
        is_cut: attempts.len() as u64 == MOST_ATTEMPTS,
        queue: find_queue(site, &running, &attempts).await?,
        workers,
    })
}

/// The attempts with the processors that their jobs ask for, and how many of them were assumed to have one.
async fn read_uses(site: &Inner, attempts: &[WorkerAttempt]) -> Result<(Vec<Use>, usize), Failure> {
    let mut known: BTreeMap<RunId, BTreeMap<(String, String), u32>> = BTreeMap::new();
    let (mut uses, mut assumed) = (Vec::with_capacity(attempts.len()), 0);
    for attempt in attempts {
        if !known.contains_key(&attempt.run) && known.len() < RESOURCE_RUNS {
            known.insert(attempt.run, read_cpus(site, attempt.run).await?);
        }
        let place = (attempt.job.clone(), attempt.backend.clone());
        let cpus = known.get(&attempt.run).and_then(|jobs| jobs.get(&place)).copied();
        assumed += usize::from(cpus.is_none());
        uses.push(Use {
            worker: attempt.worker.clone(),
            cpus: cpus.unwrap_or(1),
            from: attempt.began_at,
            to: attempt.ended_at,
        });
    }
    Ok((uses, assumed))
}

/// The processors that each job of a run asks for on each backend; empty if this version cannot read the recorded file.
async fn read_cpus(site: &Inner, run: RunId) -> Result<BTreeMap<(String, String), u32>, Failure> {
    let run = load::run(site, run).await?;
    let Ok(workflow) = recorded_workflow(&run, &site.kinds) else { return Ok(BTreeMap::new()) };
    let mut cpus = BTreeMap::new();
    for task in &workflow.tasks {
        for resource in &task.resources {
            // Cells of a job may ask for different numbers; attempts do not record theirs.
            cpus.entry((task.job.clone(), resource.backend.clone())).or_insert(resource.cpus);
        }
    }
    Ok(cpus)
}

fn executor_row(executor: WorkerExecutor) -> ExecutorRow {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let device = &executor.greeting["device"];
    let details = device["details"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    ExecutorRow {
        device: text(&device["name"]),
        details: details.join(" "),
        version: text(&executor.greeting["version"]),
        used: moment(executor.used_at),
        worker: executor.worker,
        backend: executor.backend,
    }
}
