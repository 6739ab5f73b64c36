//! Problems of a file, with their positions and hints.

use std::fmt;

use serde::Serialize;

use crate::printable::{is_hidden, printable, printable_lines};
use crate::source::{Source, Span};

/// The maximum number of listed problems; of the rest, only the number is given.
const MOST: usize = 200;

/// The maximum number of problems that are stored while a file is read.
const MOST_KEPT: usize = 10_000;

/// The widest source line that is shown as a whole, in characters; of a longer line, the part around the problem is shown.
const WIDEST: usize = 160;

/// A problem of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The file: the workflow file, or one that it includes.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// The length of the span in characters, at least 1; never beyond the end of the line.
    pub length: usize,
    /// What is wrong: a lower-case fragment that quotes the offending text.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
    /// The source line without its line break; of a very long line, the part around the problem.
    pub source: String,
    /// The number of characters of the line before `source`; 0 unless the line is very long.
    pub skipped: usize,
}

/// All problems of a file, sorted by position. Its `Display` is for a terminal:
///
/// ```text
/// sweep.yaml:7:12: unknown job `dta`
///   |     needs: [dta]
///   |             ^^^
///   = help: did you mean `data`?
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problems {
    /// The file name that was passed to [`check`](crate::check).
    pub file: String,
    /// At most 200. Never empty if a file was refused.
    pub problems: Vec<Problem>,
    /// The number of problems that are not listed.
    pub omitted: usize,
}

impl std::error::Error for Problems {}

impl Problem {
    fn new(complaint: Complaint, source: &Source) -> Self {
        let Complaint { span, message, hint } = complaint;
        let before = span.column.saturating_sub(1);
        let (line, skipped) = source.window(span.line, before, WIDEST);
        let room = line.chars().count().saturating_sub(before - skipped);
        let (file, number) = source.place_of(span.line);
        Problem {
            file: file.to_owned(),
            line: number,
            column: span.column,
            length: span.length.min(room).max(1),
            message,
            hint,
            source: line.to_owned(),
            skipped,
        }
    }

    /// Formats it as in [`Problems`].
    fn render(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}:{}: {}", printable(&self.file), self.line, self.column, printable_lines(&self.message))?;
        if !self.source.trim().is_empty() {
            let number = self.line.to_string();
            let margin = " ".repeat(number.len());
            let shown: String = self.source.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
            // Wide characters would take two columns each; the caret is right for all other characters.
            let indent = " ".repeat(self.column.saturating_sub(1).saturating_sub(self.skipped));
            writeln!(f, " {margin} |")?;
            writeln!(f, " {number} | {shown}")?;
            writeln!(f, " {margin} | {indent}{}", "^".repeat(self.length))?;
        }
        match &self.hint {
            Some(hint) => writeln!(f, "  help: {}", printable_lines(hint)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            problem.render(f)?;
        }
        if self.omitted > 0 {
            writeln!(f, "\n{}: and {} more", printable(&self.file), self.omitted)?;
        }
        Ok(())
    }
}

/// A problem at a position, before the source line is looked up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Complaint {
    pub span: Span,
    pub message: String,
    pub hint: Option<String>,
}

/// All problems so far, with a limited size.
#[derive(Debug, Default)]
pub(crate) struct Log {
    kept: Vec<Complaint>,
    count: usize,
}

impl Log {
    pub fn report(&mut self, span: Span, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.add(Complaint { span, message: message.into(), hint: hint.into() });
    }

    pub fn add(&mut self, complaint: Complaint) {
        self.count += 1;
        if self.kept.len() < MOST_KEPT {
            self.kept.push(complaint);
        }
    }

    /// The number of reported problems; it grows even when no more are stored.
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends the problems of another log, moved down by `lines`.
    pub fn append(&mut self, other: Log, lines: usize) {
        self.count += other.count;
        let room = MOST_KEPT.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.into_iter().take(room).map(|mut complaint| {
            complaint.span.line += lines;
            complaint
        }));
    }

    /// The stored problems that were reported since the count was `before`.
    pub fn since(&mut self, before: usize) -> &mut [Complaint] {
        self.kept.get_mut(before..).unwrap_or_default()
    }

    /// Sorts the problems, removes duplicates, and looks up the source lines.
    pub fn into_problems(mut self, source: &Source) -> Problems {
        let lost = self.count - self.kept.len();
        self.kept.sort();
        self.kept.dedup();
        let omitted = lost + self.kept.len().saturating_sub(MOST);
        self.kept.truncate(MOST);
        let problems = self.kept.into_iter().map(|complaint| Problem::new(complaint, source)).collect();
        Problems { file: source.file().to_owned(), problems, omitted }
    }
}
