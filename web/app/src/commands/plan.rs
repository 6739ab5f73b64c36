//! `assay plan`: what would run and what is cached. Starts nothing, and writes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use assay_server::Lookup;
use assay_spec::{LocalFile, Outputs, ResolvedStep, Workflow};
use assay_store::Store;
use serde_json::json;

use crate::cli::{CommandError, PlanArgs};
use crate::machine::{self, Finder};
use crate::tables::table;

/// What is known of a task before anything runs.
enum Prospect {
    /// The cache has its result.
    Cached(Outputs),
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
}

pub async fn run(home: &Path, args: PlanArgs) -> Result<ExitCode, CommandError> {
    let (_, mut workflow) = super::read_workflow(&args.file, &args.params)?;
    let backends = machine::look_for(machine::wanted_to_measure(&workflow), &Finder::new(home)?).await;
    machine::describe_to(&mut workflow, &backends);
    // Where there is no store yet, nothing is cached, and none is made only to say so.
    let store = if home.join("assay.db").exists() { Some(Store::open_read_only(home).await?) } else { None };
    let prospects = prospects(&workflow, store.as_ref()).await?;
    let invalid = prospects.iter().any(|prospect| matches!(prospect, Prospect::Invalid(_)));
    if args.json {
        super::print_json(&as_json(&workflow, &prospects))?;
    } else {
        print(&workflow, &prospects)?;
    }
    Ok(if invalid { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn prospects(workflow: &Workflow, store: Option<&Store>) -> Result<Vec<Prospect>, CommandError> {
    let mut known: BTreeMap<usize, Outputs> = BTreeMap::new();
    let mut keys: BTreeMap<String, usize> = BTreeMap::new();
    let mut prospects = Vec::new();
    for (ix, task) in workflow.tasks.iter().enumerate() {
        let prospect = if task.needs.iter().all(|need| known.contains_key(need)) {
            match workflow.resolve(ix, &|need| known.get(&need).cloned()) {
                Err(error) => Prospect::Invalid(error.to_string()),
                Ok(step) => prospect_of(ix, step, store, &mut keys).await?,
            }
        } else {
            Prospect::Depends
        };
        if let Prospect::Cached(outputs) = &prospect {
            known.insert(ix, outputs.clone());
        }
        prospects.push(prospect);
    }
    Ok(prospects)
}

/// What becomes of a task whose config is known. `keys` are the tasks that would run, by their cache keys.
async fn prospect_of(
    ix: usize,
    mut step: ResolvedStep,
    store: Option<&Store>,
    keys: &mut BTreeMap<String, usize>,
) -> Result<Prospect, CommandError> {
    for LocalFile { key, path } in step.files.clone() {
        match assay_store::content_of(&path).await {
            Ok(artifact) => step.pin(&key, &artifact),
            Err(error) => return Ok(Prospect::Invalid(format!("`{key}`: {error}"))),
        }
    }
    let known = match store {
        Some(store) => store.lookup(&step.key).await?,
        None => Lookup::Unknown,
    };
    if let Lookup::Known(result) = known {
        return Ok(Prospect::Cached(result.outputs));
    }
    let first = *keys.entry(step.key).or_insert(ix);
    Ok(match known {
        _ if first != ix => Prospect::SameAs(first),
        Lookup::Lost { output, why } => {
            Prospect::RunsAgain(format!("the stored output `{output}` cannot be used: {why}"))
        }
        Lookup::Known(_) | Lookup::Unknown => Prospect::Runs,
    })
}

fn words(workflow: &Workflow, prospect: &Prospect) -> String {
    match prospect {
        Prospect::Cached(_) => "cached".to_owned(),
        Prospect::Runs => "runs".to_owned(),
        Prospect::SameAs(first) => format!("is the same work as {}", workflow.tasks[*first].address),
        Prospect::RunsAgain(_) => "runs again".to_owned(),
        Prospect::Depends => "runs, unless what it needs comes out as before".to_owned(),
        Prospect::Invalid(_) => "INVALID".to_owned(),
    }
}

fn resources(task: &assay_spec::Task) -> String {
    let one = |r: &assay_spec::Resource| {
        let memory = r.memory.map(|bytes| format!(" {}", assay_statistics::format::quantity(bytes as f64, "B")));
        let alone = if r.exclusive { " alone" } else { "" };
        format!("{} x{}{}{alone}", r.backend, r.cpus, memory.unwrap_or_default())
    };
    task.resources.iter().map(one).collect::<Vec<_>>().join(" | ")
}

fn print(workflow: &Workflow, prospects: &[Prospect]) -> Result<(), CommandError> {
    let head = ["task", "step", "needs", "would"].map(str::to_owned);
    let rows: Vec<Vec<String>> = std::iter::zip(&workflow.tasks, prospects)
        .map(|(task, p)| vec![task.address.clone(), task.kind.clone(), resources(task), words(workflow, p)])
        .collect();
    super::print_out(&table(&head, &rows))?;
    let cached = prospects.iter().filter(|p| matches!(p, Prospect::Cached(_))).count();
    eprintln!("\n{} tasks, {cached} of them cached", prospects.len());
    for (task, prospect) in std::iter::zip(&workflow.tasks, prospects) {
        match prospect {
            Prospect::Invalid(message) => eprintln!("{}: {message}", task.address),
            Prospect::RunsAgain(why) => eprintln!("{} runs again: {why}", task.address),
            Prospect::Cached(_) | Prospect::Runs | Prospect::SameAs(_) | Prospect::Depends => {}
        }
    }
    Ok(())
}

fn as_json(workflow: &Workflow, prospects: &[Prospect]) -> serde_json::Value {
    let tasks = std::iter::zip(&workflow.tasks, prospects).map(|(task, prospect)| {
        let (would, error, because) = match prospect {
            Prospect::Cached(_) => ("cached", None, None),
            Prospect::Runs => ("run", None, None),
            Prospect::SameAs(_) => ("same", None, None),
            Prospect::RunsAgain(why) => ("run", None, Some(why)),
            Prospect::Depends => ("depends", None, None),
            Prospect::Invalid(message) => ("invalid", Some(message), None),
        };
        json!({
            "address": task.address, "job": task.job, "kind": task.kind, "matrix": task.matrix,
            "resources": resources(task), "would": would, "because": because, "error": error,
            "same_as": if let Prospect::SameAs(first) = prospect { Some(&workflow.tasks[*first].address) } else { None },
        })
    });
    let tasks = tasks.collect::<Vec<_>>();
    json!({ "workflow": workflow.name, "tasks": tasks, "warnings": workflow.warnings.problems })
}
