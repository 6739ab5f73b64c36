//! Sources: their first lines, their sizes, and forbidden words.

use std::path::{Path, PathBuf};

use assay_tests::{files, root};

/// The maximum number of lines of a source file.
const FILE: usize = 600;
/// The maximum number of lines of a function.
const FUNCTION: usize = 99;

pub fn sources(endings: &[&str]) -> Vec<(PathBuf, String)> {
    files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known)))
        .map(|path| {
            let text = std::fs::read_to_string(root().join(&path)).expect("a source is UTF-8 text");
            (path, text)
        })
        .collect()
}

pub fn all_must(what: &str, wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn every_source_says_first_what_it_is_for() {
    let rust = sources(&["rs"]).into_iter().filter(|(_, text)| !text.starts_with("//! "));
    let others = sources(&["js", "css", "html", "py", "sh", "yaml", "yml"]).into_iter().filter(|(path, text)| {
        let start: String = text.lines().take(3).collect::<Vec<_>>().join("\n");
        // A bad workflow file is a test's input: its name states its purpose.
        !is_input(path) && !["//", "/*", "<!--", "{#", "#", "\"\"\""].iter().any(|mark| start.contains(mark))
    });
    let wrong = rust.chain(others).map(|(path, _)| path.display().to_string()).collect();
    all_must("these do not begin with what they are for", wrong);
}

fn is_input(path: &Path) -> bool {
    path.components().any(|part| ["bad", "good", "snapshots", "fixtures"].iter().any(|name| part.as_os_str() == *name))
}

#[test]
fn no_file_is_too_long() {
    let long = sources(&["rs", "js", "css", "html", "py", "sh", "cu", "h", "hpp", "cpp"]).into_iter().filter_map(
        |(path, text)| {
            let lines = text.lines().count();
            (lines > FILE).then(|| format!("{} has {lines} lines", path.display()))
        },
    );
    all_must(&format!("longer than {FILE} lines"), long.collect());
}

#[test]
fn no_function_is_too_long() {
    let long = sources(&["rs"]).into_iter().flat_map(|(path, text)| {
        let long = functions(&text).into_iter().filter(|(_, _, lines)| *lines > FUNCTION);
        long.map(|(line, head, lines)| format!("{}:{line}: {lines} lines: {head}", path.display())).collect::<Vec<_>>()
    });
    all_must(&format!("longer than {FUNCTION} lines"), long.collect());
}

/// The functions of a formatted source: line, declaration and length. A function ends at the first closing brace with
/// the indentation of its declaration, as rustfmt formats it.
fn functions(text: &str) -> Vec<(usize, String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let head =
            trimmed.trim_start_matches("pub ").trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
        let head = head.trim_start_matches("const ").trim_start_matches("async ").trim_start_matches("unsafe ");
        if !head.starts_with("fn ") || line.ends_with(';') {
            continue;
        }
        let indent = &line[..line.len() - trimmed.len()];
        let end = lines[at..].iter().position(|line| *line == format!("{indent}}}"));
        let one_line = line.ends_with('}');
        if let Some(end) = end.filter(|_| !one_line) {
            found.push((at + 1, trimmed.to_owned(), end + 1));
        }
    }
    found
}

#[test]
fn unfinished_work_is_not_committed() {
    // Assembled here, so that this file does not contain the words.
    let words = ["todo!", "unimplemented!", "dbg!", "#[ignore", "allow(dead_code", "allow(unused"].map(String::from);
    let words: Vec<String> = words.into_iter().chain([["TO", "DO"].concat(), ["FIX", "ME"].concat()]).collect();
    let wrong = sources(&["rs", "js", "py", "sh", "html", "css"]).into_iter().flat_map(|(path, text)| {
        let own = path.ends_with("tidy/sources.rs");
        let hits = text.lines().enumerate().filter(|(_, line)| !own && words.iter().any(|word| line.contains(word)));
        hits.map(|(at, line)| format!("{}:{}: {}", path.display(), at + 1, line.trim())).collect::<Vec<_>>()
    });
    all_must("unfinished", wrong.collect());
}

#[test]
fn lines_end_where_their_text_ends() {
    let wrong = sources(&["rs", "toml", "md", "js", "css", "html", "sh", "py", "yaml"])
        .into_iter()
        .filter(|(path, _)| !is_input(path));
    let wrong = wrong.flat_map(|(path, text)| {
        let hits = text.lines().enumerate().filter(|(_, line)| line.ends_with([' ', '\t']));
        hits.map(|(at, _)| format!("{}:{}", path.display(), at + 1)).collect::<Vec<_>>()
    });
    all_must("trailing blanks", wrong.collect());
}

#[test]
fn the_measure_of_functions_measures() {
    let text =
        "fn a() {\n    b\n}\n\nimpl X {\n    pub async fn c(\n        d: u8,\n    ) -> u8 {\n        d\n    }\n}\n";
    let lengths: Vec<(usize, usize)> = functions(text).into_iter().map(|(line, _, lines)| (line, lines)).collect();
    assert_eq!(lengths, [(1, 3), (6, 5)]);
}
