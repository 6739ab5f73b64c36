//! Tasks of one run that are the same work: the first one does it, the others wait and take its result.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::TaskIx;

/// Which task does the work of a cache key, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Twins {
    owners: BTreeMap<String, TaskIx>,
    waiting: BTreeMap<TaskIx, Vec<TaskIx>>,
    over: BTreeSet<TaskIx>,
}

impl Twins {
    /// The task that does, or did, the work of a key.
    pub(crate) fn owner(&self, key: &str) -> Option<TaskIx> {
        self.owners.get(key).copied()
    }

    /// Gives the work of a key to a task, unless another one is at it: then the task waits for that one.
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

    /// A task came to its end: those that waited for it.
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
