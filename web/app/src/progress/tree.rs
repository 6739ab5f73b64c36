//! The live tree: a line for each job, and under it a line for each cell that is under way or failed.

use std::time::Duration;

use assay_server::TaskStateName;
use assay_spec::printable;
use console::{Style, measure_text_width, truncate_str};

use super::{Board, Row, format_clock};

/// Cells of one bar.
const BAR: usize = 20;

/// The tree as lines of at most `width` columns, at most `height` of them.
pub fn render_tree(board: &Board, elapsed: Duration, width: usize, height: usize) -> Vec<String> {
    let bold = Style::new().for_stderr().bold();
    let dim = Style::new().for_stderr().dim();
    let run = board.run.map(|run| format!("run {run}")).unwrap_or_default();
    let left = board.remaining_text(elapsed).map(|time| format!("  {time} left")).unwrap_or_default();
    let name = bold.apply_to(printable(&board.name));
    let mut lines = vec![format!("{name}  {}  {}{}", dim.apply_to(run), format_clock(elapsed), dim.apply_to(left))];
    let column = board.jobs.iter().map(|name| measure_text_width(name)).max().unwrap_or(0);
    for (job, name) in board.jobs.iter().enumerate() {
        let rows: Vec<&Row> = board.rows.iter().filter(|row| row.job == job).collect();
        lines.push(job_line(name, column, &rows));
        let shown: Vec<&&Row> = rows.iter().filter(|row| worth_a_line(row)).collect();
        for (i, row) in shown.iter().enumerate() {
            let branch = if i + 1 == shown.len() { "└" } else { "├" };
            lines.push(format!("  {} {}", dim.apply_to(branch), cell_line(row, elapsed)));
        }
    }
    if lines.len() > height {
        let hidden = lines.len() - (height - 1);
        lines.truncate(height - 1);
        lines.push(format!("  … {hidden} more lines; `assay server` shows them all"));
    }
    lines.into_iter().map(|line| truncate_str(&line, width.max(20), "…").into_owned()).collect()
}

fn worth_a_line(row: &&Row) -> bool {
    matches!(row.state, TaskStateName::Running | TaskStateName::BackingOff | TaskStateName::Failed)
}

/// A job: how many of its cells are done, and what the others do.
fn job_line(name: &str, column: usize, rows: &[&Row]) -> String {
    let count = |states: &[TaskStateName]| rows.iter().filter(|row| states.contains(&row.state)).count();
    let cached = count(&[TaskStateName::Cached]);
    let failed = count(&[TaskStateName::Failed]);
    let done = count(&[TaskStateName::Succeeded]) + cached;
    let left_out = count(&[TaskStateName::Skipped, TaskStateName::Cancelled]);
    let fraction = if rows.is_empty() { 0.0 } else { done as f64 / rows.len() as f64 };
    let mut notes = Vec::new();
    if rows.is_empty() {
        notes.push("decided later".to_owned());
    }
    for (n, word) in [
        (cached, "cached"),
        (count(&[TaskStateName::Running]), "running"),
        (count(&[TaskStateName::BackingOff]), "to be tried again"),
        (failed, "failed"),
        (left_out, "left out"),
    ] {
        if n > 0 {
            notes.push(format!("{n} {word}"));
        }
    }
    let glyph = if failed > 0 {
        Style::new().for_stderr().red().apply_to("✗")
    } else if done == rows.len() && !rows.is_empty() {
        Style::new().for_stderr().green().apply_to("✓")
    } else {
        Style::new().for_stderr().dim().apply_to("·")
    };
    let padding = " ".repeat(column.saturating_sub(measure_text_width(name)));
    format!("{glyph} {name}{padding}  {} {done}/{}  {}", progress_bar(fraction), rows.len(), notes.join(", "))
}

/// A cell under way, or one that failed.
fn cell_line(row: &Row, elapsed: Duration) -> String {
    let (address, detail) = (printable(&row.address), printable(&row.detail));
    match row.state {
        TaskStateName::Failed => format!("{address} {}", Style::new().for_stderr().red().apply_to(detail)),
        TaskStateName::BackingOff => format!("{address} {detail}"),
        _ => {
            let fraction = row.progress.as_ref().and_then(|progress| {
                let total = progress.total.filter(|&total| total > 0)?;
                Some(progress.done as f64 / total as f64)
            });
            let bar = fraction.map(|fraction| format!("{} ", progress_bar(fraction))).unwrap_or_default();
            format!("{address}  {bar}{}", row.position(elapsed))
        }
    }
}

/// A bar of [`BAR`] cells.
fn progress_bar(fraction: f64) -> String {
    let filled = (fraction.clamp(0.0, 1.0) * BAR as f64).floor() as usize;
    let style = Style::new().for_stderr();
    format!("{}{}", style.clone().cyan().apply_to("━".repeat(filled)), style.dim().apply_to("─".repeat(BAR - filled)))
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use assay_core::{RunId, TaskIx};
    use assay_protocol::Progress;
    use assay_server::RunEvent;

    fn board() -> Board {
        fixture::board(&["train[states=16]#1", "train[states=32]#1", "train[states=64]#1"])
    }

    fn task_changed(task: u32, state: TaskStateName, detail: &str) -> RunEvent {
        RunEvent::Task { task: TaskIx(task), state, detail: detail.into() }
    }

    fn progress_at(task: u32, done: u64) -> RunEvent {
        let progress = Progress { done, total: Some(400), unit: "steps".into(), note: "loss 1.93".into() };
        RunEvent::Progress { task: TaskIx(task), progress }
    }

    #[test]
    fn the_tree_shows_rates_and_remaining_time() {
        console::set_colors_enabled_stderr(false);
        let mut board = board();
        board.apply_event(&RunEvent::Began(RunId(3)), Duration::ZERO);
        board.apply_event(&task_changed(0, TaskStateName::Cached, ""), Duration::ZERO);
        board.apply_event(&task_changed(1, TaskStateName::Running, ""), Duration::from_secs(1));
        board.apply_event(&task_changed(2, TaskStateName::Running, ""), Duration::from_secs(1));
        board.apply_event(&progress_at(1, 0), Duration::from_secs(1));
        board.apply_event(&progress_at(1, 100), Duration::from_secs(3));
        board.apply_event(&task_changed(3, TaskStateName::Failed, "ran longer than 30 min"), Duration::from_secs(3));
        insta::assert_snapshot!(render_tree(&board, Duration::from_secs(65), 100, 20).join("\n"));
    }

    #[test]
    fn a_small_terminal_gets_a_cut_tree_and_never_a_broken_one() {
        console::set_colors_enabled_stderr(false);
        let mut board = board();
        for task in 1..4 {
            board.apply_event(&task_changed(task, TaskStateName::Running, ""), Duration::ZERO);
        }
        let lines = render_tree(&board, Duration::ZERO, 24, 4);
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| measure_text_width(line) <= 24), "{lines:?}");
    }
}
