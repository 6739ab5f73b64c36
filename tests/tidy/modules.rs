//! Modules of these crates depend on each other in one direction only: there is no import cycle between files or folders.

use std::collections::{BTreeMap, BTreeSet};

use assay_tests::{files, root};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The crates that are checked.
const ACYCLIC: [&str; 2] = ["backends/cpu", "backends/reference"];

/// The modules that each module uses, by their paths inside the crate.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The source files of a crate by module path, without those of tests. `lib.rs` and `mod.rs` are excluded.
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

/// The paths inside the crate that the source of a module names, one for each item of a list in braces. The module `tests` is
/// ignored.
fn crate_paths(name: &str, source: &str) -> Vec<String> {
    let tokens: TokenStream = source.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut paths = Vec::new();
    collect_paths(&name.split("::").map(str::to_owned).collect::<Vec<_>>(), tokens, &mut paths);
    paths
}

/// Adds the paths in the code of `module` that start with `crate`, `super` or `self`.
fn collect_paths(module: &[String], tokens: TokenStream, paths: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word)
                if word == "mod" && tokens.get(at + 1).is_some_and(|next| next.to_string() == "tests") =>
            {
                at += 2;
            }
            TokenTree::Ident(word) if is_separator(&tokens, at + 1) => {
                let prefix = match word.to_string().as_str() {
                    "crate" => Some(Vec::new()),
                    "self" => Some(module.to_vec()),
                    "super" => module.split_last().map(|(_, parent)| parent.to_vec()),
                    _ => None,
                };
                if let Some(prefix) = prefix {
                    collect_tree(prefix, &tokens[at + 3..], paths);
                    while is_separator(&tokens, at + 1) {
                        at += 3;
                    }
                }
            }
            TokenTree::Group(group) => collect_paths(module, group.stream(), paths),
            _ => {}
        }
        at += 1;
    }
}

/// Whether the token at this index starts `::`.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    colon(at) && colon(at + 1)
}

/// Adds the paths of a tree, `a::{b, c::{d, e}}`, with the prefix `prefix`.
fn collect_tree(mut prefix: Vec<String>, tokens: &[TokenTree], paths: &mut Vec<String>) {
    let mut at = 0;
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(word)) if word == "super" => drop(prefix.pop()),
            Some(TokenTree::Ident(word)) if word != "self" => prefix.push(word.to_string()),
            Some(TokenTree::Group(list)) if list.delimiter() == Delimiter::Brace => {
                let items: Vec<TokenTree> = list.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',');
                items.split(is_comma).for_each(|item| collect_tree(prefix.clone(), item, paths));
                return;
            }
            _ => {}
        }
        if !is_separator(tokens, at + 1) {
            paths.push(prefix.join("::"));
            return;
        }
        at += 3;
    }
}

fn imports(sources: &BTreeMap<String, String>) -> Graph {
    let module_of = |path: &str| {
        // The longest prefix of the path that is a module.
        let ends = path.match_indices("::").map(|(at, _)| at).chain([path.len()]);
        ends.filter_map(|end| sources.get_key_value(&path[..end])).last().map(|(module, _)| module.clone())
    };
    let uses = |name: &str, source: &str| {
        crate_paths(name, source).iter().filter_map(|path| module_of(path)).filter(|used| used != name).collect()
    };
    sources.iter().map(|(name, source)| (name.clone(), uses(name, source))).collect()
}

/// The rest of a graph after repeatedly removing nodes that use nothing: the cycles, and their predecessors.
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

/// The graph of folders; a file next to `lib.rs` counts as a folder.
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
fn paths_are_found_in_every_form() {
    let found = |source: &str| crate_paths("a::b", source);
    assert_eq!(found("use crate::{c::{D, e::{F, self}}, g};"), ["c::D", "c::e::F", "c::e", "g"]);
    assert_eq!(found("fn f() -> super::c::D { self::g(); super::super::h::i() }"), ["a::c::D", "a::b::g", "h::i"]);
    assert_eq!(found("simd! { fn f() { crate::c::d(\"crate::e\") } } // crate::f"), ["c::d"]);
    assert_eq!(found("#[cfg(test)]\nmod tests { use crate::c; }\nuse other::crates::x;"), [""; 0]);
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
    // A cycle of folders but not of files.
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
