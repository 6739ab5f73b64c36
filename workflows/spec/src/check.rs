//! Turns the text of a file into a workflow, or into the list of all its problems.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};

mod claims;
mod expansion;

pub use expansion::Expanded;
pub(crate) use expansion::{WithoutCells, cells_wait};

use crate::claims::Claim;
use crate::configs::{self, Cells};
use crate::declared::{declared_directions, declares_measurement};
use crate::draft::{Draft, DraftJob, DraftMatrix, Reader};
use crate::expand::{self, MAX_TASKS, Strategy, Surroundings, view};
use crate::expression::Computed;
use crate::graph::{self, Graph};
use crate::include::{self, Files, Load};
use crate::kind::StepKind;
use crate::names::{self, Known, Visible, Where};
use crate::node::{Data, Node};
use crate::params;
use crate::problem::{Log, Problems};
use crate::resolve::{Globals, JobTemplate, Shared};
use crate::scalar::weight;
use crate::schema::normalized;
use crate::select;
use crate::source::Source;
use crate::subworkflow;
use crate::suggest;
use crate::template::{Moment, Template};
use crate::unused;
use crate::workflow::{DEFAULT_TIMEOUT, Job, Resource, Retry, Task, Workflow};

/// Reads and checks a workflow file. `file` is its name, for messages; `overrides` are parameters by name, as texts
/// that must have the type of the parameter's default.
///
/// # Errors
/// All problems of the file.
pub fn check(file: &str, text: &str, kinds: &[StepKind], overrides: &[(String, String)]) -> Result<Workflow, Problems> {
    check_with_files(file, text, kinds, overrides, &|_| Err("files are not read here".to_owned()))
}

/// Like [`check`], but the file may include others: `load` returns the text of a file by its name, which is relative to
/// the same folder as `file`.
///
/// # Errors
/// All problems of the files.
pub fn check_with_files(
    file: &str,
    text: &str,
    kinds: &[StepKind],
    overrides: &[(String, String)],
    load: Load<'_>,
) -> Result<Workflow, Problems> {
    suggest::restart();
    let mut log = Log::default();
    let Files { source, roots, workflows, incomplete } = include::read(file, text, load, &mut log);
    let source = Arc::new(source);
    // Names of a missing file would be reported as unknown everywhere.
    let workflow = (!roots.is_empty() && !incomplete).then(|| {
        let mut reader = Reader { source: &source, log: &mut log };
        let mut draft = reader.files(&roots);
        let mut params = params::read(&mut reader, &draft.params, overrides);
        let own: BTreeSet<String> = params.keys().cloned().collect();
        let workflows = workflows.iter().map(|(file, roots)| (file.clone(), reader.files(roots))).collect();
        let before = reader.log.count();
        subworkflow::insert_workflows(&mut reader, &mut draft, &workflows, &mut params);
        if reader.log.count() > before {
            return None;
        }
        let known: Vec<Arc<StepKind>> = kinds
            .iter()
            .map(|kind| Arc::new(StepKind { schema: normalized(&kind.schema).into(), ..kind.clone() }))
            .collect();
        let kinds = draft.jobs.iter().map(|job| kind_of(&mut reader, job, &known)).collect();
        let globals = Globals {
            params: minijinja::Value::from(minijinja::value::Serde(&params)),
            plugins: draft.plugins.clone().into(),
        };
        let mut workflow = Checker::new(&source, &draft, kinds, params, globals, &mut log).run()?;
        workflow.params.retain(|name, _| own.contains(name));
        Some(workflow)
    });
    match workflow.flatten() {
        Some(workflow) if log.is_empty() => Ok(workflow),
        _ => Err(log.into_problems(&source)),
    }
}

/// The state of a check between its stages.
struct Checker<'a> {
    source: &'a Arc<Source>,
    draft: &'a Draft,
    params: Map<String, Value>,
    globals: Globals,
    log: &'a mut Log,
    graph: Graph,
    /// Per job: its kind, if known.
    kinds: Vec<Option<Arc<StepKind>>>,
    /// Per job: what expressions of other jobs can use.
    visible: BTreeMap<&'a str, Visible>,
    /// Per job: its strategy without the cells, and the indices of its tasks, if it could be expanded.
    expanded: Vec<Option<(Strategy, Vec<usize>)>>,
    /// Per job: the jobs that it waits for, if its tasks are not known before the run.
    awaited: Vec<Option<Vec<usize>>>,
    /// The jobs without cells, each of which has one task as a placeholder.
    stand_ins: BTreeSet<usize>,
    tasks: Vec<Task>,
    /// The value of `each` for the tasks that others are derived from.
    views: BTreeMap<usize, minijinja::Value>,
    /// The number of pairs of a task and a task that it needs.
    edges: usize,
    /// How many values expressions may still visit.
    budget: usize,
    /// The weight of each parameter.
    weights: BTreeMap<String, usize>,
    /// The number of cells of all matrices so far.
    cells: usize,
    /// The weight of all matrix values of tasks so far.
    weight: usize,
}

/// How many values all expressions of a file may visit while it is checked.
const BUDGET: usize = 5_000_000;

impl<'a> Checker<'a> {
    /// A check without tasks. `kinds` are the kinds of the jobs, if they are known.
    fn new(
        source: &'a Arc<Source>,
        draft: &'a Draft,
        kinds: Vec<Option<Arc<StepKind>>>,
        params: Map<String, Value>,
        globals: Globals,
        log: &'a mut Log,
    ) -> Self {
        let graph = graph::build(&mut Reader { source, log }, &draft.jobs);
        let awaited = expansion::awaited(draft, &graph);
        let visible =
            draft.jobs.iter().zip(&kinds).map(|(job, kind)| (job.name.name.as_str(), visible(job, kind, &globals)));
        Checker {
            source,
            draft,
            graph,
            visible: visible.collect(),
            globals,
            kinds,
            expanded: vec![None; draft.jobs.len()],
            awaited,
            stand_ins: BTreeSet::new(),
            tasks: Vec::new(),
            views: BTreeMap::new(),
            edges: 0,
            budget: BUDGET,
            weights: params.iter().map(|(name, value)| (name.clone(), weight(value))).collect(),
            cells: 0,
            weight: 0,
            params,
            log,
        }
    }

    fn run(mut self) -> Option<Workflow> {
        let count = self.draft.jobs.len();
        let mut strategies: Vec<_> = (0..count).map(|place| self.strategy(place)).collect();
        for place in self.graph.order.clone() {
            if self.awaited[place].is_none()
                && let Some(strategy) = strategies[place].take()
            {
                self.expand(place, strategy);
            }
        }
        (0..count).for_each(|place| self.check_sources(place));
        (0..count).for_each(|place| self.settings(place));
        (0..count).for_each(|place| self.check_condition(place));
        let templates: Vec<_> = (0..self.draft.jobs.len()).map(|place| self.check_config(place)).collect();
        self.check_file_outputs();
        let claims = self.check_claims();
        self.log.is_empty().then(|| self.finish(templates, strategies, claims)).flatten()
    }

    /// Warnings: valid input that is probably not intended.
    fn warnings(&self) -> Problems {
        let mut log = Log::default();
        let mut reader = Reader { source: self.source, log: &mut log };
        let tasks_of = |place: usize| {
            let places = self.expanded[place].iter().flat_map(|(_, places)| places);
            places.filter_map(|&task| self.tasks.get(task)).collect()
        };
        for place in 0..self.draft.jobs.len() {
            unused::warn(&mut reader, &self.draft.jobs, place, &self.graph, &self.tasks, &tasks_of);
        }
        log.into_problems(self.source)
    }

    fn reader(&mut self) -> Reader<'_> {
        Reader { source: self.source, log: self.log }
    }

    /// Reports unknown names in some of a job's expressions; returns where those are.
    fn check_names(&mut self, place: usize, at: Where, computed: &[&Computed]) -> BTreeSet<crate::source::Span> {
        let job = &self.draft.jobs[place];
        let needs: BTreeSet<&str> = job.needs.iter().chain(&job.each).map(|name| name.name.as_str()).collect();
        let known = Known { place: at, job: &job.name.name, params: &self.params, needs: &needs, jobs: &self.visible };
        names::check(&mut Reader { source: self.source, log: self.log }, computed, &known)
    }

    /// Subtracts the cost of some expressions from the budget; `false`, with a problem, if it is exhausted.
    fn charge(&mut self, place: usize, cost: usize) -> bool {
        let left = self.budget.checked_sub(cost);
        self.budget = left.unwrap_or(self.budget);
        if left.is_none() {
            let span = self.draft.jobs[place].name.span;
            let hint = "compute less in `strategy` and in settings, or use shorter lists".to_owned();
            self.reader().report(span, "up to here, the expressions of this file take too long", hint);
        }
        left.is_some()
    }

    /// Reports unknown names in the `outputs` of the files.
    fn check_file_outputs(&mut self) {
        let needs = self.draft.jobs.iter().map(|job| job.name.name.as_str()).collect();
        let known = Known { place: Where::Outputs, job: "", params: &self.params, needs: &needs, jobs: &self.visible };
        let computed: Vec<&Computed> = self.draft.outputs.iter().flat_map(|(_, output)| output.computed()).collect();
        names::check(&mut Reader { source: self.source, log: self.log }, &computed, &known);
    }

    fn check_strategy_names(&mut self, place: usize) -> bool {
        let job = &self.draft.jobs[place];
        let matrix: Vec<&Template> = expansion::matrix_templates(job).collect();
        let rest: Vec<&Template> = [&job.replicates, &job.max_parallel, &job.fail_fast].into_iter().flatten().collect();
        let cost = matrix.iter().chain(&rest).map(|template| template.cost(&self.weights, 0));
        let cost = cost.fold(0, usize::saturating_add);
        let computed = |templates: &[&'a Template]| -> Vec<&'a Computed> {
            templates.iter().flat_map(|template| template.computed()).collect()
        };
        let wrong = self.check_names(place, Where::Matrix, &computed(&matrix));
        wrong.is_empty()
            && self.check_names(place, Where::Strategy, &computed(&rest)).is_empty()
            && self.charge(place, cost)
    }

    /// Evaluates a job's `strategy`; `None`, with problems, if its cells cannot be computed.
    fn strategy(&mut self, place: usize) -> Option<Strategy> {
        let job = &self.draft.jobs[place];
        let names = self.globals.constants();
        let named = self.check_strategy_names(place);
        let left = MAX_TASKS.saturating_sub(self.cells);
        let surroundings = Surroundings { names: &names, moment: Moment::Check };
        let strategy = if named { expand::strategy(&mut self.reader(), job, &surroundings, left) } else { None };
        self.cells += strategy.iter().flat_map(|strategy| &strategy.cells).map(Vec::len).sum::<usize>();
        // A job that is derived from others also has their axes, which are known only with its tasks.
        if let (true, Some(visible)) = (job.each.is_empty(), self.visible.get_mut(job.name.name.as_str())) {
            let written = |matrix: &&DraftMatrix| matrix.include.is_none() && matrix.whole.is_none();
            visible.axes = match &strategy {
                Some(strategy) if !cells_wait(job) => {
                    let names: BTreeSet<&String> =
                        strategy.cells.iter().flatten().flat_map(|cell| cell.keys()).collect();
                    Some(names.into_iter().cloned().collect())
                }
                _ => job.matrix.as_ref().filter(written).map(|matrix| matrix.axis_names()),
            };
        }
        strategy
    }

    /// Creates a job's tasks, unless a problem prevents it.
    fn expand(&mut self, place: usize, strategy: Strategy) {
        let job = &self.draft.jobs[place];
        if self.graph.all(place).any(|other| self.expanded[other].is_none()) {
            return;
        }
        let upstream: Vec<usize> = self.places(&self.graph.each[place]);
        let mut reader = Reader { source: self.source, log: self.log };
        let expanded = expand::tasks(&mut reader, (place, job), &strategy, &upstream, &self.tasks, &mut self.weight);
        let Some(mut tasks) = expanded else { return };
        let needed = self.graph.needs[place].iter().filter_map(|&other| {
            let (_, places) = self.expanded[other].as_ref()?;
            Some((self.draft.jobs[other].name.name.as_str(), places.as_slice()))
        });
        let needed: Vec<_> = needed.collect();
        let whole = expansion::sources(job);
        if !select::needs(&mut reader, job, &mut tasks, &self.tasks, &needed, &whole, &mut self.edges) {
            return;
        }
        let axes = tasks.iter().flat_map(|task| task.matrix.keys().cloned()).collect();
        if let Some(visible) = self.visible.get_mut(job.name.name.as_str()) {
            visible.axes = Some(axes);
        }
        let first = self.tasks.len();
        let is_derived_from = self.graph.each.iter().any(|each| each.contains(&place));
        for task in tasks {
            if is_derived_from {
                let above = task.each.and_then(|above| self.views.get(&above));
                self.views.insert(self.tasks.len(), minijinja::Value::from(view(&task, above)));
            }
            self.tasks.push(task);
        }
        self.expanded[place] = Some((Strategy { cells: None, ..strategy }, (first..self.tasks.len()).collect()));
    }

    fn places(&self, jobs: &[usize]) -> Vec<usize> {
        let mut places: Vec<usize> =
            jobs.iter().filter_map(|&job| self.expanded[job].as_ref()).flat_map(|(_, places)| places.clone()).collect();
        // The first replicate of everything comes before the second, also across several jobs.
        places.sort_by_key(|&place| (self.tasks.get(place).and_then(|task| task.replicate), place));
        places
    }

    /// Reads a job's resources, retries and timeout, once for all cells if they contain no expression.
    fn settings(&mut self, place: usize) {
        let job = &self.draft.jobs[place];
        let templates = [&job.resources, &job.retry, &job.timeout, &job.continue_on_error].map(Option::as_ref);
        let sound = templates.map(|template| {
            template.filter(|template| self.check_names(place, Where::Settings, &template.computed()).is_empty())
        });
        let fixed = sound.iter().flatten().all(|template| template.is_fixed());
        let Some(places) = self.expanded[place].as_ref().map(|(_, places)| places.clone()) else {
            let literals = sound.map(|template| template.map(Template::without_computed));
            read_settings(&mut self.reader(), &literals);
            return;
        };
        let cost = |task: &usize| {
            let matrix = self.tasks[*task].matrix.values().map(weight).sum();
            sound.iter().flatten().map(|template| template.cost(&self.weights, matrix)).fold(0, usize::saturating_add)
        };
        let cost = if fixed { 0 } else { places.iter().map(cost).fold(0, usize::saturating_add) };
        if !self.charge(place, cost) {
            return;
        }
        let kind = self.kinds[place].as_ref();
        let exclusive = kind.is_some_and(|kind| declares_measurement(kind, job.with.as_ref(), &self.globals));
        let mut known: Option<Settings> = None;
        for task in places {
            let before = self.log.count();
            let settings = match known.take().filter(|_| fixed) {
                Some(settings) => settings,
                None => self.settings_of(sound, task),
            };
            let task = &mut self.tasks[task];
            (task.resources, task.retry, task.timeout, task.continue_on_error) = settings.clone();
            task.resources.iter_mut().for_each(|resource| resource.exclusive |= exclusive);
            known = Some(settings);
            let new = self.log.since(before);
            if !new.is_empty() {
                // One invalid cell is sufficient.
                if !fixed {
                    new.iter_mut().for_each(|problem| problem.message.push_str(&format!(" (in `{}`)", task.address)));
                }
                return;
            }
        }
    }

    fn settings_of(&mut self, templates: [Option<&Template>; 4], task: usize) -> Settings {
        let task = &self.tasks[task];
        let each = task.each.and_then(|place| self.views.get(&place));
        let scope = self.globals.scope(task, each, BTreeMap::new());
        let mut reader = Reader { source: self.source, log: self.log };
        let filled = templates.map(|template| template.map(|template| reader.fill(template, &scope, Moment::Check)));
        read_settings(&mut reader, &filled)
    }

    /// Reports expressions of a job that require a single task of another job but select several.
    fn check_choices(&mut self, place: usize, computed: &[&Computed]) {
        let Some((_, places)) = &self.expanded[place] else { return };
        let tasks = places.first().zip(places.last()).and_then(|(first, last)| self.tasks.get(*first..=*last));
        let mut reader = Reader { source: self.source, log: self.log };
        select::check_outputs(&mut reader, computed, tasks.unwrap_or_default(), &self.tasks);
    }

    /// Checks a job's `if`; in every cell, if it does not depend on results.
    fn check_condition(&mut self, place: usize) {
        let Some(condition) = &self.draft.jobs[place].condition else { return };
        let computed = condition.template.computed();
        if !self.check_names(place, Where::Condition, &computed).is_empty() {
            return;
        }
        self.check_choices(place, &computed);
        let Some((_, places)) = &self.expanded[place] else { return };
        let places = if condition.waits() { Vec::new() } else { places.clone() };
        for task in places {
            let matrix = self.tasks[task].matrix.values().map(weight).sum();
            if !self.charge(place, condition.template.cost(&self.weights, matrix)) {
                return;
            }
            let each = self.tasks[task].each.and_then(|above| self.views.get(&above));
            let scope = self.globals.scope(&self.tasks[task], each, BTreeMap::new());
            let before = self.log.count();
            let mut reader = Reader { source: self.source, log: self.log };
            let node = reader.fill(&condition.template, &scope, Moment::Check);
            let holds = condition.verdict(&mut reader, &node);
            if holds.is_none() || self.log.count() > before || !condition.depends_on_cell() {
                return;
            }
        }
    }

    /// Checks a job's `with`, in every cell if the cells are known.
    fn check_config(&mut self, place: usize) -> Option<JobTemplate> {
        let job = &self.draft.jobs[place];
        let with = job.with.clone().unwrap_or_else(|| Template::Fixed(empty(job)));
        let with = if is_null(&with) { Template::Fixed(empty(job)) } else { with };
        let computed = with.computed();
        let unknown = self.check_names(place, Where::With, &computed);
        let expanded = self.expanded[place].as_ref().map(|(_, places)| places.clone());
        if unknown.is_empty() {
            self.check_choices(place, &computed);
        }
        let condition = job.condition.clone();
        let template = JobTemplate { kind: self.kinds[place].clone()?, with_span: job.with_span, with, condition };
        let mut reader = Reader { source: self.source, log: self.log };
        match expanded {
            Some(places) => {
                let tasks = places.iter().map(|&place| {
                    let task = &self.tasks[place];
                    (task, task.each.and_then(|above| self.views.get(&above)))
                });
                let cells = Cells { tasks: tasks.collect(), unknown, params: &self.weights };
                configs::check(&mut reader, &template, &cells, &self.globals, &mut self.budget);
            }
            None => configs::check_literals(&mut reader, &template, &self.globals.plugins),
        }
        Some(template)
    }

    fn finish(
        self,
        templates: Vec<Option<JobTemplate>>,
        strategies: Vec<Option<Strategy>>,
        claims: Vec<Claim>,
    ) -> Option<Workflow> {
        let templates: Option<Vec<JobTemplate>> = templates.into_iter().collect();
        let warnings = self.warnings();
        let later = std::iter::zip(strategies, self.awaited);
        let known = self.expanded.into_iter().zip(later).map(|(expanded, (strategy, awaits))| match awaits {
            Some(awaits) => strategy.map(|strategy| (strategy, Vec::new(), Some(awaits))),
            None => expanded.map(|(strategy, tasks)| (strategy, tasks, None)),
        });
        let jobs = self.draft.jobs.iter().zip(known).enumerate().map(|(place, (draft, known))| {
            let (strategy, tasks, awaits) = known?;
            let needs: BTreeSet<usize> = self.graph.all(place).collect();
            Some(Job {
                name: draft.name.name.clone(),
                kind: draft.uses.as_ref()?.name.clone(),
                needs: needs.into_iter().collect(),
                tasks,
                awaits,
                max_parallel: strategy.max_parallel,
                fail_fast: strategy.fail_fast,
            })
        });
        Some(Workflow {
            name: self.draft.name.clone().unwrap_or_else(|| stem(self.source.file()).to_owned()),
            description: self.draft.description.clone(),
            params: self.params,
            jobs: jobs.collect::<Option<Vec<_>>>()?,
            tasks: self.tasks,
            claims,
            warnings,
            templates: templates?,
            shared: Shared { source: self.source.clone(), globals: self.globals, draft: Arc::new(self.draft.clone()) },
            machine: BTreeMap::new(),
            without_cells: BTreeMap::new(),
        })
    }
}

type Settings = (Vec<Resource>, Retry, std::time::Duration, bool);

fn read_settings(
    reader: &mut Reader<'_>,
    [resources, retry, timeout, continue_on_error]: &[Option<Node>; 4],
) -> Settings {
    if let Some(retry) = retry {
        reader.check_escalated_memory(retry, resources.as_ref());
    }
    (
        resources.as_ref().map_or_else(|| vec![Resource::default()], |node| reader.resources(node)),
        retry.as_ref().map_or_else(Retry::default, |node| reader.retry(node)),
        timeout.as_ref().and_then(|node| reader.timeout(node)).unwrap_or(DEFAULT_TIMEOUT),
        continue_on_error.as_ref().and_then(|node| reader.boolean(node, "continue-on-error")).unwrap_or(false),
    )
}

fn kind_of(reader: &mut Reader<'_>, job: &DraftJob, known: &[Arc<StepKind>]) -> Option<Arc<StepKind>> {
    let uses = job.uses.as_ref()?;
    let found = known.iter().find(|kind| kind.name == uses.name);
    if found.is_none() {
        let hint = suggest::hint(&uses.name, known.iter().map(|kind| kind.name), "step kinds");
        reader.report(uses.span, format!("unknown step kind `{}`", uses.name), hint);
    }
    found.cloned()
}

fn visible(job: &DraftJob, kind: &Option<Arc<StepKind>>, globals: &Globals) -> Visible {
    let directions = kind.as_ref().map(|kind| declared_directions(kind, job.with.as_ref(), globals));
    Visible {
        directions: directions.unwrap_or_default(),
        outputs: kind.as_ref().filter(|kind| !kind.declares("outputs")).map(|kind| kind.outputs),
        metrics: kind.as_ref().filter(|kind| !kind.declares("metrics")).map(|kind| kind.metrics),
        kind: kind.as_ref().map(|kind| kind.name.to_owned()).unwrap_or_default(),
        axes: None,
        each: job.each.iter().map(|name| name.name.clone()).collect(),
    }
}

/// The empty `with` of a job that has none.
fn empty(job: &DraftJob) -> Node {
    Node { span: job.with_span, data: Data::Map(Vec::new()), computed: false }
}

fn is_null(with: &Template) -> bool {
    matches!(with, Template::Fixed(Node { data: Data::Scalar(Value::Null), .. }))
}

/// A file's name without folders and extension.
fn stem(file: &str) -> &str {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let name = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml")).unwrap_or(name);
    if name.is_empty() { "workflow" } else { name }
}
