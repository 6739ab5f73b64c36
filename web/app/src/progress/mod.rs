//! What a person sees while a run goes on: a live tree on a terminal, plain lines elsewhere.

mod plain;
mod state;
mod tree;

pub use plain::{Detail, Plain};
pub use state::{Board, Row, clock, clock_of};
pub use tree::render;

use std::time::{Duration, Instant};

use assay_server::RunEvent;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::terminal::say;

/// How often the live tree is drawn again.
const FRAME: Duration = Duration::from_millis(120);

/// Shows a run's events on standard error until the run is over. Without `detail` nothing is shown.
pub async fn show(mut board: Board, mut events: UnboundedReceiver<RunEvent>, detail: Option<Detail>) {
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
                let lines = plain.as_mut().map(|plain| plain.event(&board, &event, start.elapsed()));
                lines.into_iter().flatten().for_each(say);
                board.apply(&event, start.elapsed());
            }
            _ = tick.tick() => {
                if let Some(plain) = &mut plain {
                    plain.tick(&board, start.elapsed()).into_iter().for_each(say);
                }
                if live {
                    drawn = draw(&terminal, &board, start.elapsed(), drawn);
                }
            }
        }
    }
    if let Some(plain) = &mut plain {
        plain.end(&board).into_iter().for_each(say);
    }
    if live {
        draw(&terminal, &board, start.elapsed(), drawn);
    }
}

/// Draws the tree over the `drawn` lines of the last time; returns how many lines it has now.
fn draw(terminal: &console::Term, board: &Board, elapsed: Duration, drawn: usize) -> usize {
    let (height, width) = terminal.size();
    let lines = render(board, elapsed, usize::from(width), usize::from(height).saturating_sub(1).max(4));
    // A terminal that is gone is no reason to stop a run.
    let _ = terminal.clear_last_lines(drawn);
    let _ = terminal.write_str(&lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    lines.len()
}
