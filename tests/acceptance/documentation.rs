//! The documents: every example runs, every metric that a step reports is described, and the reference is up to date.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use assay_tests::root;
use serde_json::{Value, json};

use crate::support::{Home, Ran};

/// The folder of the book's pages.
fn book() -> PathBuf {
    root().join("docs/src")
}

fn files_of(folder: &Path, ending: &str) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|found| found == ending)).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Fails for each metric of a run that the book's page of metrics does not describe.
#[track_caller]
pub fn every_metric_is_described(ran: &Ran) {
    let page = std::fs::read_to_string(book().join("reference/metrics.md")).expect("the page of metrics");
    let names: Vec<Vec<&str>> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.split('/').collect())
        .collect();
    let described = |metric: &str| {
        let parts: Vec<&str> = metric.split('/').collect();
        names.iter().any(|name| {
            name.len() == parts.len() && name.iter().zip(&parts).all(|(want, part)| *want == "*" || want == part)
        })
    };
    let metrics = ran.tasks().iter().filter_map(|task| Some((task["kind"].as_str()?, task["metrics"].as_object()?)));
    let metrics: Vec<_> = metrics.collect();
    assert!(metrics.iter().any(|(_, metrics)| !metrics.is_empty()), "no task of the run reported a metric");
    // The author of a program describes its metrics.
    // Programs and plugins choose the names of their metrics.
    let known = metrics.iter().filter(|(kind, _)| !matches!(kind.as_ref(), "command" | "plugin"));
    let reported: BTreeSet<&String> = known.flat_map(|(_, metrics)| metrics.keys()).collect();
    let missing: Vec<_> = reported.into_iter().filter(|metric| !described(metric)).collect();
    assert!(missing.is_empty(), "docs/src/reference/metrics.md does not describe {missing:?}");
}

#[test]
fn every_example_of_the_book_runs() {
    let examples = files_of(&book().join("examples"), "yaml");
    assert!(!examples.is_empty());
    for example in examples {
        // Only the tutorial is larger than a test should be.
        let smaller = ["steps=40", "examples=100", "replicates=2"].map(|param| ["-P", param]).concat();
        let more = if example.ends_with("tutorial.yaml") { smaller } else { Vec::new() };
        let ran = Home::new().run(&example.display().to_string(), &more);
        every_metric_is_described(ran.succeeded());
    }
}

#[test]
fn the_catalog_reports_only_metrics_that_are_described() {
    // Small versions of the catalog's workflows, with all families.
    let common = json!({"dim": 8, "layers": 1, "pool": "last"});
    let model = |family: &str, own: Value| {
        let mut model = common.clone();
        model["family"] = family.into();
        own.as_object().into_iter().flatten().for_each(|(key, value)| model[key] = value.clone());
        format!("{family}={model}")
    };
    let models = [
        model("ten", json!({"states": 4, "chunk": 8})),
        model("pulse", json!({"states": 4, "chunk": 8, "heads": 2, "mixing_heads": 2})),
        model("transformer", json!({"heads": 2, "attention": "sparse"})),
    ];
    let more: Vec<&str> = models.iter().flat_map(|model| ["-P", model]).chain(["-P", "steps=60"]).collect();
    every_metric_is_described(Home::new().run("recall.yaml", &more).succeeded());
}

/// Every document for people, with its text.
fn documents() -> Vec<(String, String)> {
    let markdown =
        assay_tests::files().into_iter().filter(|file| file.extension().is_some_and(|ending| ending == "md"));
    let shown = markdown.map(|file| {
        let text = std::fs::read_to_string(root().join(&file)).expect("a document is text");
        (file.display().to_string(), text)
    });
    shown.filter(|(name, _)| !name.starts_with("CHANGELOG")).collect()
}

#[test]
fn every_workflow_in_a_document_is_planned() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut planned = 0;
    for (document, text) in documents() {
        let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
        for block in blocks.filter(|block| block.contains("\njobs:")) {
            // A block that names its file is included by the blocks that follow.
            if let Some(name) = block.lines().next().and_then(|line| line.strip_prefix("# file: ")) {
                std::fs::write(folder.path().join(name), block).expect("written");
                continue;
            }
            let file = folder.path().join("block.yaml");
            let plugins = root().join("plugins/wasm/shipped").display().to_string();
            std::fs::write(&file, block.replace("../../../plugins/wasm/shipped", &plugins)).expect("written");
            // The examples on pages refer to files in the same folder.
            for beside in ["prepare.yaml", "train.py"] {
                std::fs::copy(book().join("examples").join(beside), folder.path().join(beside)).expect("copied");
            }
            // The page on plugins builds its metric first.
            let built = folder.path().join("top-k");
            std::fs::create_dir_all(&built).expect("made");
            let metric = root().join("plugins/wasm/shipped/calibration/calibration.wasm");
            std::fs::copy(metric, built.join("top-k.wasm")).expect("copied");
            let output = Home::new().output(&["plan", &file.display().to_string()]);
            assert!(output.status.success(), "{document}:\n{block}\n{}", self::text(&output.stderr));
            planned += 1;
        }
    }
    assert!(planned > 0);
}

#[test]
fn pages_show_the_files_that_are_run() {
    let read = |name: &str| std::fs::read_to_string(book().join(name)).expect("a text");
    for (page, file) in [
        ("tutorial", "tutorial.yaml"),
        ("program", "program.yaml"),
        ("program", "train.py"),
        ("mlflow", "read_store.py"),
    ] {
        let shown = read(&format!("examples/{file}"));
        assert!(read(&format!("{page}.md")).contains(shown.trim_end()), "docs/src/{page}.md is out of date: {file}");
    }
}

#[test]
fn every_command_in_a_document_exists() {
    let mut commands: BTreeSet<(String, String)> = BTreeSet::new();
    for (document, text) in documents() {
        let indented = text.lines().filter_map(|line| line.strip_prefix("    "));
        let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        for code in indented.chain(spans).filter_map(|code| code.strip_prefix("assay ")) {
            let word: String = code.chars().take_while(char::is_ascii_lowercase).collect();
            if !word.is_empty() {
                commands.insert((word, document.clone()));
            }
        }
    }
    assert!(commands.len() > 10, "{commands:?}");
    let home = Home::new();
    let mut known = BTreeSet::new();
    for (word, document) in commands {
        let exists = known.contains(&word) || home.output(&["help", &word]).status.success();
        assert!(exists, "{document} names `assay {word}`, which does not exist");
        known.insert(word);
    }
}

#[test]
fn the_reference_of_the_book_is_up_to_date() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = Home::new().output(&["schema", "--pages", &folder.path().display().to_string()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let names = |folder: &Path| -> BTreeSet<String> {
        files_of(folder, "md").iter().filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect()
    };
    let reference = book().join("reference");
    let hint = "run `assay schema --pages docs/src/reference`, and list new pages in docs/src/SUMMARY.md";
    assert_eq!(names(folder.path()), names(&reference), "{hint}");
    for name in names(folder.path()) {
        let read = |folder: &Path| std::fs::read_to_string(folder.join(&name)).expect("a page");
        assert!(read(folder.path()) == read(&reference), "docs/src/reference/{name} is out of date: {hint}");
    }
}

#[test]
fn help_describes_the_command_line_subcommands_and_step_kinds() {
    let home = Home::new();
    let help = |args: &[&str]| home.output(args);
    let plain = help(&["help"]);
    assert!(plain.status.success());
    assert!(text(&plain.stdout).contains("Usage: assay"), "{}", text(&plain.stdout));
    let (by_name, by_flag) = (text(&help(&["help", "run"]).stdout), text(&help(&["run", "--help"]).stdout));
    assert_eq!(by_name.trim_end(), by_flag.trim_end(), "`assay help run` is `assay run --help`");
    let train = text(&help(&["help", "train"]).stdout);
    for part in ["data: artifact, required", "family: pulse", "train/gradient_norm", "uses: train"] {
        assert!(train.contains(part), "`{part}` is not in:\n{train}");
    }
    // A name of both a subcommand and a step kind: both are described.
    let both = text(&help(&["help", "export"]).stdout);
    assert!(both.contains("Usage: assay export") && both.contains("Options of `with:`"), "{both}");
    let wrong = help(&["help", "trian"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("did you mean `train`?"), "{}", text(&wrong.stderr));
    let schema: Value = serde_json::from_slice(&help(&["schema"]).stdout).expect("`assay schema` still prints JSON");
    assert!(schema["$defs"].is_object());
}
