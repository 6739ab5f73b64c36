//! The draft of a file: its keys are known and its values have the right shape, nothing more is checked.

use std::collections::BTreeSet;

use crate::condition::Condition;
use crate::expression::Name;
use crate::node::{Data, Entry, Node};
use crate::plugins::PluginDeclaration;
use crate::problem::Log;
use crate::source::{Source, Span};
use crate::subworkflow::CallerAxes;
use crate::suggest;
use crate::template::Template;

/// A parsed workflow file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draft {
    pub name: Option<String>,
    pub description: Option<String>,
    pub params: Vec<Entry>,
    pub jobs: Vec<DraftJob>,
    /// With unevaluated expressions.
    pub claims: Vec<Template>,
    pub plugins: Vec<PluginDeclaration>,
    /// What the file declares for workflows that use it.
    pub outputs: Vec<(Name, Template)>,
}

/// A job as written.
#[derive(Debug, Clone)]
pub(crate) struct DraftJob {
    pub name: Name,
    /// The step kind; `None` if it is missing or not a text, which was reported.
    pub uses: Option<Name>,
    pub needs: Vec<Name>,
    pub each: Vec<Name>,
    pub matrix: Option<DraftMatrix>,
    pub replicates: Option<Template>,
    pub max_parallel: Option<Template>,
    pub fail_fast: Option<Template>,
    pub resources: Option<Template>,
    pub retry: Option<Template>,
    pub timeout: Option<Template>,
    pub condition: Option<Condition>,
    pub continue_on_error: Option<Template>,
    pub with: Option<Template>,
    /// The span to underline if a key is missing in `with:`.
    pub with_span: Span,
    /// The axes that it has from the job that uses its workflow.
    pub caller_axes: CallerAxes,
}

/// A matrix as written.
#[derive(Debug, Clone)]
pub(crate) struct DraftMatrix {
    pub span: Span,
    pub axes: Vec<(Name, Template)>,
    /// An expression whose value is the whole matrix, instead of axes.
    pub whole: Option<Template>,
    pub include: Option<Template>,
    pub exclude: Option<Template>,
}

impl DraftMatrix {
    /// The axes that are listed explicitly.
    pub fn axis_names(&self) -> BTreeSet<String> {
        self.axes.iter().map(|(name, _)| name.name.clone()).collect()
    }
}

/// The maximum number of jobs of a file.
pub(crate) const MAX_JOBS: usize = 1_000;

pub(crate) const FILE_KEYS: &[&str] =
    &["name", "description", "include", "params", "plugins", "jobs", "outputs", "claims"];
pub(crate) const JOB_KEYS: &[&str] =
    &["uses", "with", "needs", "if", "strategy", "resources", "retry", "timeout-minutes", "continue-on-error"];
pub(crate) const STRATEGY_KEYS: &[&str] = &["matrix", "replicates", "each", "max-parallel", "fail-fast"];

/// Names from GitHub Actions, with their equivalents here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("on", "nothing triggers a workflow here: `assay run FILE` does; delete the key"),
    ("env", "write constants under `params`; `uses: command` has `with: {env: {..}}` for its program"),
    ("defaults", "give each job its own `with`"),
    ("inputs", "write `params`, with their default values"),
    ("runs-on", "write `resources: [{backend: cpu}]`"),
    ("steps", "a job is one step: give `uses` and `with`, and a job of its own to every further step"),
    ("run", "a job uses a step kind: write `uses: KIND`"),
    (
        "outputs",
        "a step kind has its outputs: read them with `${{ needs.JOB.outputs.NAME }}`; those of a file stand at its top",
    ),
    ("include", "`include` stands inside `strategy.matrix`"),
    ("exclude", "`exclude` stands inside `strategy.matrix`"),
    ("matrix", "`matrix` stands inside `strategy`"),
    ("replicates", "`replicates` stands inside `strategy`"),
    ("each", "`each` stands inside `strategy`"),
    ("max-parallel", "`max-parallel` stands inside `strategy`"),
    ("fail-fast", "`fail-fast` stands inside `strategy`"),
    ("timeout", "write `timeout-minutes`"),
];

/// Parses values and reports those with the wrong shape.
pub(crate) struct Reader<'a> {
    pub source: &'a Source,
    pub log: &'a mut Log,
}

impl Reader<'_> {
    pub fn report(&mut self, span: Span, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.log.report(span, message, hint);
    }

    /// The entries of a mapping; for any other value, reports a problem and returns none.
    pub fn entries<'n>(&mut self, node: &'n Node, what: &str, example: &str) -> &'n [Entry] {
        match &node.data {
            Data::Map(entries) => entries,
            _ => {
                let message = format!("{what} takes a mapping, not {}", node.describe());
                self.report(node.span, message, format!("for example `{example}`"));
                &[]
            }
        }
    }

    /// Reports unknown keys.
    pub fn known_keys(&mut self, entries: &[Entry], known: &[&str], what: &str) {
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let elsewhere = ELSEWHERE.iter().find(|(key, _)| *key == entry.key).map(|(_, hint)| (*hint).to_owned());
            let near =
                suggest::nearest(&entry.key, known.iter().copied()).map(|name| format!("did you mean `{name}`?"));
            // `includes` in the wrong place: both its spelling and its position are wrong.
            let meant = suggest::nearest(&entry.key, ELSEWHERE.iter().map(|(key, _)| *key));
            let moved = ELSEWHERE.iter().find(|(key, _)| Some(*key) == meant).map(|(_, hint)| (*hint).to_owned());
            let near = near.or(moved);
            let all = format!("known keys: {}", suggest::list(known));
            let hint = elsewhere.or(near).unwrap_or(all);
            self.report(entry.key_span, format!("unknown key `{}` in {what}", entry.key), hint);
        }
    }

    /// A text without expressions.
    fn text(&mut self, entry: &Entry) -> Option<String> {
        match entry.value.as_str() {
            Some(text) if text.contains("${{") => {
                let message = format!("`{}` is read before anything is computed", entry.key);
                self.report(entry.value.span, message, "write it without an expression".to_owned());
                None
            }
            Some(text) => Some(text.to_owned()),
            None => {
                let message = format!("`{}` takes a text, not {}", entry.key, entry.value.describe());
                self.report(entry.value.span, message, "put it into quotes".to_owned());
                None
            }
        }
    }

    /// One name, or a list of names.
    fn names(&mut self, entry: &Entry) -> Vec<Name> {
        let items = match &entry.value.data {
            Data::List(items) => items.as_slice(),
            _ => std::slice::from_ref(&entry.value),
        };
        let mut names: Vec<Name> = Vec::new();
        for item in items {
            match item.as_str() {
                Some(name) if names.iter().any(|known| known.name == name) => {
                    self.report(item.span, format!("`{name}` is listed twice"), "keep one of them".to_owned());
                }
                Some(name) => names.push(Name { name: name.to_owned(), span: item.span }),
                None => {
                    let message = format!("`{}` takes the names of jobs, not {}", entry.key, item.describe());
                    self.report(item.span, message, format!("for example `{}: [data]`", entry.key));
                }
            }
        }
        names
    }

    fn template(&mut self, node: &Node) -> Template {
        Template::compile(self.source, node, self.log)
    }

    /// Parses a whole file.
    pub fn file(&mut self, root: &Node) -> Draft {
        let mut draft = Draft::default();
        let example = "jobs: {data: {uses: prepare, with: {..}}}";
        let entries = self.entries(root, "a workflow file", example);
        self.known_keys(entries, FILE_KEYS, "the file");
        for entry in entries {
            match entry.key.as_str() {
                "name" => draft.name = self.text(entry),
                "description" => draft.description = self.text(entry),
                "params" => draft.params = self.params(entry),
                "jobs" => draft.jobs = self.jobs(entry),
                "claims" => draft.claims = self.read_claims(entry),
                "plugins" => draft.plugins = self.read_plugins(entry),
                "outputs" => draft.outputs = self.outputs(entry),
                _ => {}
            }
        }
        draft
    }

    /// Whether jobs exist, but not too many.
    pub fn check_jobs(&mut self, draft: &mut Draft, roots: &[Node]) {
        let named = |root: &Node| {
            root.get("jobs").is_some() || root.get("claims").is_some() || !matches!(root.data, Data::Map(_))
        };
        if let Some(main) = roots.last().filter(|_| !roots.iter().any(named)) {
            let message = "the file has no `jobs`";
            self.report(main.span, message, "add them: `jobs: {data: {uses: prepare, with: {..}}}`".to_owned());
        }
        if let Some(job) = draft.jobs.get(MAX_JOBS) {
            let hint = "a job is a whole sweep: write one job with a matrix".to_owned();
            self.report(job.name.span, format!("more than {MAX_JOBS} jobs"), hint);
        }
        draft.jobs.truncate(MAX_JOBS);
    }

    fn params(&mut self, entry: &Entry) -> Vec<Entry> {
        if entry.value.data == Data::Scalar(serde_json::Value::Null) {
            return Vec::new();
        }
        let entries = self.entries(&entry.value, "`params`", "params: {seed: 17}");
        for param in entries {
            self.plain(&param.value);
        }
        entries.to_vec()
    }

    fn outputs(&mut self, entry: &Entry) -> Vec<(Name, Template)> {
        let example = "outputs: {model: \"${{ needs.train.outputs.model }}\"}";
        let mut outputs = Vec::new();
        for entry in self.entries(&entry.value, "`outputs`", example) {
            if !is_identifier(&entry.key) {
                let hint = "letters, digits, `_` and `-`, beginning with a letter or `_`, at most 64".to_owned();
                self.report(entry.key_span, format!("`{}` cannot be the name of an output", entry.key), hint);
            }
            let name = Name { name: entry.key.clone(), span: entry.key_span };
            outputs.push((name, self.template(&entry.value)));
        }
        outputs
    }

    /// Reports expressions where they are not allowed.
    fn plain(&mut self, node: &Node) {
        match &node.data {
            Data::Scalar(_) if node.as_str().is_some_and(|text| text.contains("${{")) => {
                let hint = "write the value; jobs can compute with it".to_owned();
                self.report(node.span, "a parameter cannot be an expression", hint);
            }
            Data::Scalar(_) | Data::Unknown => {}
            Data::List(items) => items.iter().for_each(|item| self.plain(item)),
            Data::Map(entries) => entries.iter().for_each(|entry| self.plain(&entry.value)),
        }
    }

    fn jobs(&mut self, entry: &Entry) -> Vec<DraftJob> {
        let example = "jobs: {data: {uses: prepare, with: {..}}}";
        let entries = self.entries(&entry.value, "`jobs`", example);
        if entries.is_empty() && matches!(entry.value.data, Data::Map(_)) {
            self.report(entry.key_span, "there is no job", format!("add one: `{example}`"));
        }
        entries.iter().take(MAX_JOBS + 1).map(|entry| self.job(entry)).collect()
    }

    fn job(&mut self, entry: &Entry) -> DraftJob {
        let name = Name { name: entry.key.clone(), span: entry.key_span };
        if !is_identifier(&name.name) {
            let hint = "letters, digits, `_` and `-`, beginning with a letter or `_`, at most 64".to_owned();
            self.report(name.span, format!("`{}` cannot be the name of a job", name.name), hint);
        }
        let what = format!("the job `{}`", name.name);
        let mut job = DraftJob {
            with_span: name.span,
            name,
            uses: None,
            needs: Vec::new(),
            each: Vec::new(),
            matrix: None,
            replicates: None,
            max_parallel: None,
            fail_fast: None,
            resources: None,
            retry: None,
            timeout: None,
            condition: None,
            continue_on_error: None,
            with: None,
            caller_axes: CallerAxes::None,
        };
        let entries = self.entries(&entry.value, &what, "data: {uses: prepare, with: {..}}");
        self.known_keys(entries, JOB_KEYS, &what);
        if matches!(entry.value.data, Data::Map(_)) && entry.value.get("uses").is_none() {
            let hint = "say which step kind or workflow it runs: `uses: prepare`, `uses: ./other.yaml`".to_owned();
            self.report(entry.key_span, format!("{what} has no `uses`"), hint);
        }
        for entry in entries {
            match entry.key.as_str() {
                "uses" => {
                    job.uses = self.text(entry).map(|name| Name { name, span: entry.value.span });
                    if job.with.is_none() {
                        job.with_span = entry.value.span;
                    }
                }
                "needs" => job.needs = self.names(entry),
                "strategy" => self.strategy(entry, &mut job),
                "resources" => job.resources = Some(self.template(&entry.value)),
                "retry" => job.retry = Some(self.template(&entry.value)),
                "if" => job.condition = self.condition(entry),
                "continue-on-error" => job.continue_on_error = Some(self.template(&entry.value)),
                "timeout-minutes" => job.timeout = Some(self.template(&entry.value)),
                "with" => {
                    job.with = Some(self.template(&entry.value));
                    job.with_span = entry.key_span;
                }
                _ => {}
            }
        }
        job
    }

    fn strategy(&mut self, entry: &Entry, job: &mut DraftJob) {
        let entries = self.entries(&entry.value, "`strategy`", "strategy: {matrix: {states: [16, 32]}}");
        self.known_keys(entries, STRATEGY_KEYS, "`strategy`");
        for entry in entries {
            match entry.key.as_str() {
                "matrix" => job.matrix = Some(self.matrix(entry)),
                "replicates" => job.replicates = Some(self.template(&entry.value)),
                "each" => job.each = self.names(entry),
                "max-parallel" => job.max_parallel = Some(self.template(&entry.value)),
                "fail-fast" => job.fail_fast = Some(self.template(&entry.value)),
                _ => {}
            }
        }
    }

    fn matrix(&mut self, entry: &Entry) -> DraftMatrix {
        let span = entry.key_span;
        let mut matrix = DraftMatrix { span, axes: Vec::new(), whole: None, include: None, exclude: None };
        if entry.value.as_str().is_some_and(|text| text.contains("${{")) {
            matrix.whole = Some(self.template(&entry.value));
            return matrix;
        }
        let entries = self.entries(&entry.value, "`matrix`", "matrix: {states: [16, 32], chunk: [16, 64]}");
        for entry in entries {
            let value = self.template(&entry.value);
            match entry.key.as_str() {
                "include" => matrix.include = Some(value),
                "exclude" => matrix.exclude = Some(value),
                key => {
                    self.axis_name(key, entry.key_span);
                    matrix.axes.push((Name { name: entry.key.clone(), span: entry.key_span }, value));
                }
            }
        }
        if entries.is_empty() && matches!(entry.value.data, Data::Map(_)) {
            let hint = "give it an axis: `matrix: {states: [16, 32]}`".to_owned();
            self.report(entry.key_span, "the matrix has no axis", hint);
        }
        matrix
    }

    pub fn axis_name(&mut self, name: &str, span: Span) {
        if !is_identifier(name) {
            let hint = "letters, digits, `_` and `-`, beginning with a letter or `_`, at most 64".to_owned();
            self.report(span, format!("`{name}` cannot be the name of an axis"), hint);
        }
    }
}

/// `[A-Za-z_][A-Za-z0-9_-]*`, at most 64 characters.
pub(crate) fn is_identifier(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
        && name.chars().all(|c| c == '_' || c == '-' || c.is_ascii_alphanumeric())
}
