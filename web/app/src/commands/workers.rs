//! `assay workers`: the worker nodes of a server.

use std::process::ExitCode;

use assay_spec::printable;
use assay_statistics::format::{duration, quantity};
use serde_json::{Value, json};

use crate::cli::CommandError;
use crate::lab_args::{WorkersAction, WorkersArgs};
use crate::remote::Remote;
use crate::tables::format_table;

pub async fn run(remote: &Remote, args: &WorkersArgs) -> Result<ExitCode, CommandError> {
    match &args.action {
        None => list_workers(remote, args.json).await,
        Some(WorkersAction::Drain { name }) => {
            let count = change_workers(remote, "drain", name).await?;
            super::print_out(&format!("{count} workers get no new tasks and return their running ones: {name}"))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(WorkersAction::Resume { name }) => {
            let count = change_workers(remote, "resume", name).await?;
            super::print_out(&format!("{count} workers get tasks again: {name}"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn change_workers(remote: &Remote, action: &str, name: &str) -> Result<u64, CommandError> {
    let answer = remote.post(format!("/api/v1/workers/{action}"), &json!({"name": name})).await?;
    Ok(answer["workers"].as_u64().ok_or("the server's answer has no number of workers")?)
}

async fn list_workers(remote: &Remote, json: bool) -> Result<ExitCode, CommandError> {
    let answer = remote.get("/api/v1/workers".into()).await?;
    if json {
        super::print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["worker", "name", "state", "tasks", "heard", "cpus", "memory", "backends", "labels"].map(str::to_owned);
    let words = |value: &Value| {
        let list = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        list.collect::<Vec<_>>().join(" ")
    };
    let workers = answer["workers"].as_array().into_iter().flatten();
    let closed: Vec<(String, String)> = workers
        .clone()
        .filter_map(|worker| {
            let part = |key: &str| worker[key].as_str().map(|text| printable(text).into_owned());
            Some((part("name")?, part("why").filter(|why| !why.is_empty())?))
        })
        .collect();
    let rows: Vec<Vec<String>> = workers
        .map(|worker| {
            let text = |key: &str| worker[key].as_str().unwrap_or_default().to_owned();
            vec![
                worker["worker"].to_string(),
                text("name"),
                state_text(worker),
                worker["tasks"].to_string(),
                format!("{} ago", duration(worker["heard_seconds"].as_f64().unwrap_or(0.0))),
                worker["cpus"].to_string(),
                quantity(worker["memory"].as_f64().unwrap_or(0.0), "B"),
                words(&worker["backends"]),
                words(&worker["labels"]),
            ]
        })
        .collect();
    if rows.is_empty() {
        crate::terminal::print_line("no worker is connected; start one with `assay worker --server URL`");
    } else {
        super::print_out(&format_table(&head, &rows))?;
        for (name, why) in closed {
            crate::terminal::print_line(format_args!("{name} gets no new tasks: {why}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a worker is connected, and why it gets no new tasks.
fn state_text(worker: &Value) -> String {
    let part = |key: &str| worker[key].as_str().unwrap_or_default();
    let draining = part("closing") == "drained" && worker["tasks"].as_u64().unwrap_or(0) > 0;
    match (part("closing"), part("state")) {
        ("", state) => state.to_owned(),
        (_, "connected") if draining => "draining".to_owned(),
        (closing, "connected") => closing.to_owned(),
        (closing, state) => format!("{state}, {closing}"),
    }
}
