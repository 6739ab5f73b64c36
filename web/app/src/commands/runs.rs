//! `assay runs`: the runs in the store.

use std::cmp::Reverse;
use std::path::Path;
use std::process::ExitCode;

use assay_server::TaskStateName;
use assay_spec::printable_lines;
use assay_store::{RunFilter, RunSummary, Store};

use super::Printed;
use crate::cli::{CommandError, Order, RunsArgs};
use crate::tables::format_table;
use crate::terminal::command_line;

/// Runs asked of the store at a time.
const PAGE: u64 = 500;

pub async fn run(home: &Path, args: &RunsArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    text(&store, home, args).await?.print()
}

/// What the command prints.
pub async fn text(store: &Store, home: &Path, args: &RunsArgs) -> Result<Printed, CommandError> {
    let mut runs = find_runs(store, args).await?;
    sort_runs(&mut runs, args.sort, args.reverse);
    runs.truncate(args.limit as usize);
    if args.json {
        return Printed::json(&serde_json::json!({ "runs": runs }));
    }
    if runs.is_empty() {
        return Ok(Printed::err(match store.runs(1, 0).await?.is_empty() {
            true => {
                let start = command_line(home, &["run", "FILE"]);
                format!("no runs in {} yet; start one with `{start}`", home.display())
            }
            false => "no run matches these filters; `assay runs` lists the latest ones".to_owned(),
        }));
    }
    let head = ["run", "name", "state", "tasks", "cached", "failed", "took", "tags", "file"];
    let rows = runs.iter().map(|run| {
        let took = duration_ms(run)
            .map_or("-".to_owned(), |millis| assay_statistics::format::duration(millis as f64 / 1000.0));
        vec![
            run.id.to_string(),
            run.name.clone(),
            run.state.to_string(),
            run.tasks.to_string(),
            count_tasks(run, TaskStateName::Cached).to_string(),
            count_tasks(run, TaskStateName::Failed).to_string(),
            took,
            run.tags.join(" "),
            run.file.clone(),
        ]
    });
    Ok(Printed::out(format_table(&head.map(str::to_owned), &rows.collect::<Vec<_>>())))
}

/// The requested runs, newest first.
async fn find_runs(store: &Store, args: &RunsArgs) -> Result<Vec<RunSummary>, CommandError> {
    let filter = read_filter(args)?;
    // Newest first is how the store gives them: without another order, no more are needed than are shown.
    let enough = (args.sort == Order::Run && !args.reverse).then_some(args.limit as usize);
    let size = enough.map_or(PAGE, |enough| PAGE.min(enough.max(1) as u64));
    let (mut wanted, mut offset) = (Vec::new(), 0);
    loop {
        let page = store.find_runs(&filter, size, offset).await?;
        offset += size;
        let last = (page.len() as u64) < size;
        wanted.extend(page);
        if last || enough.is_some_and(|enough| wanted.len() >= enough) {
            return Ok(wanted);
        }
    }
}

fn read_filter(args: &RunsArgs) -> Result<RunFilter, CommandError> {
    let text = args.filter.as_deref().unwrap_or_default();
    let mut filter = RunFilter::parse(text, super::step_kinds()).map_err(|error| {
        let marked = printable_lines(&error.marked(text)).into_owned();
        format!("the filter cannot be read: {error}\n\n{marked}\n\nhelp: {}", error.hint)
    })?;
    filter = args.tags.iter().fold(filter, |filter, tag| filter.with_tag(tag));
    filter = args.state.into_iter().fold(filter, RunFilter::with_state);
    Ok(args.name.iter().fold(filter, |filter, name| filter.with_name_part(name)))
}

fn count_tasks(run: &RunSummary, state: TaskStateName) -> u64 {
    run.states.get(&state).copied().unwrap_or(0)
}

/// Milliseconds; `None` while it is under way.
fn duration_ms(run: &RunSummary) -> Option<u64> {
    run.ended_at.map(|end| end.saturating_sub(run.created_at))
}

/// Runs that are alike in this stay in the order in which they were.
fn sort_runs(runs: &mut [RunSummary], order: Order, reverse: bool) {
    match order {
        Order::Run => runs.sort_by_key(|run| Reverse(run.id)),
        Order::Name => runs.sort_by(|a, b| a.name.cmp(&b.name)),
        Order::State => runs.sort_by_key(|run| run.state),
        Order::Tasks => runs.sort_by_key(|run| Reverse(run.tasks)),
        Order::Failed => runs.sort_by_key(|run| Reverse(count_tasks(run, TaskStateName::Failed))),
        Order::Took => runs.sort_by_key(|run| Reverse(duration_ms(run))),
    }
    if reverse {
        runs.reverse();
    }
}
