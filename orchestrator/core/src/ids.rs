//! Identities. A number of one kind cannot stand where another kind is meant.

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
    /// A run: one submission of one workflow. The store hands these out, counting from 1.
    RunId(i64)
);
id!(
    /// A task's place in its run's list of tasks, counting from 0. Needs always point to smaller ones.
    TaskIx(u32)
);
id!(
    /// A job's place in its run's list of jobs, counting from 0.
    JobIx(u32)
);
id!(
    /// One life of a worker node, as the server numbers them. A worker that starts again, or that was given up and
    /// comes back, joins under a number that was never used before.
    WorkerId(u32)
);
id!(
    /// Which attempt of a task this is, counting from 1. It only grows: the fence against superseded attempts.
    Epoch(u32)
);

/// A task of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// The run.
    pub run: RunId,
    /// The task's place in it.
    pub task: TaskIx,
}

/// One attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The task.
    pub task: TaskId,
    /// Which attempt of it.
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
