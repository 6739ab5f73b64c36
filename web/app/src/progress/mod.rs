//! What a person sees during a run: a live tree on a terminal, plain lines elsewhere.

mod plain;
mod state;
mod tree;

pub use plain::{Detail, Plain};
pub use state::{Board, Row, format_clock};
pub use tree::render_tree;

use std::time::{Duration, Instant};

use assay_server::RunEvent;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::terminal::print_line;

/// How often the live tree is drawn again.
const FRAME: Duration = Duration::from_millis(120);

/// Shows a run's events on standard error until the run is over. Without `detail` nothing is shown.
pub async fn show_progress(mut board: Board, mut events: UnboundedReceiver<RunEvent>, detail: Option<Detail>) {
    let terminal = console::Term::stderr();
    let colours = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let live = terminal.is_term() && detail == Some(Detail::Normal) && colours;
    let mut plain = detail.filter(|_| !live).map(Plain::new);
    let start = Instant::now();
    let mut drawn = 0;
    let mut tick = tokio::time::interval(FRAME);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            event = events.recv() => {
                let Some(event) = event else { break };
                let lines = plain.as_mut().map(|plain| plain.on_event(&board, &event, start.elapsed()));
                lines.into_iter().flatten().for_each(print_line);
                board.apply_event(&event, start.elapsed());
            }
            _ = tick.tick() => {
                if let Some(plain) = &mut plain {
                    plain.on_tick(&board, start.elapsed()).into_iter().for_each(print_line);
                }
                if live {
                    drawn = draw_frame(&terminal, &board, start.elapsed(), drawn);
                }
            }
        }
    }
    if let Some(plain) = &mut plain {
        plain.on_end(&board).into_iter().for_each(print_line);
    }
    if live {
        draw_frame(&terminal, &board, start.elapsed(), drawn);
    }
}

/// Draws the tree over the `drawn` lines of the last time; returns how many lines it has now.
fn draw_frame(terminal: &console::Term, board: &Board, elapsed: Duration, drawn: usize) -> usize {
    let (height, width) = terminal.size();
    let lines = render_tree(board, elapsed, usize::from(width), usize::from(height).saturating_sub(1).max(4));
    // A closed terminal does not stop a run.
    let _ = terminal.clear_last_lines(drawn);
    let _ = terminal.write_str(&lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    lines.len()
}

#[cfg(test)]
mod fixture {
    use std::collections::BTreeMap;

    use super::{Board, Row};

    /// A board of one preparation and of these trainings, on two processors.
    pub fn board(trainings: &[&str]) -> Board {
        let rows = trainings.iter().map(|address| Row::new(1, *address, 1));
        Board {
            name: "sweep".into(),
            run: None,
            jobs: vec!["data".into(), "train".into()],
            rows: std::iter::once(Row::new(0, "data", 1)).chain(rows).collect(),
            cpus: 2,
            expected: BTreeMap::new(),
        }
    }
}
