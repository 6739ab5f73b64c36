//! Checks every job's `with:` in every cell before anything runs, as far as its values are known.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::draft::Reader;
use crate::expression::EvaluationError;
use crate::node::{Data, Node};
use crate::plugins::{PluginDeclaration, named_plugins, plugin_keys, unknown_plugin};
use crate::resolve::{Globals, JobTemplate, place_of};
use crate::scalar::weight;
use crate::schema;
use crate::source::Span;
use crate::template::Moment;
use crate::workflow::Task;

/// The placeholder for an artifact that does not exist yet.
fn placeholder() -> Value {
    json!({"$artifact": "0".repeat(64), "name": "placeholder", "bytes": 0})
}

/// A job's tasks, each with its value of `each`.
pub(crate) struct Cells<'a> {
    pub tasks: Vec<(&'a Task, Option<&'a minijinja::Value>)>,
    /// Expressions with unknown names, already reported.
    pub unknown: BTreeSet<Span>,
    /// The weight of each parameter.
    pub params: &'a BTreeMap<String, usize>,
}

/// Reports problems of a job's configs: those caused by an expression once, in the first cell where they occur; those of literal values
/// once. Stops when `budget`, the number of values to visit, is exhausted: the rest is checked when a task is resolved.
pub(crate) fn check(
    reader: &mut Reader<'_>,
    job: &JobTemplate,
    cells: &Cells<'_>,
    globals: &Globals,
    budget: &mut usize,
) {
    let mut seen: BTreeSet<(Span, String)> = BTreeSet::new();
    let fixed = job.with.is_fixed();
    let keys = plugin_keys(&job.kind.schema);
    let replicated = uses_replicate(job);
    for (task, each) in &cells.tasks {
        if !replicated && task.replicate.is_some_and(|replicate| replicate > 1) {
            continue;
        }
        let matrix = task.matrix.values().map(weight).sum();
        let Some(left) = budget.checked_sub(job.with.cost(cells.params, matrix)) else { break };
        *budget = left;
        let scope = globals.scope(task, *each, BTreeMap::new());
        let mut errors = Vec::new();
        let node = job.with.fill(&scope, Moment::Check, &mut errors);
        let complete = errors.is_empty();
        let mut found: Vec<Found> =
            errors.into_iter().filter(|e| !cells.unknown.contains(&e.span)).map(Found::from).collect();
        found.extend(schema::mismatches(&job.kind.schema, &node, "`with`", job.with_span).into_iter().map(Found::from));
        found.extend(unknown_plugins(job, &keys, &node, &globals.plugins));
        if found.is_empty() && complete {
            found.extend(kind_findings(job, &node));
        }
        for one in found {
            one.report(reader, task, &mut seen);
        }
        if fixed {
            break;
        }
    }
}

/// If the cells are unknown, only literal values are checked.
pub(crate) fn check_literals(reader: &mut Reader<'_>, job: &JobTemplate, plugins: &[PluginDeclaration]) {
    let blank = job.with.without_computed();
    for mismatch in schema::mismatches(&job.kind.schema, &blank, "`with`", job.with_span) {
        reader.report(mismatch.span, mismatch.message, mismatch.hint);
    }
    for found in unknown_plugins(job, &plugin_keys(&job.kind.schema), &blank, plugins) {
        reader.report(found.span, found.message, found.hint);
    }
}

/// The names of plugins that the file does not declare.
fn unknown_plugins(job: &JobTemplate, keys: &[&str], node: &Node, plugins: &[PluginDeclaration]) -> Vec<Found> {
    if keys.is_empty() {
        return Vec::new();
    }
    let named = named_plugins(keys, &node.to_value(&Value::Null));
    let unknown = named.into_iter().filter(|(_, name)| plugins.iter().all(|plugin| plugin.name != *name));
    let found = unknown.map(|(path, name)| {
        let (message, hint) = unknown_plugin(&name, plugins);
        Found { span: place_of(node, &path, job.with_span), message, hint, computed: !job.with.is_fixed() }
    });
    found.collect()
}

fn uses_replicate(job: &JobTemplate) -> bool {
    job.with.computed().iter().any(|computed| {
        computed
            .paths
            .iter()
            .any(|path| path.root.name == "replicate" || path.root.name == "each" && !path.names().contains(&"matrix"))
    })
}

/// The findings of the kind's own check, if the config is complete except for artifacts.
fn kind_findings(job: &JobTemplate, node: &Node) -> Vec<Found> {
    let config = node.to_value(&placeholder());
    if has_unknown(node) {
        // If a number or a text is expected, no placeholder is valid.
        let assumed = Node::computed(&config, job.with_span);
        if !schema::mismatches(&job.kind.schema, &assumed, "`with`", job.with_span).is_empty() {
            return Vec::new();
        }
    }
    let findings = (job.kind.check)(&config).into_iter();
    let found = findings.map(|finding| {
        let span = place_of(node, &finding.path, job.with_span);
        // Whether other cells could be valid: a value in the config is computed.
        Found { span, message: finding.message, hint: finding.hint, computed: !job.with.is_fixed() }
    });
    found.collect()
}

pub(crate) fn has_unknown(node: &Node) -> bool {
    match &node.data {
        Data::Unknown => true,
        Data::Scalar(_) => false,
        Data::List(items) => items.iter().any(has_unknown),
        Data::Map(entries) => entries.iter().any(|entry| has_unknown(&entry.value)),
    }
}

/// A problem in one cell.
struct Found {
    span: Span,
    message: String,
    hint: Option<String>,
    computed: bool,
}

impl From<EvaluationError> for Found {
    fn from(error: EvaluationError) -> Self {
        Found { span: error.span, message: error.message, hint: error.hint, computed: true }
    }
}

impl From<schema::Mismatch> for Found {
    fn from(mismatch: schema::Mismatch) -> Self {
        let schema::Mismatch { span, message, hint, computed } = mismatch;
        Found { span, message, hint, computed }
    }
}

impl Found {
    fn report(self, reader: &mut Reader<'_>, task: &Task, seen: &mut BTreeSet<(Span, String)>) {
        let key = if self.computed { String::new() } else { self.message.clone() };
        if !seen.insert((self.span, key)) {
            return;
        }
        let cell = !task.matrix.is_empty() || task.replicate.is_some();
        let place = if self.computed && cell { format!(" (in `{}`)", task.address) } else { String::new() };
        reader.report(self.span, format!("{}{place}", self.message), self.hint);
    }
}
