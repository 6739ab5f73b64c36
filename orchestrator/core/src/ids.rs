//! Typed identifiers: a number of one kind cannot be used as another kind.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A run: one submission of one workflow. The store assigns these numbers, counting from 1.
    RunId(i64)
);
id!(
    /// A task's index in its run's list of tasks, from 0. Needs always refer to smaller indices.
    TaskIx(u32)
);
id!(
    /// A job's index in its run's list of jobs, from 0.
    JobIx(u32)
);
id!(
    /// One lifetime of a worker node, as numbered by the server. A worker that restarts, or that rejoins after its
    /// lease expired, joins under a number that was never used before.
    WorkerId(u32)
);
id!(
    /// The number of an attempt of a task, from 1. It only increases, and fences superseded attempts.
    Epoch(u32)
);

/// A task of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// The run.
    pub run: RunId,
    /// The task's index in it.
    pub task: TaskIx,
}

/// One attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The task.
    pub task: TaskId,
    /// Its number.
    pub epoch: Epoch,
}

impl std::fmt::Display for TaskId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.run, self.task)
    }
}

impl std::fmt::Display for AttemptId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.task, self.epoch)
    }
}
