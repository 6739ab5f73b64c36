//! Resolves a task's config when all its needs have finished.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::artifact::{ArtifactRef, artifacts_in};
use crate::condition::Condition;
use crate::declared::declared_directions;
use crate::draft::{Draft, Reader};
use crate::expand::{lineage, view};
use crate::expression::Computed;
use crate::files::{LocalFile, local_files};
use crate::key::{cache_key, key_resources};
use crate::kind::StepKind;
use crate::node::Node;
use crate::plugins::{PluginDeclaration, insert_plugins, named_plugins, plugin_keys, unknown_plugin};
use crate::problem::{Log, Problems};
use crate::results::{Finished, NOTES, NeededJob, NeededTask, Notes};
use crate::schema;
use crate::select::of_job;
use crate::source::{Source, Span};
use crate::template::{Moment, Template};
use crate::workflow::{Task, Workflow};

/// A job's `with:`, and everything needed to fill it in.
#[derive(Debug, Clone)]
pub(crate) struct JobTemplate {
    pub kind: Arc<StepKind>,
    pub with: Template,
    pub with_span: Span,
    /// The job's `if:`.
    pub condition: Option<Condition>,
}

/// Data shared by all jobs of a file.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub source: Arc<Source>,
    /// The parameters, as values of expressions.
    pub globals: Globals,
    /// The file as written: the tasks of jobs whose cells depend on results are created from it.
    pub draft: Arc<Draft>,
}

/// The variables that are the same in every cell.
#[derive(Debug, Clone)]
pub(crate) struct Globals {
    pub params: minijinja::Value,
    /// The plugins that the file declares.
    pub plugins: Arc<[PluginDeclaration]>,
}

/// A step that is ready to run: all expressions are evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedStep {
    /// The step kind's name.
    pub kind: String,
    /// The version of its semantics.
    pub version: u32,
    /// The number of the replicate, from 1; 1 if the job has none.
    pub replicate: u32,
    /// The `with:` block.
    pub config: Value,
    /// Local files that the config names by their paths: each must be [pinned](ResolvedStep::pin_all) before the step
    /// runs or its key is looked up.
    pub files: Vec<LocalFile>,
    /// Every artifact in the config, in order of hash, without duplicates.
    pub artifacts: Vec<ArtifactRef>,
    /// The resources in the cache key: the backends; for a measurement also the threads and the devices.
    pub on: Value,
    /// The cache key: 64 hexadecimal digits, a hash of the kind, its version, the config, the relevant resources, and the
    /// replicate. Artifacts count only by their content.
    pub key: String,
    /// Warnings about how the config was computed, such as a cell that `best()` excluded.
    pub warnings: Vec<String>,
}

/// Why a task's config cannot be resolved.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ResolveError {
    /// The workflow does not have this task.
    #[error("the workflow has no task number {0}")]
    NoSuchTask(usize),
    /// A need of the task has not finished.
    #[error("`{task}` cannot be resolved before `{needs}` has finished")]
    NotFinished {
        /// The task's address.
        task: String,
        /// The address of the need.
        needs: String,
    },
    /// The cells of the task's job could not be computed.
    #[error("the cells of `{job}` cannot be decided\n{problems}")]
    WithoutCells {
        /// The job.
        job: String,
        /// The problems, with positions in the workflow file.
        problems: Problems,
    },
    /// With the outputs filled in, the config is invalid.
    #[error("the config of `{task}` is not valid\n{problems}")]
    Invalid {
        /// The task's address.
        task: String,
        /// The problems, with positions in the workflow file.
        problems: Problems,
    },
}

/// The variables of expressions that use nothing but parameters.
pub(crate) fn constants(params: &serde_json::Map<String, Value>) -> minijinja::Value {
    minijinja::Value::from_pairs([("params", minijinja::Value::from(minijinja::value::Serde(params)))])
}

impl Globals {
    /// The variables that are the same in every cell of every job.
    pub fn constants(&self) -> minijinja::Value {
        minijinja::Value::from_pairs([("params", self.params.clone())])
    }

    /// The variables of expressions in one cell. `needs` is empty before anything has run.
    pub fn scope(
        &self,
        task: &Task,
        each: Option<&minijinja::Value>,
        needs: BTreeMap<String, minijinja::Value>,
    ) -> minijinja::Value {
        minijinja::Value::from(self.names(task, each, needs))
    }

    fn names(
        &self,
        task: &Task,
        each: Option<&minijinja::Value>,
        needs: BTreeMap<String, minijinja::Value>,
    ) -> BTreeMap<&'static str, minijinja::Value> {
        let mut names = BTreeMap::from([
            ("params", self.params.clone()),
            ("matrix", minijinja::Value::from(minijinja::value::Serde(&task.matrix))),
            ("replicate", minijinja::Value::from(task.replicate.unwrap_or(1))),
            ("needs", minijinja::Value::from(needs)),
        ]);
        names.extend(each.map(|each| ("each", each.clone())));
        names
    }
}

impl Workflow {
    /// Sets the description of this machine's backends: for each, the processor or device, their number, and their
    /// driver. It is part of the keys of steps that measure.
    pub fn describe_machine(&mut self, backends: BTreeMap<String, Value>) {
        self.machine = backends;
    }

    /// A task's config with the outputs and metrics of its needs filled in, checked again against its kind, and its cache
    /// key. `finished` returns the result of a task by its index in [`Workflow::tasks`], `None` if the task has not ended.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub fn resolve(
        &self,
        task: usize,
        finished: &dyn Fn(usize) -> Option<Finished>,
    ) -> Result<ResolvedStep, ResolveError> {
        let found = self.tasks.get(task).zip(self.template_of(task));
        let (task, template) = found.ok_or(ResolveError::NoSuchTask(task))?;
        if let Some(problems) = self.without_cells.get(&task.job) {
            let (job, problems) = (task.job.clone(), problems.clone());
            return Err(ResolveError::WithoutCells { job, problems });
        }
        let needed = Needed::new(self, task, finished);
        let scope = minijinja::Value::from(needed.scope(&template.with.computed())?);
        let mut log = Log::default();
        let mut reader = Reader { source: &self.shared.source, log: &mut log };
        let node = reader.fill(&template.with, &scope, Moment::Resolve);
        let mut config = node.to_value(&Value::Null);
        let plugins = &self.shared.globals.plugins;
        if reader.log.is_empty() {
            template.validate(&mut reader, &node, &config, plugins);
        }
        if !log.is_empty() {
            let problems = log.into_problems(&self.shared.source);
            return Err(ResolveError::Invalid { task: task.address.clone(), problems });
        }
        let kind = &template.kind;
        let on = key_resources(kind, &config, &task.resources, &self.machine);
        let folder = folder_of(self.shared.source.place_of(template.with_span.line).0);
        let mut files = local_files(&kind.schema, &config, folder);
        files.extend(insert_plugins(&kind.schema, &mut config, plugins));
        Ok(ResolvedStep {
            kind: kind.name.to_owned(),
            version: kind.version,
            replicate: task.replicate.unwrap_or(1),
            files,
            key: cache_key(kind.name, kind.version, &config, &on, task.replicate),
            on,
            artifacts: artifacts_in(&config),
            warnings: needed.notes.warnings(),
            config,
        })
    }

    /// The folder of the file that contains a task's config.
    pub(crate) fn folder_of_task(&self, task: usize) -> &Path {
        let line = self.template_of(task).map_or(0, |template| template.with_span.line);
        folder_of(self.shared.source.place_of(line).0)
    }

    pub(crate) fn template_of(&self, task: usize) -> Option<&JobTemplate> {
        self.templates.get(self.tasks.get(task)?.job_index)
    }
}

/// The folder of a workflow file.
pub(crate) fn folder_of(file: &str) -> &Path {
    Path::new(file).parent().unwrap_or(Path::new(""))
}

impl JobTemplate {
    /// Reports problems of a complete config.
    fn validate(&self, reader: &mut Reader<'_>, node: &Node, config: &Value, plugins: &[PluginDeclaration]) {
        let found = schema::mismatches(&self.kind.schema, node, "`with`", self.with_span);
        let sound = found.is_empty();
        for mismatch in found {
            reader.report(mismatch.span, mismatch.message, mismatch.hint);
        }
        let unknown = |(_, name): &(Vec<String>, String)| plugins.iter().all(|plugin| plugin.name != *name);
        for (path, name) in named_plugins(&plugin_keys(&self.kind.schema), config).into_iter().filter(unknown) {
            let (message, hint) = unknown_plugin(&name, plugins);
            reader.report(place_of(node, &path, self.with_span), message, hint);
        }
        if sound {
            for finding in (self.kind.check)(config) {
                let span = place_of(node, &finding.path, self.with_span);
                reader.report(span, finding.message, finding.hint);
            }
        }
    }
}

/// The span of a path of a config, as deep as it exists in the file.
pub(crate) fn place_of(node: &Node, path: &[String], otherwise: Span) -> Span {
    let (mut node, mut span) = (node, otherwise);
    for step in path {
        let next = match &node.data {
            crate::node::Data::List(items) => step.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => node.get(step).map(|entry| &entry.value),
        };
        let Some(next) = next else { break };
        (node, span) = (next, next.span);
    }
    span
}

/// The needs of a task that have ended.
pub(crate) struct Needed<'a> {
    pub workflow: &'a Workflow,
    pub task: &'a Task,
    finished: &'a dyn Fn(usize) -> Option<Finished>,
    pub notes: Arc<Notes>,
}

impl<'a> Needed<'a> {
    pub fn new(workflow: &'a Workflow, task: &'a Task, finished: &'a dyn Fn(usize) -> Option<Finished>) -> Self {
        Needed { workflow, task, finished, notes: Arc::default() }
    }

    /// The variables of some expressions of the task. Tasks that the expressions do not name need not have ended.
    pub fn scope(&self, computed: &[&Computed]) -> Result<BTreeMap<&'static str, minijinja::Value>, ResolveError> {
        let needs = self.needs(computed)?;
        let each = self.each(computed.iter().any(|computed| computed.waits()))?;
        let mut names = self.workflow.shared.globals.names(self.task, each.as_ref(), needs);
        names.insert(NOTES, minijinja::Value::from_dyn_object(self.notes.clone()));
        Ok(names)
    }

    pub fn finished(&self, place: usize) -> Result<Finished, ResolveError> {
        (self.finished)(place).ok_or_else(|| ResolveError::NotFinished {
            task: self.task.address.clone(),
            needs: self.workflow.tasks.get(place).map(|task| task.address.clone()).unwrap_or_default(),
        })
    }

    /// `needs`, with the jobs that the expressions use.
    fn needs(&self, computed: &[&Computed]) -> Result<BTreeMap<String, minijinja::Value>, ResolveError> {
        let paths = computed.iter().flat_map(|computed| &computed.paths).filter(|path| path.root.name == "needs");
        let used: BTreeSet<&str> = paths.filter_map(|path| path.steps.first()).map(|job| job.name.as_str()).collect();
        let mut needs = BTreeMap::new();
        for job in used {
            let Some(place) = self.workflow.jobs.iter().position(|known| known.name == job) else { continue };
            let template = &self.workflow.templates[place];
            let tasks = of_job(self.task, job, &self.workflow.tasks).map(|place| self.needed_task(place, None));
            let needed = NeededJob {
                job: job.to_owned(),
                directions: declared_directions(&template.kind, Some(&template.with), &self.workflow.shared.globals),
                kind: template.kind.clone(),
                tasks: tasks.collect::<Result<_, _>>()?,
                notes: self.notes.clone(),
            };
            needs.insert(job.to_owned(), minijinja::Value::from_object(needed));
        }
        Ok(needs)
    }

    fn needed_task(&self, place: usize, above: Option<&minijinja::Value>) -> Result<NeededTask, ResolveError> {
        let task = self.workflow.tasks.get(place).ok_or(ResolveError::NoSuchTask(place))?;
        Ok(NeededTask::new(task, above, self.finished(place)?))
    }

    /// `each` with its ancestors; with results if requested.
    fn each(&self, results: bool) -> Result<Option<minijinja::Value>, ResolveError> {
        let line: Vec<usize> = lineage(self.task.each, &self.workflow.tasks).collect();
        let mut above: Option<minijinja::Value> = None;
        for &place in line.iter().rev() {
            let each = match results {
                true => self.needed_task(place, above.as_ref())?.value(&self.notes),
                false => {
                    let task = self.workflow.tasks.get(place).ok_or(ResolveError::NoSuchTask(place))?;
                    minijinja::Value::from(view(task, above.as_ref()))
                }
            };
            above = Some(each);
        }
        Ok(above)
    }
}
