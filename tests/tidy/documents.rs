//! The documents match the repository: every crate is in the map; files, types and messages that they name exist.

use std::collections::BTreeSet;
use std::path::Path;

use assay_tests::{files, root};

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_crate_is_on_the_map() {
    let map = read("ARCHITECTURE.md");
    for file in files().iter().filter(|file| file.ends_with("Cargo.toml")) {
        let folder = file.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
        let (layer, name) = folder.split_once('/').unwrap_or((&folder, ""));
        assert!(map.contains(&format!("{layer}/")), "ARCHITECTURE.md does not mention the folder `{layer}/`");
        assert!(map.contains(name), "ARCHITECTURE.md does not mention `{folder}`");
    }
}

/// The targets of a Markdown text's links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter_map(|target| target.split('#').next())
}

#[test]
fn every_file_that_a_document_links_exists() {
    let mut checked = 0;
    for document in files().iter().filter(|file| file.extension().is_some_and(|ending| ending == "md")) {
        let text = read(&document.display().to_string());
        let folder = document.parent().map(|folder| root().join(folder)).unwrap_or_default();
        for target in links(&text).filter(|target| !target.is_empty() && !target.contains("://")) {
            assert!(folder.join(target).exists(), "{} links `{target}`, which is not there", document.display());
            checked += 1;
        }
    }
    assert!(checked > 50, "the check finds only {checked} links");
}

/// The pages of the book, as paths below `docs/src`.
fn pages() -> BTreeSet<String> {
    let pages = files().into_iter().filter(|file| file.extension().is_some_and(|ending| ending == "md"));
    let inside = pages.filter_map(|page| Some(page.strip_prefix("docs/src").ok()?.display().to_string()));
    inside.filter(|page| page != "SUMMARY.md").collect()
}

#[test]
fn the_summary_of_the_book_lists_every_page() {
    let summary = read("docs/src/SUMMARY.md");
    let listed: BTreeSet<String> = links(&summary).filter(|link| !link.is_empty()).map(str::to_owned).collect();
    assert!(listed.len() > 5, "the check finds only these pages: {listed:?}");
    assert_eq!(listed, pages(), "docs/src/SUMMARY.md lists other pages than there are");
}

/// The text between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a source contains a name as a whole word.
fn has_word(source: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    source.split(|c| !part(c)).any(|word| word == name)
}

#[test]
fn every_term_of_the_glossary_names_something_that_exists() {
    let glossary = read("docs/src/glossary.md");
    let rows = glossary.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| term |"));
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for row in rows {
        checked += 1;
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (Some(term), Some(place)) = (cells.first(), cells.get(2)) else {
            wrong.push(format!("a row without three columns: {row}"));
            continue;
        };
        let [name, path] = quoted(place).collect::<Vec<_>>()[..] else {
            wrong.push(format!("{term}: the last column is not `NAME` in `FILE`: {place}"));
            continue;
        };
        match std::fs::read_to_string(root().join(path)) {
            Err(_) => wrong.push(format!("{term}: there is no `{path}`")),
            Ok(source) if !has_word(&source, name) => wrong.push(format!("{term}: `{path}` has no `{name}`")),
            Ok(_) => {}
        }
    }
    assert!(checked > 20, "the check finds only {checked} terms");
    assert!(wrong.is_empty(), "docs/src/glossary.md:\n{}", wrong.join("\n"));
}

#[test]
fn every_message_of_the_troubleshooting_page_exists() {
    let sources = files().into_iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs"));
    let own = |file: &Path| file.starts_with("tests") || file.components().any(|part| part.as_os_str() == "tests");
    let sources: String = sources.filter(|file| !own(file)).map(|file| read(&file.display().to_string())).collect();
    let page = read("docs/src/troubleshooting.md");
    let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
    // `..` represents the variable part of a message.
    let fragments = headings.flat_map(quoted).flat_map(|message| message.split("..")).map(str::trim);
    let fragments: Vec<&str> = fragments.filter(|fragment| !fragment.is_empty()).collect();
    assert!(fragments.len() > 10, "the check finds only these messages: {fragments:?}");
    let missing: Vec<&&str> = fragments.iter().filter(|fragment| !sources.contains(**fragment)).collect();
    assert!(missing.is_empty(), "docs/src/troubleshooting.md has messages that no source has: {missing:?}");
}

#[test]
fn the_readme_names_the_two_commands() {
    let readme = read("README.md");
    assert!(readme.contains("cargo run --release -- run workflows/catalog/quickstart.yaml"));
    assert!(readme.contains("tests/run"));
}
