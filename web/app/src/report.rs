//! A run for a person, and as one JSON object for a program. `run` and `show` say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use assay_server::{RunStateName, Selection, TaskStateName, number_to_json};
use assay_spec::{StepKind, printable, printable_lines};
use assay_store::{AttemptView, OutputView, TaskView};
use assay_ui::PluginIndex;
use serde_json::{Map, Value, json};

use crate::record::{RunRecord, attempt_seconds, device_of};
use crate::tables::results_text;
use crate::terminal::command_line;

/// The results of a run, for a person: the tables of cells, or nothing without cells. A table that is wider than `width`
/// is cut.
pub fn results_table(record: &RunRecord, kinds: &[StepKind], width: usize) -> String {
    let table = results_text(&record.results(kinds, &Selection::Headlines), width);
    if table.is_empty() { table } else { with_notes(table, &record.hardware_notes(kinds)) }
}

/// A text with notes below it.
pub fn with_notes(text: String, notes: &[String]) -> String {
    notes.iter().fold(text, |text, note| format!("{}\n{note}", text.trim_end()))
}

/// How a run ended, for a person: what failed and why, and where to look further.
pub fn outcome_text(record: &RunRecord, home: &Path) -> String {
    let server = command_line(home, &["server"]);
    let page = format!("{server}   then http://127.0.0.1:7177/runs/{}", record.id());
    format_outcome(record, &page, &|words| command_line(home, words))
}

/// As [`outcome_text`], for a run on a server: `server` is its address.
pub fn remote_outcome_text(record: &RunRecord, server: &str) -> String {
    let page = format!("{server}/runs/{}", record.id());
    let command = |words: &[&str]| command_line(Path::new(".assay"), &[words, &["--server", server]].concat());
    format_outcome(record, &page, &command)
}

fn format_outcome(record: &RunRecord, page: &str, command: &dyn Fn(&[&str]) -> String) -> String {
    let mut text = String::new();
    let run = record.id().to_string();
    for task in &record.tasks {
        if let Some(failure) = record.failure(task) {
            let (address, message) = (printable(&task.address), printable_lines(&failure.message));
            text += &format!("{address} failed ({}): {message}\n", failure.class);
            if let Some(hint) = &failure.hint {
                text += &format!("  help: {}\n", printable_lines(hint));
            }
            text += &format!("  its log: {}\n\n", command(&["logs", &run, &task.address]));
        }
    }
    text += &format!("{}\n", summary(record));
    text += &format!("look at it:  {page}\n");
    text
}

fn summary(record: &RunRecord) -> String {
    let count = |state| record.tasks.iter().filter(|task| task.state == state).count();
    let mut parts = Vec::new();
    for state in TaskStateName::ALL {
        match count(*state) {
            0 => {}
            n => parts.push(format!("{n} {state}")),
        }
    }
    let state = match record.state() {
        RunStateName::Running => "is running",
        RunStateName::Succeeded => "succeeded",
        RunStateName::Failed => "failed",
        RunStateName::Cancelled => "was stopped; completed tasks were kept, and the next `assay run` reuses them",
        RunStateName::Interrupted => {
            "was interrupted: its process exited unexpectedly; completed tasks were kept, and the next `assay run` reuses them"
        }
    };
    format!("run {} {state}  ({})", record.id(), parts.join(", "))
}

/// The plugins that results depend on, one line each.
pub fn plugin_lines(record: &RunRecord) -> Vec<String> {
    let index = PluginIndex::new(&record.tasks);
    let mut used: BTreeMap<(String, String), (Option<String>, BTreeSet<&str>)> = BTreeMap::new();
    for task in &record.tasks {
        for plugin in index.behind(task.ix) {
            let entry = used.entry((plugin.name, plugin.blake3)).or_default();
            entry.0 = entry.0.take().or(plugin.version);
            entry.1.insert(&task.job);
        }
    }
    let line = |((name, hash), (version, jobs)): ((String, String), (Option<String>, BTreeSet<&str>))| {
        let version = version.map(|version| format!(" {}", printable(&version))).unwrap_or_default();
        let jobs: Vec<String> = jobs.into_iter().map(|job| printable(job).to_string()).collect();
        format!("plugin {}{version}, BLAKE3 {}, behind: {}", printable(&name), &hash[..12], jobs.join(", "))
    };
    used.into_iter().map(line).collect()
}

/// A run, for a program.
pub fn run_json(record: &RunRecord, kinds: &[StepKind]) -> Value {
    let summary = &record.run.summary;
    let index = PluginIndex::new(&record.tasks);
    json!({
        "run": summary.id.0,
        "name": summary.name,
        "file": summary.file,
        "state": summary.state.name(),
        "version": summary.version,
        "tags": summary.tags,
        "note": summary.note,
        "git": summary.git,
        "created_at": summary.created_at,
        "ended_at": summary.ended_at,
        "params": record.run.params,
        "machine": record.run.machine,
        "tasks": record.tasks.iter().map(|task| task_json(record, &index, task)).collect::<Vec<_>>(),
        "results": record.results(kinds, &Selection::Headlines),
    })
}

fn task_json(record: &RunRecord, index: &PluginIndex<'_>, task: &TaskView) -> Value {
    let attempt = record.working_attempt(task);
    json!({
        "address": task.address,
        "cell": task.cell,
        "job": task.job,
        "kind": task.kind,
        "matrix": task.matrix,
        "replicate": task.replicate,
        "needs": task.needs.iter().map(|need| need.0).collect::<Vec<_>>(),
        "each": task.each.map(|each| each.0),
        "state": task.state.name(),
        "cached": task.state == TaskStateName::Cached,
        "reason": reason(task),
        "source": task.source,
        "attempts": task.attempts,
        "seconds": record.seconds(task),
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        "backend": attempt.map(|attempt| &attempt.backend),
        "device": attempt.and_then(device_of),
        "config": task.config,
        "seed": task.config.as_ref().and_then(|config| config.get("seed")),
        "cache_key": task.cache_key,
        "metrics": task.metrics.iter().map(|(name, value)| (name.clone(), number_to_json(*value))).collect::<Map<_, _>>(),
        "outputs": task.outputs.iter().map(|(name, o)| (name.clone(), output_json(o))).collect::<Map<_, _>>(),
        "plugins": index.behind(task.ix),
        "error": record.failure(task),
        "history": record.attempts_of(task).iter().map(attempt_json).collect::<Vec<_>>(),
    })
}

/// Why a task stands as it does.
fn reason(task: &TaskView) -> String {
    match (task.state, task.source) {
        (TaskStateName::Cached, Some(source)) if source.run == task.run => {
            format!("task {} of this run is the same work", source.ix)
        }
        (TaskStateName::Cached, Some(source)) => format!("run {} did this work, as its task {}", source.run, source.ix),
        (TaskStateName::Succeeded | TaskStateName::Running, _) if task.detail.is_empty() => {
            "the store had no result of this work".to_owned()
        }
        _ => task.detail.clone(),
    }
}

fn output_json(output: &OutputView) -> Value {
    match output {
        OutputView::Artifact { hash, name, bytes } => json!({"$artifact": hash, "name": name, "bytes": bytes}),
        OutputView::Value { value } => value.clone(),
    }
}

fn attempt_json(attempt: &AttemptView) -> Value {
    json!({
        "attempt": attempt.epoch.0,
        "worker": attempt.worker,
        "backend": attempt.backend,
        "device": device_of(attempt),
        "began_at": attempt.began_at,
        "ended_at": attempt.ended_at,
        "seconds": attempt_seconds(attempt),
        "failure": attempt.failure,
    })
}
