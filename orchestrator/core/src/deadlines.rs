//! The deadlines of the core: at most one moment for each item, indexed by item and by moment.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{AttemptId, RunId, TaskId, WorkerId};
use crate::run::ClassIx;
use crate::time::Millis;

/// What is due at a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deadline {
    /// The worker's lease expires.
    Lease(WorkerId),
    /// The unacknowledged message to the worker about this attempt is sent again.
    Resend(AttemptId),
    /// The timeout and grace period of the live attempt have passed.
    Attempt(AttemptId),
    /// The task's backoff ends.
    BackOff(TaskId),
    /// The ready tasks of this class fail, since no worker can run them.
    Stranded(RunId, ClassIx),
}

/// The deadlines, earliest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Deadlines {
    by_moment: BTreeSet<(Millis, Deadline)>,
    by_cause: BTreeMap<Deadline, Millis>,
}

impl Deadlines {
    /// Sets the deadline to `at`, replacing an earlier value.
    pub(crate) fn set(&mut self, deadline: Deadline, at: Millis) {
        self.clear(deadline);
        self.by_cause.insert(deadline, at);
        self.by_moment.insert((at, deadline));
    }

    /// Removes the deadline.
    pub(crate) fn clear(&mut self, deadline: Deadline) {
        if let Some(at) = self.by_cause.remove(&deadline) {
            self.by_moment.remove(&(at, deadline));
        }
    }

    /// Removes and returns a deadline that is due.
    pub(crate) fn pop_due(&mut self, now: Millis) -> Option<Deadline> {
        let &(at, deadline) = self.by_moment.first()?;
        (at <= now).then(|| {
            self.clear(deadline);
            deadline
        })
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Millis> {
        self.by_moment.first().map(|&(at, _)| at)
    }

    /// When this is due, if it is set.
    pub(crate) fn at(&self, deadline: Deadline) -> Option<Millis> {
        self.by_cause.get(&deadline).copied()
    }

    /// All deadlines, earliest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Millis, Deadline)> + '_ {
        self.by_moment.iter().copied()
    }

    /// Whether both indices agree.
    pub(crate) fn consistent(&self) -> bool {
        self.by_moment.len() == self.by_cause.len()
            && self.by_moment.iter().all(|&(at, deadline)| self.at(deadline) == Some(at))
    }
}
