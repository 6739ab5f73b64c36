//! `uses: ./other.yaml`: a job that uses a workflow is replaced by the jobs of that workflow.
//!
//! - The job `train` of a workflow that the job `pre` uses becomes the job `pre/train`. It needs everything that `pre` needs, and what
//!   needs `pre` needs all jobs of the workflow.
//! - `with` of `pre` sets parameters of the workflow. A value without expressions of a cell or of results is computed here; any other one
//!   is inserted into the expressions that use the parameter (see [`crate::rewrite`]).
//! - The matrix and the replicates of `pre` become those of each job of the workflow, in addition to its own axes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::draft::{Draft, DraftJob, DraftMatrix, MAX_JOBS, Reader};
use crate::expression::Name;
use crate::include::file_beside;
use crate::node::Node;
use crate::resolve::constants;
use crate::rewrite::{Call, Renaming, Snippet};
use crate::source::Span;
use crate::suggest;
use crate::template::{Moment, Template};

/// The maximum depth of workflows that use each other.
const MAX_DEPTH: usize = 8;
/// The limit of the weight of all inserted jobs: see [`Template::weight`].
const MAX_WEIGHT: usize = 400_000;
/// The longest value with expressions of a cell or of results, in bytes: it is inserted wherever the parameter is used.
const MAX_ARGUMENT: usize = 4_000;

/// Whether the value of `uses` names a file rather than a step kind.
pub(crate) fn is_workflow_file(uses: &str) -> bool {
    uses.contains('/') || uses.ends_with(".yaml") || uses.ends_with(".yml")
}

/// Replaces the jobs of the main file that use workflows. `workflows` are the files by name. The values of their parameters are added to
/// `params`.
pub(crate) fn insert_workflows(
    reader: &mut Reader<'_>,
    draft: &mut Draft,
    workflows: &BTreeMap<String, Draft>,
    params: &mut Map<String, Value>,
) {
    if workflows.is_empty() {
        return;
    }
    let plugins = std::mem::take(&mut draft.plugins);
    let mut insertion =
        Insertion { reader, workflows, params, plugins, outputs: Vec::new(), count: 0, weight: 0, depth: 0 };
    let inserted = insertion.workflow(draft, &mut Renaming::default());
    let (plugins, outputs) = (insertion.plugins, insertion.outputs);
    (draft.jobs, draft.plugins, draft.outputs) = (inserted.jobs, plugins, outputs);
}

struct Insertion<'r, 's, 'w> {
    reader: &'r mut Reader<'s>,
    workflows: &'w BTreeMap<String, Draft>,
    params: &'r mut Map<String, Value>,
    plugins: Vec<crate::plugins::PluginDeclaration>,
    /// The outputs of all files, with the names of the main file.
    outputs: Vec<(Name, Template)>,
    /// The number of jobs so far, with those that use workflows.
    count: usize,
    /// The weight of the inserted jobs so far.
    weight: usize,
    /// The number of files around the current one.
    depth: usize,
}

/// The jobs and outputs of a workflow, with the names of the main file.
struct Inserted {
    jobs: Vec<DraftJob>,
    outputs: BTreeMap<String, Snippet>,
}

impl Insertion<'_, '_, '_> {
    fn workflow(&mut self, draft: &Draft, renaming: &mut Renaming) -> Inserted {
        let mut places: Vec<Vec<DraftJob>> = vec![Vec::new(); draft.jobs.len()];
        self.count += draft.jobs.len();
        if self.depth > 0 {
            let outputs = draft.outputs.iter().map(|(_, output)| output.weight());
            self.weight += draft.jobs.iter().flat_map(templates).map(Template::weight).chain(outputs).sum::<usize>();
        }
        if self.count > MAX_JOBS || self.weight > MAX_WEIGHT {
            return Inserted { jobs: Vec::new(), outputs: BTreeMap::new() };
        }
        for place in self.calls_in_order(&draft.jobs) {
            let call = &draft.jobs[place];
            let Some(inserted) = self.call(call, renaming) else { continue };
            let jobs = inserted.jobs.iter().map(|job| job.name.name.clone()).collect();
            renaming.calls.insert(call.name.name.clone(), Call { jobs, outputs: inserted.outputs });
            places[place] = inserted.jobs;
        }
        for (place, job) in draft.jobs.iter().enumerate().filter(|(_, job)| !is_call(job)) {
            places[place] = vec![self.renamed(job, renaming)];
        }
        let mut outputs = BTreeMap::new();
        for (name, template) in &draft.outputs {
            let template = template.rewrite(renaming, self.reader.log);
            outputs.insert(name.name.clone(), template.to_snippet());
            self.outputs.push((name.clone(), template));
        }
        Inserted { jobs: places.into_iter().flatten().collect(), outputs }
    }

    /// The jobs that use workflows: each after those that it needs.
    fn calls_in_order(&mut self, jobs: &[DraftJob]) -> Vec<usize> {
        let mut waiting: Vec<usize> = (0..jobs.len()).filter(|&place| is_call(&jobs[place])).collect();
        let mut order = Vec::new();
        while !waiting.is_empty() {
            let open: BTreeSet<&str> = waiting.iter().map(|&place| jobs[place].name.name.as_str()).collect();
            let (later, now): (Vec<usize>, Vec<usize>) = waiting
                .iter()
                .partition(|&&place| jobs[place].needs.iter().any(|need| open.contains(need.name.as_str())));
            if now.is_empty() {
                let names: Vec<&str> = open.into_iter().collect();
                let message = format!("these jobs need each other in a cycle: {}", suggest::list(&names));
                let hint = "a job runs after everything that it needs: remove one of these needs".to_owned();
                self.reader.report(jobs[later[0]].name.span, message, hint);
                break;
            }
            order.extend(now);
            waiting = later;
        }
        order
    }

    /// The jobs that replace a job; `None`, with a problem, if its workflow cannot be inserted.
    fn call(&mut self, job: &DraftJob, renaming: &Renaming) -> Option<Inserted> {
        let uses = job.uses.as_ref()?;
        let file = file_beside(self.reader.source.place_of(uses.span.line).0, &uses.name);
        let workflows = self.workflows;
        // A missing file was reported.
        let draft = workflows.get(&file)?;
        if self.depth >= MAX_DEPTH {
            let message =
                format!("`{}` is one file too many: at most {MAX_DEPTH} workflows use each other in a row", uses.name);
            self.reader.report(uses.span, message, "use it in a file that is less deep".to_owned());
            return None;
        }
        let before = self.reader.log.count();
        self.refuse_settings(job);
        let prefix = format!("{}{}/", renaming.prefix, job.name.name);
        let params = self.arguments(job, draft, renaming, &prefix)?;
        self.add_plugins(draft);
        self.depth += 1;
        let mut inner = Renaming { prefix, params: Some(params), ..Renaming::default() };
        let mut inserted = self.workflow(draft, &mut inner);
        self.depth -= 1;
        if self.count > MAX_JOBS || self.weight > MAX_WEIGHT {
            let message = match self.count > MAX_JOBS {
                true => format!("with the jobs of the workflows that it uses, the file has more than {MAX_JOBS} jobs"),
                false => "the jobs of the workflows that the file uses contain too many values".to_owned(),
            };
            self.reader.report(uses.span, message, "a job is a whole sweep: write one job with a matrix".to_owned());
            return None;
        }
        let caller = self.renamed(job, renaming);
        for job in &mut inserted.jobs {
            self.apply_caller(&caller, job);
        }
        (self.reader.log.count() == before).then_some(inserted)
    }

    /// A job with the names of the main file.
    fn renamed(&mut self, job: &DraftJob, renaming: &Renaming) -> DraftJob {
        let log = &mut *self.reader.log;
        for name in job.each.iter().filter(|name| renaming.calls.contains_key(&name.name)) {
            let first = renaming.calls[&name.name].jobs.first().map_or("", String::as_str);
            let hint = format!(
                "name one of its jobs, such as `each: {}`",
                first.strip_prefix(&renaming.prefix).unwrap_or(first)
            );
            log.report(
                name.span,
                format!("`{}` uses a workflow, and `each` takes jobs with a step kind", name.name),
                hint,
            );
        }
        let mut rewrite =
            |template: &Option<Template>| template.as_ref().map(|template| template.rewrite(renaming, log));
        let matrix = job.matrix.as_ref().map(|matrix| DraftMatrix {
            span: matrix.span,
            axes: matrix
                .axes
                .iter()
                .filter_map(|(name, template)| Some((name.clone(), rewrite(&Some(template.clone()))?)))
                .collect(),
            whole: rewrite(&matrix.whole),
            include: rewrite(&matrix.include),
            exclude: rewrite(&matrix.exclude),
        });
        let mut condition = job.condition.clone();
        if let Some(condition) = &mut condition
            && let Some(template) = rewrite(&Some(condition.template.clone()))
        {
            condition.template = template;
        }
        DraftJob {
            name: renaming.full_name(&job.name),
            needs: job.needs.iter().flat_map(|name| renaming.jobs_of(name)).collect(),
            each: job.each.iter().map(|name| renaming.full_name(name)).collect(),
            matrix,
            replicates: rewrite(&job.replicates),
            max_parallel: rewrite(&job.max_parallel),
            fail_fast: rewrite(&job.fail_fast),
            resources: rewrite(&job.resources),
            retry: rewrite(&job.retry),
            timeout: rewrite(&job.timeout),
            continue_on_error: rewrite(&job.continue_on_error),
            with: rewrite(&job.with),
            condition,
            ..job.clone()
        }
    }

    /// Reports keys that only a job with a step kind has.
    fn refuse_settings(&mut self, job: &DraftJob) {
        let settings = [
            ("resources", &job.resources),
            ("retry", &job.retry),
            ("timeout-minutes", &job.timeout),
            ("continue-on-error", &job.continue_on_error),
            ("max-parallel", &job.max_parallel),
            ("fail-fast", &job.fail_fast),
        ];
        let spans = settings.into_iter().filter_map(|(key, template)| Some((key, template.as_ref()?.span())));
        let condition = job.condition.iter().map(|condition| ("if", condition.template.span()));
        let each = job.each.first().map(|name| ("each", name.span));
        for (key, span) in spans.chain(condition).chain(each) {
            let message = format!("`{}` uses a workflow, and `{key}` belongs to a job with a step kind", job.name.name);
            self.reader.report(span, message, "write it in the jobs of that workflow".to_owned());
        }
    }

    /// The expression of each parameter of a workflow that a job uses; `None`, with problems, if some are wrong.
    fn arguments(
        &mut self,
        job: &DraftJob,
        draft: &Draft,
        renaming: &Renaming,
        prefix: &str,
    ) -> Option<BTreeMap<String, Snippet>> {
        let before = self.reader.log.count();
        let given = job.with.as_ref().map(|with| with.rewrite(renaming, self.reader.log));
        let given = match &given {
            None => Vec::new(),
            Some(with) => with.entries().unwrap_or_else(|| {
                let message = "`with` of a job that uses a workflow takes a mapping of its parameters".to_owned();
                self.reader.report(with.span(), message, "for example `with: {seed: 18}`".to_owned());
                Vec::new()
            }),
        };
        for (name, _) in given.iter().filter(|(name, _)| draft.params.iter().all(|param| param.key != name.name)) {
            let hint = suggest::hint(&name.name, draft.params.iter().map(|param| param.key.as_str()), "parameters");
            self.reader.report(name.span, format!("the workflow has no parameter `{}`", name.name), hint);
        }
        let mut params = BTreeMap::new();
        for param in &draft.params {
            let value = given.iter().find(|(name, _)| name.name == param.key).map(|(_, template)| template);
            let full = Name { name: format!("{prefix}{}", param.key), span: param.key_span };
            let snippet = match value {
                Some(template) if !is_constant(template) => {
                    let snippet = template.to_snippet();
                    if snippet.text.len() > MAX_ARGUMENT {
                        let message = format!("the value of `{}` has more than {MAX_ARGUMENT} bytes", param.key);
                        let hint = "pass large values without expressions of cells or results in them".to_owned();
                        self.reader.report(template.span(), message, hint);
                    }
                    snippet
                }
                value => {
                    let value =
                        value.map_or_else(|| param.value.to_value(&Value::Null), |given| self.constant(given, param));
                    if self.params.insert(full.name.clone(), value).is_some() {
                        let message =
                            format!("the parameter `{}` of the main file has the name of this one", full.name);
                        self.reader.report(param.key_span, message, "rename one of them".to_owned());
                    }
                    Snippet::member(&Name { name: "params".to_owned(), span: param.key_span }, &full)
                }
            };
            params.insert(param.key.clone(), snippet);
        }
        (self.reader.log.count() == before).then_some(params)
    }

    /// A value that depends on parameters alone. It must have the type of the default.
    fn constant(&mut self, template: &Template, param: &crate::node::Entry) -> Value {
        let before = self.reader.log.count();
        let node: Node = self.reader.fill(template, &constants(self.params), Moment::Check);
        let (value, default) = (node.to_value(&Value::Null), param.value.to_value(&Value::Null));
        if self.reader.log.count() == before && !have_same_type(&value, &default) {
            let message =
                format!("the parameter `{}` takes {}, not {}", param.key, type_name(&default), node.describe());
            let (file, line) = self.reader.source.place_of(param.key_span.line);
            self.reader.report(node.span, message, format!("its default is in {file}:{line}"));
        }
        value
    }

    /// Adds the plugins that a workflow declares. Two uses of the same file declare the same ones.
    fn add_plugins(&mut self, draft: &Draft) {
        for plugin in &draft.plugins {
            match self.plugins.iter().find(|known| known.name == plugin.name) {
                None => self.plugins.push(plugin.clone()),
                Some(known) if known.span == plugin.span => {}
                Some(known) => {
                    let first = known.span;
                    self.reader.twice("plugin", &plugin.name, plugin.span, first);
                }
            }
        }
    }

    /// Gives a job of a workflow the needs, the matrix and the replicates of the job that uses the workflow.
    fn apply_caller(&mut self, caller: &DraftJob, job: &mut DraftJob) {
        let known: BTreeSet<String> = job.needs.iter().map(|name| name.name.clone()).collect();
        job.needs.extend(caller.needs.iter().filter(|name| !known.contains(&name.name)).cloned());
        // A derived job has the axes and the replicate of the task that it is derived from.
        if !job.each.is_empty() {
            return;
        }
        match (&caller.replicates, &job.replicates) {
            (Some(template), Some(_)) => {
                let message =
                    format!("`{}` has `replicates`, and so has its job `{}`", caller.name.name, job.name.name);
                self.reader.report(template.span(), message, "leave one of them out".to_owned());
            }
            (Some(template), None) => job.replicates = Some(template.clone()),
            (None, _) => {}
        }
        let Some(outer) = &caller.matrix else { return };
        let (whole, names) = (outer.whole.is_some() || outer.include.is_some(), outer.axis_names());
        job.caller_axes = if whole { CallerAxes::All } else { job.caller_axes.joined(names) };
        match &mut job.matrix {
            None => job.matrix = Some(outer.clone()),
            Some(own) => {
                if let Some((span, message)) = cannot_combine(caller, outer, &job.name, own) {
                    let hint = "write the whole matrix in one of them".to_owned();
                    self.reader.report(span, message, hint);
                    return;
                }
                own.axes = outer.axes.iter().chain(&own.axes).cloned().collect();
                own.exclude = own.exclude.take().or_else(|| outer.exclude.clone());
            }
        }
    }
}

/// The axes of a job's matrix that it has from the job that uses its workflow.
#[derive(Debug, Clone, Default)]
pub(crate) enum CallerAxes {
    #[default]
    None,
    Named(BTreeSet<String>),
    All,
}

impl CallerAxes {
    fn joined(&self, more: BTreeSet<String>) -> CallerAxes {
        match self {
            CallerAxes::None => CallerAxes::Named(more),
            CallerAxes::Named(names) => CallerAxes::Named(names.iter().cloned().chain(more).collect()),
            CallerAxes::All => CallerAxes::All,
        }
    }

    pub fn contains(&self, axis: &str) -> bool {
        match self {
            CallerAxes::None => false,
            CallerAxes::Named(names) => names.contains(axis),
            CallerAxes::All => true,
        }
    }
}

/// The values of a job.
fn templates(job: &DraftJob) -> impl Iterator<Item = &Template> {
    let matrix = job.matrix.iter().flat_map(|matrix| {
        let axes = matrix.axes.iter().map(|(_, values)| values);
        axes.chain([&matrix.whole, &matrix.include, &matrix.exclude].into_iter().flatten())
    });
    let settings = [&job.resources, &job.retry, &job.timeout, &job.continue_on_error, &job.with];
    settings.into_iter().flatten().chain(matrix)
}

fn is_call(job: &DraftJob) -> bool {
    job.uses.as_ref().is_some_and(|uses| is_workflow_file(&uses.name))
}

/// Why two matrices cannot be combined.
fn cannot_combine(caller: &DraftJob, outer: &DraftMatrix, name: &Name, own: &DraftMatrix) -> Option<(Span, String)> {
    if let Some((axis, _)) = outer.axes.iter().find(|(axis, _)| own.axis_names().contains(&axis.name)) {
        let message = format!("the axis `{}` is in the matrix of the job `{}`, too", axis.name, name.name);
        return Some((axis.span, message));
    }
    let is_list = |matrix: &DraftMatrix| matrix.whole.is_none() && matrix.include.is_none();
    let both_exclude = outer.exclude.is_some() && own.exclude.is_some();
    (!is_list(outer) || !is_list(own) || both_exclude).then(|| {
        let caller = &caller.name.name;
        let message = format!(
            "the matrix of `{caller}` cannot be combined with that of its job `{}`: only lists of values can, and one `exclude`",
            name.name
        );
        (outer.span, message)
    })
}

/// Whether it uses nothing but parameters.
fn is_constant(template: &Template) -> bool {
    let mut paths = template.computed().into_iter().flat_map(|computed| &computed.paths);
    paths.all(|path| path.root.name == "params")
}

fn have_same_type(value: &Value, default: &Value) -> bool {
    default.is_null() || std::mem::discriminant(value) == std::mem::discriminant(default)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "any value",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
