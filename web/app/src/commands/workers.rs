//! `assay workers`: the worker nodes of a server.

use std::process::ExitCode;

use assay_statistics::format::{duration, quantity};
use serde_json::Value;

use crate::cli::{CommandError, JsonArg};
use crate::remote::Remote;
use crate::tables::format_table;

pub async fn run(remote: &Remote, args: &JsonArg) -> Result<ExitCode, CommandError> {
    let answer = remote.get("/api/v1/workers".into()).await?;
    if args.json {
        super::print_json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["worker", "name", "state", "heard", "cpus", "memory", "backends", "labels"].map(str::to_owned);
    let words = |value: &Value| {
        let list = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        list.collect::<Vec<_>>().join(" ")
    };
    let workers = answer["workers"].as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = workers
        .map(|worker| {
            let text = |key: &str| worker[key].as_str().unwrap_or_default().to_owned();
            vec![
                worker["worker"].to_string(),
                text("name"),
                text("state"),
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
    }
    Ok(ExitCode::SUCCESS)
}
