//! YAML as a tree in which every value has its position in the file.
//!
//! YAML 1.2 with its core schema, without features that are dangerous or surprising: merge keys, tags other than
//! `!!str`, numbers with leading zeros, several documents. Anchors and aliases work, within a budget that is checked
//! before an alias is expanded: nested aliases cannot exceed it.

use std::collections::{BTreeMap, BTreeSet};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, StrInput, Tag};
use serde_json::Value;

use crate::problem::{Complaint, Log};
use crate::scalar;
use crate::source::{Source, Span};

/// The size limit of a file, in bytes.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// The maximum number of values in a file, with aliases expanded.
pub(crate) const MAX_NODES: usize = 100_000;
/// The limit of all text in a file, with aliases expanded, in bytes.
const MAX_TEXT: usize = 4 << 20;
/// The length limit of a single text, in bytes.
const MAX_SCALAR: usize = 64 << 10;
/// The maximum nesting depth of values.
const MAX_DEPTH: usize = 64;
/// The maximum number of open brackets. The scanner's time is quadratic in this number.
const MAX_BRACKETS: usize = 256;

/// A value with its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    /// The position in the file. The result of an expression has the position of the expression.
    pub span: Span,
    pub data: Data,
    /// Whether it is the result of an expression.
    pub computed: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    /// Null, a boolean, a number or a string; never a list or an object.
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<Entry>),
    /// The result of an expression that depends on other tasks.
    Unknown,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub key_span: Span,
    pub value: Node,
}

impl Node {
    /// The entry of a map with this key; `None` for any other value.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        match &self.data {
            Data::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match &self.data {
            Data::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The value without positions. [`Data::Unknown`] becomes `unknown`.
    pub fn to_value(&self, unknown: &Value) -> Value {
        match &self.data {
            Data::Scalar(value) => value.clone(),
            Data::List(items) => items.iter().map(|item| item.to_value(unknown)).collect(),
            Data::Map(entries) => {
                Value::Object(entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value(unknown))).collect())
            }
            Data::Unknown => unknown.clone(),
        }
    }

    /// A computed value, at the position of its expression.
    pub fn computed(value: &Value, span: Span) -> Node {
        let data = match value {
            Value::Array(items) => Data::List(items.iter().map(|item| Node::computed(item, span)).collect()),
            Value::Object(map) => Data::Map(
                map.iter()
                    .map(|(key, value)| Entry { key: key.clone(), key_span: span, value: Node::computed(value, span) })
                    .collect(),
            ),
            scalar => Data::Scalar(scalar.clone()),
        };
        Node { span, data, computed: true }
    }

    /// Moves it down by this many lines.
    pub fn shift(&mut self, lines: usize) {
        self.span.line += lines;
        match &mut self.data {
            Data::List(items) => items.iter_mut().for_each(|item| item.shift(lines)),
            Data::Map(entries) => {
                for entry in entries {
                    entry.key_span.line += lines;
                    entry.value.shift(lines);
                }
            }
            Data::Scalar(_) | Data::Unknown => {}
        }
    }

    /// Its name in messages.
    pub fn describe(&self) -> String {
        match &self.data {
            Data::Scalar(value) => scalar::describe(value),
            Data::List(items) if items.is_empty() => "an empty list".into(),
            Data::List(_) => "a list".into(),
            Data::Map(_) => "a mapping".into(),
            Data::Unknown => "a value that is not known yet".into(),
        }
    }
}

/// Reads a file. Problems are added to `log`; `None` if the file cannot be parsed at all.
pub(crate) fn parse(source: &Source, log: &mut Log) -> Option<Node> {
    if let Err(problem) = refuse_at_sight(source) {
        log.add(*problem);
        return None;
    }
    let mut reader = Reader {
        source,
        parser: Parser::new_from_str(source.text()),
        log,
        anchors: BTreeMap::new(),
        open: BTreeSet::new(),
        nodes: 0,
        kept: 0,
        text: 0,
    };
    match reader.document() {
        Ok(node) => Some(node),
        Err(problem) => {
            log.add(*problem);
            None
        }
    }
}

/// Limits that are checked before parsing.
fn refuse_at_sight(source: &Source) -> Result<(), Box<Complaint>> {
    let text = source.text();
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes, and at most {MAX_BYTES} (1 MiB) are read", text.len());
        return Err(complaint(Span::START, &message, Some("is this a workflow file?")));
    }
    let (mut open, mut line, mut column) = (0_usize, 1, 0);
    for c in text.chars() {
        column += 1;
        match c {
            '[' | '{' => open += 1,
            ']' | '}' => open = open.saturating_sub(1),
            '\n' => (line, column) = (line + 1, 0),
            _ => {}
        }
        if open > MAX_BRACKETS {
            let span = Span { line, column, length: 1 };
            let message = format!("more than {MAX_BRACKETS} brackets are open here");
            return Err(complaint(span, &message, Some("close some of them first")));
        }
    }
    Ok(())
}

fn complaint(span: Span, message: &str, hint: Option<&str>) -> Box<Complaint> {
    Box::new(Complaint { span, message: message.to_owned(), hint: hint.map(str::to_owned) })
}

/// A finished anchored value: the value of an alias, and its cost.
struct Anchored {
    node: Node,
    nodes: usize,
    text: usize,
    depth: usize,
}

struct Reader<'a, 'p> {
    source: &'a Source,
    parser: Parser<'a, StrInput<'a>>,
    log: &'p mut Log,
    anchors: BTreeMap<usize, Anchored>,
    /// Anchors whose values are not finished.
    open: BTreeSet<usize>,
    /// The number of values so far, with aliases expanded.
    nodes: usize,
    /// The number of values stored for aliases so far.
    kept: usize,
    /// Bytes of text so far, with aliases expanded.
    text: usize,
}

type Fatal<T> = Result<T, Box<Complaint>>;

impl<'a> Reader<'a, '_> {
    fn document(&mut self) -> Fatal<Node> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentStart(_) => {}
                Event::StreamEnd => {
                    let hint = "start with `jobs:`; `assay schema` prints what a workflow file may contain";
                    return Err(self.fatal(Span::START, "the file is empty", Some(hint)));
                }
                event => {
                    let node = self.node(event, span, 0)?;
                    self.end()?;
                    return Ok(node);
                }
            }
        }
    }

    /// Only the end may follow the first document.
    fn end(&mut self) -> Fatal<()> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(()),
                Event::DocumentStart(_) => {
                    let hint = "a file contains one workflow: move the text after `---` to a separate file";
                    return Err(self.fatal(Span { length: 3, ..span }, "a second document begins here", Some(hint)));
                }
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Fatal<(Event<'a>, Span)> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                let length = span.end.index().saturating_sub(span.start.index());
                Ok((event, Span { line: span.start.line(), column: span.start.col() + 1, length }))
            }
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Err(self.fatal(Span::START, "the file ends too early", None)),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Fatal<Node> {
        self.charge(1, 0, span)?;
        if depth >= MAX_DEPTH {
            let message = format!("values are nested more than {MAX_DEPTH} deep");
            return Err(self.fatal(span, &message, None));
        }
        let before = (self.nodes - 1, self.text);
        let (anchor, node) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, self.scalar(&text, style, tag.as_deref(), span)?),
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                self.open.insert(anchor);
                (anchor, self.list(span, depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span);
                self.open.insert(anchor);
                (anchor, self.map(span, depth)?)
            }
            Event::Alias(anchor) => return self.alias(anchor, span, depth),
            _ => return Err(self.fatal(span, "a value is missing here", None)),
        };
        if anchor != 0 {
            self.open.remove(&anchor);
            let (nodes, text) = (self.nodes - before.0, self.text - before.1);
            let depth = depth_of(&node);
            // Nested anchors store a copy each, so these copies count too.
            self.kept = self.kept.saturating_add(nodes);
            if self.kept > MAX_NODES {
                let message = format!("the values behind anchors are more than {MAX_NODES} in all");
                return Err(self.fatal(span, &message, Some("write a sweep as a matrix, not as copies")));
            }
            self.anchors.insert(anchor, Anchored { node: node.clone(), nodes, text, depth });
        }
        Ok(node)
    }

    fn list(&mut self, start: Span, depth: usize) -> Fatal<Node> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                let span = self.container_span(start, span, items.first().map(|item: &Node| item.span));
                return Ok(Node { span, data: Data::List(items), computed: false });
            }
            items.push(self.node(event, span, depth + 1)?);
        }
    }

    fn map(&mut self, start: Span, depth: usize) -> Fatal<Node> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut known: BTreeMap<String, Span> = BTreeMap::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                let span = self.container_span(start, span, entries.first().map(|entry| entry.key_span));
                return Ok(Node { span, data: Data::Map(entries), computed: false });
            }
            let key = self.key(event, span, depth + 1)?;
            let (event, value_span) = self.next()?;
            let value = self.node(event, value_span, depth + 1)?;
            let Some(key) = key else { continue };
            if let Some(first) = known.get(&key) {
                let hint = format!("it is given first on line {}; keep one of them", first.line);
                self.report(span, format!("the key `{key}` is given twice"), Some(hint));
                continue;
            }
            known.insert(key.clone(), span);
            entries.push(Entry { key, key_span: span, value });
        }
    }

    /// A key; `None` if it is invalid.
    fn key(&mut self, event: Event<'a>, span: Span, depth: usize) -> Fatal<Option<String>> {
        let Event::Scalar(text, style, anchor, tag) = event else {
            self.node(event, span, depth)?;
            self.report(span, "a key must be a plain text", Some("write `key: value`".into()));
            return Ok(None);
        };
        self.charge(1, text.len(), span)?;
        self.refuse_tag(tag.as_deref(), span);
        if anchor != 0 {
            self.report(span, "an anchor on a key does nothing", Some("move it behind the colon".into()));
        }
        if text == "<<" && style == ScalarStyle::Plain {
            let hint = "YAML 1.2 has none: write the keys out, or give the whole value an anchor and use `*name`";
            self.report(span, "merge keys (`<<`) are not supported", Some(hint.into()));
            return Ok(None);
        }
        if text.contains("${{") {
            let message = format!("an expression cannot be a key: `{text}`");
            self.report(span, message, Some("only values are computed; write the key out".into()));
            return Ok(None);
        }
        Ok(Some(text.into_owned()))
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Fatal<Node> {
        self.charge(0, text.len(), span)?;
        if text.len() > MAX_SCALAR {
            let message = format!("this text has {} bytes, and at most {MAX_SCALAR} (64 KiB) are read", text.len());
            return Err(self.fatal(span, &message, Some("put long texts into a separate file")));
        }
        let textual = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
        if !textual {
            self.refuse_tag(tag, span);
        }
        let value = if textual || style != ScalarStyle::Plain {
            Value::from(text)
        } else {
            scalar::resolve(text).unwrap_or_else(|(message, hint)| {
                self.report(span, message, Some(hint));
                Value::Null
            })
        };
        Ok(Node { span, data: Data::Scalar(value), computed: false })
    }

    fn alias(&mut self, anchor: usize, span: Span, depth: usize) -> Fatal<Node> {
        if self.open.contains(&anchor) {
            return Err(self.fatal(span, "this alias is inside the value that it repeats", None));
        }
        let Some(known) = self.anchors.get(&anchor) else {
            return Err(self.fatal(span, "this alias has no anchor", None));
        };
        let (nodes, text, below) = (known.nodes, known.text, known.depth);
        // Before the copy is made: a value that exceeds the budget is never built.
        self.charge(nodes.saturating_sub(1), text, span)?;
        if depth + below > MAX_DEPTH {
            let message = format!("with this alias values are nested more than {MAX_DEPTH} deep");
            return Err(self.fatal(span, &message, None));
        }
        self.anchors.get(&anchor).map(|known| known.node.clone()).ok_or_else(|| self.fatal(span, "no anchor", None))
    }

    /// Counts values before they are built.
    fn charge(&mut self, nodes: usize, text: usize, span: Span) -> Fatal<()> {
        self.nodes = self.nodes.saturating_add(nodes);
        self.text = self.text.saturating_add(text);
        if self.nodes > MAX_NODES || self.text > MAX_TEXT {
            let message = format!("here the file has more than {MAX_NODES} values or 4 MiB of text, aliases expanded");
            return Err(self.fatal(span, &message, Some("write a sweep as a matrix, not as copies")));
        }
        Ok(())
    }

    /// The span that a message underlines for a list or mapping: all of it if it is in brackets on one line, otherwise its start.
    fn container_span(&self, start: Span, end: Span, first: Option<Span>) -> Span {
        if self.source.slice(Span { length: 1, ..start }).starts_with(['[', '{']) {
            return if start.line == end.line { start.to(end) } else { Span { length: 1, ..start } };
        }
        first.unwrap_or(Span { length: 1, ..start })
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, span: Span) {
        if let Some(tag) = tag {
            let hint = "leave it out; put a number that is a text into quotes";
            let name = if tag.is_yaml_core_schema() { format!("!!{}", tag.suffix) } else { tag.to_string() };
            self.report(span, format!("the tag `{name}` has no meaning here"), Some(hint.into()));
        }
    }

    fn report(&mut self, span: Span, message: impl Into<String>, hint: Option<String>) {
        self.log.report(span, message, hint);
    }

    fn fatal(&self, span: Span, message: &str, hint: Option<&str>) -> Box<Complaint> {
        complaint(span, message, hint)
    }

    /// The parser's message, rephrased for common mistakes.
    fn syntax(&self, error: &ScanError) -> Box<Complaint> {
        let mark = error.marker();
        let mut span = Span { line: mark.line().max(1), column: mark.col() + 1, length: 1 };
        let info = error.info();
        let said = |part: &str| info.contains(part);
        let (message, hint) = if said("tabs disallowed") || said("a tab") || said("tab cannot") {
            // The scanner has already passed it.
            let (line, _) = self.source.window(span.line, 0, 160);
            let before = line.chars().position(|c| c == '\t');
            span.column = before.map_or(span.column, |at| at + 1);
            ("a tab is used where YAML requires spaces", "indent with spaces")
        } else if said("unknown anchor") {
            ("this alias has no anchor before it", "write `&name` before the value that it repeats")
        } else if said("quoted scalar, found unexpected end") || said("indentation in quoted scalar") {
            ("a quote is opened here and never closed", "close it on the same line")
        } else if said("expected ',' or ']'") || said("expected ',' or '}'") || said("flow construct") {
            ("a bracket before this place is not closed", "close it, or put a comma between the values")
        } else if said("simple key expect") {
            ("a key without a colon", "write `key: value`")
        } else if said("block mapping, did not find expected key") || said("block collection") || said("indentation") {
            ("this line does not fit the lines above", "indent it like its neighbours")
        } else if said("mapping values are not allowed") {
            ("a second `: ` in one line", "put the text that contains `: ` into quotes")
        } else if said("unknown escape") {
            ("no such escape", "use single quotes for texts with backslashes")
        } else {
            (info, "see https://yaml.org/spec/1.2.2 for the syntax, or compare with a shipped workflow")
        };
        complaint(span, &format!("not valid YAML: {message}"), Some(hint))
    }
}

fn depth_of(node: &Node) -> usize {
    let deepest = match &node.data {
        Data::List(items) => items.iter().map(depth_of).max(),
        Data::Map(entries) => entries.iter().map(|entry| depth_of(&entry.value)).max(),
        Data::Scalar(_) | Data::Unknown => None,
    };
    1 + deepest.unwrap_or(0)
}
