//! Jobs whose cells depend on results, and their tasks once the results are known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::check::Checker;
use crate::condition::{Condition, Decision};
use crate::draft::{Draft, DraftJob, Reader};
use crate::expand::{self, Strategy, Surroundings, view};
use crate::expression::Path;
use crate::graph::Graph;
use crate::node::Data;
use crate::problem::{Log, Problems};
use crate::resolve::{Globals, Needed};
use crate::results::{Conclusion, Finished, Notes};
use crate::scalar::weight;
use crate::template::{Moment, Template};
use crate::workflow::{Task, TriggerRule, Workflow};

/// A workflow with the tasks of jobs that waited for results.
#[derive(Debug, Clone)]
pub struct Expanded {
    /// The workflow; the new tasks come after all others.
    pub workflow: Workflow,
    /// The index of the first new task.
    pub first: usize,
    /// The indices of the jobs that now have their tasks.
    pub jobs: Vec<usize>,
    /// Warnings about how the cells were computed.
    pub warnings: Vec<String>,
}

/// For each job whose tasks are not known before the run: the jobs that it waits for.
pub(super) fn awaited(draft: &Draft, graph: &Graph) -> Vec<Option<Vec<usize>>> {
    let mut awaited: Vec<Option<Vec<usize>>> = vec![None; draft.jobs.len()];
    for &place in &graph.order {
        let needed: BTreeSet<usize> = graph.all(place).collect();
        let job = &draft.jobs[place];
        awaited[place] = match cells_wait(job) {
            // Its condition is evaluated before its cells are computed.
            true if job.condition.as_ref().is_some_and(Condition::depends_on_ancestors) => {
                Some(ancestors(graph, place))
            }
            true => Some(needed.into_iter().collect()),
            false => {
                let behind: Vec<usize> = needed.into_iter().filter(|&other| awaited[other].is_some()).collect();
                (!behind.is_empty()).then_some(behind)
            }
        };
    }
    awaited
}

/// All direct and indirect needs of a job.
fn ancestors(graph: &Graph, place: usize) -> Vec<usize> {
    let mut found: BTreeSet<usize> = BTreeSet::new();
    let mut open: Vec<usize> = graph.all(place).collect();
    while let Some(other) = open.pop() {
        if found.insert(other) {
            open.extend(graph.all(other));
        }
    }
    found.into_iter().collect()
}

/// Whether a job's own matrix uses results.
pub(crate) fn cells_wait(job: &DraftJob) -> bool {
    matrix_templates(job).any(|template| template.computed().iter().any(|computed| computed.waits()))
}

/// The jobs whose results a job's own matrix uses. Each of its tasks needs all of their tasks: cells that were computed from results
/// differ from the cells of those jobs, even if their axes have the same names.
pub(super) fn sources(job: &DraftJob) -> BTreeSet<&str> {
    let paths = matrix_templates(job).flat_map(Template::computed).flat_map(|computed| &computed.paths);
    let needs = paths.filter(|path| path.root.name == "needs").filter_map(|path| path.steps.first());
    needs.map(|step| step.name.as_str()).collect()
}

pub(super) fn matrix_templates(job: &DraftJob) -> impl Iterator<Item = &Template> {
    job.matrix.iter().flat_map(|matrix| {
        let lists = matrix.include.iter().chain(&matrix.exclude).chain(&matrix.whole);
        matrix.axes.iter().map(|(_, template)| template).chain(lists)
    })
}

impl Checker<'_> {
    /// Reports uses of outputs or metrics of a job with several tasks in a matrix.
    pub(super) fn check_sources(&mut self, place: usize) {
        let job = &self.draft.jobs[place];
        let computed: Vec<_> = matrix_templates(job).flat_map(Template::computed).collect();
        for path in computed.iter().flat_map(|computed| &computed.paths) {
            let Some((needed, span)) = single_source(path) else { continue };
            let other = self.draft.jobs.iter().position(|job| job.name.name == needed);
            let count = other.and_then(|other| self.expanded[other].as_ref()).map_or(1, |(_, tasks)| tasks.len());
            if count != 1 {
                let message =
                    format!("the matrix of `{}` has {count} tasks of `{needed}` to choose from", job.name.name);
                let hint = format!("take the list `needs.{needed}.cells`, or one by `best(needs.{needed}, 'METRIC')`");
                Reader { source: self.source, log: self.log }.report(span, message, hint);
            }
        }
    }

    /// Creates the tasks of a job; `false`, with problems and without tasks, if that is impossible.
    fn make_tasks(&mut self, place: usize, surroundings: &Surroundings<'_>) -> bool {
        let (before, first) = (self.log.count(), self.tasks.len());
        let left = expand::MAX_TASKS.saturating_sub(first);
        let job = &self.draft.jobs[place];
        let mut reader = Reader { source: self.source, log: self.log };
        if let Some(strategy) = expand::strategy(&mut reader, job, surroundings, left) {
            self.expand(place, strategy);
        }
        let derived = self.graph.each[place].iter().any(|parent| self.stand_ins.contains(parent));
        if let Some((_, tasks)) = self.expanded[place].clone().filter(|_| derived) {
            // Its settings may use matrix values that the job it is derived from does not have.
            self.stand_ins.insert(place);
            let continue_on_error = tolerates_failure(job, &self.globals);
            tasks.into_iter().for_each(|task| self.tasks[task].continue_on_error = continue_on_error);
        } else if self.expanded[place].is_some() {
            self.settings(place);
            self.check_condition(place);
            let with = job.with.iter().flat_map(Template::computed).collect::<Vec<_>>();
            self.check_choices(place, &with);
        }
        let sound = self.log.count() == before && self.expanded[place].is_some();
        if !sound {
            self.tasks.truncate(first);
            self.views.retain(|&task, _| task < first);
        }
        sound
    }

    /// Creates one task without matrix values as a placeholder for a job that has no cells: it is skipped, or fails.
    fn make_stand_in(&mut self, place: usize) {
        let task = new_stand_in((place, &self.draft.jobs[place]), self.needed_tasks(place), &self.globals);
        self.stand_ins.insert(place);
        self.expanded[place] = Some((Strategy::default(), vec![self.tasks.len()]));
        self.views.insert(self.tasks.len(), minijinja::Value::from(view(&task, None)));
        self.tasks.push(task);
    }

    /// Continues from a workflow: takes over its tasks and the jobs that have none yet.
    fn resume_from(&mut self, workflow: &Workflow) {
        self.awaited = workflow.jobs.iter().map(|job| job.awaits.clone()).collect();
        self.tasks = workflow.tasks.clone();
        self.edges = workflow.tasks.iter().map(|task| task.needs.len()).sum();
        self.cells = workflow.tasks.len();
        self.weight = workflow.tasks.iter().flat_map(|task| task.matrix.values()).map(weight).sum();
        for (place, job) in workflow.jobs.iter().enumerate().filter(|(_, job)| job.awaits.is_none()) {
            let (max_parallel, fail_fast) = (job.max_parallel, job.fail_fast);
            self.expanded[place] =
                Some((Strategy { max_parallel, fail_fast, ..Strategy::default() }, job.tasks.clone()));
            let axes = job.tasks.iter().flat_map(|&task| workflow.tasks[task].matrix.keys().cloned()).collect();
            if let Some(visible) = self.visible.get_mut(self.draft.jobs[place].name.name.as_str()) {
                visible.axes = Some(axes);
            }
        }
        let parents: BTreeSet<usize> = self.graph.each.iter().flatten().copied().collect();
        for (place, task) in workflow.tasks.iter().enumerate().filter(|(_, task)| parents.contains(&task.job_index)) {
            let above = task.each.and_then(|above| self.views.get(&above));
            self.views.insert(place, minijinja::Value::from(view(task, above)));
        }
    }

    /// Every task of the jobs that a job needs.
    fn needed_tasks(&self, place: usize) -> Vec<usize> {
        let needed: BTreeSet<usize> = self.graph.all(place).collect();
        let places = needed.into_iter().filter_map(|other| self.expanded[other].as_ref());
        places.flat_map(|(_, tasks)| tasks.iter().copied()).collect::<BTreeSet<usize>>().into_iter().collect()
    }
}

/// A task without matrix values, a placeholder for the job at this index while its cells are unknown or if it has none.
fn new_stand_in((place, draft): (usize, &DraftJob), needs: Vec<usize>, globals: &Globals) -> Task {
    let continue_on_error = tolerates_failure(draft, globals);
    let task = expand::task((place, draft), BTreeMap::new(), None, None, &Strategy::default());
    Task { needs, continue_on_error, ..task }
}

/// The value of `continue-on-error` for a task without matrix values; `false` if it depends on them.
fn tolerates_failure(draft: &DraftJob, globals: &Globals) -> bool {
    let value = |template: &Template| template.fill(&globals.constants(), Moment::Check, &mut Vec::new());
    draft.continue_on_error.as_ref().is_some_and(|template| value(template).data == Data::Scalar(true.into()))
}

/// The job of a path that requires a single task.
fn single_source(path: &Path) -> Option<(&str, crate::source::Span)> {
    let [job, part, ..] = path.steps.as_slice() else { return None };
    let single = path.root.name == "needs" && matches!(part.name.as_str(), "outputs" | "metrics");
    single.then_some((job.name.as_str(), job.span))
}

impl Workflow {
    /// The jobs whose results determine the cells of a job that [awaits](crate::Job::awaits) others, as indices of
    /// [`Workflow::jobs`]: those that its matrix uses, or the awaiting jobs that determine its cells.
    #[must_use]
    pub fn deciders(&self, job: usize) -> Vec<usize> {
        let (Some(draft), Some(job)) = (self.shared.draft.jobs.get(job), self.jobs.get(job)) else { return Vec::new() };
        let awaited = job.awaits.iter().flatten().copied();
        if !cells_wait(draft) {
            return awaited.collect();
        }
        let sources = sources(draft);
        awaited.filter(|&other| sources.contains(self.jobs[other].name.as_str())).collect()
    }

    /// The workflow with the tasks of a job that waited for results, and of the jobs whose tasks depend on these. Every task of the jobs
    /// that it [awaits](crate::Job::awaits) has ended: `finished` returns its result by its index in [`Workflow::tasks`].
    ///
    /// If the cells of a job cannot be computed, since a need did not succeed, its condition is false, or its matrix has no
    /// value, the job has one task without matrix values. [`Workflow::condition`] and [`Workflow::resolve`] return the reason.
    #[must_use]
    pub fn expand(&self, job: usize, finished: &dyn Fn(usize) -> Option<Finished>) -> Expanded {
        let shared = self.shared.clone();
        let mut log = Log::default();
        let mut checker = self.checker(&shared.draft, &mut log);
        let first = self.tasks.len();
        let notes = Arc::new(Notes::default());
        let (mut jobs, mut failures) = (Vec::new(), Vec::new());
        let order = checker.graph.order.clone();
        for place in std::iter::once(job).chain(order) {
            let ready = checker.graph.all(place).all(|other| checker.expanded[other].is_some());
            let follows = place == job || !cells_wait(&shared.draft.jobs[place]);
            if checker.expanded[place].is_some() || !ready || !follows {
                continue;
            }
            jobs.push(place);
            if place == job && self.is_held_back(place, &checker.needed_tasks(place), finished) {
                checker.make_stand_in(place);
                continue;
            }
            let names = match place == job {
                true => self.matrix_scope(place, &checker.needed_tasks(place), &notes, finished),
                false => shared.globals.constants(),
            };
            let surroundings = Surroundings { names: &names, moment: Moment::Resolve };
            if !checker.make_tasks(place, &surroundings) {
                let problems = std::mem::take(checker.log).into_problems(checker.source);
                failures.push((place, problems));
                checker.make_stand_in(place);
            }
        }
        let Checker { tasks, expanded, .. } = checker;
        let mut workflow = self.clone();
        workflow.tasks = tasks;
        for &place in &jobs {
            workflow.jobs[place].awaits = None;
            workflow.jobs[place].tasks = expanded[place].as_ref().map(|(_, tasks)| tasks.clone()).unwrap_or_default();
        }
        for (place, problems) in failures {
            workflow.without_cells.insert(self.jobs[place].name.clone(), problems);
        }
        Expanded { workflow, first, jobs, warnings: notes.warnings() }
    }

    /// Whether the cells of a job need not be computed, because it will be skipped.
    fn is_held_back(&self, place: usize, needs: &[usize], finished: &dyn Fn(usize) -> Option<Finished>) -> bool {
        let lost = |&need: &usize| match finished(need).map(|need| need.conclusion) {
            Some(Conclusion::Success) => false,
            Some(Conclusion::Failure) => !self.tasks[need].continue_on_error,
            _ => true,
        };
        let Some(condition) = &self.templates[place].condition else { return needs.iter().any(lost) };
        if condition.trigger() == TriggerRule::AllSuccess && needs.iter().any(lost) {
            return true;
        }
        // A condition that differs between cells is evaluated in each of them.
        let mut asked = self.clone();
        asked.tasks.push(self.stand_in(place, needs));
        let runs = |decision: Decision| decision.skipped.is_none();
        !condition.depends_on_cell() && !asked.condition(self.tasks.len(), finished).is_ok_and(runs)
    }

    fn stand_in(&self, place: usize, needs: &[usize]) -> Task {
        new_stand_in((place, &self.shared.draft.jobs[place]), needs.to_vec(), &self.shared.globals)
    }

    /// The scope of a matrix: parameters, and the results of the jobs that its job needs.
    fn matrix_scope(
        &self,
        place: usize,
        needs: &[usize],
        notes: &Arc<Notes>,
        finished: &dyn Fn(usize) -> Option<Finished>,
    ) -> minijinja::Value {
        let task = self.stand_in(place, needs);
        let mut needed = Needed::new(self, &task, finished);
        needed.notes = notes.clone();
        let computed: Vec<_> = matrix_templates(&self.shared.draft.jobs[place]).flat_map(Template::computed).collect();
        match needed.scope(&computed) {
            Ok(names) => minijinja::Value::from(names),
            // All needs have ended, so no result can be missing.
            Err(_) => self.shared.globals.constants(),
        }
    }

    /// A check that continues from this workflow.
    fn checker<'a>(&'a self, draft: &'a Draft, log: &'a mut Log) -> Checker<'a> {
        let kinds = self.templates.iter().map(|template| Some(template.kind.clone())).collect();
        let (params, globals) = (self.params.clone(), self.shared.globals.clone());
        let mut checker = Checker::new(&self.shared.source, draft, kinds, params, globals, log);
        checker.resume_from(self);
        checker
    }
}

/// Why the cells of a job could not be computed, by job.
pub(crate) type WithoutCells = BTreeMap<String, Problems>;
