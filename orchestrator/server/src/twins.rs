//! Deduplication within a run: of several tasks with one cache key, the first one runs, and the others wait for its result.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::TaskIx;

/// Which task runs for a cache key, and which tasks wait for it.
#[derive(Debug, Default)]
pub(crate) struct Twins {
    owners: BTreeMap<String, TaskIx>,
    waiting: BTreeMap<TaskIx, Vec<TaskIx>>,
    over: BTreeSet<TaskIx>,
}

impl Twins {
    /// The task that runs, or ran last, for a key.
    pub(crate) fn owner(&self, key: &str) -> Option<TaskIx> {
        self.owners.get(key).copied()
    }

    /// Makes a task the one that runs for a key. Returns `false` if another task is running for it: the task then waits for
    /// that one.
    pub(crate) fn claim(&mut self, key: &str, task: TaskIx) -> bool {
        match self.owner(key) {
            Some(owner) if owner != task && !self.over.contains(&owner) => {
                self.waiting.entry(owner).or_default().push(task);
                false
            }
            _ => {
                self.owners.insert(key.to_owned(), task);
                true
            }
        }
    }

    /// Records that a task has ended. Returns the tasks that waited for it.
    pub(crate) fn release(&mut self, task: TaskIx) -> Vec<TaskIx> {
        self.over.insert(task);
        self.waiting.remove(&task).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_does_the_work_and_the_next_one_if_that_fails() {
        let mut twins = Twins::default();
        let [first, second, third] = [0, 1, 2].map(TaskIx);
        assert!(twins.claim("a", first) && !twins.claim("a", second) && !twins.claim("a", third));
        assert!(twins.claim("b", TaskIx(7)), "another key is other work");
        assert_eq!(twins.release(first), [second, third]);
        assert!(twins.claim("a", second) && !twins.claim("a", third));
        assert_eq!((twins.owner("a"), twins.release(second)), (Some(second), vec![third]));
        assert_eq!(twins.release(third), []);
    }
}
