//! A run: its plan, its tasks, and counters that avoid visiting all tasks.

use std::collections::{BTreeMap, BTreeSet};

use assay_protocol::FailureClass;

use crate::effect::RunOutcome;
use crate::ids::{JobIx, TaskIx, WorkerId};
use crate::plan::{JobPlan, Resource, RunPlan, TaskPlan, TriggerRule};
use crate::task::{ScheduledTask, SkipReason, Tally, TaskState};
use crate::time::Millis;

/// The index of a class in its run's list of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassIx(pub(crate) u32);

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub(crate) plan: RunPlan,
    pub(crate) phase: RunPhase,
    /// Parallel to the plan's tasks.
    pub(crate) tasks: Vec<ScheduledTask>,
    /// Parallel to the plan's jobs.
    pub(crate) jobs: Vec<Job>,
    pub(crate) classes: Vec<Class>,
    /// How many tasks are not in a final state.
    pub(crate) open: u32,
    /// Whether it must not start attempts.
    pub(crate) paused: bool,
    /// Whether the last task of a job reached a final state, and the jobs that await that job were not checked yet.
    pub(crate) job_done: bool,
}

/// The phase of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunPhase {
    /// Tasks are waiting or running.
    Going,
    /// It was cancelled; attempts that are being stopped have not ended yet.
    Cancelling,
    /// Every task is in a final state.
    Ended(RunOutcome),
}

/// A job's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its tasks.
    pub(crate) members: Vec<TaskIx>,
    /// How many of them have a live attempt.
    pub(crate) live: u32,
    /// How many of them are not in a final state.
    pub(crate) open: u32,
    pub(crate) cells: Cells,
}

/// Whether the tasks of a job are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cells {
    Known,
    /// They depend on jobs that have not ended.
    Awaiting,
    /// They were requested from the driver.
    Asked,
    /// The run was cancelled before they were known.
    GivenUp,
}

impl Job {
    /// Whether its tasks are still unknown.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(self.cells, Cells::Awaiting | Cells::Asked)
    }
}

/// Tasks of one job with the same variants and the same workers to avoid. If the first of them finds no free worker, neither does
/// any other, so the scheduler examines one task per class instead of every task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) job: JobIx,
    pub(crate) variants: Vec<Resource>,
    /// How often `escalate` raised the memory of the tasks.
    pub(crate) escalations: u32,
    /// The workers on which attempts failed, if the tasks avoid them.
    pub(crate) avoided: BTreeSet<WorkerId>,
    pub(crate) ready: BTreeSet<TaskIx>,
    /// Since when the class has ready tasks but no worker that can run them.
    pub(crate) stranded: Option<Millis>,
}

impl Class {
    fn new(job: JobIx, variants: Vec<Resource>, escalations: u32, avoided: BTreeSet<WorkerId>) -> Class {
        Class { job, variants, escalations, avoided, ready: BTreeSet::new(), stranded: None }
    }

    /// Whether its tasks have the requirements of the submitted plan.
    fn is_initial(&self) -> bool {
        self.escalations == 0 && self.avoided.is_empty()
    }

    /// Whether the tasks of both classes have the same placement.
    fn places_like(&self, other: &Class) -> bool {
        let key = |class: &Class| (class.job, class.escalations);
        key(self) == key(other) && self.variants == other.variants && self.avoided == other.avoided
    }
}

/// Ready tasks with the same placement.
#[derive(Debug, Clone, Copy)]
pub struct ReadyGroup<'a> {
    /// The resources of each task.
    pub variants: &'a [Resource],
    /// The workers that the tasks avoid as long as another open worker could run them.
    pub avoided: &'a BTreeSet<WorkerId>,
    /// How many tasks may start now.
    pub count: u32,
    /// The first of them.
    pub first: TaskIx,
}

impl Run {
    /// The submitted plan with the tasks that were added, and with escalated memory and timeouts.
    #[must_use]
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// The phase of the run.
    #[must_use]
    pub fn phase(&self) -> &RunPhase {
        &self.phase
    }

    /// Whether no attempt starts until the run is resumed.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// The ready tasks that may start now, in groups with the same placement. In placement order.
    pub fn ready_groups(&self) -> impl Iterator<Item = ReadyGroup<'_>> {
        let mut groups: Vec<(TaskIx, &Class)> =
            self.classes.iter().filter_map(|class| Some((*class.ready.first()?, class))).collect();
        groups.sort_by_key(|(first, _)| *first);
        // The classes of a job share its limit.
        let room =
            |(job, plan): (&Job, &JobPlan)| plan.max_parallel.map_or(u32::MAX, |most| most.saturating_sub(job.live));
        let mut room: Vec<u32> = std::iter::zip(&self.jobs, &self.plan.jobs).map(room).collect();
        groups.into_iter().filter_map(move |(first, class)| {
            let left = &mut room[class.job.0 as usize];
            let count = u32::try_from(class.ready.len()).unwrap_or(u32::MAX).min(*left);
            *left -= count;
            let group = ReadyGroup { variants: &class.variants, avoided: &class.avoided, count, first };
            (count > 0).then_some(group)
        })
    }

    /// The tasks, indexed by [`TaskIx`].
    #[must_use]
    pub fn tasks(&self) -> &[ScheduledTask] {
        &self.tasks
    }

    /// A run of a validated plan, with every task waiting, even those without needs.
    pub(crate) fn new(plan: RunPlan) -> Self {
        let RunPlan { tasks, jobs: job_plans } = plan;
        let cells = |job: &JobPlan| if job.awaits.is_some() { Cells::Awaiting } else { Cells::Known };
        let job = |plan: &JobPlan| Job { members: Vec::new(), live: 0, open: 0, cells: cells(plan) };
        let jobs = job_plans.iter().map(job).collect();
        let plan = RunPlan { tasks: Vec::with_capacity(tasks.len()), jobs: job_plans };
        let (phase, classes) = (RunPhase::Going, Vec::new());
        let mut run = Run { plan, phase, tasks: Vec::new(), jobs, classes, open: 0, paused: false, job_done: true };
        run.add(tasks);
        run
    }

    /// Adds validated tasks. Each waits for the needs that do not satisfy its rule yet.
    pub(crate) fn add(&mut self, added: Vec<TaskPlan>) {
        let unfailed = (0..).map(ClassIx).zip(&self.classes).filter(|(_, class)| class.is_initial());
        let before: Vec<(JobIx, Vec<Resource>, ClassIx)> =
            unfailed.map(|(ix, class)| (class.job, class.variants.clone(), ix)).collect();
        let mut known: BTreeMap<(JobIx, &[Resource]), ClassIx> =
            before.iter().map(|(job, variants, ix)| ((*job, variants.as_slice()), *ix)).collect();
        for task in &added {
            let class = *known.entry((task.job, &task.variants)).or_insert_with(|| {
                self.classes.push(Class::new(task.job, task.variants.clone(), 0, BTreeSet::new()));
                ClassIx(self.classes.len() as u32 - 1)
            });
            let ix = TaskIx(self.tasks.len() as u32);
            let (mut unfinished, mut open_above) = (0, 0);
            for need in &task.needs {
                unfinished += u32::from(!self.meets(task.trigger, *need));
                open_above += u32::from(!self.is_closed(*need));
                self.tasks[need.0 as usize].dependents.push(ix);
            }
            let job = &mut self.jobs[task.job.0 as usize];
            job.members.push(ix);
            job.open += 1;
            self.open += 1;
            let state = TaskState::Waiting { unfinished };
            self.tasks.push(ScheduledTask { state, dependents: Vec::new(), open_above, class, tally: Tally::NONE });
            self.plan.tasks.push(task.clone());
        }
    }

    /// Changes the requirements of a task's next attempt after one failed on a worker: see [`Retry`](crate::Retry).
    pub(crate) fn prepare_retry(&mut self, task: TaskIx, class: FailureClass, worker: WorkerId) {
        let (plan, scheduled) = (&mut self.plan.tasks[task.0 as usize], &mut self.tasks[task.0 as usize]);
        let before = &self.classes[scheduled.class.0 as usize];
        let (mut escalations, mut avoided) = (before.escalations, before.avoided.clone());
        plan.escalate(class);
        if plan.variants != before.variants {
            escalations += 1;
        }
        if plan.retry.exclude_worker && class != FailureClass::Preempted {
            avoided.insert(worker);
        }
        let wanted = Class::new(plan.job, plan.variants.clone(), escalations, avoided);
        let place = self.classes.iter().position(|known| known.places_like(&wanted)).unwrap_or_else(|| {
            self.classes.push(wanted);
            self.classes.len() - 1
        });
        scheduled.class = ClassIx(place as u32);
    }

    /// The jobs whose tasks can be computed now and were not requested.
    pub(crate) fn expandable(&self) -> Vec<JobIx> {
        let over = |job: &JobIx| {
            let job = &self.jobs[job.0 as usize];
            job.cells == Cells::Known && job.open == 0
        };
        let jobs = (0..).map(JobIx).zip(std::iter::zip(&self.jobs, &self.plan.jobs));
        let ready =
            jobs.filter(|(_, (job, plan))| job.cells == Cells::Awaiting && plan.awaits.iter().flatten().all(over));
        ready.map(|(ix, _)| ix).collect()
    }

    /// Why a need will never be met: the task that is the root cause, as in [`SkipReason::Need`].
    pub(crate) fn root_of_loss(&self, need: TaskIx) -> TaskIx {
        match &self.tasks[need.0 as usize].state {
            TaskState::Skipped { because: SkipReason::Need(root) } => *root,
            _ => need,
        }
    }

    /// Whether a task meets a need for success: it has succeeded, or its failure is tolerated.
    pub(crate) fn passes(&self, task: TaskIx) -> bool {
        let ix = task.0 as usize;
        match self.tasks[ix].state {
            TaskState::Failed { .. } => self.plan.tasks[ix].continue_on_error,
            ref state => state.is_success(),
        }
    }

    /// Whether a need satisfies a rule.
    pub(crate) fn meets(&self, rule: TriggerRule, need: TaskIx) -> bool {
        match rule {
            TriggerRule::AllSuccess => self.passes(need),
            TriggerRule::AllDone => self.tasks[need.0 as usize].state.is_final(),
            TriggerRule::AncestorsDone => self.is_closed(need),
        }
    }

    /// Whether a rule can never be satisfied, since this need has ended without success.
    pub(crate) fn is_lost(&self, rule: TriggerRule, need: TaskIx) -> bool {
        rule == TriggerRule::AllSuccess && self.tasks[need.0 as usize].state.is_final() && !self.passes(need)
    }

    /// Whether a task and all its ancestors are in a final state.
    pub(crate) fn is_closed(&self, task: TaskIx) -> bool {
        let task = &self.tasks[task.0 as usize];
        task.state.is_final() && task.open_above == 0
    }

    /// Call this when a task reaches a final state. If the task [is closed](Run::is_closed), this lowers `open_above` of its
    /// dependents, and continues with those that are now closed. Returns the tasks under [`TriggerRule::AncestorsDone`] that no
    /// longer wait for anything.
    pub(crate) fn propagate_closed(&mut self, task: TaskIx) -> Vec<TaskIx> {
        let mut complete = Vec::new();
        let mut closed: Vec<TaskIx> = self.is_closed(task).then_some(task).into_iter().collect();
        while let Some(ix) = closed.pop() {
            for dependent in self.tasks[ix.0 as usize].dependents.clone() {
                let (task, plan) = (&mut self.tasks[dependent.0 as usize], &self.plan.tasks[dependent.0 as usize]);
                task.open_above -= 1;
                let above = task.open_above;
                match &mut task.state {
                    TaskState::Waiting { unfinished } if plan.trigger == TriggerRule::AncestorsDone => {
                        *unfinished = above;
                        complete.extend((above == 0).then_some(dependent));
                    }
                    state => closed.extend((above == 0 && state.is_final()).then_some(dependent)),
                }
            }
        }
        complete
    }

    /// How the run ends when no task is open.
    pub(crate) fn outcome(&self) -> RunOutcome {
        let ended_well = |(task, plan): (&ScheduledTask, &TaskPlan)| match task.state {
            TaskState::Failed { .. } => plan.continue_on_error,
            // Tasks that need a failed or cancelled task are skipped; the failed or cancelled task itself decides.
            TaskState::Skipped { .. } => true,
            _ => task.state.is_success(),
        };
        let given_up = self.jobs.iter().any(|job| job.cells == Cells::GivenUp);
        if !given_up && std::iter::zip(&self.tasks, &self.plan.tasks).all(ended_well) {
            RunOutcome::Succeeded
        } else if self.phase == RunPhase::Cancelling {
            RunOutcome::Cancelled
        } else {
            RunOutcome::Failed
        }
    }
}
