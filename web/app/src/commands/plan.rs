//! `assay plan`: what would run and what is cached. Starts nothing, and writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use assay_server::{Lookup, pin_files};
use assay_spec::{
    Conclusion, Finished, Job, ResolveError, ResolvedStep, TriggerRule, Workflow, printable, printable_lines,
};
use assay_statistics::format::duration;
use assay_steps::PlannedSize;
use assay_store::Store;
use serde_json::json;

use super::sizes::{describe_size, planned_sizes, producer_of, resolve_planned, size_json};

use crate::cli::{CommandError, PlanArgs};
use crate::local_node::LocalNode;
use crate::tables::format_table;
use crate::terminal::print_line;
use crate::workflow_plugins;

/// What is known about a task before anything runs.
enum Prospect {
    /// The cache has its result.
    Cached(Finished),
    /// It is left out, for this reason.
    Skipped(String),
    /// It would run.
    Runs,
    /// Another task, whose place this is, would run, and this one is the same work.
    SameAs(usize),
    /// It would run although its result was known, for this reason.
    RunsAgain(String),
    /// It would run, or be cached, depending on what the tasks before it come to.
    Depends,
    /// Its config cannot be resolved.
    Invalid(String),
    /// Nothing here could run it, or its step would refuse.
    Impossible(String),
}

impl Prospect {
    /// Why it would fail, where that is certain.
    fn problem(&self) -> Option<&str> {
        match self {
            Prospect::Invalid(message) | Prospect::Impossible(message) => Some(message),
            Prospect::Cached(_)
            | Prospect::Skipped(_)
            | Prospect::Runs
            | Prospect::SameAs(_)
            | Prospect::RunsAgain(_)
            | Prospect::Depends => None,
        }
    }

    fn may_run(&self) -> bool {
        matches!(self, Prospect::Runs | Prospect::RunsAgain(_) | Prospect::Depends)
    }
}

/// How long a plan takes, from what its jobs took in earlier runs of workflows of this name.
struct Estimate {
    /// Seconds of each job whose duration is known.
    jobs: BTreeMap<String, f64>,
    /// Seconds that the tasks take which may run and whose job is known: shared by the processors.
    seconds: f64,
    /// The jobs that it leaves out: no duration of them is known, or they have no cells yet.
    unknown: BTreeSet<String>,
}

/// The cache keys of tasks whose configs are known.
#[derive(Default)]
struct WorkKeys {
    of_tasks: BTreeMap<usize, String>,
    /// The first of the tasks that would run and have this key.
    first_tasks: BTreeMap<String, usize>,
}

/// What is known of a workflow before it runs, by task.
struct Outlook {
    prospects: Vec<Prospect>,
    /// The cache keys of the tasks whose configs are known.
    keys: BTreeMap<usize, String>,
    /// Warnings of the evaluation of configs, conditions and cells.
    warnings: BTreeMap<usize, BTreeSet<String>>,
}

pub async fn run(home: &Path, args: PlanArgs) -> Result<ExitCode, CommandError> {
    let (_, mut workflow) = super::read_workflow(&args.file, &args.overrides)?;
    let machine = LocalNode::probe_backends(&workflow, home).await?;
    machine.describe_to(&mut workflow);
    // Where there is no store yet, nothing is cached, and none is made only to say so.
    let store = if home.join("assay.db").exists() { Some(Store::open_read_only(home).await?) } else { None };
    let Outlook { mut prospects, warnings, .. } = find_prospects(&mut workflow, store.as_ref()).await?;
    let sizes = planned_sizes(&workflow);
    refuse_impossible(&workflow, &machine, &sizes, &mut prospects);
    let history = match &store {
        Some(store) => store.job_seconds(&workflow.name).await?,
        None => BTreeMap::new(),
    };
    let estimate = estimate_duration(&workflow, &prospects, history, machine.capacity.cpus);
    let failing = prospects.iter().any(|prospect| prospect.problem().is_some());
    if args.json {
        super::print_json(&as_json(&workflow, &prospects, &warnings, &sizes, &estimate))?;
    } else {
        print_plan(&workflow, &prospects, &sizes, &estimate)?;
        print_notes(&workflow, &prospects, &warnings);
    }
    Ok(if failing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Marks the tasks that would certainly fail: no variant of theirs can run here, or their step is known to refuse.
fn refuse_impossible(
    workflow: &Workflow,
    machine: &LocalNode,
    sizes: &[Option<PlannedSize>],
    prospects: &mut [Prospect],
) {
    for (ix, task) in workflow.tasks.iter().enumerate() {
        // Where the task that does the same work cannot run, this one has to.
        if let Prospect::SameAs(first) = prospects[ix]
            && prospects[first].problem().is_some()
        {
            prospects[ix] = Prospect::Runs;
        }
        if !prospects[ix].may_run() {
            continue;
        }
        let size = match &sizes[ix] {
            Some(PlannedSize::Unreachable(message)) => Some(message.clone()),
            _ => None,
        };
        let refusal = machine.refusal(task).or(size).or_else(|| refused_export(workflow, ix));
        if let Some(message) = refusal {
            prospects[ix] = Prospect::Impossible(message);
        }
    }
}

/// Why an export would refuse the model that it is going to be given.
fn refused_export(workflow: &Workflow, ix: usize) -> Option<String> {
    if workflow.tasks[ix].kind != "export" {
        return None;
    }
    let export = resolve_planned(workflow, ix)?;
    let producer = producer_of(&export.artifacts.first()?.hash, ix)?;
    let config = resolve_planned(workflow, producer)?.config;
    assay_steps::refuse_planned(&export.config, &workflow.tasks[producer].kind, &config)
}

fn estimate_duration(workflow: &Workflow, prospects: &[Prospect], jobs: BTreeMap<String, f64>, cpus: u32) -> Estimate {
    let mut unknown: BTreeSet<String> = undecided(workflow).map(|(job, _)| job.name.clone()).collect();
    let (mut work, mut longest) = (0.0, 0.0f64);
    let cpus = cpus.max(1);
    for (task, _) in std::iter::zip(&workflow.tasks, prospects).filter(|(_, prospect)| prospect.may_run()) {
        match jobs.get(&task.job) {
            Some(seconds) => {
                let taken = task.resources.first().map_or(1, |resource| resource.cpus).clamp(1, cpus);
                work += seconds * f64::from(taken);
                longest = longest.max(*seconds);
            }
            None => drop(unknown.insert(task.job.clone())),
        }
    }
    Estimate { jobs, seconds: longest.max(work / f64::from(cpus)), unknown }
}

/// The cache keys of all tasks by their addresses, if the store has the result of every task; `None` if some task would run.
/// Tasks that are left out have no key.
pub(super) async fn find_cached_keys(
    home: &Path,
    mut workflow: Workflow,
    store: &Store,
) -> Result<Option<BTreeMap<String, String>>, CommandError> {
    LocalNode::probe_backends(&workflow, home).await?.describe_to(&mut workflow);
    let Outlook { prospects, keys, .. } = find_prospects(&mut workflow, Some(store)).await?;
    let is_known = |prospect: &Prospect| matches!(prospect, Prospect::Cached(_) | Prospect::Skipped(_));
    let address = |(ix, key): (usize, String)| (workflow.tasks[ix].address.clone(), key);
    Ok(prospects.iter().all(is_known).then(|| keys.into_iter().map(address).collect()))
}

/// The prospect of each task. A job whose cells depend on results gets its tasks if these results are known.
async fn find_prospects(workflow: &mut Workflow, store: Option<&Store>) -> Result<Outlook, CommandError> {
    let mut known: BTreeMap<usize, Finished> = BTreeMap::new();
    let mut keys = WorkKeys::default();
    let mut prospects = Vec::new();
    let mut warnings: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    loop {
        for ix in prospects.len()..workflow.tasks.len() {
            let mut warned = Vec::new();
            let prospect = match decided(workflow, ix, &known, &mut warned) {
                Some(prospect) => prospect,
                None => match workflow.resolve(ix, &|need| known.get(&need).cloned()) {
                    Err(error) => Prospect::Invalid(error.to_string()),
                    Ok(step) => {
                        warned.extend_from_slice(&step.warnings);
                        prospect_of(ix, step, store, &mut keys).await?
                    }
                },
            };
            if !warned.is_empty() {
                warnings.entry(ix).or_default().extend(warned);
            }
            match &prospect {
                Prospect::Cached(finished) => drop(known.insert(ix, finished.clone())),
                Prospect::Skipped(_) => drop(known.insert(ix, Finished::without_result(Conclusion::Skipped))),
                _ => {}
            }
            prospects.push(prospect);
        }
        let Some(job) = workflow.jobs.iter().position(|job| can_be_decided(workflow, job, &known)) else {
            return Ok(Outlook { prospects, keys: keys.of_tasks, warnings });
        };
        let expanded = workflow.expand(job, &|task| known.get(&task).cloned());
        if !expanded.warnings.is_empty() {
            warnings.entry(expanded.first).or_default().extend(expanded.warnings);
        }
        *workflow = expanded.workflow;
    }
}

/// Whether a job waits for its cells, and all results that decide them are known.
fn can_be_decided(workflow: &Workflow, job: &Job, known: &BTreeMap<usize, Finished>) -> bool {
    let is_known = |&by: &usize| {
        let by = &workflow.jobs[by];
        by.awaits.is_none() && by.tasks.iter().all(|task| known.contains_key(task))
    };
    job.awaits.as_ref().is_some_and(|awaits| awaits.iter().all(is_known))
}

/// The prospect of a task as far as its needs and its condition decide it; `None` if it is to be resolved. `warnings` gets those
/// of its condition.
fn decided(
    workflow: &Workflow,
    ix: usize,
    known: &BTreeMap<usize, Finished>,
    warnings: &mut Vec<String>,
) -> Option<Prospect> {
    let task = &workflow.tasks[ix];
    let is_skipped = |need: &&usize| known.get(need).is_some_and(|need| need.conclusion != Conclusion::Success);
    let lost = task.needs.iter().find(is_skipped).filter(|_| task.trigger == TriggerRule::AllSuccess);
    if let Some(&need) = lost {
        return Some(Prospect::Skipped(format!("{} is skipped", workflow.tasks[need].address)));
    }
    match workflow.condition(ix, &|need| known.get(&need).cloned()) {
        Err(ResolveError::NotFinished { .. }) => Some(Prospect::Depends),
        Err(error) => Some(Prospect::Invalid(error.to_string())),
        Ok(decision) => {
            warnings.extend(decision.warnings);
            let depends = task.needs.iter().any(|need| !known.contains_key(need)).then_some(Prospect::Depends);
            decision.skipped.map(Prospect::Skipped).or(depends)
        }
    }
}

/// The prospect of a task whose config is known. `keys` are the cache keys of the tasks before it; its own is added.
async fn prospect_of(
    ix: usize,
    mut step: ResolvedStep,
    store: Option<&Store>,
    keys: &mut WorkKeys,
) -> Result<Prospect, CommandError> {
    let content_of = |path: PathBuf, _| async move { assay_store::content_of(&path).await };
    if let Err(message) = pin_files(&mut step, content_of).await {
        return Ok(Prospect::Invalid(message));
    }
    let known = match store {
        Some(store) => store.look_up_result(&step.key).await?,
        None => Lookup::Unknown,
    };
    keys.of_tasks.insert(ix, step.key.clone());
    if let Lookup::Known(result) = known {
        let (conclusion, outputs, metrics) = (Conclusion::Success, result.outputs, result.metrics);
        return Ok(Prospect::Cached(Finished { conclusion, outputs, metrics }));
    }
    let first = *keys.first_tasks.entry(step.key).or_insert(ix);
    Ok(match known {
        _ if first != ix => Prospect::SameAs(first),
        Lookup::Lost { output, why } => {
            Prospect::RunsAgain(format!("the stored output `{output}` cannot be used: {why}"))
        }
        Lookup::Known(_) | Lookup::Unknown => Prospect::Runs,
    })
}

fn prospect_text(workflow: &Workflow, prospect: &Prospect) -> String {
    match prospect {
        Prospect::Cached(_) => "cached".to_owned(),
        Prospect::Skipped(_) => "is skipped".to_owned(),
        Prospect::Runs => "runs".to_owned(),
        Prospect::SameAs(first) => format!("is the same work as {}", workflow.tasks[*first].address),
        Prospect::RunsAgain(_) => "runs again".to_owned(),
        Prospect::Depends => "runs or is cached, as its needs decide".to_owned(),
        Prospect::Invalid(_) => "INVALID".to_owned(),
        Prospect::Impossible(_) => "CANNOT RUN".to_owned(),
    }
}

fn resources_text(task: &assay_spec::Task) -> String {
    let one = |r: &assay_spec::Resource| {
        let memory = r.memory.map(|bytes| format!(" {}", assay_statistics::format::quantity(bytes as f64, "B")));
        let alone = if r.exclusive { " alone" } else { "" };
        let label = r.label.as_ref().map(|label| format!(" on {label}")).unwrap_or_default();
        format!("{} x{}{}{alone}{label}", r.backend, r.cpus, memory.unwrap_or_default())
    };
    task.resources.iter().map(one).collect::<Vec<_>>().join(" | ")
}

fn print_plan(
    workflow: &Workflow,
    prospects: &[Prospect],
    sizes: &[Option<PlannedSize>],
    estimate: &Estimate,
) -> Result<(), CommandError> {
    let mut head = ["task", "step", "needs", "would", "takes about"].map(str::to_owned).to_vec();
    let has_models = sizes.iter().any(Option::is_some);
    if has_models {
        head.push("parameters".to_owned());
    }
    let takes = |task: &assay_spec::Task, prospect: &Prospect| match estimate.jobs.get(&task.job) {
        Some(seconds) if prospect.may_run() => duration(*seconds),
        _ => "-".to_owned(),
    };
    let mut rows: Vec<Vec<String>> = std::iter::zip(&workflow.tasks, prospects)
        .zip(sizes)
        .map(|((task, p), size)| {
            let size = has_models.then(|| describe_size(size.as_ref()));
            let row = [
                task.address.clone(),
                task.kind.clone(),
                resources_text(task),
                prospect_text(workflow, p),
                takes(task, p),
            ];
            row.into_iter().chain(size).collect()
        })
        .collect();
    let blank = || "-".to_owned();
    rows.extend(undecided(workflow).map(|(job, by)| {
        let verb = if by.len() == 1 { "decides" } else { "decide" };
        let by = format!("has cells that {} {verb}", join_names(&by));
        let row = [format!("{}[?]", job.name), job.kind.clone(), blank(), by, blank()];
        row.into_iter().chain(has_models.then(blank)).collect()
    }));
    super::print_out(&format_table(&head, &rows))?;
    let count = |wanted: fn(&Prospect) -> bool| prospects.iter().filter(|prospect| wanted(prospect)).count();
    let cached = count(|prospect| matches!(prospect, Prospect::Cached(_)));
    print_line(format_args!("\n{} tasks, {cached} of them cached", prospects.len()));
    for (job, by) in undecided(workflow) {
        let (job, by) = (printable(&job.name), join_names(&by));
        print_line(format_args!("{job}: its cells are decided by {by} while the run is in progress"));
    }
    workflow_plugins::plugin_lines(workflow).iter().for_each(|line| print_line(format_args!("{}", printable(line))));
    let runs = count(Prospect::may_run);
    if runs > 0 && estimate.seconds > 0.0 {
        let unknown: Vec<_> = estimate.unknown.iter().map(|job| format!("`{}`", printable(job))).collect();
        let without = if unknown.is_empty() { String::new() } else { format!(", without {}", unknown.join(", ")) };
        print_line(format_args!("{runs} would take about {}, as in earlier runs{without}", duration(estimate.seconds)));
    } else if runs > 0 {
        print_line("the duration is unknown: no run of a workflow of this name has finished these jobs yet");
    }
    Ok(())
}

/// Prints the problems and warnings of tasks, and why tasks are skipped or run again.
fn print_notes(workflow: &Workflow, prospects: &[Prospect], warnings: &BTreeMap<usize, BTreeSet<String>>) {
    for (ix, (task, prospect)) in std::iter::zip(&workflow.tasks, prospects).enumerate() {
        for text in warnings.get(&ix).into_iter().flatten() {
            print_line(format_args!("{}: warning: {}", printable(&task.address), printable_lines(text)));
        }
        if let Some(message) = prospect.problem() {
            print_line(format_args!("{}: {}", printable(&task.address), printable_lines(message)));
        } else if let Prospect::RunsAgain(why) = prospect {
            print_line(format_args!("{} runs again: {}", printable(&task.address), printable_lines(why)));
        } else if let Prospect::Skipped(why) = prospect {
            print_line(format_args!("{} is skipped: {}", printable(&task.address), printable_lines(why)));
        }
    }
}

/// The jobs whose cells are decided while the run is in progress, each with the jobs that decide them.
fn undecided(workflow: &Workflow) -> impl Iterator<Item = (&Job, Vec<&str>)> {
    let jobs = workflow.jobs.iter().enumerate().filter(|(_, job)| job.awaits.is_some());
    jobs.map(|(ix, job)| {
        let deciders = workflow.deciders(ix).into_iter();
        (job, deciders.map(|by| workflow.jobs[by].name.as_str()).collect())
    })
}

/// Names of jobs for a sentence: `a`, `a` and `b`.
fn join_names(names: &[&str]) -> String {
    let named: Vec<String> = names.iter().map(|name| format!("`{}`", printable(name))).collect();
    match named.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn as_json(
    workflow: &Workflow,
    prospects: &[Prospect],
    warnings: &BTreeMap<usize, BTreeSet<String>>,
    sizes: &[Option<PlannedSize>],
    estimate: &Estimate,
) -> serde_json::Value {
    let tasks = std::iter::zip(&workflow.tasks, prospects).zip(sizes).enumerate().map(|(ix, ((task, prospect), size))| {
        let would = match prospect {
            Prospect::Cached(_) => "cached",
            Prospect::Skipped(_) => "skip",
            Prospect::Runs | Prospect::RunsAgain(_) => "run",
            Prospect::SameAs(_) => "same",
            Prospect::Depends => "depends",
            Prospect::Invalid(_) => "invalid",
            Prospect::Impossible(_) => "impossible",
        };
        let seconds = estimate.jobs.get(&task.job).filter(|_| prospect.may_run());
        json!({
            "address": task.address, "job": task.job, "kind": task.kind, "matrix": task.matrix,
            "resources": resources_text(task), "would": would, "error": prospect.problem(), "seconds": seconds,
            "model": size_json(size.as_ref()), "warnings": warnings.get(&ix).into_iter().flatten().collect::<Vec<_>>(),
            "because": if let Prospect::RunsAgain(why) | Prospect::Skipped(why) = prospect { Some(why) } else { None },
            "same_as": if let Prospect::SameAs(first) = prospect { Some(&workflow.tasks[*first].address) } else { None },
        })
    });
    let seconds = json!({ "known": estimate.seconds, "unknown_jobs": estimate.unknown });
    let tasks = tasks.collect::<Vec<_>>();
    let undecided =
        undecided(workflow).map(|(job, by)| json!({ "job": job.name, "kind": job.kind, "cells_decided_by": by }));
    let undecided = undecided.collect::<Vec<_>>();
    json!({
        "workflow": workflow.name, "tasks": tasks, "undecided": undecided, "seconds": seconds,
        "warnings": workflow.warnings.problems, "plugins": workflow_plugins::plugins_json(workflow),
    })
}
