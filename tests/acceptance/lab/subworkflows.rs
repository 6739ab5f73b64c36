//! Jobs that use other workflow files, on one machine and on a server.

use std::collections::BTreeSet;
use std::path::Path;

use super::outcome;
use super::processes::Server;
use crate::support::{Home, Ran};

/// Reads a file beside it. Its program is `python3 write.py` in the folder of this file.
const USED: &str = r#"
params: {text: none, factor: 1}
jobs:
  write:
    uses: command
    with:
      run: [python3, write.py]
      files: [write.py]
      params: {text: "${{ params.text }}"}
      outputs: {said: said.txt}
  count:
    needs: write
    uses: command
    with:
      run: [python3, -c, 'import json, os, sys; n = len(open(sys.argv[1]).read()) * int(sys.argv[2]); json.dump(n, open(sys.argv[3], "w"))',
            $ASSAY_INPUTS/said, "${{ params.factor }}", $ASSAY_OUTPUTS/n.json]
      inputs: {said: "${{ needs.write.outputs.said }}"}
      outputs: {n: {json: n.json}}
outputs:
  said: "${{ needs.write.outputs.said }}"
  count: "${{ needs.count.outputs.n }}"
"#;

const WRITE: &str = "import json, os\nparams = json.load(open(os.environ['ASSAY_PARAMS']))\n\
                     open(os.environ['ASSAY_OUTPUTS'] + '/said.txt', 'w').write(params['text'])\n";

const MAIN: &str = r#"
name: calls
params: {word: hello}
jobs:
  one:
    strategy: {matrix: {factor: ["1", "10"]}}
    uses: parts/count.yaml
    with: {text: "${{ params.word }}", factor: "${{ matrix.factor | int }}"}
  show:
    needs: one
    strategy: {matrix: {factor: ["1", "10"]}}
    uses: command
    with: {run: [echo, "counted ${{ needs.one.outputs.count }}"], inputs: {said: "${{ needs.one.outputs.said }}"}}
"#;

fn place(folder: &Path) -> String {
    std::fs::create_dir_all(folder.join("parts")).expect("a folder");
    for (name, text) in [("main.yaml", MAIN), ("parts/count.yaml", USED), ("parts/write.py", WRITE)] {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    folder.join("main.yaml").display().to_string()
}

#[test]
fn a_run_has_the_jobs_of_the_workflows_that_it_uses() {
    let (home, folder) = (Home::new(), tempfile::tempdir().expect("a folder"));
    let main = place(folder.path());
    let planned = home.output(&["plan", &main, "--json"]);
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    let planned: serde_json::Value = serde_json::from_slice(&planned.stdout).expect("a plan");
    let addresses: BTreeSet<&str> =
        planned["tasks"].as_array().expect("tasks").iter().filter_map(|task| task["address"].as_str()).collect();
    assert_eq!(addresses.len(), 6, "{addresses:?}");
    assert!(addresses.contains("one/count[factor=10]") && addresses.contains("show[factor=1]"), "{addresses:?}");
    let ran = Ran::of(home.output(&["run", &main, "--json"]));
    ran.succeeded();
    let log = home.output(&["logs", "1", "show[factor=10]"]);
    assert!(String::from_utf8_lossy(&log.stdout).contains("counted 50"), "{log:?}");
    // Both cells write the same text, which happens once.
    assert_eq!(ran.worked().iter().filter(|address| address.starts_with("one/write")).count(), 1, "{:?}", ran.worked());
    // Commands take the names with the slash.
    let results = home.output(&["results", "1", "--format", "csv"]);
    assert!(results.status.success(), "{results:?}");
    let shown = home.output(&["show", "1", "one/count[factor=1]", "--json"]);
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    assert!(home.output(&["compare", "1:one/count", "1:show"]).status.success());
    // Only what depends on a changed parameter runs again.
    let again = Ran::of(home.output(&["run", &main, "--json", "-P", "word=hi"]));
    assert_eq!(again.succeeded().worked().len(), 5, "{:?}", again.worked());
    let refused = home.output(&["run", &main, "-P", "factor=3"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not a parameter"), "{refused:?}");
    std::fs::remove_file(folder.path().join("parts/count.yaml")).expect("the file");
    let missing = home.output(&["plan", &main]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains("main.yaml:7:11: cannot use `parts/count.yaml`"), "{said}");
}

#[test]
fn a_submission_carries_the_workflows_that_it_uses() {
    let server = Server::start(&[]);
    let _worker = server.worker("node", &[]);
    server.wait_for_workers(1);
    let folder = tempfile::tempdir().expect("a folder");
    let run = server.submit(&place(folder.path()), &[]);
    // The server reads nothing from the submitter's folder.
    drop(folder);
    let ran = server.finished(&run);
    ran.succeeded();
    let folder = tempfile::tempdir().expect("a folder");
    let here = Ran::of(Home::new().output(&["run", &place(folder.path()), "--json"]));
    assert_eq!(outcome(&ran), outcome(here.succeeded()));
    assert!(server.log(&run, "show[factor=1]").contains("counted 5"));
    let again = server.json(&["retry", &run])["run"].as_i64().expect("a number").to_string();
    assert!(server.finished(&again).succeeded().worked().is_empty());
}
