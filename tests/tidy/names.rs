//! A public type name is used in few crates, and retired words do not come back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use assay_tests::files;

use crate::sources::{all_must, sources};

/// The maximum number of crates that use the same public type name.
const CRATES: usize = 2;

/// Words that were replaced by a standard term: the folder in which they are retired (everywhere if it is empty), the word or
/// phrase, and the reason with the current term. To retire a word, replace all its uses and add a line.
const RETIRED: &[(&str, &str, &str)] = &[
    ("", "HostEvent", "one event type goes from executor to store: `AttemptEvent` in `plugins/protocol`"),
    ("", "told_apart", "the JSON field is `distinguishable`, the standard term of statistics"),
    ("", "LastWords", "`StderrTail`: the last lines of standard error"),
    ("orchestrator", "News", "one event type goes from executor to store: `AttemptEvent` in `plugins/protocol`"),
    ("orchestrator", "told apart", "`distinguished`, the standard term of statistics"),
    ("plugins", "run_alone", "`run_single_step`: it says what is run"),
    ("storage", "told apart", "`distinguished`, the standard term of statistics"),
    ("storage", "went away", "`exited`, or `exited unexpectedly`"),
    ("web", "told apart", "`distinguished`, the standard term of statistics"),
    ("web", "went away", "`exited`, or `exited unexpectedly`"),
];

/// The crate of a source file: the folder of the nearest `Cargo.toml` above it.
fn crate_of<'a>(path: &Path, crates: &'a [std::path::PathBuf]) -> Option<&'a Path> {
    let above = crates.iter().filter(|folder| path.starts_with(folder));
    above.max_by_key(|folder| folder.components().count()).map(std::path::PathBuf::as_path)
}

/// The names of the types that a source declares as `pub`, without those of `pub(crate)` and the like.
fn public_types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let declaration = line.trim_start().strip_prefix("pub ")?;
        let (keyword, rest) = declaration.trim_start_matches("unsafe ").split_once(' ')?;
        if !["struct", "enum", "trait", "type", "union"].contains(&keyword) {
            return None;
        }
        rest.split(|letter: char| !is_word(letter)).next().filter(|name| !name.is_empty())
    })
}

/// The public type names that occur in more than [`CRATES`] crates, each with its crates. Takes the crate and the text of each source.
fn crowded_names<'a>(sources: impl Iterator<Item = (&'a Path, &'a str)>) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeSet<&Path>> = BTreeMap::new();
    for (folder, text) in sources {
        for name in public_types(text) {
            crates.entry(name).or_default().insert(folder);
        }
    }
    let crowded = crates.into_iter().filter(|(_, folders)| folders.len() > CRATES);
    crowded.map(|(name, folders)| format!("`{name}` in {folders:?}")).collect()
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The lines, counted from 1, in which a text has `word` as a whole word.
fn lines_with(text: &str, word: &str) -> Vec<usize> {
    let whole = |line: &str| {
        line.match_indices(word)
            .any(|(at, _)| !line[..at].ends_with(is_word) && !line[at + word.len()..].starts_with(is_word))
    };
    text.lines().enumerate().filter(|(_, line)| whole(line)).map(|(at, _)| at + 1).collect()
}

/// The uses of retired words, as `path:line: word: reason`.
fn retired_uses(path: &Path, text: &str) -> Vec<String> {
    let here = RETIRED.iter().filter(|(folder, ..)| path.starts_with(folder));
    here.flat_map(|(_, word, reason)| {
        let lines = lines_with(text, word);
        lines.into_iter().map(move |line| format!("{}:{line}: `{word}` is retired: {reason}", path.display()))
    })
    .collect()
}

#[test]
fn a_public_type_name_stands_in_at_most_two_crates() {
    let manifests = files().into_iter().filter(|file| file.ends_with("Cargo.toml"));
    let crates: Vec<_> = manifests.filter_map(|file| file.parent().map(Path::to_owned)).collect();
    let sources = sources(&["rs"]);
    let of_crates = sources.iter().filter_map(|(path, text)| Some((crate_of(path, &crates)?, text.as_str())));
    all_must("public type names in too many crates; give each a distinct noun", crowded_names(of_crates));
}

#[test]
fn retired_words_do_not_come_back() {
    let wrong = sources(&["rs", "md", "html", "js", "py", "sh", "snap"]).into_iter().flat_map(|(path, text)| {
        // The list itself, and the history.
        let exempt = path.ends_with("tidy/names.rs") || path.ends_with("CHANGELOG.md");
        if exempt { Vec::new() } else { retired_uses(&path, &text) }
    });
    all_must("retired words", wrong.collect());
}

#[test]
fn a_name_in_too_many_crates_is_found() {
    let text = "pub struct Plan {\n    pub(crate) struct Hidden;\n  pub enum Other<T> {\npub fn Plan() {\npub type Plan = u8;\n";
    assert_eq!(public_types(text).collect::<Vec<_>>(), ["Plan", "Other", "Plan"]);
    let planted = |names: &[&'static str]| crowded_names(names.iter().map(|name| (Path::new(*name), text)));
    assert_eq!(planted(&["a", "b", "a"]), [] as [&str; 0]);
    assert_eq!(planted(&["a", "b", "c"]).len(), 2, "`Plan` and `Other`");
    let crates = ["web", "web/app"].map(std::path::PathBuf::from);
    assert_eq!(crate_of(Path::new("web/app/src/main.rs"), &crates), Some(Path::new("web/app")));
}

#[test]
fn a_retired_word_is_found_as_a_whole_word() {
    let text = "let told_apart = 1;\nuntold_apart(told_apart_from);\n// `told_apart`\n";
    assert_eq!(lines_with(text, "told_apart"), [1, 3]);
    assert_eq!(retired_uses(Path::new("web/app/src/x.rs"), text).len(), 2);
    let planted = "enum News {}";
    assert_eq!(retired_uses(Path::new("orchestrator/worker/src/link.rs"), planted).len(), 1);
    assert_eq!(retired_uses(Path::new("web/ui/src/lib.rs"), planted), [] as [&str; 0]);
}
