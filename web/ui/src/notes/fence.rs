//! What a fence asks for: a line for each table or chart, such as `curves latest metric=train/loss job=ten`.

use std::collections::BTreeMap;

use super::NoteProblem;

/// The tables and charts, with their options; those with `!` must be given.
const FIGURES: [(&str, FigureKind, &[&str]); 5] = [
    ("results", FigureKind::Results, &["metrics"]),
    ("curves", FigureKind::Curves, &["!metric", "job", "scale"]),
    ("sweep", FigureKind::Sweep, &["metric", "job", "x", "y"]),
    ("pareto", FigureKind::Pareto, &["x", "y"]),
    ("importance", FigureKind::Importance, &["metric", "job"]),
];

/// A kind of table or chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FigureKind {
    Results,
    Curves,
    Sweep,
    Pareto,
    Importance,
}

/// One line of a fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FenceCommand {
    /// Its line in the file, from 1.
    pub line: usize,
    pub kind: FigureKind,
    /// The run: a number, `latest` or `@COMMIT`.
    pub run: String,
    pub options: BTreeMap<String, String>,
}

/// Reads a fence whose content begins at `line`. Empty lines and lines that begin with `#` are passed over.
pub(super) fn read_fence(text: &str, line: usize) -> Vec<Result<FenceCommand, NoteProblem>> {
    let lines = text.lines().enumerate().map(|(at, text)| (line + at, text.trim()));
    let commands = lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#'));
    let mut read: Vec<Result<FenceCommand, NoteProblem>> =
        commands.map(|(line, text)| read_command(text, line).map_err(|reason| NoteProblem { line, reason })).collect();
    if read.is_empty() {
        let reason = format!("the fence is empty: write {}", known_figures());
        read.push(Err(NoteProblem { line: line - 1, reason }));
    }
    read
}

fn known_figures() -> String {
    let names = FIGURES.map(|(name, ..)| format!("`{name} RUN`"));
    names.join(", ")
}

fn read_command(text: &str, line: usize) -> Result<FenceCommand, String> {
    let words = split_words(text)?;
    let name = words.first().map_or("", String::as_str);
    let known = FIGURES.iter().find(|(known, ..)| *known == name);
    let (_, kind, allowed) = known.ok_or_else(|| format!("there is no `{name}`: write {}", known_figures()))?;
    let Some(run) = words.get(1).filter(|word| !word.contains('=')) else {
        return Err(format!("`{name}` names no run: write `{name} latest`, `{name} 3` or `{name} @COMMIT`"));
    };
    let mut options = BTreeMap::new();
    for word in &words[2..] {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not of the form KEY=VALUE"))?;
        if !allowed.iter().any(|known| known.trim_start_matches('!') == key) {
            let names: Vec<&str> = allowed.iter().map(|known| known.trim_start_matches('!')).collect();
            return Err(format!("`{name}` has no option `{key}`: it takes `{}`", names.join("`, `")));
        }
        if options.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("`{key}` is given twice"));
        }
    }
    let required = allowed.iter().filter_map(|known| known.strip_prefix('!'));
    if let Some(missing) = required.into_iter().find(|key| !options.contains_key(*key)) {
        return Err(format!("`{name}` needs `{missing}=VALUE`"));
    }
    Ok(FenceCommand { line, kind: *kind, run: run.clone(), options })
}

/// Splits at spaces; double quotes hold words with spaces.
fn split_words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut in_quotes, mut is_begun) = (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' => (in_quotes, is_begun) = (!in_quotes, true),
            c if c.is_whitespace() && !in_quotes => {
                if std::mem::take(&mut is_begun) {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => {
                word.push(c);
                is_begun = true;
            }
        }
    }
    if in_quotes {
        return Err("a quote is not closed".to_owned());
    }
    if is_begun {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<FenceCommand, NoteProblem> {
        read_fence(text, 10).remove(0)
    }

    #[test]
    fn lines_are_read_with_their_options() {
        let found = read_fence("\n# a comment\ncurves 3 metric=train/loss job=\"a b\"\nresults latest\n", 10);
        let curves = found[0].clone().unwrap();
        assert_eq!((curves.line, curves.kind, curves.run.as_str()), (12, FigureKind::Curves, "3"));
        assert_eq!(curves.options["job"], "a b");
        assert_eq!(found[1].clone().unwrap().line, 13);
        assert_eq!(read("sweep @99f3 y=-").unwrap().options["y"], "-");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, reason) in [
            ("plot 3", "there is no `plot`: write `results RUN`, `curves RUN`"),
            ("curves", "`curves` names no run: write `curves latest`"),
            ("curves metric=x", "`curves` names no run"),
            ("curves 3", "`curves` needs `metric=VALUE`"),
            ("curves 3 metric=a metrics=b", "`curves` has no option `metrics`: it takes `metric`, `job`, `scale`"),
            ("curves 3 metric=a metric=b", "`metric` is given twice"),
            ("results 3 loss", "`loss` is not of the form KEY=VALUE"),
            ("results \"3", "a quote is not closed"),
            ("", "the fence is empty: write `results RUN`"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.reason.starts_with(reason), "{text}: {}", problem.reason);
            assert_eq!(problem.line, if text.is_empty() { 9 } else { 10 });
        }
    }
}
