//! Jobs whose cells depend on results get their tasks while the run is in progress.

use std::sync::Arc;

use assay_core::{Event, JobIx, RunPhase, TaskIx};
use assay_spec::Expanded;

use crate::driver::Driver;
use crate::execute::new_task;
use crate::plan::task_plan;
use crate::ports::{LedgerError, Record};
use crate::task::TaskMemory;
use crate::watch::{AddedTask, RunEvent};

impl Driver {
    /// Decides the tasks that the core asks for, one job after the other, since each expansion numbers tasks behind all others.
    pub(crate) fn expand_jobs(&mut self) {
        for job in std::mem::take(&mut self.to_expand) {
            // Another job's expansion may have brought its tasks along.
            let place = job.0 as usize;
            let going = self.core.run(self.run).is_some_and(|run| *run.phase() == RunPhase::Going);
            if going && self.workflow.jobs.get(place).is_some_and(|job| job.awaits.is_some()) {
                let tasks = &self.tasks;
                let finished = |ix: usize| tasks.get(ix).and_then(TaskMemory::finished);
                let expanded = self.workflow.expand(place, &finished);
                self.add_tasks(expanded);
            }
        }
    }

    fn add_tasks(&mut self, expanded: Expanded) {
        let Expanded { workflow, first, jobs, warnings } = expanded;
        let added = &workflow.tasks[first..];
        self.tasks.resize_with(workflow.tasks.len(), TaskMemory::default);
        if let Some(memory) = self.tasks.get_mut(first) {
            memory.warnings = warnings;
        }
        self.to_resolve.add(&workflow, first);
        let ix = TaskIx(first as u32);
        self.append_record(Record::TasksAdded { first: ix, tasks: added.iter().map(new_task).collect() });
        let told = added.iter().map(|task| AddedTask {
            address: task.address.clone(),
            job: task.job.clone(),
            cpus: task.resources.first().map_or(1, |resource| resource.cpus),
        });
        self.notify_watchers(RunEvent::TasksAdded { first: ix, tasks: told.collect() });
        let tasks = added.iter().map(task_plan).collect();
        self.workflow = Arc::new(workflow);
        let jobs = jobs.into_iter().map(|job| JobIx(job as u32)).collect();
        self.apply_event(Event::JobsExpanded { run: self.run, jobs, tasks });
        // The spec makes tasks that fit; if they did not, the run would wait for ever.
        if self.core.run(self.run).is_none_or(|run| run.tasks().len() != self.tasks.len()) {
            self.fatal = Some(LedgerError::new("the tasks that were decided do not fit the run's plan".to_owned()));
        }
    }
}
