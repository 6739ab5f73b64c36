//! What the core waits for: at most one moment for each thing waited for, found by either.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{AttemptId, RunId, TaskId, WorkerId};
use crate::run::ClassIx;
use crate::time::Millis;

/// What is due at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deadline {
    /// The worker is given up.
    Lease(WorkerId),
    /// The last word to the worker about this attempt is said again.
    Resend(AttemptId),
    /// The live attempt has had its time and its grace.
    Attempt(AttemptId),
    /// The task is ready again.
    BackOff(TaskId),
    /// The ready tasks of this class fail, since no worker could ever run them.
    Stranded(RunId, ClassIx),
}

/// The deadlines, soonest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Deadlines {
    by_moment: BTreeSet<(Millis, Deadline)>,
    by_cause: BTreeMap<Deadline, Millis>,
}

impl Deadlines {
    /// Waits until `at`, and no longer until whatever it was before.
    pub(crate) fn set(&mut self, deadline: Deadline, at: Millis) {
        self.clear(deadline);
        self.by_cause.insert(deadline, at);
        self.by_moment.insert((at, deadline));
    }

    /// No longer waits for this.
    pub(crate) fn clear(&mut self, deadline: Deadline) {
        if let Some(at) = self.by_cause.remove(&deadline) {
            self.by_moment.remove(&(at, deadline));
        }
    }

    /// Takes out one that is due.
    pub(crate) fn pop_due(&mut self, now: Millis) -> Option<Deadline> {
        let &(at, deadline) = self.by_moment.first()?;
        (at <= now).then(|| {
            self.clear(deadline);
            deadline
        })
    }

    /// The soonest moment.
    pub(crate) fn next(&self) -> Option<Millis> {
        self.by_moment.first().map(|&(at, _)| at)
    }

    /// When this is due, if it is waited for.
    pub(crate) fn at(&self, deadline: Deadline) -> Option<Millis> {
        self.by_cause.get(&deadline).copied()
    }

    /// All of them, soonest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Millis, Deadline)> + '_ {
        self.by_moment.iter().copied()
    }

    /// Whether the two views agree.
    pub(crate) fn consistent(&self) -> bool {
        self.by_moment.len() == self.by_cause.len()
            && self.by_moment.iter().all(|&(at, deadline)| self.at(deadline) == Some(at))
    }
}
