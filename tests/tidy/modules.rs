//! Modules of these crates depend on each other in one direction only: no import cycle between files, none between folders.

use std::collections::{BTreeMap, BTreeSet};

use assay_tests::{files, root};

/// The crates that are checked.
const ACYCLIC: [&str; 2] = ["backends/cpu", "backends/reference"];

/// Which module uses which others, by their paths inside the crate.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The source files of a crate by module path, without those of tests. `lib.rs` and `mod.rs` are left out.
fn module_sources(krate: &str) -> BTreeMap<String, String> {
    let mut sources = BTreeMap::new();
    for path in files() {
        let Some(inner) = path.strip_prefix(krate).ok().and_then(|path| path.strip_prefix("src").ok()) else {
            continue;
        };
        let name = inner.with_extension("").display().to_string().replace('/', "::");
        let is_list = name == "lib" || name.ends_with("mod");
        let is_test = name.split("::").any(|part| part == "tests");
        if inner.extension().is_some_and(|ending| ending == "rs") && !is_list && !is_test {
            sources.insert(name, std::fs::read_to_string(root().join(&path)).expect("a source is UTF-8 text"));
        }
    }
    assert!(!sources.is_empty(), "{krate} has no sources");
    sources
}

/// The paths inside the crate that the source of a module names, one for each item of a list in braces; tests and comments do
/// not count.
fn crate_paths(name: &str, source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let parent = name.rsplit_once("::").map_or(String::new(), |(parent, _)| format!("{parent}::"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("super::", &format!("crate::{parent}"));
    let mut paths = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (prefix, rest) = rest.split_at(end);
        match rest.strip_prefix('{').and_then(|list| list.split('}').next()) {
            Some(list) => paths.extend(list.split(',').map(|item| format!("{prefix}{}", item.trim()))),
            None => paths.push(prefix.to_owned()),
        }
    }
    paths
}

fn imports(sources: &BTreeMap<String, String>) -> Graph {
    let module_of = |path: &str| {
        // The longest beginning of the path that is a module.
        let ends = path.match_indices("::").map(|(at, _)| at).chain([path.len()]);
        ends.filter_map(|end| sources.get_key_value(&path[..end])).last().map(|(module, _)| module.clone())
    };
    let uses = |name: &str, source: &str| {
        crate_paths(name, source).iter().filter_map(|path| module_of(path)).filter(|used| used != name).collect()
    };
    sources.iter().map(|(name, source)| (name.clone(), uses(name, source))).collect()
}

/// What is left of a graph after nodes that use nothing are removed again and again: the cycles, and what leads to them.
fn cyclic_part(mut graph: Graph) -> Graph {
    loop {
        let done: BTreeSet<String> =
            graph.iter().filter(|(_, uses)| uses.is_empty()).map(|(name, _)| name.clone()).collect();
        if done.is_empty() {
            return graph;
        }
        graph.retain(|name, _| !done.contains(name));
        graph.values_mut().for_each(|uses| uses.retain(|used| !done.contains(used)));
    }
}

/// The graph of folders; a file beside `lib.rs` is a folder of its own.
fn between_folders(graph: &Graph) -> Graph {
    let folder = |name: &str| name.split("::").next().unwrap_or_default().to_owned();
    let mut folders = Graph::new();
    for (name, uses) in graph {
        let others = uses.iter().map(|used| folder(used)).filter(|other| *other != folder(name));
        folders.entry(folder(name)).or_default().extend(others);
    }
    folders
}

#[test]
fn modules_have_no_import_cycle() {
    for krate in ACYCLIC {
        let files = imports(&module_sources(krate));
        assert!(files.values().any(|uses| !uses.is_empty()), "{krate}: the check finds no import at all");
        let folders = between_folders(&files);
        for graph in [files, folders] {
            let cycles = cyclic_part(graph);
            assert!(cycles.is_empty(), "{krate}: import cycles among these modules, or behind them: {cycles:#?}");
        }
    }
}

#[test]
fn lists_of_modules_hold_no_logic() {
    for path in files().into_iter().filter(|path| path.starts_with("backends/cpu/src") && path.ends_with("mod.rs")) {
        let source = std::fs::read_to_string(root().join(&path)).expect("a source is UTF-8 text");
        assert!(!source.contains("fn ") && !source.contains("struct "), "{} holds logic", path.display());
    }
}

#[test]
fn the_check_of_cycles_checks() {
    let source = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let good = [
        source("a", "use crate::b::{c::X, d};\n// crate::a\n"),
        source("b::c", "fn f() -> super::d::Y {}\n#[cfg(test)]\nmod tests { use crate::a; }"),
        source("b::d", ""),
    ];
    let graph = imports(&good.clone().into());
    assert_eq!(graph["a"], ["b::c", "b::d"].map(String::from).into());
    assert_eq!(graph["b::c"], ["b::d"].map(String::from).into());
    assert!(cyclic_part(graph.clone()).is_empty() && cyclic_part(between_folders(&graph)).is_empty());
    // A cycle of folders that is none of files.
    let folders = [
        good[0].clone(),
        good[1].clone(),
        source("b::d", "use crate::e::f;"),
        source("e::f", ""),
        source("e::g", "use crate::b::c;"),
    ];
    let graph = imports(&folders.into());
    assert!(cyclic_part(graph.clone()).is_empty() && !cyclic_part(between_folders(&graph)).is_empty());
    // A cycle of files.
    let files = [good[0].clone(), good[1].clone(), source("b::d", "use crate::a;")];
    assert_eq!(cyclic_part(imports(&files.into())).len(), 3);
}
