//! `include: other.yaml`: the parameters and jobs of other files. `uses: ./other.yaml`: the workflows that jobs use.
//!
//! The caller supplies the texts. A file that is included in several places counts once.

use std::collections::BTreeMap;

use crate::draft::{Draft, Reader};
use crate::node::{self, Data, Entry, Node};
use crate::problem::Log;
use crate::source::{Source, Span};
use crate::subworkflow::is_workflow_file;

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
    /// The content of the main file and of the files that it includes, which come before it.
    pub roots: Vec<Node>,
    /// The same for each workflow that a job uses, by the name of its file.
    pub workflows: BTreeMap<String, Vec<Node>>,
    /// Whether a file is missing or cannot be parsed.
    pub incomplete: bool,
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
    /// The workflows that jobs of the files in `roots` use: the name as written, with its position, and the name of the file.
    calls: Vec<(String, Span, String)>,
    workflows: BTreeMap<String, Vec<Node>>,
    /// Whether a file names another one.
    names_others: bool,
}

/// Reads a file and all its includes. Problems are added to `log`; returns the roots of readable files.
pub(crate) fn read(file: &str, text: &str, load: Load<'_>, log: &mut Log) -> Files {
    let (parts, names, roots, open, calls, workflows) = Default::default();
    let names_others = false;
    let mut inclusion =
        Inclusion { load, parts, names, lines: 0, bytes: 0, roots, open, calls, workflows, names_others };
    inclusion.file(file, text, log);
    let roots = std::mem::take(&mut inclusion.roots);
    inclusion.called(&mut vec![normalized(file)], log);
    let incomplete = !log.is_empty() && inclusion.names_others;
    Files { source: Source::join(&inclusion.parts), roots, workflows: inclusion.workflows, incomplete }
}

/// The name of a file that is written in another file, relative to the same folder as that file's name.
pub(crate) fn file_beside(file: &str, written: &str) -> String {
    normalized(&beside(file, written))
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
        let jobs = root.get("jobs").and_then(|jobs| match &jobs.value.data {
            Data::Map(jobs) => Some(jobs.as_slice()),
            _ => None,
        });
        for uses in jobs.into_iter().flatten().filter_map(|job| job.value.get("uses")) {
            if let Some(written) = uses.value.as_str().filter(|uses| is_workflow_file(uses)) {
                self.names_others = true;
                self.calls.push((written.to_owned(), uses.value.span, normalized(&beside(&name, written))));
            }
        }
        self.open.push(name);
        if let Some(entry) = root.get("include") {
            self.names_others = true;
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
        if self.open.len() > MAX_DEPTH {
            let message = format!("`{written}` is one file too many: at most {MAX_DEPTH} in a row are included");
            log.report(span, message, "put several of them into one file".to_owned());
            return;
        }
        if let Some(text) = self.load_file(written, &name, span, "include", log) {
            self.file(&name, &text, log);
        }
    }

    /// The text of a file; `None`, with a problem, if it cannot be read or is too much.
    fn load_file(&mut self, written: &str, name: &str, span: Span, verb: &str, log: &mut Log) -> Option<String> {
        if self.parts.len() >= MAX_FILES {
            let message = format!("`{written}` is one file too many: a workflow has at most {MAX_FILES}");
            log.report(span, message, "put several of them into one file".to_owned());
            return None;
        }
        match (self.load)(name) {
            Ok(text) if self.bytes + text.len() > MAX_TOTAL => {
                let message = format!("with `{written}` the workflow has more than {MAX_TOTAL} bytes (4 MiB)");
                log.report(span, message, format!("{verb} less"));
                None
            }
            Ok(text) => Some(text),
            Err(why) => {
                let hint = format!("it is looked for as `{name}`, relative to the file that names it");
                log.report(span, format!("cannot {verb} `{written}`: {why}"), hint);
                None
            }
        }
    }

    /// Reads the workflows that jobs of the last files use. `above` are the files that lead to these.
    fn called(&mut self, above: &mut Vec<String>, log: &mut Log) {
        for (written, span, name) in std::mem::take(&mut self.calls) {
            if let Some(at) = above.iter().position(|file| *file == name) {
                let circle: Vec<&str> = above[at..].iter().chain([&name]).map(String::as_str).collect();
                let message = format!("workflows use each other in a cycle: {}", circle.join(" -> "));
                log.report(span, message, "remove one of these `uses`".to_owned());
                continue;
            }
            if self.workflows.contains_key(&name) {
                continue;
            }
            let Some(text) = self.load_file(&written, &name, span, "use", log) else { continue };
            // A file that the main file includes may be included here again: the names of this workflow are its own.
            self.names.clear();
            self.file(&name, &text, log);
            let roots = std::mem::take(&mut self.roots);
            self.workflows.insert(name.clone(), roots);
            above.push(name);
            self.called(above, log);
            above.pop();
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
        let [mut params, mut jobs, mut plugins, mut outputs]: [BTreeMap<String, Span>; 4] = Default::default();
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
            for (name, output) in draft.outputs {
                match outputs.insert(name.name.clone(), name.span) {
                    Some(first) => self.twice("output", &name.name, name.span, first),
                    None => whole.outputs.push((name, output)),
                }
            }
            whole.claims.extend(draft.claims);
            (whole.name, whole.description) = (draft.name, draft.description);
        }
        self.check_jobs(&mut whole, roots);
        whole
    }

    /// Reports a second definition of a name.
    pub fn twice(&mut self, what: &str, name: &str, span: Span, first: Span) {
        let (file, line) = self.source.place_of(first.line);
        let hint = format!("it is in {file}:{line}:{}, too: rename or remove one of them", first.column);
        self.report(span, format!("the {what} `{name}` is defined twice"), hint);
    }
}
