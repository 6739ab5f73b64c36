//! What is wrong with a file, where, and what to do about it.

use std::fmt;

use serde::Serialize;

/// The most problems that are listed; a file with more gets the rest as a number.
const MOST: usize = 200;

/// Widest source line that is shown whole, in characters; of a longer one, the part around the problem.
const WIDEST: usize = 160;

/// One thing wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// How many characters are meant, at least 1; never beyond the end of the line.
    pub length: usize,
    /// What is wrong: a lower-case fragment that quotes the offending text.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The source line, without its end.
    pub source: String,
}

/// Everything wrong with a file, sorted by position. Its `Display` is for a terminal:
///
/// ```text
/// sweep.yaml:7:12: unknown job `dta`
///   |     needs: [dta]
///   |             ^^^
///   = help: did you mean `data`?
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problems {
    /// The file, as it was named to [`check`](crate::check).
    pub file: String,
    /// Never empty; at most 200.
    pub problems: Vec<Problem>,
    /// How many more there are.
    pub omitted: usize,
}

impl std::error::Error for Problems {}

impl Problems {
    /// Sorts, drops what is said twice, and keeps to the limit.
    pub(crate) fn new(file: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort();
        problems.dedup();
        let omitted = problems.len().saturating_sub(MOST);
        problems.truncate(MOST);
        Problems { file: file.to_owned(), problems, omitted }
    }
}

impl Problem {
    /// As it stands in [`Problems`], for a file of this name.
    fn render(&self, file: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{file}:{}:{}: {}", self.line, self.column, self.message)?;
        let (shown, before) = self.window();
        if !shown.trim().is_empty() {
            let number = self.line.to_string();
            let margin = " ".repeat(number.len());
            writeln!(f, " {margin} |")?;
            writeln!(f, " {number} | {shown}")?;
            // Wide characters would take two columns each; the caret is right for everything else.
            let indent = " ".repeat(before);
            let room = shown.chars().count().saturating_sub(before).max(1);
            writeln!(f, " {margin} | {indent}{}", "^".repeat(self.length.clamp(1, room)))?;
        }
        if let Some(hint) = &self.hint {
            writeln!(f, "  help: {hint}")?;
        }
        Ok(())
    }

    /// The part of the source line to show, and how many of its characters stand before the problem.
    fn window(&self) -> (String, usize) {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let before = self.column.saturating_sub(1);
        if self.source.chars().count() <= WIDEST {
            return (self.source.chars().map(clean).collect(), before);
        }
        let skipped = before.saturating_sub(WIDEST / 2);
        (self.source.chars().skip(skipped).take(WIDEST).map(clean).collect(), before - skipped)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            problem.render(&self.file, f)?;
        }
        if self.omitted > 0 {
            writeln!(f, "\n{}: and {} more", self.file, self.omitted)?;
        }
        Ok(())
    }
}
