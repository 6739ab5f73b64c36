//! The documents tell the truth about the tree: every crate is on the map, every file that they name exists.

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
    for document in files().iter().filter(|file| file.extension().is_some_and(|ending| ending == "md")) {
        let text = read(&document.display().to_string());
        let folder = document.parent().map(|folder| root().join(folder)).unwrap_or_default();
        for target in links(&text).filter(|target| !target.is_empty() && !target.contains("://")) {
            assert!(folder.join(target).exists(), "{} links `{target}`, which is not there", document.display());
        }
    }
}

#[test]
fn the_readme_names_the_two_commands() {
    let readme = read("README.md");
    assert!(readme.contains("cargo run --release -- run workflows/catalog/quickstart.yaml"));
    assert!(readme.contains("tests/run"));
}
