//! `include: other.yaml`: the parameters and jobs of other files.
//!
//! The caller supplies the texts. A file that is included in several places counts once.

use std::collections::BTreeMap;

use crate::draft::{Draft, Reader};
use crate::node::{self, Data, Entry, Node};
use crate::problem::Log;
use crate::source::{Source, Span};

/// The maximum depth of nested includes.
const MAX_DEPTH: usize = 8;
/// The maximum number of files of a workflow.
const MAX_FILES: usize = 64;
/// The limit of the total size of a workflow's files, in bytes.
const MAX_TOTAL: usize = 4 << 20;

/// Returns the text of a file by its name, or the reason of a failure as a lower-case fragment.
pub type Load<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// The parsed files of a workflow.
pub(crate) struct Files {
    pub source: Source,
    /// The content of each file, in the order of `source`; included files come before the files that include them.
    pub roots: Vec<Node>,
}

/// The state of reading: the files that were read, and those that are being read.
struct Inclusion<'a> {
    load: Load<'a>,
    /// The files so far, by name: each file has a single name.
    parts: Vec<Source>,
    names: Vec<String>,
    /// Lines of all parts.
    lines: usize,
    bytes: usize,
    /// The content of each readable file, in the order in which the files apply.
    roots: Vec<Node>,
    /// The names of the current file and of the files that include it.
    open: Vec<String>,
}

/// Reads a file and all its includes. Problems are added to `log`; returns the roots of readable files.
pub(crate) fn read(file: &str, text: &str, load: Load<'_>, log: &mut Log) -> Files {
    let (parts, names, roots, open) = Default::default();
    let mut inclusion = Inclusion { load, parts, names, lines: 0, bytes: 0, roots, open };
    inclusion.file(file, text, log);
    Files { source: Source::join(&inclusion.parts), roots: inclusion.roots }
}

impl Inclusion<'_> {
    fn file(&mut self, file: &str, text: &str, log: &mut Log) {
        let source = Source::new(file, text);
        let name = normalized(file);
        self.names.push(name.clone());
        let (mut own, before) = (Log::default(), self.lines);
        let root = node::parse(&source, &mut own);
        log.append(own, before);
        self.lines += source.line_count();
        self.bytes += text.len();
        self.parts.push(source);
        let Some(mut root) = root else { return };
        root.shift(before);
        self.open.push(name);
        if let Some(entry) = root.get("include") {
            for (written, span) in names(entry, log) {
                self.include(&written, span, log);
            }
        }
        self.open.pop();
        self.roots.push(root);
    }

    fn include(&mut self, written: &str, span: Span, log: &mut Log) {
        let from = self.open.last().map_or("", String::as_str);
        let name = normalized(&beside(from, written));
        if let Some(at) = self.open.iter().position(|open| *open == name) {
            let circle: Vec<&str> = self.open[at..].iter().chain([&name]).map(String::as_str).collect();
            let message = format!("files include each other in a cycle: {}", circle.join(" -> "));
            log.report(span, message, "remove one of these `include`".to_owned());
            return;
        }
        if self.names.contains(&name) {
            return;
        }
        if self.open.len() > MAX_DEPTH || self.parts.len() >= MAX_FILES {
            let message = format!(
                "`{written}` is one file too many: at most {MAX_FILES}, and {MAX_DEPTH} in a row, are included"
            );
            log.report(span, message, "put several of them into one file".to_owned());
            return;
        }
        match (self.load)(&name) {
            Ok(text) if self.bytes + text.len() > MAX_TOTAL => {
                let message = format!("with `{written}` the workflow has more than {MAX_TOTAL} bytes (4 MiB)");
                log.report(span, message, "include less".to_owned());
            }
            Ok(text) => self.file(&name, &text, log),
            Err(why) => {
                let hint = format!("it is looked for as `{name}`, next to the file that includes it");
                log.report(span, format!("cannot include `{written}`: {why}"), hint);
            }
        }
    }
}

/// The names after `include:`, with their positions.
fn names(entry: &Entry, log: &mut Log) -> Vec<(String, Span)> {
    let items = match &entry.value.data {
        Data::List(items) => items.as_slice(),
        _ => std::slice::from_ref(&entry.value),
    };
    let mut names = Vec::new();
    for item in items {
        match item.as_str() {
            Some(text) if !text.is_empty() && !text.contains("${{") => names.push((text.to_owned(), item.span)),
            _ => {
                let message = format!("`include` takes the names of files, not {}", item.describe());
                log.report(item.span, message, "for example `include: [data.yaml]`".to_owned());
            }
        }
    }
    names
}

/// A name relative to the folder of a file.
fn beside(file: &str, written: &str) -> String {
    let is_absolute = written.starts_with('/') || std::path::Path::new(written).is_absolute();
    match file.rfind(['/', std::path::MAIN_SEPARATOR]) {
        Some(end) if !is_absolute => format!("{}{written}", &file[..=end]),
        _ => written.to_owned(),
    }
}

/// A name without `.` and, if possible, without `..`, so that each file has a single name.
fn normalized(name: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "." => {}
            "" if !parts.is_empty() => {}
            ".." if parts.last().is_some_and(|last| !matches!(*last, "" | "..")) => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

impl Reader<'_> {
    /// Parses the files of a workflow and merges them. The name and the description are those of the last file, which is the
    /// workflow file itself.
    pub fn files(&mut self, roots: &[Node]) -> Draft {
        let mut whole = Draft::default();
        let [mut params, mut jobs, mut plugins]: [BTreeMap<String, Span>; 3] = Default::default();
        for root in roots {
            let draft = self.file(root);
            for param in draft.params {
                match params.insert(param.key.clone(), param.key_span) {
                    Some(first) => self.twice("parameter", &param.key, param.key_span, first),
                    None => whole.params.push(param),
                }
            }
            for job in draft.jobs {
                match jobs.insert(job.name.name.clone(), job.name.span) {
                    Some(first) => self.twice("job", &job.name.name, job.name.span, first),
                    None => whole.jobs.push(job),
                }
            }
            for plugin in draft.plugins {
                match plugins.insert(plugin.name.clone(), plugin.span) {
                    Some(first) => self.twice("plugin", &plugin.name, plugin.span, first),
                    None => whole.plugins.push(plugin),
                }
            }
            whole.claims.extend(draft.claims);
            (whole.name, whole.description) = (draft.name, draft.description);
        }
        self.check_jobs(&mut whole, roots);
        whole
    }

    fn twice(&mut self, what: &str, name: &str, span: Span, first: Span) {
        let (file, line) = self.source.place_of(first.line);
        let hint = format!("it is in {file}:{line}:{}, too: rename or remove one of them", first.column);
        self.report(span, format!("the {what} `{name}` is defined twice"), hint);
    }
}
