//! Plain lines, for logs and pipes: one line for each thing worth knowing, none for mere progress.

use assay_protocol::LogLevel;
use assay_server::{RunEvent, TaskStateName};

use super::Board;

/// The line for an event, if it deserves one.
pub fn line(board: &Board, event: &RunEvent) -> Option<String> {
    match event {
        RunEvent::Began(run) => Some(format!("run {run}: {} ({} tasks)", board.name, board.rows.len())),
        RunEvent::Task { task, state, detail } => {
            let word = match state {
                // What it waits for, if that is another run.
                TaskStateName::Waiting | TaskStateName::Ready if !detail.is_empty() => {
                    return Some(format!("{} {detail}", board.address(*task)));
                }
                TaskStateName::Waiting | TaskStateName::Ready => return None,
                TaskStateName::Running => "started",
                TaskStateName::BackingOff => "waits before the next attempt",
                TaskStateName::Succeeded => "succeeded",
                TaskStateName::Cached => "cached",
                TaskStateName::Failed => "FAILED",
                TaskStateName::Skipped => "skipped",
                TaskStateName::Cancelled => "cancelled",
            };
            let separator = if detail.is_empty() { "" } else { ": " };
            Some(format!("{} {word}{separator}{detail}", board.address(*task)))
        }
        RunEvent::AttemptFailed { task, epoch, failure } => {
            Some(format!("{} attempt {epoch} failed ({}): {}", board.address(*task), failure.class, failure.message))
        }
        RunEvent::Log { task, level: LogLevel::Warn | LogLevel::Error, text } => {
            Some(format!("{}: {text}", board.address(*task)))
        }
        RunEvent::Log { .. } | RunEvent::Progress { .. } => None,
    }
}
