//! Plain lines, for logs and pipes: one line for each thing worth knowing, and one a minute for what takes long.

use std::time::Duration;

use assay_core::TaskIx;
use assay_protocol::LogLevel;
use assay_server::{RunEvent, TaskStateName};
use assay_spec::{printable, printable_lines};

use super::{Board, Row};

/// How often a long attempt is reported.
const PERIOD: Duration = Duration::from_secs(60);
/// How long such tasks wait for others, to be told in one line.
const TOGETHER: Duration = Duration::from_secs(1);

/// The states to which tasks come by the thousand: they are told in one line.
const GROUPED: [TaskStateName; 3] = [TaskStateName::Cached, TaskStateName::Skipped, TaskStateName::Cancelled];

/// How much a person wants to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Failures alone.
    Quiet,
    /// What begins and ends, warnings, and a line a minute.
    Normal,
    /// Each task from the cache, and every line of the log too.
    Verbose,
}

/// What was told so far.
#[derive(Debug)]
pub struct Plain {
    detail: Detail,
    /// Tasks that came to one of the states [`GROUPED`] for the same reason and are not told yet, and since when.
    group: Option<(TaskStateName, String, Vec<TaskIx>)>,
    since: Duration,
    /// When the last lines about long attempts were due.
    reported: Duration,
}

impl Plain {
    pub fn new(detail: Detail) -> Plain {
        Plain { detail, group: None, since: Duration::ZERO, reported: Duration::ZERO }
    }

    /// The lines for an event, which the board does not know yet; `now` is the time since the start.
    pub fn on_event(&mut self, board: &Board, event: &RunEvent, now: Duration) -> Vec<String> {
        if let (RunEvent::Task { task, state, detail }, Detail::Normal) = (event, self.detail)
            && GROUPED.contains(state)
        {
            return self.add_change(board, *task, *state, detail, now);
        }
        let Some(line) = event_line(board, event, self.detail) else { return Vec::new() };
        let mut lines = self.take_group(board);
        lines.push(line);
        lines
    }

    /// What is due by now: tasks from the cache, and a line for each attempt that runs for more than a minute.
    pub fn on_tick(&mut self, board: &Board, now: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        if now.saturating_sub(self.since) >= TOGETHER {
            lines.extend(self.take_group(board));
        }
        if self.detail == Detail::Quiet {
            return lines;
        }
        // Lines are due a minute after the last ones. Before any lines, they are due a minute after an attempt began.
        let runs_long = |row: &&Row| row.began.is_some_and(|began| now.saturating_sub(began) >= PERIOD);
        if now.saturating_sub(self.reported) < PERIOD || !board.rows.iter().any(|row| runs_long(&row)) {
            return lines;
        }
        self.reported = now;
        let long = board.rows.iter().filter(runs_long);
        let before = lines.len();
        lines.extend(long.map(|row| format!("{}  {}", printable(&row.address), row.position(now))));
        if lines.len() > before {
            lines.push(board.summary(now));
        }
        lines
    }

    /// What is left to tell at the end.
    pub fn on_end(&mut self, board: &Board) -> Vec<String> {
        self.take_group(board)
    }

    /// One more task of a group; the lines of the group before, if that was another one.
    fn add_change(
        &mut self,
        board: &Board,
        task: TaskIx,
        state: TaskStateName,
        why: &str,
        now: Duration,
    ) -> Vec<String> {
        let same = |group: &&mut (TaskStateName, String, Vec<TaskIx>)| group.0 == state && group.1 == why;
        if let Some((_, _, tasks)) = self.group.as_mut().filter(same) {
            tasks.push(task);
            return Vec::new();
        }
        let lines = self.take_group(board);
        (self.group, self.since) = (Some((state, why.to_owned(), vec![task])), now);
        lines
    }

    fn take_group(&mut self, board: &Board) -> Vec<String> {
        let Some((state, why, tasks)) = self.group.take() else { return Vec::new() };
        let why = if why.is_empty() { why } else { format!(": {}", printable_lines(&why)) };
        vec![match tasks[..] {
            [one] => format!("{} {state}{why}", printable(board.address(one))),
            ref many => format!("{} tasks {state}{why}", many.len()),
        }]
    }
}

/// The line for an event, if it deserves one.
fn event_line(board: &Board, event: &RunEvent, detail: Detail) -> Option<String> {
    let address = |task| printable(board.address(task));
    match event {
        RunEvent::Task { state: TaskStateName::Failed, task, detail } => {
            Some(format!("{} FAILED: {}", address(*task), printable_lines(detail)))
        }
        RunEvent::AttemptFailed { task, epoch, failure } => {
            let message = printable_lines(&failure.message);
            Some(format!("{} attempt {epoch} failed ({}): {message}", address(*task), failure.class))
        }
        _ if detail == Detail::Quiet => None,
        RunEvent::Began(run) => {
            // Less than a second says nothing.
            let known = board.remaining(Duration::ZERO).is_some_and(|seconds| seconds >= 1.0);
            let after = board.remaining_text(Duration::ZERO).filter(|_| known);
            let after = after.map(|time| format!(", {time} from earlier runs"));
            let (name, count) = (printable(&board.name), board.task_count());
            Some(format!("run {run}: {name} ({count}{})", after.unwrap_or_default()))
        }
        RunEvent::Task { task, state, detail } => {
            let word = match state {
                // What it waits for, if that is another run.
                TaskStateName::Waiting | TaskStateName::Ready if !detail.is_empty() => {
                    return Some(format!("{} {}", address(*task), printable_lines(detail)));
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
            Some(format!("{} {word}{separator}{}", address(*task), printable_lines(detail)))
        }
        RunEvent::Log { task, level, text } => {
            let wanted = detail == Detail::Verbose || matches!(level, LogLevel::Warn | LogLevel::Error);
            wanted.then(|| format!("{}: {}", address(*task), printable_lines(text)))
        }
        RunEvent::TasksAdded { tasks, .. } => {
            let first = tasks.first().map(|task| printable(&task.address).into_owned()).unwrap_or_default();
            Some(match tasks.len() {
                1 => format!("added {first}"),
                count => format!("added {count} tasks, the first is {first}"),
            })
        }
        RunEvent::Progress { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use assay_core::RunId;
    use assay_protocol::Progress;

    use assay_server::AddedTask;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn task_changed(task: u32, state: TaskStateName) -> RunEvent {
        RunEvent::Task { task: TaskIx(task), state, detail: String::new() }
    }

    /// Tells a board of events at their seconds; the lines that were printed.
    fn printed_lines(detail: Detail, events: &[(u64, RunEvent)], until: u64) -> Vec<String> {
        let board = super::super::fixture::board(&["train[tag=\u{202e}x]#1", "train#2"]);
        let (mut board, mut plain, mut lines) = (board, Plain::new(detail), Vec::new());
        let mut events = events.iter().peekable();
        for now in 0..=until {
            while let Some((_, event)) = events.next_if(|(at, _)| *at == now) {
                lines.extend(plain.on_event(&board, event, seconds(now)));
                board.apply_event(event, seconds(now));
            }
            lines.extend(plain.on_tick(&board, seconds(now)));
        }
        lines.extend(plain.on_end(&board));
        lines
    }

    #[test]
    fn tasks_from_the_cache_share_a_line() {
        let cached = |task| (0, task_changed(task, TaskStateName::Cached));
        let events = [(0, RunEvent::Began(RunId(3))), cached(0), cached(1), cached(2)];
        assert_eq!(printed_lines(Detail::Normal, &events, 0), ["run 3: sweep (3 tasks)", "3 tasks cached"]);
        assert_eq!(printed_lines(Detail::Verbose, &events, 0).len(), 4);
        assert!(printed_lines(Detail::Quiet, &events, 0).is_empty());
        assert_eq!(printed_lines(Detail::Normal, &events[..2], 5)[1], "data cached");
    }

    #[test]
    fn skipped_tasks_are_told_with_their_reason_and_added_ones_are_counted() {
        let skipped = |task, why: &str| {
            (0, RunEvent::Task { task: TaskIx(task), state: TaskStateName::Skipped, detail: why.into() })
        };
        let added = |address: &str| AddedTask { address: address.into(), job: "train".into(), cpus: 1 };
        let tasks = vec![added("train[states=8]"), added("train[states=16]")];
        let events = [
            skipped(0, "its condition `1 > 2` is false"),
            skipped(1, "data was skipped"),
            skipped(2, "data was skipped"),
            (0, RunEvent::TasksAdded { first: TaskIx(3), tasks }),
            (0, task_changed(4, TaskStateName::Succeeded)),
        ];
        let expected = [
            "data skipped: its condition `1 > 2` is false",
            "2 tasks skipped: data was skipped",
            "added 2 tasks, the first is train[states=8]",
            "train[states=16] succeeded",
        ];
        assert_eq!(printed_lines(Detail::Normal, &events, 0), expected);
    }

    #[test]
    fn a_long_attempt_has_a_line_a_minute_after_it_began() {
        let events = [(1, task_changed(0, TaskStateName::Running))];
        let count = |until| printed_lines(Detail::Normal, &events, until).len();
        assert_eq!(count(61), count(60) + 2, "the attempt and the run");
        assert_eq!(count(120), count(61));
        assert_eq!(count(121), count(61) + 2);
    }

    #[test]
    fn what_a_task_waits_for_is_escaped() {
        let detail = "waits for `a\u{202e}b`\u{1b}[2J, which does the same work".to_owned();
        let events = [(0, RunEvent::Task { task: TaskIx(1), state: TaskStateName::Waiting, detail })];
        let expected = "train[tag=\\u{202e}x]#1 waits for `a\\u{202e}b`\\u{1b}[2J, which does the same work";
        assert_eq!(printed_lines(Detail::Normal, &events, 0), [expected]);
    }

    #[test]
    fn jobs_that_have_no_tasks_yet_are_not_forgotten() {
        let mut board = super::super::fixture::board(&["train#1"]);
        board.jobs.push("refine".into());
        for row in &mut board.rows {
            row.expected = Some(60.0);
        }
        let began = Plain::new(Detail::Normal).on_event(&board, &RunEvent::Began(RunId(3)), seconds(0));
        assert_eq!(began, ["run 3: sweep (2 tasks so far, more than 1:00 from earlier runs)"]);
        assert_eq!(board.summary(seconds(1)), "0 of 2 tasks so far done after 0:01, more than 1:00 left");
        let tasks = vec![AddedTask { address: "refine".into(), job: "refine".into(), cpus: 1 }];
        board.apply_event(&RunEvent::TasksAdded { first: TaskIx(2), tasks }, seconds(1));
        assert_eq!(board.summary(seconds(1)), "0 of 3 tasks done after 0:01");
    }

    #[test]
    fn a_long_training_is_reported_once_a_minute() {
        let progress = |done| RunEvent::Progress {
            task: TaskIx(1),
            progress: Progress { done, total: Some(400), unit: "steps".into(), note: "loss 1.93".into() },
        };
        let events = [
            (0, task_changed(1, TaskStateName::Running)),
            (0, progress(0)),
            (50, progress(100)),
            (130, task_changed(2, TaskStateName::Running)),
        ];
        let lines = printed_lines(Detail::Normal, &events, 185);
        let line = "train[tag=\\u{202e}x]#1  100/400 steps  2.00/s  2:30 left  loss 1.93";
        let reported: Vec<&String> = lines.iter().filter(|text| text.contains("steps")).collect();
        assert_eq!(reported, [line, line, line], "{lines:?}");
        assert!(lines.iter().any(|text| text.starts_with("0 of 3 tasks done")), "{lines:?}");
    }
}
