//! A local text is identified by its content: the content determines what runs, not the path.

use std::io::Write;
use std::path::Path;

use crate::support::{Home, Ran};

const WORKFLOW: &str = "
name: text
jobs:
  data:
    uses: prepare
    with: {dataset: text, file: texts/poem.txt, length: 24}
  train:
    needs: [data]
    uses: train
    with:
      data: \"${{ needs.data.outputs.dataset }}\"
      model: {family: ten, dim: 16, layers: 1, states: 8, chunk: 8}
      optimizer: {name: adamw, lr: 3e-3}
      batching: {max_tokens: 200}
      accumulate: 2
      curriculum: [{until_step: 20, max_length: 24}]
  evaluate:
    needs: [data, train]
    uses: evaluate
    with: {model: \"${{ needs.train.outputs.model }}\", data: \"${{ needs.data.outputs.dataset }}\"}
";

fn run(home: &Home, folder: &Path) -> Ran {
    Ran::of(home.output(&["run", &folder.join("text.yaml").display().to_string(), "--json"]))
}

fn place(folder: &Path, text: &str) {
    std::fs::create_dir_all(folder.join("texts")).expect("a folder");
    std::fs::write(folder.join("text.yaml"), WORKFLOW).expect("the workflow is written");
    std::fs::write(folder.join("texts/poem.txt"), text).expect("the text is written");
}

#[test]
fn a_changed_text_runs_anew_and_a_moved_one_does_not() {
    let (home, here, there) = (Home::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let poem = "the rose is red, the violet blue; ".repeat(20);
    place(here.path(), &poem);
    let first = run(&home, here.path());
    assert_eq!(first.succeeded().worked(), ["data", "train", "evaluate"]);
    let metrics = &first.task("evaluate")["metrics"];
    assert!(metrics["test/perplexity"].as_f64().is_some_and(|perplexity| perplexity > 1.0), "{metrics:#}");
    place(there.path(), &poem);
    assert_eq!(run(&home, there.path()).succeeded().worked(), Vec::<&str>::new());
    let plan = home.output(&["plan", &there.path().join("text.yaml").display().to_string(), "--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).expect("a plan");
    assert_eq!(plan["tasks"][0]["would"], "cached", "{plan:#}");
    place(there.path(), &poem.replace("rose", "lily"));
    assert_eq!(run(&home, there.path()).succeeded().worked(), ["data", "train", "evaluate"]);
}

#[test]
fn a_folder_is_known_by_its_files() {
    let (home, here, there) = (Home::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = |folder: &Path, letters: [&str; 4]| {
        std::fs::create_dir_all(folder.join("texts/more")).expect("a folder");
        let workflow =
            "name: folder\njobs:\n  data:\n    uses: prepare\n    with: {dataset: text, file: texts, length: 8}\n";
        std::fs::write(folder.join("text.yaml"), workflow).expect("the workflow is written");
        for (at, letter) in letters.iter().enumerate() {
            let name = if at == 0 { "texts/more/0.txt".to_owned() } else { format!("texts/{at}.txt") };
            std::fs::write(folder.join(name), letter.repeat(40)).expect("the text is written");
        }
    };
    place(here.path(), ["a", "b", "c", "d"]);
    let first = run(&home, here.path());
    assert_eq!(first.succeeded().worked(), ["data"]);
    assert_eq!(first.task("data")["metrics"]["data/documents"].as_f64(), Some(4.0));
    place(there.path(), ["a", "b", "c", "d"]);
    assert_eq!(run(&home, there.path()).succeeded().worked(), Vec::<&str>::new());
    place(there.path(), ["a", "b", "c", "x"]);
    assert_eq!(run(&home, there.path()).succeeded().worked(), ["data"]);
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let (home, here) = (Home::new(), tempfile::tempdir().unwrap());
    place(here.path(), "replaced");
    let large = std::fs::File::create(here.path().join("texts/poem.txt")).expect("it can be written");
    // A sparse file: it needs no disk space, but copying it would take a while.
    large.set_len((64 << 30) + 1).expect("it can be made longer");
    let ran = run(&home, here.path());
    let message = ran.task("data")["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("poem.txt` has 68719476737 bytes, which is more than 68719476736"), "{message}");
    let left = |folder: &str| std::fs::read_dir(home.store().join(folder)).map_or(0, Iterator::count);
    assert_eq!((left("artifacts"), left("work")), (0, 0));
    // A folder with another database is not changed.
    let other = here.path().join("other");
    std::fs::create_dir(&other).expect("a folder");
    std::fs::write(other.join("assay.db"), "no database, but a text of some length").expect("written");
    let workflow = here.path().join("text.yaml").display().to_string();
    let output = assay_tests::assay().args(["run", &workflow, "--home"]).arg(&other).output().expect("assay starts");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read_dir(&other).expect("it is there").count(), 1);
}

#[test]
fn a_text_that_is_not_there_is_named() {
    let (home, here) = (Home::new(), tempfile::tempdir().unwrap());
    place(here.path(), "never read");
    std::fs::remove_file(here.path().join("texts/poem.txt")).expect("it can be removed");
    let ran = run(&home, here.path());
    assert_eq!((ran.state(), ran.code), ("failed", Some(1)));
    let message = ran.task("data")["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("poem.txt"), "{message}");
    let plan = home.output(&["plan", &here.path().join("text.yaml").display().to_string()]);
    assert!(String::from_utf8_lossy(&plan.stderr).contains("poem.txt"));
}

/// The tokens of a text of 100 million bytes take 400 million bytes in memory. A step reads them from the file instead.
#[test]
fn a_large_text_needs_little_memory() {
    let (home, here) = (Home::new(), tempfile::tempdir().unwrap());
    let workflow = "
name: large
params: {window: 50000}
jobs:
  data:
    uses: prepare
    with: {dataset: text, file: large.txt, length: 256, valid_fraction: 0.00001, test_fraction: 0.00001}
  train:
    needs: [data]
    uses: train
    with:
      data: \"${{ needs.data.outputs.dataset }}\"
      model: {family: ten, dim: 8, layers: 1, states: 4}
      optimizer: {name: adamw, lr: 3e-3}
      batch_size: 4
      shuffle_window: \"${{ params.window }}\"
      curriculum: [{until_step: 20, max_length: 256}]
";
    std::fs::write(here.path().join("text.yaml"), workflow).expect("the workflow is written");
    let mut text = std::io::BufWriter::new(std::fs::File::create(here.path().join("large.txt")).expect("a file"));
    (0..5_000_000_u64).for_each(|line| writeln!(text, "{:019}", line.wrapping_mul(line) % 9_999_991).expect("written"));
    text.flush().expect("written");
    let ran = run(&home, here.path());
    assert_eq!(ran.succeeded().worked(), ["data", "train"]);
    let data = &ran.task("data")["metrics"];
    assert_eq!(data["data/bytes"].as_f64(), Some(1e8));
    let peak = ran.task("train")["metrics"]["memory/peak_bytes"].as_f64().expect("it is reported");
    assert!(peak < 250e6, "{peak} bytes");
}
