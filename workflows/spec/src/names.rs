//! Checks that the names in expressions exist, before anything is evaluated.

use std::collections::{BTreeMap, BTreeSet};

use crate::draft::Reader;
use crate::expression::{Best, Computed, Name, Path};
use crate::kind::{Better, MetricKind, OutputKind};
use crate::language::STATUS_FUNCTIONS;
use crate::results::{metric_kind, no_direction};
use crate::source::Span;
use crate::suggest;

/// The position of an expression, which determines the names that it can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// In `strategy`, which determines the cells.
    Strategy,
    /// In `strategy.matrix`.
    Matrix,
    /// In `if`.
    Condition,
    /// In `resources`, `retry` or `timeout-minutes`, which are known before the task runs.
    Settings,
    /// In `claims`, which do not belong to a job.
    Claims,
    /// In `outputs` of a file, which do not belong to a job.
    Outputs,
    /// In `with`.
    With,
}

/// A job as seen by expressions of other jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Visible {
    /// `None` if its kind is unknown.
    pub outputs: Option<&'static [OutputKind]>,
    /// `None` if its kind is unknown.
    pub metrics: Option<&'static [MetricKind]>,
    /// The better directions of the metrics that its config declares; `None` if they are not known before the run.
    pub directions: Option<BTreeMap<String, Better>>,
    pub kind: String,
    /// Every axis of its cells; `None` if its cells are unknown.
    pub axes: Option<BTreeSet<String>>,
    /// The jobs that it is derived from.
    pub each: Vec<String>,
}

/// The names that the expressions of one job can use.
pub(crate) struct Known<'a> {
    pub place: Where,
    pub job: &'a str,
    pub params: &'a serde_json::Map<String, serde_json::Value>,
    /// The jobs that it lists in `needs` or `each`.
    pub needs: &'a BTreeSet<&'a str>,
    /// Every job of the file.
    pub jobs: &'a BTreeMap<&'a str, Visible>,
}

const ROOTS: &[&str] = &["params", "matrix", "replicate", "needs", "each"];

const HYPHEN: &str = "a name with a hyphen is written";

type Answer = Result<(), (Span, String, Option<String>)>;

/// Reports the unknown names of some expressions; returns the positions of expressions with unknown names.
pub(crate) fn check(reader: &mut Reader<'_>, computed: &[&Computed], known: &Known<'_>) -> BTreeSet<Span> {
    let mut wrong = BTreeSet::new();
    for computed in computed {
        for function in &computed.functions {
            if STATUS_FUNCTIONS.contains(&function.name.as_str()) && known.place != Where::Condition {
                wrong.insert(computed.span);
                let message = format!("`{}()` can be used in `if` only", function.name);
                reader.report(function.span, message, "write `if:` beside `uses:`".to_owned());
            }
        }
        // `params.learning-rate` is a difference of two names; only the first one is reported.
        let mut minus: Option<Span> = None;
        for path in &computed.paths {
            let Err((span, message, hint)) = known.path(path) else { continue };
            wrong.insert(computed.span);
            let rest = Span { column: path.root.span.column.saturating_sub(1), length: 1, ..path.root.span };
            if minus != Some(rest) {
                let hyphen = hint.as_ref().is_some_and(|hint| hint.starts_with(HYPHEN));
                minus = hyphen.then_some(Span { column: span.column + span.length, length: 1, ..span });
                reader.report(span, message, hint);
            }
        }
    }
    wrong
}

impl Known<'_> {
    fn path(&self, path: &Path) -> Answer {
        let root = path.root.name.as_str();
        let later = match self.place {
            Where::Strategy | Where::Claims => matches!(root, "matrix" | "replicate" | "needs" | "each"),
            Where::Matrix | Where::Outputs => matches!(root, "matrix" | "replicate" | "each"),
            Where::Settings => root == "needs",
            Where::With | Where::Condition => false,
        };
        if later {
            let (place, hint) = match self.place {
                Where::Strategy => ("`strategy`, which decides what the cells are", "use `params` here"),
                Where::Matrix => {
                    ("`strategy.matrix`, which decides what the cells are", "use `params` or `needs` here")
                }
                Where::Claims => ("`claims`, which belong to no job", "use `params` here"),
                Where::Outputs => ("`outputs`, which belong to no job", "use `needs` and `params` here"),
                _ => ("a setting, which must be known before anything runs", "use `params` and `matrix` here"),
            };
            return Err((path.root.span, format!("`{root}` cannot be used in {place}"), Some(hint.into())));
        }
        match root {
            "params" => self.one_of(path, self.params.keys().map(String::as_str), "params", "parameter"),
            "matrix" => self.matrix(path, self.job, &path.steps),
            "replicate" => match path.steps.first() {
                Some(step) => Err((
                    step.span,
                    "`replicate` is a number and has no parts".into(),
                    Some("write `replicate`".into()),
                )),
                None => Ok(()),
            },
            "needs" => self.needs(path),
            "each" => self.each(path),
            _ => self.unknown_root(&path.root),
        }
    }

    fn unknown_root(&self, root: &Name) -> Answer {
        let name = root.name.as_str();
        let hint = if name == "env" {
            "expressions cannot read environment variables: use a parameter, and set it with `-P NAME=VALUE`".to_owned()
        } else if self.params.contains_key(name) {
            format!("a parameter is written `params.{name}`")
        } else if self.axes(self.job).is_some_and(|axes| axes.contains(name)) {
            format!("an axis is written `matrix.{name}`")
        } else if self.jobs.contains_key(name) {
            format!("a job's outputs are written `needs.{name}.outputs.NAME`")
        } else if let Some(near) = suggest::nearest(name, ROOTS.iter().copied()) {
            format!("did you mean `{near}`?")
        } else {
            format!("known names: {}; texts go into quotes", suggest::list(ROOTS))
        };
        Err((root.span, format!("unknown name `{name}`"), Some(hint)))
    }

    fn axes(&self, job: &str) -> Option<&BTreeSet<String>> {
        self.jobs.get(job).and_then(|job| job.axes.as_ref())
    }

    fn one_of<'k>(&self, path: &Path, known: impl Iterator<Item = &'k str> + Clone, root: &str, what: &str) -> Answer {
        let Some(step) = path.steps.first() else { return Ok(()) };
        if known.clone().any(|name| name == step.name) {
            return Ok(());
        }
        let mut hint = suggest::hint(&step.name, known.clone(), &format!("{what}s"));
        if let Some(name) = hyphenated(&step.name, known) {
            hint = Some(format!("{HYPHEN} `{root}['{name}']`"));
        }
        Err((step.span, format!("unknown {what} `{}`", step.name), hint))
    }

    fn matrix(&self, path: &Path, job: &str, steps: &[Name]) -> Answer {
        let (Some(axes), Some(step)) = (self.axes(job), steps.first()) else { return Ok(()) };
        if axes.contains(&step.name) {
            return Ok(());
        }
        if axes.is_empty() {
            let hint = "add `strategy: {matrix: {..}}` to it".to_owned();
            return Err((step.span, format!("the job `{job}` has no matrix"), Some(hint)));
        }
        let known = axes.iter().map(String::as_str);
        let mut hint = suggest::hint(&step.name, known.clone(), "axes");
        if let Some(name) = hyphenated(&step.name, known) {
            hint = Some(format!("{HYPHEN} `{}['{name}']`", path.root.name));
        }
        Err((step.span, format!("the job `{job}` has no axis `{}`", step.name), hint))
    }

    fn needs(&self, path: &Path) -> Answer {
        let Some(job) = path.steps.first() else {
            let message = "`needs` must be followed by the name of a job".to_owned();
            return Err((path.root.span, message, Some("write `needs.JOB.outputs.NAME`".into())));
        };
        let name = job.name.as_str();
        let Some(visible) = self.jobs.get(name) else {
            let mut hint = suggest::hint(name, self.needs.iter().copied(), "needs of this job");
            if let Some(whole) = hyphenated(name, self.jobs.keys().copied()) {
                hint = Some(format!("{HYPHEN} `needs['{whole}']`"));
            }
            return Err((job.span, format!("unknown job `{name}`"), hint));
        };
        if !self.needs.contains(name) {
            let hint = format!("add it: `needs: [{name}]`");
            return Err((job.span, format!("`{name}` is not among the needs of `{}`", self.job), Some(hint)));
        }
        if let Some(best) = &path.best {
            return self.best(path, best, visible, job);
        }
        let what = format!("`needs.{name}`");
        match path.steps.get(1).map(|step| step.name.as_str()) {
            Some("cells" | "result") => Ok(()),
            Some("outputs") => outputs(&path.steps[1], path.steps.get(2), path.open, visible, name),
            Some("metrics") => metrics(&path.steps[1], path.steps.get(2), path.open, visible, name),
            _ => Err(member(&path.steps, 1, &what, &["outputs", "metrics", "result", "cells"])),
        }
    }

    /// `best(needs.JOB, 'METRIC').PART`.
    fn best(&self, path: &Path, best: &Best, visible: &Visible, job: &Name) -> Answer {
        let name = job.name.as_str();
        if let Some(step) = path.steps.get(1) {
            let hint = format!("write `best(needs.{name}, 'METRIC')`");
            return Err((step.span, "`best` takes a job, not a part of it".into(), Some(hint)));
        }
        if let (Some(metric), Some(known)) = (&best.metric, visible.metrics) {
            let kind = metric_kind(known, &metric.name).ok_or_else(|| unknown_metric(metric, known, visible, name))?;
            if kind.better == Better::Neither && !best.mode {
                let hint = format!("write `best(needs.{name}, '{}', mode='max')`", metric.name);
                return Err((metric.span, no_direction(&metric.name), Some(hint)));
            }
        }
        if let (Some(metric), None, Some(directions), false) =
            (&best.metric, visible.metrics, &visible.directions, best.mode)
            && directions.get(&metric.name).is_none_or(|better| *better == Better::Neither)
        {
            let written = &metric.name;
            let hint = format!(
                "declare it in `with` of `{name}`, `metrics: {{{written}: {{better: lower}}}}`, or \
                 write `best(needs.{name}, '{written}', mode='min')`"
            );
            return Err((metric.span, no_direction(written), Some(hint)));
        }
        let members = ["outputs", "matrix", "metrics", "replicate", "replicates", "job", "address", "each"];
        match best.steps.first().map(|step| step.name.as_str()) {
            None => Ok(()),
            Some("outputs") => outputs(&best.steps[0], best.steps.get(1), true, visible, name),
            Some("metrics") => metrics(&best.steps[0], best.steps.get(1), true, visible, name),
            Some("matrix") => self.matrix(path, name, &best.steps[1..]),
            Some(part) if members.contains(&part) => Ok(()),
            Some(_) => Err(member(&best.steps, 0, "the best cell", &members)),
        }
    }

    fn each(&self, path: &Path) -> Answer {
        let mut jobs: BTreeSet<&str> = match self.jobs.get(self.job) {
            Some(job) => job.each.iter().map(String::as_str).collect(),
            None => BTreeSet::new(),
        };
        let mut what = "each".to_owned();
        for (at, step) in path.steps.iter().enumerate() {
            if jobs.is_empty() {
                return Err(underived(&path.root, &what));
            }
            let members = ["outputs", "metrics", "result", "matrix", "job", "replicate", "address", "each"];
            match step.name.as_str() {
                "each" => {
                    let above = jobs.iter().filter_map(|job| self.jobs.get(job)).flat_map(|job| &job.each);
                    jobs = above.map(String::as_str).collect();
                    what.push_str(".each");
                }
                "outputs" | "metrics" | "result" if self.place == Where::Settings => {
                    let message = "a result cannot be used in a setting, which must be known before anything runs";
                    return Err((step.span, message.into(), Some("use `params` and `matrix` here".into())));
                }
                "result" => return Ok(()),
                "metrics" => {
                    return jobs.iter().filter_map(|name| Some((name, self.jobs.get(name)?))).try_for_each(
                        |(name, visible)| metrics(step, path.steps.get(at + 1), path.open, visible, name),
                    );
                }
                "outputs" => {
                    return jobs.iter().filter_map(|name| Some((name, self.jobs.get(name)?))).try_for_each(
                        |(name, visible)| outputs(step, path.steps.get(at + 1), path.open, visible, name),
                    );
                }
                "matrix" => {
                    let rest = path.steps.get(at + 1..).unwrap_or_default();
                    let mut answers = jobs.iter().map(|job| self.matrix(path, job, rest));
                    // It is sufficient that one of several jobs has the axis; if others lack it, this is found in the cells.
                    return if answers.clone().any(|answer| answer.is_ok()) {
                        Ok(())
                    } else {
                        answers.next().unwrap_or(Ok(()))
                    };
                }
                "job" | "replicate" | "address" => return Ok(()),
                _ => return Err(member(&path.steps, at, &format!("`{what}`"), &members)),
            }
        }
        if jobs.is_empty() { Err(underived(&path.root, &what)) } else { Ok(()) }
    }
}

fn underived(root: &Name, what: &str) -> (Span, String, Option<String>) {
    let hint = "write `strategy: {each: JOB}` to run once for every task of a job".to_owned();
    (root.span, format!("`{what}` is not defined: there is no `strategy.each`"), Some(hint))
}

/// The problem of a step that must be one of a few words.
fn member(steps: &[Name], at: usize, what: &str, members: &[&str]) -> (Span, String, Option<String>) {
    match (steps.get(at), steps.last()) {
        (Some(step), _) => {
            let hint = suggest::hint(&step.name, members.iter().copied(), &format!("parts of {what}"));
            (step.span, format!("{what} has no `{}`", step.name), hint)
        }
        (None, last) => {
            let span = last.map_or(Span::default(), |step| step.span);
            (span, format!("{what} is not a value itself"), Some("write `.outputs.NAME` or `.cells` behind it".into()))
        }
    }
}

/// Whether a job has an output.
fn outputs(root: &Name, step: Option<&Name>, open: bool, visible: &Visible, job: &str) -> Answer {
    let Some(known) = visible.outputs else { return Ok(()) };
    let Some(step) = step else {
        if open {
            return Ok(());
        }
        let hint = suggest::hint("", known.iter().map(|output| output.name), "outputs");
        return Err((root.span, format!("the outputs of `{job}` are not a value by themselves"), hint));
    };
    if known.iter().any(|output| output.name == step.name) {
        return Ok(());
    }
    let hint = match known.is_empty() {
        true => Some(format!("a `{}` step has no outputs", visible.kind)),
        false => suggest::hint(&step.name, known.iter().map(|output| output.name), "outputs"),
    };
    Err((step.span, format!("the job `{job}` has no output `{}`", step.name), hint))
}

/// Whether a job reports a metric.
fn metrics(root: &Name, step: Option<&Name>, open: bool, visible: &Visible, job: &str) -> Answer {
    let Some(known) = visible.metrics else { return Ok(()) };
    match step {
        None if open => Ok(()),
        None => {
            let hint = format!("write `needs.{job}.metrics['NAME']`");
            Err((root.span, format!("the metrics of `{job}` are not a value by themselves"), Some(hint)))
        }
        Some(step) if metric_kind(known, &step.name).is_some() => Ok(()),
        Some(step) => Err(unknown_metric(step, known, visible, job)),
    }
}

fn unknown_metric(step: &Name, known: &[MetricKind], visible: &Visible, job: &str) -> (Span, String, Option<String>) {
    let names = known.iter().map(|kind| kind.name);
    // `metrics.valid/accuracy` is a quotient; only its first name is looked up.
    let divided =
        names.clone().find(|name| name.strip_prefix(step.name.as_str()).is_some_and(|rest| rest.starts_with('/')));
    let hint = match divided {
        Some(name) => Some(format!("a name with `/` is written `metrics['{name}']`")),
        None if known.is_empty() => Some(format!("a `{}` step reports no metrics", visible.kind)),
        None => suggest::hint(&step.name, names, "metrics").or_else(|| {
            let ranked = known.iter().filter(|kind| kind.better != Better::Neither).take(12);
            Some(format!("among its metrics are {}", suggest::list(&ranked.map(|kind| kind.name).collect::<Vec<_>>())))
        }),
    };
    let written = crate::scalar::shorten(&step.name, 60);
    (step.span, format!("the job `{job}` has no metric `{written}`"), hint)
}

/// The known name with a hyphen whose first part was parsed as the name.
fn hyphenated<'k>(part: &str, mut known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    known.find(|name| name.strip_prefix(part).is_some_and(|rest| rest.starts_with('-')))
}
