//! The state behind the display: what is known about each task from the events.

use std::collections::BTreeMap;
use std::time::Duration;

use assay_core::{RunId, TaskIx};
use assay_protocol::Progress;
use assay_server::{RunEvent, TaskStateName};
use assay_spec::printable;

/// All that the display knows.
#[derive(Debug, Clone)]
pub struct Board {
    /// The workflow's name.
    pub name: String,
    /// The run's number, once it has one.
    pub run: Option<RunId>,
    /// The jobs' names, in the order of the workflow.
    pub jobs: Vec<String>,
    /// The tasks, in the order of [`TaskIx`].
    pub rows: Vec<Row>,
    /// The processors that tasks share.
    pub cpus: u32,
    /// Seconds that a task of each job took in earlier runs.
    pub expected: BTreeMap<String, f64>,
}

/// One task.
#[derive(Debug, Clone)]
pub struct Row {
    /// The job that it belongs to, as an index into [`Board::jobs`].
    pub job: usize,
    /// Its address.
    pub address: String,
    /// Its state.
    pub state: TaskStateName,
    /// What the state cannot say, such as an error.
    pub detail: String,
    /// The processors that it takes.
    pub cpus: u32,
    /// Seconds that it may take, from earlier runs; `None` where none is known.
    pub expected: Option<f64>,
    /// Seconds that it took, once it has succeeded.
    pub took: Option<f64>,
    /// How far its attempt is.
    pub progress: Option<Progress>,
    /// When the present attempt began, since the start of the display.
    pub began: Option<Duration>,
    /// The first position seen of the present attempt, to compute the rate from.
    first: Option<(Duration, u64)>,
    /// When the latest position was seen.
    latest: Option<Duration>,
}

impl Row {
    /// A task of which nothing is known yet.
    pub fn new(job: usize, address: impl Into<String>, cpus: u32) -> Self {
        Row {
            job,
            address: address.into(),
            state: TaskStateName::Waiting,
            detail: String::new(),
            cpus,
            expected: None,
            took: None,
            progress: None,
            began: None,
            first: None,
            latest: None,
        }
    }

    /// Units a second over the present attempt; `None` before two positions are known.
    pub fn rate(&self) -> Option<f64> {
        let (began, done) = self.first?;
        let seconds = (self.latest? - began).as_secs_f64();
        let units = self.progress.as_ref()?.done.checked_sub(done)?;
        (seconds > 0.2 && units > 0).then(|| units as f64 / seconds)
    }

    /// Seconds until the present attempt is done, at its present rate.
    pub fn remaining(&self) -> Option<f64> {
        let progress = self.progress.as_ref()?;
        let left = progress.total?.checked_sub(progress.done)?;
        Some(left as f64 / self.rate()?)
    }

    /// How far the present attempt is, in words: position, rate, remaining time and what the step says.
    pub fn position(&self, now: Duration) -> String {
        let Some(progress) = &self.progress else {
            return self.began.map_or_else(String::new, |began| format_clock(now.saturating_sub(began)));
        };
        let mut parts = match progress.total {
            Some(total) if total > 0 => vec![format!("{}/{total} {}", progress.done, progress.unit)],
            _ => vec![format!("{} {}", progress.done, progress.unit)],
        };
        parts.extend(self.rate().map(|rate| format!("{}/s", three_digits(rate))));
        parts.extend(self.remaining().map(|seconds| format!("{} left", clock_of(seconds))));
        if !progress.note.is_empty() {
            parts.push(printable(&progress.note).into_owned());
        }
        parts.join("  ")
    }

    fn is_over(&self) -> bool {
        !matches!(
            self.state,
            TaskStateName::Waiting | TaskStateName::Ready | TaskStateName::Running | TaskStateName::BackingOff
        )
    }
}

/// Minutes and seconds, with hours if there are any.
pub fn format_clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

/// [`format_clock`] of seconds, however many.
pub fn clock_of(seconds: f64) -> String {
    format_clock(Duration::from_secs_f64(seconds.clamp(0.0, 1e7)))
}

/// A rate with three significant digits.
fn three_digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

impl Board {
    /// Takes an event into account; `now` is the time since the start of the display.
    pub fn apply_event(&mut self, event: &RunEvent, now: Duration) {
        match event {
            RunEvent::Began(run) => self.run = Some(*run),
            RunEvent::Task { task, state, detail } => {
                let Some(row) = self.row_mut(*task) else { return };
                if *state == TaskStateName::Succeeded {
                    row.took = row.began.map(|began| now.saturating_sub(began).as_secs_f64());
                }
                row.state = *state;
                row.detail.clone_from(detail);
                row.progress = None;
                row.first = None;
                row.latest = None;
                row.began = (*state == TaskStateName::Running).then_some(now);
            }
            RunEvent::Progress { task, progress } => {
                let Some(row) = self.row_mut(*task) else { return };
                row.first.get_or_insert((now, progress.done));
                row.latest = Some(now);
                row.progress = Some(progress.clone());
            }
            RunEvent::TasksAdded { first, tasks } => {
                self.rows.truncate(first.0 as usize);
                for task in tasks {
                    let job = self.jobs.iter().position(|job| *job == task.job).unwrap_or(0);
                    let mut row = Row::new(job, task.address.clone(), task.cpus);
                    row.expected = self.expected.get(&task.job).copied();
                    self.rows.push(row);
                }
            }
            RunEvent::Log { .. } | RunEvent::AttemptFailed { .. } => {}
        }
    }

    /// Seconds until the run is over: the work that is left, shared by the processors, and at least the longest task of it. How
    /// long a task takes is known from its own rate, from others of its job in this run, or from earlier runs. `None` while
    /// nothing is known of some job that has tasks.
    pub fn remaining(&self, now: Duration) -> Option<f64> {
        let mut finished = vec![(0.0, 0u32); self.jobs.len()];
        for row in &self.rows {
            if let (Some(took), Some((sum, count))) = (row.took, finished.get_mut(row.job)) {
                (*sum, *count) = (*sum + took, *count + 1);
            }
        }
        let (mut work, mut longest) = (0.0, 0.0f64);
        for row in self.rows.iter().filter(|row| !row.is_over()) {
            let typical = match finished.get(row.job) {
                Some((sum, count)) if *count > 0 => Some(sum / f64::from(*count)),
                _ => row.expected,
            };
            let spent = row.began.map_or(0.0, |began| now.saturating_sub(began).as_secs_f64());
            let left = row.remaining().or_else(|| Some((typical? - spent).max(0.0)))?;
            work += left * f64::from(row.cpus.clamp(1, self.cpus.max(1)));
            longest = longest.max(left);
        }
        Some(longest.max(work / f64::from(self.cpus.max(1))))
    }

    /// [`Board::remaining`] in words: `more than` if there are jobs whose tasks are not known yet.
    pub fn remaining_text(&self, now: Duration) -> Option<String> {
        let about = if self.has_undecided() { "more than" } else { "about" };
        self.remaining(now).map(|seconds| format!("{about} {}", clock_of(seconds)))
    }

    /// How many tasks there are, in words.
    pub fn task_count(&self) -> String {
        let so_far = if self.has_undecided() { " so far" } else { "" };
        format!("{} tasks{so_far}", self.rows.len())
    }

    /// Whether a job has no tasks yet, since results decide its cells.
    fn has_undecided(&self) -> bool {
        (0..self.jobs.len()).any(|job| self.rows.iter().all(|row| row.job != job))
    }

    /// How far the run is, in one line.
    pub fn summary(&self, now: Duration) -> String {
        let done = self.rows.iter().filter(|row| row.is_over()).count();
        let left = self.remaining_text(now).map(|time| format!(", {time} left"));
        format!("{done} of {} done after {}{}", self.task_count(), format_clock(now), left.unwrap_or_default())
    }

    /// A task's address, for messages.
    pub fn address(&self, task: TaskIx) -> &str {
        self.rows.get(task.0 as usize).map_or("?", |row| &row.address)
    }

    fn row_mut(&mut self, task: TaskIx) -> Option<&mut Row> {
        self.rows.get_mut(task.0 as usize)
    }
}
