//! States as they are shown: a glyph and a word beside the colour, always.

use std::collections::BTreeMap;

use assay_server::{RunStateName, TaskStateName};
use serde::Serialize;

/// A state, for a template: `class` picks the colour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct StateView {
    /// In the style sheet, `state-CLASS`.
    pub class: &'static str,
    /// One character that tells it without colour.
    pub glyph: &'static str,
    /// In words.
    pub text: &'static str,
}

/// A run's state.
pub(crate) fn of_run(state: RunStateName) -> StateView {
    let (class, glyph, text) = match state {
        RunStateName::Running => ("running", "▸", "running"),
        RunStateName::Succeeded => ("succeeded", "✓", "succeeded"),
        RunStateName::Failed => ("failed", "✕", "failed"),
        RunStateName::Cancelled => ("cancelled", "⊘", "cancelled"),
        RunStateName::Interrupted => ("cancelled", "‖", "interrupted"),
    };
    StateView { class, glyph, text }
}

/// A task's state.
pub(crate) fn of_task(state: TaskStateName) -> StateView {
    let (class, glyph, text) = match state {
        TaskStateName::Waiting => ("waiting", "·", "waiting"),
        TaskStateName::Ready => ("ready", "○", "ready"),
        TaskStateName::Running => ("running", "▸", "running"),
        TaskStateName::BackingOff => ("backing-off", "↻", "backing off"),
        TaskStateName::Succeeded => ("succeeded", "✓", "succeeded"),
        TaskStateName::Cached => ("cached", "≡", "cached"),
        TaskStateName::Failed => ("failed", "✕", "failed"),
        TaskStateName::Skipped => ("skipped", "–", "skipped"),
        TaskStateName::Cancelled => ("cancelled", "⊘", "cancelled"),
    };
    StateView { class, glyph, text }
}

/// Whether a task has come to its end.
pub(crate) fn is_final(state: TaskStateName) -> bool {
    state.is_final()
}

/// How far a set of tasks is: one segment a state, for a bar, and the same in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Tally {
    /// In the order of a life, beginning with what is done; states without a task are left out.
    pub segments: Vec<Segment>,
    /// Such as `12 succeeded, 3 running`.
    pub text: String,
    /// How many came to their end.
    pub done: u64,
    /// How many there are.
    pub total: u64,
}

/// The tasks of one state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Segment {
    /// The state.
    pub state: StateView,
    /// How many tasks.
    pub count: u64,
    /// Where the segment begins, in percent of the bar.
    pub start: f64,
    /// How long it is, in percent of the bar.
    pub width: f64,
}

/// The order of a bar: what is done first, what is to come last.
const ORDER: [TaskStateName; 9] = [
    TaskStateName::Succeeded,
    TaskStateName::Cached,
    TaskStateName::Failed,
    TaskStateName::Cancelled,
    TaskStateName::Skipped,
    TaskStateName::BackingOff,
    TaskStateName::Running,
    TaskStateName::Ready,
    TaskStateName::Waiting,
];

/// Draws the counts of states together.
pub(crate) fn tally(states: &BTreeMap<TaskStateName, u64>) -> Tally {
    let total: u64 = states.values().sum();
    let (mut segments, mut before) = (Vec::new(), 0);
    for state in ORDER {
        let count = states.get(&state).copied().unwrap_or(0);
        if count == 0 {
            continue;
        }
        let percent = |n: u64| (n as f64 / total as f64 * 10_000.0).round() / 100.0;
        segments.push(Segment { state: of_task(state), count, start: percent(before), width: percent(count) });
        before += count;
    }
    let text = segments.iter().map(|segment| format!("{} {}", segment.count, segment.state.text));
    let done = states.iter().filter(|(state, _)| is_final(**state)).map(|(_, count)| count).sum();
    Tally { text: text.collect::<Vec<_>>().join(", "), segments, done, total }
}

/// Counts states.
pub(crate) fn count(states: impl Iterator<Item = TaskStateName>) -> BTreeMap<TaskStateName, u64> {
    let mut counts = BTreeMap::new();
    for state in states {
        *counts.entry(state).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_states_of_a_task_look_alike_without_colour() {
        let glyphs: BTreeSet<_> = TaskStateName::ALL.iter().map(|state| of_task(*state).glyph).collect();
        let words: BTreeSet<_> = TaskStateName::ALL.iter().map(|state| of_task(*state).text).collect();
        assert_eq!((glyphs.len(), words.len(), ORDER.len()), (9, 9, TaskStateName::ALL.len()));
    }

    #[test]
    fn a_tally_fills_its_bar() {
        use TaskStateName::{Failed, Running, Succeeded};
        let tally = tally(&count([Running, Succeeded, Failed, Succeeded].into_iter()));
        assert_eq!(tally.text, "2 succeeded, 1 failed, 1 running");
        assert_eq!((tally.done, tally.total), (3, 4));
        let ends: Vec<f64> = tally.segments.iter().map(|segment| segment.start + segment.width).collect();
        assert_eq!(ends, [50.0, 75.0, 100.0]);
        assert_eq!(super::tally(&BTreeMap::new()).segments, []);
    }
}
