//! The file's text, and places in it.

use crate::problem::{Problem, Problems};

/// A file as it was given. Kept with the workflow, so that what goes wrong later can still point into it.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    file: String,
    text: String,
    /// Where each line begins, in bytes.
    lines: Vec<usize>,
}

/// A stretch of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Span {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// In characters; it may reach over the ends of lines.
    pub length: usize,
}

impl Span {
    /// From the beginning of this one to the end of another on the same line.
    pub fn to(self, end: Span) -> Span {
        if self.line != end.line || end.column < self.column {
            return self;
        }
        Span { length: end.column + end.length - self.column, ..self }
    }
}

impl Source {
    pub fn new(file: &str, text: &str) -> Self {
        let mut lines = vec![0];
        let bytes = text.as_bytes();
        // A lone carriage return ends a line in YAML.
        for (at, &byte) in bytes.iter().enumerate() {
            if byte == b'\n' || (byte == b'\r' && bytes.get(at + 1) != Some(&b'\n')) {
                lines.push(at + 1);
            }
        }
        Source { file: file.to_owned(), text: text.to_owned(), lines }
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// A line without its end, counted from 1; empty where there is none.
    pub fn line(&self, number: usize) -> &str {
        let from = number.checked_sub(1).and_then(|index| self.lines.get(index)).copied();
        let to = self.lines.get(number).copied().unwrap_or(self.text.len());
        let line = from.and_then(|from| self.text.get(from..to)).unwrap_or_default();
        line.trim_end_matches(['\n', '\r'])
    }

    /// The text of a span, as it was written.
    pub fn slice(&self, span: Span) -> &str {
        let Some(&line) = span.line.checked_sub(1).and_then(|index| self.lines.get(index)) else { return "" };
        let rest = self.text.get(line..).unwrap_or_default();
        let rest = skip_chars(rest, span.column.saturating_sub(1));
        let left = skip_chars(rest, span.length);
        rest.get(..rest.len() - left.len()).unwrap_or_default()
    }

    /// The span of `length` characters that begins `offset` characters after the beginning of another.
    pub fn within(&self, span: Span, offset: usize, length: usize) -> Span {
        let (mut line, mut column) = (span.line, span.column);
        let mut chars = self.slice(span).chars().peekable();
        for _ in 0..offset {
            match chars.next() {
                Some('\r') if chars.peek() == Some(&'\n') => column += 1,
                Some('\n' | '\r') => (line, column) = (line + 1, 1),
                Some(_) => column += 1,
                None => break,
            }
        }
        Span { line, column, length }
    }

    /// Something wrong at a place.
    pub fn problem(&self, span: Span, message: impl Into<String>, hint: Option<String>) -> Problem {
        let source = self.line(span.line);
        let room = source.chars().count().saturating_sub(span.column.saturating_sub(1));
        Problem {
            line: span.line,
            column: span.column,
            length: span.length.min(room).max(1),
            message: message.into(),
            hint,
            source: source.to_owned(),
        }
    }

    /// All that is wrong with this file.
    pub fn problems(&self, problems: Vec<Problem>) -> Problems {
        Problems::new(&self.file, problems)
    }
}

fn skip_chars(text: &str, count: usize) -> &str {
    match text.char_indices().nth(count) {
        Some((at, _)) => text.get(at..).unwrap_or_default(),
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_yaml_has_it() {
        let source = Source::new("f", "a\r\nbé\rc\n\nd");
        let lines: Vec<_> = (0..8).map(|n| source.line(n)).collect();
        assert_eq!(lines, ["", "a", "bé", "c", "", "d", "", ""]);
    }

    #[test]
    fn a_place_within_a_span_may_be_lines_below() {
        let source = Source::new("f", "k: |\n  éa\n  bc\n");
        let span = Span { line: 1, column: 4, length: 12 };
        assert_eq!(source.slice(span), "|\n  éa\n  bc\n");
        assert_eq!(source.within(span, 9, 2), Span { line: 3, column: 3, length: 2 });
        assert_eq!(source.slice(source.within(span, 9, 2)), "bc");
    }

    #[test]
    fn a_problem_never_reaches_beyond_its_line() {
        let source = Source::new("f", "abc\ndef");
        let problem = source.problem(Span { line: 1, column: 2, length: 90 }, "m", None);
        assert_eq!((problem.length, problem.source.as_str()), (2, "abc"));
        assert_eq!(source.problem(Span { line: 9, column: 9, length: 0 }, "m", None).length, 1);
    }
}
