//! Expressions of a sub-workflow, rewritten into the names of the workflow that uses it.
//!
//! In `use.yaml`, the job `pre` uses `train.yaml`. In the expressions of `train.yaml`, `needs.data` becomes `needs["pre/data"]`, and
//! `params.rate` becomes `params["pre/rate"]`, or the expression that `with` of `pre` passes as `rate`. In the expressions of
//! `use.yaml`, `needs.pre.outputs.model` becomes the expression that `train.yaml` declares as its output `model`. Nothing after this
//! stage knows about sub-workflows.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::expression::{Computed, Name, Path};
use crate::problem::Log;
use crate::suggest;
use crate::token::{self, Kind, Token};

/// An expression as text, without `${{ }}`.
#[derive(Debug, Clone)]
pub(crate) struct Snippet {
    pub text: String,
    /// Its variables, in the order of the text.
    pub paths: Vec<Path>,
    /// The functions that it calls.
    pub functions: Vec<Name>,
}

/// The meaning of names in the expressions of one workflow file.
#[derive(Debug, Default)]
pub(crate) struct Renaming {
    /// The text before the names of its jobs: empty, or `pre/`.
    pub prefix: String,
    /// The expression of each parameter; `None` for the main file, whose parameters keep their names.
    pub params: Option<BTreeMap<String, Snippet>>,
    /// The outputs of its jobs that use workflows, by the name of the job.
    pub calls: BTreeMap<String, Call>,
}

/// A job that uses a workflow, as other jobs see it.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// The full names of the jobs that it became.
    pub jobs: Vec<String>,
    /// The expression of each declared output.
    pub outputs: BTreeMap<String, Snippet>,
}

impl Snippet {
    /// A literal.
    pub fn literal(value: &Value) -> Snippet {
        let (paths, functions) = (Vec::new(), Vec::new());
        Snippet { text: literal_text(value), paths, functions }
    }

    /// The variable `ROOT["NAME"]`.
    pub fn member(root: &Name, name: &Name) -> Snippet {
        let text = format!("{}[{}]", root.name, literal_text(&Value::from(name.name.as_str())));
        let path = Path { root: root.clone(), steps: vec![name.clone()], open: false, best: None };
        Snippet { text, paths: vec![path], functions: Vec::new() }
    }

    /// Parts of an expression with texts between them.
    pub fn join(open: &str, parts: Vec<(String, Snippet)>, close: &str) -> Snippet {
        let mut whole = Snippet { text: open.to_owned(), paths: Vec::new(), functions: Vec::new() };
        for (before, part) in parts {
            whole.text.push_str(&before);
            whole.text.push_str(&part.text);
            whole.paths.extend(part.paths);
            whole.functions.extend(part.functions);
        }
        whole.text.push_str(close);
        whole
    }

    /// Its variable, if it is a single one.
    fn as_path(&self) -> Option<&Path> {
        let [path] = self.paths.as_slice() else { return None };
        let (tokens, _) = token::scan(&self.text);
        let names = token::names(&tokens);
        let [found] = names.paths.as_slice() else { return None };
        let whole = found.root.at.start == 0 && end_of(&tokens, found, found.steps.len()) == self.text.trim_end().len();
        (whole && !found.open && found.best.is_none()).then_some(path)
    }

    /// The same as an operand of a larger expression.
    fn enclosed(self) -> Snippet {
        match self.as_path() {
            Some(_) => self,
            None => Snippet { text: format!("({})", self.text), ..self },
        }
    }
}

/// JSON as an expression.
fn literal_text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Number(number) => format!("({number})"),
        Value::Bool(_) | Value::String(_) => value.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(literal_text).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entry =
                |(key, value): (&String, &Value)| format!("{}: {}", Value::from(key.as_str()), literal_text(value));
            format!("{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

/// The end of a variable's first steps, in bytes.
fn end_of(tokens: &[Token], path: &token::Path, steps: usize) -> usize {
    let Some(step) = steps.checked_sub(1).and_then(|last| path.steps.get(last)) else { return path.root.at.end };
    let place = tokens.iter().position(|token| token.at == step.at);
    let closing =
        place.filter(|&place| matches!(tokens[place].kind, Kind::Text(_))).and_then(|place| tokens.get(place + 1));
    closing.map_or(step.at.end, |token| token.at.end)
}

impl Renaming {
    /// The full names of the jobs that a name in `needs` stands for.
    pub fn jobs_of(&self, name: &Name) -> Vec<Name> {
        match self.calls.get(&name.name) {
            Some(call) => call.jobs.iter().map(|job| Name { name: job.clone(), span: name.span }).collect(),
            None => vec![self.full_name(name)],
        }
    }

    /// The name of a job with the prefix.
    pub fn full_name(&self, name: &Name) -> Name {
        Name { name: format!("{}{}", self.prefix, name.name), span: name.span }
    }

    /// An expression with the names of the main file. Names without a meaning are reported.
    pub fn rewrite(&self, computed: &Computed, log: &mut Log) -> Snippet {
        let text = computed.text.as_str();
        let (tokens, _) = token::scan(text);
        let found = token::names(&tokens).paths;
        let mut whole = Snippet { text: String::new(), paths: Vec::new(), functions: computed.functions.clone() };
        let mut from = 0;
        for (place, path) in std::iter::zip(&found, &computed.paths) {
            let Some((replacement, steps)) = self.replacement(path, log) else {
                whole.paths.push(path.clone());
                continue;
            };
            let replacement = replacement.enclosed();
            whole.text.push_str(&text[from..place.root.at.start]);
            whole.text.push_str(&replacement.text);
            from = end_of(&tokens, place, steps);
            match replacement.as_path() {
                Some(known) => {
                    let rest = path.steps.iter().skip(steps).cloned();
                    let steps = known.steps.iter().cloned().chain(rest).collect();
                    whole.paths.push(Path {
                        root: known.root.clone(),
                        steps,
                        open: path.open,
                        best: path.best.clone(),
                    });
                }
                None => whole.paths.extend(replacement.paths.clone()),
            }
            whole.functions.extend(replacement.functions);
        }
        whole.text.push_str(&text[from..]);
        whole
    }

    /// The expression that replaces the root and the first steps of a variable, with the number of these steps.
    fn replacement(&self, path: &Path, log: &mut Log) -> Option<(Snippet, usize)> {
        match path.root.name.as_str() {
            "params" => self.param(path, self.params.as_ref()?, log),
            "needs" => {
                let job = path.steps.first()?;
                match self.calls.get(&job.name) {
                    Some(call) => call_output(path, job, call, log),
                    None if self.prefix.is_empty() => None,
                    None => Some((Snippet::member(&path.root, &self.full_name(job)), 1)),
                }
            }
            _ => None,
        }
    }

    fn param(&self, path: &Path, params: &BTreeMap<String, Snippet>, log: &mut Log) -> Option<(Snippet, usize)> {
        let Some(step) = path.steps.first() else {
            let entry = |(at, (name, value)): (usize, (&String, &Snippet))| {
                let comma = if at > 0 { ", " } else { "" };
                (format!("{comma}{}: ", Value::from(name.as_str())), value.clone().enclosed())
            };
            return Some((Snippet::join("{", params.iter().enumerate().map(entry).collect(), "}"), 0));
        };
        let known = params.get(&step.name);
        if known.is_none() {
            let hint = suggest::hint(&step.name, params.keys().map(String::as_str), "parameters");
            log.report(step.span, format!("unknown parameter `{}`", step.name), hint);
        }
        Some((known?.clone(), 1))
    }
}

/// The output of a job that uses a workflow.
fn call_output(path: &Path, job: &Name, call: &Call, log: &mut Log) -> Option<(Snippet, usize)> {
    let name = &job.name;
    let first = call.jobs.first().map_or("", String::as_str);
    if path.best.is_some() {
        let hint = format!("name one of its jobs, such as `best(needs['{first}'], 'METRIC')`");
        log.report(job.span, format!("`{name}` uses a workflow, and `best` takes a job with a step kind"), hint);
        return None;
    }
    match (path.steps.get(1), path.steps.get(2)) {
        (Some(part), Some(output)) if part.name == "outputs" => {
            let known = call.outputs.get(&output.name);
            if known.is_none() {
                let hint = match call.outputs.is_empty() {
                    true => Some(format!("add it at the top of that file: `outputs: {{{}: ..}}`", output.name)),
                    false => suggest::hint(&output.name, call.outputs.keys().map(String::as_str), "outputs"),
                };
                log.report(output.span, format!("the workflow of `{name}` declares no output `{}`", output.name), hint);
            }
            Some((known?.clone(), 3))
        }
        (part, _) => {
            let span = part.map_or(job.span, |part| part.span);
            let hint =
                format!("write `needs.{name}.outputs.NAME`, or name one of its jobs, such as `needs['{first}']`");
            log.report(span, format!("`{name}` uses a workflow, and only its declared outputs can be read"), hint);
            None
        }
    }
}
