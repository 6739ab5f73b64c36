//! The file's text, and positions in it.

/// The files as given. They are kept with the workflow, so that later problems can refer to them.
///
/// Lines are numbered across all files, in the order in which the files were read, so that a [`Span`] also determines its file.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// Each file with the number of lines before it.
    files: Vec<(String, usize)>,
    text: String,
    /// The start of each line, in characters.
    lines: Vec<usize>,
    /// The start of each character, in bytes; empty if every character is one byte. Positions are in characters, and
    /// looking one up must not scan a line, which may be the whole file.
    chars: Vec<u32>,
}

/// A span of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Span {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// In characters; the span may include line breaks.
    pub length: usize,
}

impl Span {
    /// The first character of a file.
    pub const START: Span = Span { line: 1, column: 1, length: 1 };

    /// From the start of this span to the end of another on the same line.
    pub fn to(self, end: Span) -> Span {
        if self.line != end.line || end.column < self.column {
            return self;
        }
        Span { length: end.column + end.length - self.column, ..self }
    }
}

impl Source {
    /// Accepts files of less than 4 GiB; larger files are refused before their positions are used.
    pub fn new(file: &str, text: &str) -> Self {
        let mut lines = vec![0];
        let mut chars = text.chars().enumerate().peekable();
        // A single carriage return ends a line in YAML.
        while let Some((at, c)) = chars.next() {
            if c == '\n' || (c == '\r' && chars.peek().is_none_or(|(_, next)| *next != '\n')) {
                lines.push(at + 1);
            }
        }
        let chars = match text.is_ascii() {
            true => Vec::new(),
            false => text.char_indices().map(|(at, _)| u32::try_from(at).unwrap_or(u32::MAX)).collect(),
        };
        Source { files: vec![(file.to_owned(), 0)], text: text.to_owned(), lines, chars }
    }

    /// One source of several files, in this order; the first is the workflow file itself.
    pub fn join(parts: &[Source]) -> Source {
        let (mut files, mut text, mut line) = (Vec::new(), String::new(), 0);
        for part in parts {
            files.extend(part.files.iter().map(|(file, before)| (file.clone(), before + line)));
            text.push_str(&part.text);
            if !part.text.ends_with(['\n', '\r']) {
                text.push('\n');
            }
            line += part.line_count();
        }
        Source { files, ..Source::new("", &text) }
    }

    /// The number of lines, without the empty line after the last line break.
    pub fn line_count(&self) -> usize {
        self.lines.len() - usize::from(self.text.ends_with(['\n', '\r']))
    }

    /// The first file of the workflow.
    pub fn file(&self) -> &str {
        self.files.first().map_or("", |(file, _)| file)
    }

    /// Each file with its text, except the first.
    pub fn included(&self) -> impl Iterator<Item = (&str, &str)> {
        let ends = self.files.iter().skip(2).map(|(_, before)| *before).chain([usize::MAX]);
        let from_line = |before: usize| self.lines.get(before).copied().unwrap_or(usize::MAX);
        let text = move |before: usize, end: usize| self.range(from_line(before), from_line(end));
        self.files.iter().skip(1).zip(ends).map(move |((file, before), end)| (file.as_str(), text(*before, end)))
    }

    /// The file of a line, and its line number in that file.
    pub fn place_of(&self, line: usize) -> (&str, usize) {
        let found = self.files.iter().rev().find(|(_, before)| *before < line.max(1));
        found.map_or(("", line), |(file, before)| (file, line - before.min(&line)))
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The start of a character, in bytes.
    fn byte(&self, char: usize) -> usize {
        let at = if self.chars.is_empty() { Some(char) } else { self.chars.get(char).map(|at| *at as usize) };
        at.unwrap_or(usize::MAX).min(self.text.len())
    }

    /// A range of characters of the text.
    fn range(&self, from: usize, to: usize) -> &str {
        self.text.get(self.byte(from)..self.byte(to.max(from))).unwrap_or_default()
    }

    /// The start and end of a line, in characters.
    fn line_range(&self, number: usize) -> Option<(usize, usize)> {
        let from = *self.lines.get(number.checked_sub(1)?)?;
        Some((from, self.lines.get(number).copied().unwrap_or(usize::MAX)))
    }

    /// A line without its line break, counted from 1, and 0; of a line wider than `widest`, the part around the
    /// character `at`, and the number of characters before it. Empty if the line does not exist.
    pub fn window(&self, number: usize, at: usize, widest: usize) -> (&str, usize) {
        let Some((from, to)) = self.line_range(number) else { return ("", 0) };
        let start = self.range(from, to.min(from.saturating_add(widest + 2))).trim_end_matches(['\n', '\r']);
        if start.chars().count() <= widest {
            return (start, 0);
        }
        let skipped = at.saturating_sub(widest / 2);
        let part = self.range(from + skipped, to.min(from + skipped + widest));
        (part.trim_end_matches(['\n', '\r']), skipped)
    }

    /// The text of a span, as written.
    pub fn slice(&self, span: Span) -> &str {
        let Some((line, _)) = self.line_range(span.line) else { return "" };
        let from = line + span.column.saturating_sub(1);
        self.range(from, from.saturating_add(span.length))
    }

    /// The span of `length` characters that starts `offset` characters after the start of another span.
    pub fn within(&self, span: Span, offset: usize, length: usize) -> Span {
        let Some((line, _)) = self.line_range(span.line) else { return span };
        let at = line + span.column.saturating_sub(1) + offset;
        let line = self.lines.partition_point(|from| *from <= at).max(1);
        let from = self.lines.get(line - 1).copied().unwrap_or(0);
        Span { line, column: at - from + 1, length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_yaml_has_it() {
        for text in ["a\r\nbe\rc\n\nd", "a\r\nbé\rc\n\nd"] {
            let source = Source::new("f", text);
            let lines: Vec<_> = (0..8).map(|n| source.window(n, 0, 9).0.replace('é', "e")).collect();
            assert_eq!(lines, ["", "a", "be", "c", "", "d", "", ""]);
        }
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
    fn files_are_joined_and_their_lines_told_apart() {
        let parts =
            [Source::new("a", "1\n2"), Source::new("b", "1\r\n"), Source::new("c", ""), Source::new("d", "é\n2\n")];
        let source = Source::join(&parts);
        let places: Vec<_> = (1..=6).map(|line| (source.place_of(line), source.window(line, 0, 9).0)).collect();
        let expected =
            [(("a", 1), "1"), (("a", 2), "2"), (("b", 1), "1"), (("c", 1), ""), (("d", 1), "é"), (("d", 2), "2")];
        assert_eq!(places, expected);
        assert_eq!(source.file(), "a");
    }

    #[test]
    fn of_a_wide_line_the_part_around_a_place_is_shown() {
        let source = Source::new("f", "abcdefghij\nabc");
        assert_eq!(source.window(1, 0, 10), ("abcdefghij", 0));
        assert_eq!(source.window(1, 0, 4), ("abcd", 0));
        assert_eq!(source.window(1, 6, 4), ("efgh", 4));
        assert_eq!(source.window(1, 9, 4), ("hij", 7));
        assert_eq!(source.window(2, 9, 4), ("abc", 0));
    }
}
