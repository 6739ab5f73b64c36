//! A task's config once everything that it needs has finished.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::artifact::{ArtifactRef, Outputs, artifacts_in};
use crate::draft::Reader;
use crate::expand::{lineage, view};
use crate::files::{LocalFile, local_files};
use crate::key::{cache_key, key_resources};
use crate::kind::StepKind;
use crate::node::Node;
use crate::problem::{Log, Problems};
use crate::schema;
use crate::select::of_job;
use crate::source::{Source, Span};
use crate::template::{Moment, Template};
use crate::workflow::{Task, Workflow};

/// What a job's `with:` says, and all that it takes to fill it in.
#[derive(Debug, Clone)]
pub(crate) struct JobTemplate {
    pub kind: Arc<StepKind>,
    pub with: Template,
    pub with_span: Span,
}

/// What all jobs of a file share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub source: Arc<Source>,
    /// `params` and `env`, as expressions see them.
    pub globals: Globals,
}

/// The names that mean the same in every cell.
#[derive(Debug, Clone)]
pub(crate) struct Globals {
    pub params: minijinja::Value,
    pub env: minijinja::Value,
}

/// A step, ready to be run: no expression is left in it.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedStep {
    /// The step kind's name.
    pub kind: String,
    /// The version of its semantics.
    pub version: u32,
    /// Which replicate, from 1; 1 where the job has none.
    pub replicate: u32,
    /// The `with:` block.
    pub config: Value,
    /// Local files that the config names by their paths: each is to be [pinned](ResolvedStep::pin) before the step runs
    /// or its key is looked up.
    pub files: Vec<LocalFile>,
    /// Every artifact that the config names, in order of hash, each once.
    pub artifacts: Vec<ArtifactRef>,
    /// What counts of what it runs on, in the cache key: the backends; of a measurement also the threads and the devices.
    pub on: Value,
    /// The cache key: 64 hexadecimal digits, a hash of the kind, its version, the config, what counts of what it runs on,
    /// and the replicate. Artifacts count by their content alone.
    pub key: String,
}

/// Why a task's config cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ResolveError {
    /// The workflow has no such task.
    #[error("the workflow has no task number {0}")]
    NoSuchTask(usize),
    /// Something that the task needs has not finished.
    #[error("`{task}` cannot be resolved before `{needs}` has finished")]
    NotFinished {
        /// The task's address.
        task: String,
        /// The address of what it needs.
        needs: String,
    },
    /// With the outputs filled in, the config is not valid.
    #[error("the config of `{task}` is not valid\n{problems}")]
    Invalid {
        /// The task's address.
        task: String,
        /// What is wrong, at its place in the workflow file.
        problems: Problems,
    },
}

impl Globals {
    /// What expressions in one cell can use. `needs` is empty before anything has run.
    pub fn scope(
        &self,
        task: &Task,
        each: Option<&minijinja::Value>,
        needs: BTreeMap<String, minijinja::Value>,
    ) -> minijinja::Value {
        let mut names = vec![
            ("params", self.params.clone()),
            ("env", self.env.clone()),
            ("matrix", minijinja::Value::from(minijinja::value::Serde(&task.matrix))),
            ("replicate", minijinja::Value::from(task.replicate.unwrap_or(1))),
            ("needs", minijinja::Value::from(needs)),
        ];
        names.extend(each.map(|each| ("each", each.clone())));
        minijinja::Value::from_pairs(names)
    }
}

impl Workflow {
    /// Says what the backends of this machine compute on: for each, a description of the processor or device, of how many
    /// there are, and of their driver. It counts in the keys of steps that measure.
    pub fn describe_machine(&mut self, backends: BTreeMap<String, Value>) {
        self.machine = backends;
    }

    /// A task's config with the outputs of what it needs filled in, checked against its kind once more, and its cache
    /// key. `outputs` answers for places in [`Workflow::tasks`], `None` where a task has not finished.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub fn resolve(
        &self,
        task: usize,
        outputs: &dyn Fn(usize) -> Option<Outputs>,
    ) -> Result<ResolvedStep, ResolveError> {
        let found = self.tasks.get(task).zip(self.template_of(task));
        let (task, template) = found.ok_or(ResolveError::NoSuchTask(task))?;
        let known = Finished { workflow: self, task, outputs };
        let needs = known.needs(&template.with)?;
        let each = known.each()?;
        let scope = self.shared.globals.scope(task, each.as_ref(), needs);
        let mut log = Log::default();
        let mut reader = Reader { source: &self.shared.source, log: &mut log };
        let mut errors = Vec::new();
        let node = template.with.fill(&scope, Moment::Resolve, &mut errors);
        for error in errors {
            reader.report(error.span, error.message, error.hint);
        }
        let config = node.to_value(&Value::Null);
        if reader.log.is_empty() {
            template.validate(&mut reader, &node, &config);
        }
        if !log.is_empty() {
            let problems = log.into_problems(&self.shared.source);
            return Err(ResolveError::Invalid { task: task.address.clone(), problems });
        }
        let kind = &template.kind;
        let on = key_resources(kind, &task.resources, &self.machine);
        Ok(ResolvedStep {
            kind: kind.name.to_owned(),
            version: kind.version,
            replicate: task.replicate.unwrap_or(1),
            files: local_files(&kind.schema, &config, folder_of(self.shared.source.file())),
            key: cache_key(kind.name, kind.version, &config, &on, task.replicate),
            on,
            artifacts: artifacts_in(&config),
            config,
        })
    }

    fn template_of(&self, task: usize) -> Option<&JobTemplate> {
        let name = &self.tasks.get(task)?.job;
        let place = self.jobs.iter().position(|job| job.name == *name)?;
        self.templates.get(place)
    }
}

/// The folder of a workflow file.
fn folder_of(file: &str) -> &Path {
    Path::new(file).parent().unwrap_or(Path::new(""))
}

impl JobTemplate {
    /// Reports what is wrong with a complete config.
    fn validate(&self, reader: &mut Reader<'_>, node: &Node, config: &Value) {
        let found = schema::mismatches(&self.kind.schema, node, "`with`", self.with_span);
        let sound = found.is_empty();
        for mismatch in found {
            reader.report(mismatch.span, mismatch.message, mismatch.hint);
        }
        if sound {
            for finding in (self.kind.check)(config) {
                let span = place_of(node, &finding.path, self.with_span);
                reader.report(span, finding.message, finding.hint);
            }
        }
    }
}

/// Where in the file a path of a config is, as deep as it goes.
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

/// The outputs of what a task needs.
struct Finished<'a> {
    workflow: &'a Workflow,
    task: &'a Task,
    outputs: &'a dyn Fn(usize) -> Option<Outputs>,
}

impl Finished<'_> {
    fn outputs(&self, place: usize) -> Result<minijinja::Value, ResolveError> {
        let outputs = (self.outputs)(place).ok_or_else(|| ResolveError::NotFinished {
            task: self.task.address.clone(),
            needs: self.workflow.tasks.get(place).map(|task| task.address.clone()).unwrap_or_default(),
        })?;
        let values = outputs.iter().map(|(name, output)| (name.as_str(), output.to_value()));
        // Not `collect`, which would make a list of the pairs.
        let values = values.map(|(name, value)| (name, minijinja::Value::from(minijinja::value::Serde(value))));
        Ok(minijinja::Value::from_pairs(values))
    }

    /// `needs`, with the jobs and parts that the config uses.
    fn needs(&self, with: &Template) -> Result<BTreeMap<String, minijinja::Value>, ResolveError> {
        let mut used: BTreeSet<(&str, &str)> = BTreeSet::new();
        for path in with.computed().into_iter().flat_map(|computed| &computed.paths) {
            if let ("needs", [job, part, ..]) = (path.root.name.as_str(), path.names().as_slice()) {
                used.insert((job, part));
            }
        }
        let mut needs: BTreeMap<String, BTreeMap<&str, minijinja::Value>> = BTreeMap::new();
        for (job, part) in used {
            let mut places = of_job(self.task, job, &self.workflow.tasks);
            let value = match part {
                "cells" => places.map(|place| self.cell(place)).collect::<Result<Vec<_>, _>>()?.into(),
                _ => match places.next() {
                    Some(place) => self.outputs(place)?,
                    None => continue,
                },
            };
            needs.entry(job.to_owned()).or_default().insert(part, value);
        }
        Ok(needs.into_iter().map(|(job, parts)| (job, minijinja::Value::from(parts))).collect())
    }

    /// One element of `needs.JOB.cells`.
    fn cell(&self, place: usize) -> Result<minijinja::Value, ResolveError> {
        let task = self.workflow.tasks.get(place).ok_or(ResolveError::NoSuchTask(place))?;
        let mut cell = view(task, None);
        cell.insert("outputs", self.outputs(place)?);
        Ok(minijinja::Value::from(cell))
    }

    /// `each`, with what stands above it.
    fn each(&self) -> Result<Option<minijinja::Value>, ResolveError> {
        let line: Vec<usize> = lineage(self.task.each, &self.workflow.tasks).collect();
        let mut above: Option<minijinja::Value> = None;
        for &place in line.iter().rev() {
            let task = self.workflow.tasks.get(place).ok_or(ResolveError::NoSuchTask(place))?;
            let mut each = view(task, above.as_ref());
            each.insert("outputs", self.outputs(place)?);
            above = Some(minijinja::Value::from(each));
        }
        Ok(above)
    }
}
