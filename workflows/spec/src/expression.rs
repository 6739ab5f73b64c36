//! Texts that contain expressions: a single `${{ matrix.states * 2 }}` keeps its type, `run-${{ replicate }}` is a text.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::{ErrorKind, Expression};
use serde_json::Value;

use crate::language::{self, LANGUAGE};
use crate::node::Node;
use crate::problem::Log;
use crate::results::{NOTES, Notes};
use crate::rewrite::{Renaming, Snippet};
use crate::source::{Source, Span};
use crate::suggest;
use crate::token::{self, Kind, Names, Step, Token};

/// The length limit of an expression, in bytes.
const MAX_LENGTH: usize = 1_000;
/// The limits of the number of tokens in an expression, and of the nesting depth of its brackets: minijinja compiles
/// recursively, and must not exceed a thread's stack.
const MAX_WORDS: usize = 200;
const MAX_BRACKETS: usize = 12;
/// The limit of the number of tokens in an expression of a sub-workflow with its parameters filled in.
const MAX_REWRITTEN: usize = 2_000;

/// The maximum number of expressions in one text, with the literal parts between them.
const MAX_PARTS: usize = 200;

/// A text with at least one expression.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    /// The whole scalar.
    pub span: Span,
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Literal(String),
    Computed(Arc<Computed>),
}

/// One expression.
#[derive(Debug)]
pub(crate) struct Computed {
    /// From `${{` to `}}`.
    pub span: Span,
    /// The variables that it uses, with their places in the file.
    pub paths: Vec<Path>,
    /// The functions that it calls.
    pub functions: Vec<Name>,
    /// Without `${{ }}`.
    pub text: String,
    code: Expression<'static, 'static>,
}

/// A variable with its attributes, such as `needs.data.outputs.dataset`.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub root: Name,
    pub steps: Vec<Name>,
    /// Whether a computed attribute follows, as in `params[matrix.key]`.
    pub open: bool,
    /// If it is the first argument of `best(..)`: the rest of that call.
    pub best: Option<Best>,
}

/// A call of `best`, after its first argument.
#[derive(Debug, Clone)]
pub(crate) struct Best {
    /// The metric, if it is a literal.
    pub metric: Option<Name>,
    /// Whether `mode` is given.
    pub mode: bool,
    /// The attributes that are read from the cell.
    pub steps: Vec<Name>,
}

/// A name with its place in the file.
#[derive(Debug, Clone)]
pub(crate) struct Name {
    pub name: String,
    pub span: Span,
}

/// Why an expression has no value.
#[derive(Debug)]
pub(crate) struct EvaluationError {
    pub span: Span,
    pub message: String,
    pub hint: Option<String>,
}

impl Text {
    /// Parses a scalar; `None` if it contains no valid expression.
    pub fn parse(source: &Source, node: &Node, log: &mut Log) -> Option<Text> {
        let text = node.as_str()?;
        let mut parts = Vec::new();
        let mut from = 0;
        let known = log.count();
        while let Some(found) = text[from..].find("${{") {
            if parts.len() > MAX_PARTS {
                log.report(node.span, format!("more than {} expressions in one text", MAX_PARTS / 2), None);
                return None;
            }
            let start = from + found;
            if start > from {
                parts.push(Part::Literal(text[from..start].to_owned()));
            }
            let place = Place { source, node, text, offset: start + 3, marked: true };
            let (tokens, end) = token::scan(&text[place.offset..]);
            let Some(length) = end else {
                let (message, hint) = match text[place.offset..].contains("}}") {
                    true => ("a bracket or a quote is not closed in this expression", "close it before `}}`"),
                    false => ("`${{` without `}}`", "end the expression with `}}`"),
                };
                log.report(place.span(0, 0, 3), message, hint.to_owned());
                return None;
            };
            from = place.offset + length + 2;
            if let Some(computed) = compile(&place, &text[place.offset..place.offset + length], &tokens, log) {
                parts.push(Part::Computed(Arc::new(computed)));
            }
        }
        if from < text.len() {
            parts.push(Part::Literal(text[from..].to_owned()));
        }
        let refused = log.count() > known;
        (!refused && from > 0).then_some(Text { span: node.span, parts })
    }

    /// Parses a scalar that is one expression without `${{ }}`; `None` if it is invalid.
    pub fn parse_bare(source: &Source, node: &Node, log: &mut Log) -> Option<Text> {
        let text = node.as_str()?;
        let place = Place { source, node, text, offset: 0, marked: false };
        let (tokens, end) = token::scan(text);
        if let Some(end) = end {
            log.report(place.span(0, end, end + 2), "`}}` without `${{`", "remove it".to_owned());
            return None;
        }
        let computed = compile(&place, text, &tokens, log)?;
        Some(Text { span: node.span, parts: vec![Part::Computed(Arc::new(computed))] })
    }

    /// Whether the text is a single expression, apart from surrounding blanks.
    pub fn is_one_expression(&self) -> bool {
        let literal = |part: &&Part| matches!(part, Part::Literal(text) if !text.trim().is_empty());
        self.computed().count() == 1 && !self.parts.iter().any(|part| literal(&part))
    }

    /// The number of bytes in it.
    pub fn length(&self) -> usize {
        let length = |part: &Part| match part {
            Part::Literal(text) => text.len(),
            Part::Computed(computed) => computed.text.len(),
        };
        self.parts.iter().map(length).sum()
    }

    /// The expressions in it.
    pub fn computed(&self) -> impl Iterator<Item = &Arc<Computed>> {
        self.parts.iter().filter_map(|part| match part {
            Part::Computed(computed) => Some(computed),
            Part::Literal(_) => None,
        })
    }

    /// With every expression rewritten; `None`, with problems, if that fails.
    pub fn rewrite(&self, renaming: &Renaming, log: &mut Log) -> Option<Text> {
        let part = |part: &Part| match part {
            Part::Literal(text) => Some(Part::Literal(text.clone())),
            Part::Computed(computed) => {
                let before = log.count();
                let snippet = renaming.rewrite(computed, log);
                if log.count() > before {
                    return None;
                }
                if snippet.text == computed.text {
                    return Some(Part::Computed(computed.clone()));
                }
                compile_snippet(snippet, computed.span, log).map(|computed| Part::Computed(Arc::new(computed)))
            }
        };
        let parts = self.parts.iter().map(part).collect::<Option<Vec<_>>>()?;
        Some(Text { span: self.span, parts })
    }

    /// As one expression.
    pub fn to_snippet(&self) -> Snippet {
        let snippet = |computed: &Computed| Snippet {
            text: computed.text.clone(),
            paths: computed.paths.clone(),
            functions: computed.functions.clone(),
        };
        if let (true, Some(computed)) = (self.is_one_expression(), self.computed().next()) {
            return snippet(computed);
        }
        let text = |part: &Part| match part {
            Part::Literal(text) => Snippet::literal(&Value::from(text.as_str())),
            Part::Computed(computed) => {
                Snippet::join("((", vec![(String::new(), snippet(computed))], &format!(") | {})", language::TEXT))
            }
        };
        let parts = self.parts.iter().enumerate();
        let parts = parts.map(|(at, part)| (if at > 0 { " ~ " } else { "" }.to_owned(), text(part))).collect();
        Snippet::join("(", parts, ")")
    }

    /// The value: of any type if the text is a single expression (apart from surrounding blanks), otherwise a text.
    pub fn evaluate(&self, scope: &minijinja::Value) -> Result<Value, EvaluationError> {
        let mut alone = self.parts.iter().filter(|part| !matches!(part, Part::Literal(text) if text.trim().is_empty()));
        if let (Some(Part::Computed(computed)), None) = (alone.next(), alone.next()) {
            return computed.evaluate(scope, language::to_json);
        }
        let mut whole = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => whole.push_str(text),
                Part::Computed(computed) => whole.push_str(&computed.evaluate(scope, language::text_of)?),
            }
            if whole.len() > language::MAX_TEXT {
                let message = "the text has more than 64 KiB with its expressions filled in".to_owned();
                return Err(EvaluationError { span: self.span, message, hint: None });
            }
        }
        Ok(Value::String(whole))
    }
}

impl Computed {
    /// How many values its evaluation may visit: the sizes of all variables, counted once for each use. No operation in
    /// an expression multiplies them.
    pub fn cost(&self, params: &BTreeMap<String, usize>, matrix: usize) -> usize {
        let path = |path: &Path| match (path.root.name.as_str(), path.steps.first()) {
            ("params", Some(step)) => params.get(step.name.as_str()).copied().unwrap_or(1),
            ("params", None) => params.values().sum(),
            ("matrix" | "each", _) => matrix,
            _ => 1,
        };
        4 + self.paths.iter().map(path).fold(0, usize::saturating_add)
    }

    /// Whether its value is known only when other tasks have run.
    pub fn waits(&self) -> bool {
        let path = |path: &Path| match path.root.name.as_str() {
            "needs" => true,
            "each" => {
                let step = path.steps.iter().find(|step| step.name != "each");
                step.is_none_or(|step| matches!(step.name.as_str(), "outputs" | "metrics" | "result"))
            }
            _ => false,
        };
        self.asks_for_status() || self.paths.iter().any(path)
    }

    /// Whether it calls `success()`, `failure()`, `always()` or `cancelled()`.
    pub fn asks_for_status(&self) -> bool {
        self.functions.iter().any(|function| language::STATUS_FUNCTIONS.contains(&function.name.as_str()))
    }

    fn evaluate<T>(
        &self,
        scope: &minijinja::Value,
        convert: fn(&minijinja::Value) -> Result<T, minijinja::Error>,
    ) -> Result<T, EvaluationError> {
        let notes = scope.get_attr(NOTES).ok().and_then(|notes| notes.downcast_object::<Notes>());
        // A missing result of an earlier expression does not explain an error of this expression.
        let take_missing = || notes.as_ref().and_then(|notes| notes.take_missing());
        take_missing();
        let value = self.code.eval(scope.clone());
        value.and_then(|value| convert(&value)).map_err(|error| {
            let missing = take_missing().filter(|_| error.kind() == ErrorKind::UndefinedError);
            match missing {
                Some((message, hint)) => EvaluationError { span: self.span, message, hint },
                None => self.explain(&error),
            }
        })
    }

    fn explain(&self, error: &minijinja::Error) -> EvaluationError {
        let detail = error.detail().unwrap_or("");
        let (message, hint) = match error.kind() {
            ErrorKind::OutOfFuel => ("the expression takes too long".to_owned(), None),
            ErrorKind::UndefinedError => {
                let names: Vec<_> = self.paths.iter().map(Path::text).collect();
                let names = if names.is_empty() { "its result".to_owned() } else { suggest::list(&names) };
                let hint = match self.waits() {
                    true => "the task that it comes from did not produce this value; see the log of that task",
                    false => "give it a value everywhere, or write `NAME | default(VALUE)`",
                };
                (format!("the expression has no value: {names} is not defined here"), Some(hint.to_owned()))
            }
            _ if detail.is_empty() => (error.kind().to_string(), None),
            _ => (language::reworded(detail), None),
        };
        EvaluationError { span: self.span, message, hint }
    }
}

impl Path {
    /// The path as a text, approximately as written.
    pub fn text(&self) -> String {
        let steps = self.steps.iter().map(|step| format!(".{}", step.name)).collect::<String>();
        let open = if self.open { "[..]" } else { "" };
        format!("{}{steps}{open}", self.root.name)
    }

    /// The steps' names.
    pub fn names(&self) -> Vec<&str> {
        self.steps.iter().map(|step| step.name.as_str()).collect()
    }
}

/// The position of an expression.
struct Place<'a> {
    source: &'a Source,
    node: &'a Node,
    /// The scalar's value.
    text: &'a str,
    /// The start of the expression in the value, after `${{`, in bytes.
    offset: usize,
    /// Whether it is between `${{` and `}}`.
    marked: bool,
}

impl Place<'_> {
    /// The span of some bytes of the expression, `before` bytes after the start of its `${{`; the whole scalar if it cannot be
    /// found, as in a text with escapes.
    fn span(&self, before: usize, from: usize, to: usize) -> Span {
        let start = if self.marked { self.offset - 3 + before } else { self.offset } + from;
        let wanted = self.text.get(start..start + (to - from)).unwrap_or_default();
        let length = wanted.chars().count();
        let raw = self.source.slice(self.node.span);
        let Some(offset) = raw_offset(raw, self.text, start) else { return self.node.span };
        let span = self.source.within(self.node.span, offset, length);
        if self.source.slice(span) == wanted { span } else { Span { length: 3, ..self.whole_or(span) } }
    }

    /// An expression over several lines is underlined at its start; any other mismatch is underlined as a whole.
    fn whole_or(&self, span: Span) -> Span {
        if self.source.slice(Span { length: 3, ..span }) == "${{" { span } else { self.node.span }
    }

    fn name(&self, step: &Step) -> Name {
        Name { name: step.name.clone(), span: self.span(3, step.at.start, step.at.end) }
    }
}

/// The number of source characters before a position of the value: escapes, folds and indentation differ.
fn raw_offset(raw: &str, text: &str, start: usize) -> Option<usize> {
    let raw: Vec<char> = raw.chars().collect();
    let mut at = match raw.first()? {
        '\'' | '"' => 1,
        '|' | '>' => raw.iter().position(|c| *c == '\n')?,
        _ => 0,
    };
    for c in text.get(..start)?.chars() {
        while *raw.get(at)? != c {
            let folded = c == ' ' && matches!(raw[at], '\n' | '\r');
            if folded {
                break;
            }
            // A quote or a backslash before the character, or blanks that were removed by folding.
            at += 1;
        }
        at += 1;
    }
    while text.get(start..)?.chars().next()? != *raw.get(at)? {
        at += 1;
    }
    Some(at)
}

/// Compiles one expression, or returns the problem.
fn compile(place: &Place<'_>, text: &str, tokens: &[Token], log: &mut Log) -> Option<Computed> {
    let whole = place.span(0, 0, text.len() + if place.marked { 5 } else { 0 });
    let mut refuse = |span: Span, message: String, hint: Option<String>| {
        log.report(span, message, hint);
    };
    if tokens.is_empty() {
        refuse(whole, "the expression is empty".into(), Some("write a name, such as `${{ params.seed }}`".into()));
        return None;
    }
    if text.len() > MAX_LENGTH {
        let hint = "compute it in parts, through `params`".to_owned();
        refuse(whole, format!("an expression has at most {MAX_LENGTH} bytes, this one {}", text.len()), Some(hint));
        return None;
    }
    if tokens.len() > MAX_WORDS || token::depth(tokens) > MAX_BRACKETS {
        let hint = "compute it in parts, through `params`".to_owned();
        let message =
            format!("an expression has at most {MAX_WORDS} words, and {MAX_BRACKETS} brackets in one another");
        refuse(whole, message, Some(hint));
        return None;
    }
    if let Some(token) = tokens.iter().find(|token| token.kind == Kind::Stray) {
        let span = place.span(3, token.at.start, token.at.end);
        let written = text[token.at.clone()].to_owned();
        let (message, hint) = foreign(&written);
        refuse(span, message, hint);
        return None;
    }
    let names = token::names(tokens);
    let wrong = unknown_words(&names);
    for (at, message, hint) in &wrong {
        refuse(place.span(3, at.start, at.end), message.clone(), hint.clone());
    }
    if !wrong.is_empty() {
        return None;
    }
    let guarded = token::guard_products(text, tokens, language::NUMBER);
    match LANGUAGE.compile_expression_owned(guarded) {
        Ok(code) => {
            let all = |steps: &[Step]| steps.iter().map(|step| place.name(step)).collect::<Vec<Name>>();
            let path = |path: &token::Path| Path {
                root: place.name(&path.root),
                steps: all(&path.steps),
                open: path.open,
                best: path.best.as_ref().map(|best| Best {
                    metric: best.metric.as_ref().map(|metric| place.name(metric)),
                    mode: best.mode,
                    steps: all(&best.steps),
                }),
            };
            let paths = names.paths.iter().map(path).collect();
            let functions = all(&names.functions);
            Some(Computed { span: whole, paths, functions, text: text.to_owned(), code })
        }
        Err(error) => {
            let detail = error.detail().unwrap_or("syntax error").to_owned();
            refuse(whole, format!("the expression cannot be read: {detail}"), None);
            None
        }
    }
}

/// Compiles a rewritten expression at the position of the original one.
fn compile_snippet(snippet: Snippet, span: Span, log: &mut Log) -> Option<Computed> {
    let Snippet { text, paths, functions } = snippet;
    let (tokens, _) = token::scan(&text);
    if tokens.len() > MAX_REWRITTEN || token::depth(&tokens) > 2 * MAX_BRACKETS {
        let hint = "compute it in parts: a parameter for each, or a job of its own".to_owned();
        log.report(span, "the expression is too long with the parameters of its workflow filled in", hint);
        return None;
    }
    match LANGUAGE.compile_expression_owned(token::guard_products(&text, &tokens, language::NUMBER)) {
        Ok(code) => Some(Computed { span, paths, functions, text, code }),
        Err(error) => {
            let detail = error.detail().unwrap_or("syntax error");
            log.report(span, format!("the expression cannot be read with its parameters filled in: {detail}"), None);
            None
        }
    }
}

/// Operators of other languages.
fn foreign(written: &str) -> (String, Option<String>) {
    let hint = match written.chars().next() {
        Some('&') => Some("write `and`"),
        Some('!') => Some("write `not`"),
        Some('"' | '\'') => Some("close the quote"),
        Some('$') => Some("inside `${{ }}`, write names without `$`"),
        Some('?') => Some("write `A if CONDITION else B`"),
        _ => None,
    };
    (format!("`{}` is not valid in an expression", crate::scalar::shorten(written, 20)), hint.map(str::to_owned))
}

type Wrong = (std::ops::Range<usize>, String, Option<String>);

/// Functions, filters and tests that do not exist.
fn unknown_words(names: &Names) -> Vec<Wrong> {
    let groups = [
        (&names.functions, language::FUNCTIONS, "function"),
        (&names.filters, language::FILTERS, "filter"),
        (&names.tests, language::TESTS, "test"),
    ];
    let mut wrong = Vec::new();
    for (used, known, what) in groups {
        for step in used.iter().filter(|step| !known.contains(&step.name.as_str())) {
            let hint = match (what, suggest::nearest(&step.name, known.iter().copied())) {
                (_, Some(name)) => format!("did you mean `{name}`?"),
                ("function", None) if language::FILTERS.contains(&step.name.as_str()) => {
                    format!("`{0}` is a filter: write `VALUE | {0}`", step.name)
                }
                (_, None) => format!("known {what}s: {}", suggest::list(known)),
            };
            wrong.push((step.at.clone(), format!("unknown {what} `{}`", step.name), Some(hint)));
        }
    }
    for at in &names.slices {
        let hint = "use `first`, `last` or an index such as `[0]`".to_owned();
        wrong.push((at.clone(), "slices are not supported in expressions".into(), Some(hint)));
    }
    wrong
}
