//! Tasks that wait to be resolved: [`Unresolved`].

use std::collections::{BTreeSet, VecDeque};

use assay_core::TaskIx;
use assay_spec::Workflow;

use crate::ports::TaskStateName;

/// How many tasks of a job are ready at most before further ones of it are resolved. More than that start only after these: what is
/// worked out for them earlier keeps the first ones waiting.
const AHEAD: usize = 256;

/// The tasks that the core wants resolved, by job: in the core's order within a job, and no further than [`AHEAD`]. A job at its
/// limit holds no other back, which may run on something else.
pub(crate) struct Unresolved {
    /// The job of each task.
    jobs: Vec<usize>,
    /// Of each job, those that wait.
    waiting: Vec<VecDeque<TaskIx>>,
    /// Of each job, how many tasks are ready.
    ready: Vec<usize>,
    /// The jobs of which a task can be resolved now.
    open: BTreeSet<usize>,
}

impl Unresolved {
    pub(crate) fn new(workflow: &Workflow) -> Unresolved {
        let count = workflow.jobs.len().max(1);
        Unresolved {
            jobs: workflow.tasks.iter().map(|task| task.job_index).collect(),
            waiting: vec![VecDeque::new(); count],
            ready: vec![0; count],
            open: BTreeSet::new(),
        }
    }

    /// The workflow has more tasks than before, from this place on.
    pub(crate) fn add(&mut self, workflow: &Workflow, first: usize) {
        self.jobs.extend(workflow.tasks[first..].iter().map(|task| task.job_index));
    }

    /// A task waits from now on.
    pub(crate) fn push(&mut self, task: TaskIx) {
        let job = self.jobs[task.0 as usize];
        self.waiting[job].push_back(task);
        self.look_at(job);
    }

    /// Whether there is a next one.
    pub(crate) fn has_next(&self) -> bool {
        !self.open.is_empty()
    }

    /// The next one: of the first job that has one.
    pub(crate) fn pop(&mut self) -> Option<TaskIx> {
        let &job = self.open.first()?;
        let task = self.waiting[job].pop_front();
        self.look_at(job);
        task
    }

    /// A task is in another state.
    pub(crate) fn changed(&mut self, task: TaskIx, from: TaskStateName, to: TaskStateName) {
        let job = self.jobs[task.0 as usize];
        if from == TaskStateName::Ready {
            self.ready[job] = self.ready[job].saturating_sub(1);
        }
        if to == TaskStateName::Ready {
            self.ready[job] += 1;
        }
        self.look_at(job);
    }

    fn look_at(&mut self, job: usize) {
        if self.ready[job] < AHEAD && !self.waiting[job].is_empty() {
            self.open.insert(job);
        } else {
            self.open.remove(&job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_with_enough_ready_tasks_holds_no_other_back() {
        let mut unresolved = Unresolved {
            jobs: [vec![0; 1000], vec![1; 1000]].concat(),
            waiting: vec![VecDeque::new(); 2],
            ready: vec![0; 2],
            open: BTreeSet::new(),
        };
        (0..2000).for_each(|task| unresolved.push(TaskIx(task)));
        let ready = |unresolved: &mut Unresolved| {
            let mut taken = Vec::new();
            while let Some(task) = unresolved.pop() {
                unresolved.changed(task, TaskStateName::Waiting, TaskStateName::Ready);
                taken.push(task.0 as usize);
            }
            taken
        };
        let expected: Vec<usize> = (0..AHEAD).chain(1000..1000 + AHEAD).collect();
        assert_eq!(ready(&mut unresolved), expected);
        // As many as start are followed by others, in order; a task from the cache takes no place.
        unresolved.changed(TaskIx(0), TaskStateName::Ready, TaskStateName::Running);
        assert!(unresolved.has_next());
        assert_eq!(unresolved.pop(), Some(TaskIx(AHEAD as u32)));
        unresolved.changed(TaskIx(AHEAD as u32), TaskStateName::Waiting, TaskStateName::Cached);
        assert_eq!(ready(&mut unresolved), [AHEAD + 1]);
        assert!(!unresolved.has_next());
    }
}
