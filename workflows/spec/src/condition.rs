//! `if:`: whether a task runs, decided when its needs have ended.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::draft::Reader;
use crate::expression::Computed;
use crate::node::{Data, Entry, Node};
use crate::problem::Log;
use crate::resolve::{Needed, ResolveError};
use crate::results::{Conclusion, Finished, STATUS, Status};
use crate::template::{Moment, Template};
use crate::workflow::{TriggerRule, Workflow};

/// A reason quotes at most this many characters of a condition.
const QUOTED: usize = 120;

/// A job's `if:`.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    /// The text as written, for people.
    pub text: String,
    pub template: Template,
}

impl Condition {
    /// With a status function, the condition handles failures itself, so it is evaluated when all needs have ended; with
    /// `failure()`, when all ancestors have ended.
    pub fn trigger(&self) -> TriggerRule {
        if self.depends_on_ancestors() {
            TriggerRule::AncestorsDone
        } else if self.template.computed().iter().any(|computed| computed.asks_for_status()) {
            TriggerRule::AllDone
        } else {
            TriggerRule::AllSuccess
        }
    }

    /// Whether it depends on the outcomes of indirect needs.
    pub fn depends_on_ancestors(&self) -> bool {
        let computed = self.template.computed();
        computed.iter().flat_map(|computed| &computed.functions).any(|called| called.name == "failure")
    }

    pub fn waits(&self) -> bool {
        self.template.computed().iter().any(|computed| computed.waits())
    }

    /// Whether it differs between the cells of its job.
    pub fn depends_on_cell(&self) -> bool {
        let of_cell = |computed: &&Computed| {
            computed.paths.iter().any(|path| matches!(path.root.name.as_str(), "matrix" | "replicate" | "each"))
        };
        self.template.computed().iter().any(of_cell)
    }

    /// Whether a value satisfies it; `None`, with a problem unless the value is unknown, if it is not `true` or `false`.
    pub fn verdict(&self, reader: &mut Reader<'_>, node: &Node) -> Option<bool> {
        match &node.data {
            Data::Scalar(Value::Bool(holds)) => Some(*holds),
            Data::Unknown => None,
            _ => {
                let message = format!("a condition is true or false, not {}", node.describe());
                reader.report(node.span, message, "compare it: `if: params.steps > 100`".to_owned());
                None
            }
        }
    }

    /// Why a task whose condition is false does not run.
    pub fn reason(&self) -> String {
        format!("its condition `{}` is false", self.text)
    }
}

impl Reader<'_> {
    /// Parses an `if:`: an expression with or without `${{ }}`, or `true` or `false`.
    pub fn condition(&mut self, entry: &Entry) -> Option<Condition> {
        let node = &entry.value;
        if let Data::Scalar(Value::Bool(holds)) = &node.data {
            return Some(Condition { text: holds.to_string(), template: Template::Fixed(node.clone()) });
        }
        let Some(text) = node.as_str() else {
            let message = format!("`if` takes an expression, not {}", node.describe());
            self.report(node.span, message, "for example `if: failure()`".to_owned());
            return None;
        };
        let template = match text.contains("${{") {
            true => Template::compile(self.source, node, self.log),
            false => Template::compile_bare(self.source, node, self.log)?,
        };
        let Template::Text(parsed) = &template else { return None };
        if !parsed.is_one_expression() {
            let hint = "write the whole condition as one expression: `if: failure() or params.always`".to_owned();
            self.report(node.span, "a condition with text around its expression is always true", hint);
            return None;
        }
        let inner = text.trim().trim_start_matches("${{").trim_end_matches("}}").trim();
        Some(Condition { text: crate::scalar::shorten(inner, QUOTED), template })
    }
}

/// The value of a condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Why the task does not run; `None` if it runs.
    pub skipped: Option<String>,
    /// Warnings of the evaluation, such as a cell that `best()` excluded.
    pub warnings: Vec<String>,
}

impl Workflow {
    /// Whether a task runs once all its needs have ended. `finished` returns the result of a task by its index in
    /// [`Workflow::tasks`], `None` if the task has not ended. The caller handles needs that did not succeed under
    /// [`TriggerRule::AllSuccess`].
    ///
    /// # Errors
    /// If the condition has no value; see [`ResolveError`]. `NotFinished` if it depends on a task that has not ended.
    pub fn condition(
        &self,
        task: usize,
        finished: &dyn Fn(usize) -> Option<Finished>,
    ) -> Result<Decision, ResolveError> {
        let found = self.tasks.get(task).zip(self.template_of(task));
        let (task, template) = found.ok_or(ResolveError::NoSuchTask(task))?;
        let asked = template.condition.as_ref().filter(|_| !self.without_cells.contains_key(&task.job));
        let Some(condition) = asked else { return Ok(Decision::default()) };
        let needed = Needed::new(self, task, finished);
        let mut scope = needed.scope(&condition.template.computed())?;
        let status = match condition.waits() {
            true => needed.status(condition.depends_on_ancestors())?,
            false => Status { success: true, failure: false, cancelled: false },
        };
        scope.insert(STATUS, minijinja::Value::from_object(status));
        let mut log = Log::default();
        let mut reader = Reader { source: &self.shared.source, log: &mut log };
        let node = reader.fill(&condition.template, &minijinja::Value::from(scope), Moment::Resolve);
        let warnings = needed.notes.warnings();
        match condition.verdict(&mut reader, &node) {
            Some(holds) => Ok(Decision { skipped: (!holds).then(|| condition.reason()), warnings }),
            None => {
                let problems = log.into_problems(&self.shared.source);
                Err(ResolveError::Invalid { task: task.address.clone(), problems })
            }
        }
    }
}

impl Needed<'_> {
    /// The values of the status functions for this task. With `above`, failures of all ancestors count, not only those of
    /// its needs.
    pub fn status(&self, above: bool) -> Result<Status, ResolveError> {
        let tasks = &self.workflow.tasks;
        let mut status = Status { success: true, failure: false, cancelled: false };
        for &need in &self.task.needs {
            match self.finished(need)?.conclusion {
                Conclusion::Success => {}
                Conclusion::Failure if tasks[need].continue_on_error => {}
                Conclusion::Failure | Conclusion::Skipped => status.success = false,
                Conclusion::Cancelled => (status.success, status.cancelled) = (false, true),
            }
        }
        // A failure of any ancestor counts.
        let mut open: Vec<usize> = if above { self.task.needs.clone() } else { Vec::new() };
        let mut seen: BTreeSet<usize> = open.iter().copied().collect();
        while let Some(place) = open.pop() {
            let failed = self.finished(place)?.conclusion == Conclusion::Failure;
            status.failure |= failed && !tasks[place].continue_on_error;
            open.extend(tasks[place].needs.iter().copied().filter(|&need| seen.insert(need)));
        }
        Ok(status)
    }
}
