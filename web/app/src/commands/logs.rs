//! `assay logs`: the log of a task, attempt by attempt, with how each ended.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use assay_core::RunId;
use assay_server::{RunStateName, TaskStateName};
use assay_spec::printable_lines;
use assay_store::query::{AttemptView, LogView, TaskView};
use assay_store::{Epoch, Store};
use serde_json::{Value, json};

use super::Printed;
use crate::cli::{CommandError, Level, LogsArgs};
use crate::terminal::format_time;

/// Lines asked of the store at a time.
const PAGE: u64 = 1000;
/// How often the store is polled for new lines.
const PAUSE: Duration = Duration::from_millis(250);

pub async fn run(home: &Path, args: &LogsArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let run = super::find_run(&store, &args.run).await?;
    let task = super::find_task(&store, run, &args.task).await?;
    let mut log = Log { after: 0, level: args.level, attempt: None };
    let kept = keep_tail(log.next(&store, run, &task).await?, args.tail);
    kept.iter().try_for_each(|text| super::print_out(text))?;
    while args.follow {
        // Asked before the lines are: what is written until the task is over is then among them.
        let over = is_over(&store, run, &task).await?;
        for text in log.next(&store, run, &task).await? {
            super::print_out(&text)?;
        }
        if over {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    if log.attempt.is_none()
        && let Some(task) = store.task(run, task.ix).await?
        && task.source.is_none()
    {
        super::print_out(&without_attempt(&task))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The output instead of a log if no attempt was made: the state, and the reason of a failure or a skip.
fn without_attempt(task: &TaskView) -> String {
    let separator = if task.detail.is_empty() { "" } else { ": " };
    format!("── no attempt; {}{separator}{}", task.state, printable_lines(&task.detail))
}

/// The last of some lines.
fn keep_tail(mut lines: Vec<String>, tail: Option<usize>) -> Vec<String> {
    let first = lines.len().saturating_sub(tail.unwrap_or(usize::MAX));
    lines.split_off(first)
}

/// What the command prints after a cursor of an earlier call, whether that is all, and the cursor for the next call.
pub async fn render_log(
    store: &Store,
    args: &LogsArgs,
    cursor: &Value,
) -> Result<(Printed, bool, Value), CommandError> {
    let run = super::find_run(store, &args.run).await?;
    let task = super::find_task(store, run, &args.task).await?;
    let attempt = cursor["epoch"].as_u64().and_then(|epoch| u32::try_from(epoch).ok());
    let told = cursor["told"].as_bool().unwrap_or(false);
    let after = cursor["after"].as_u64().unwrap_or(0);
    let mut log = Log { after, level: args.level, attempt: attempt.map(|epoch| (Epoch(epoch), told)) };
    // Asked before the lines are: what is written until the task is over is then among them.
    let over = is_over(store, run, &task).await?;
    let lines = log.next(store, run, &task).await?;
    let mut lines = if cursor.is_null() { keep_tail(lines, args.tail) } else { lines };
    if (over || !args.follow) && log.attempt.is_none() && task.source.is_none() {
        lines.push(without_attempt(&task));
    }
    let (epoch, told) = log.attempt.map_or((None, false), |(epoch, told)| (Some(epoch.0), told));
    let cursor = json!({"after": log.after, "epoch": epoch, "told": told});
    let printed = if lines.is_empty() { Printed::default() } else { Printed::out(lines.join("\n")) };
    Ok((printed, over, cursor))
}

/// Whether nothing more will be written about a task.
async fn is_over(store: &Store, run: RunId, task: &TaskView) -> Result<bool, CommandError> {
    use TaskStateName as S;
    let state = store.task(run, task.ix).await?.map(|task| task.state);
    let open = matches!(state, Some(S::Waiting | S::Ready | S::Running | S::BackingOff));
    let going = store.run(run).await?.is_some_and(|run| run.summary.state == RunStateName::Running);
    // No more lines come from a run whose process has died.
    Ok(!open || !going || store.process_of(run).await?.is_none())
}

/// A log that is read on.
struct Log {
    /// The number of the last line that was read.
    after: u64,
    level: Level,
    /// The attempt whose heading was printed last, and whether its end was.
    attempt: Option<(Epoch, bool)>,
}

impl Log {
    /// What was written since the last time: headings, lines, and how attempts ended.
    async fn next(&mut self, store: &Store, run: RunId, task: &TaskView) -> Result<Vec<String>, CommandError> {
        let mut lines = Vec::new();
        loop {
            let page = store.logs(run, task.ix, self.after, PAGE).await?;
            let Some(last) = page.last() else { break };
            self.after = last.seq;
            lines.extend(page);
        }
        // A task from the cache has the log of the attempt that did the work.
        let source = store.task(run, task.ix).await?.and_then(|task| task.source);
        let (of_run, of_task) = source.as_ref().map_or((run, task.ix), |source| (source.run, source.ix));
        let mut attempts = store.attempts(of_run, of_task).await?;
        let mut text = Vec::new();
        if let Some(source) = source {
            attempts.retain(|attempt| attempt.epoch == source.epoch);
            if self.attempt.is_none() {
                text.push(format!("answered from the cache: the log of run {}", source.run));
            }
        }
        for attempt in &attempts {
            let own = lines.iter().filter(|line| line.epoch == attempt.epoch);
            self.add_attempt(attempt, &own.collect::<Vec<_>>(), &mut text);
        }
        Ok(text)
    }

    /// The heading of an attempt, its new lines, and its end, as far as they were not printed before.
    fn add_attempt(&mut self, attempt: &AttemptView, lines: &[&LogView], text: &mut Vec<String>) {
        let known = self.attempt.filter(|(epoch, _)| *epoch >= attempt.epoch);
        if known.is_none() {
            let began = format_time(attempt.began_at);
            text.push(format!("── attempt {} on {} ({}), {began}", attempt.epoch, attempt.worker, attempt.backend));
            self.attempt = Some((attempt.epoch, false));
        }
        for line in lines.iter().filter(|line| level_of(&line.level) >= self.level) {
            let at = format_time(line.at);
            text.push(format!("{}  {:>6}  {}", &at[11..], line.level, printable_lines(&line.text)));
        }
        let told = known.is_some_and(|(epoch, told)| epoch > attempt.epoch || told);
        if let (false, Some(ended)) = (told, attempt.ended_at) {
            let took = assay_statistics::format::duration(ended.saturating_sub(attempt.began_at) as f64 / 1000.0);
            text.push(match &attempt.failure {
                None => format!("── attempt {} succeeded after {took}", attempt.epoch),
                Some(failure) => {
                    let hint = failure.hint.iter().map(|hint| format!("\n  help: {}", printable_lines(hint)));
                    let (class, message) = (&failure.class, printable_lines(&failure.message));
                    format!("── attempt {} failed after {took} ({class}): {message}", attempt.epoch)
                        + &hint.collect::<String>()
                }
            });
            self.attempt = Some((attempt.epoch, true));
        }
    }
}

/// How much a line of a level matters.
fn level_of(level: &str) -> Level {
    match level {
        "warn" => Level::Warn,
        "error" => Level::Error,
        _ => Level::Info,
    }
}
