//! The state behind the display: what is known of each task, as the events have told.

use std::time::Duration;

use assay_core::{RunId, TaskIx};
use assay_protocol::Progress;
use assay_server::{RunEvent, TaskStateName};

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
    pub fn new(job: usize, address: impl Into<String>) -> Self {
        Row {
            job,
            address: address.into(),
            state: TaskStateName::Waiting,
            detail: String::new(),
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
}

impl Board {
    /// Takes an event into account; `now` is the time since the start of the display.
    pub fn apply(&mut self, event: &RunEvent, now: Duration) {
        match event {
            RunEvent::Began(run) => self.run = Some(*run),
            RunEvent::Task { task, state, detail } => {
                let Some(row) = self.row_mut(*task) else { return };
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
            RunEvent::Log { .. } | RunEvent::AttemptFailed { .. } => {}
        }
    }

    /// A task's address, for messages.
    pub fn address(&self, task: TaskIx) -> &str {
        self.rows.get(task.0 as usize).map_or("?", |row| &row.address)
    }

    fn row_mut(&mut self, task: TaskIx) -> Option<&mut Row> {
        self.rows.get_mut(task.0 as usize)
    }
}
