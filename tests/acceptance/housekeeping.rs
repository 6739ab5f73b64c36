//! Files in the store can be copied out, checked and removed.

use serde_json::Value;

use crate::support::Home;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn outputs_are_listed_and_taken_out() {
    let home = Home::new();
    let ran = home.run("exported.yaml", &[]);
    let hash = ran.succeeded().task("export")["outputs"]["onnx"]["$artifact"].as_str().expect("a hash").to_owned();
    let list = text(&home.output(&["artifacts", "latest"]).stdout);
    assert!(list.contains("onnx") && list.contains(&hash[..16]), "{list}");
    let list: Value = serde_json::from_slice(&home.output(&["artifacts", "1", "--json"]).stdout).expect("JSON");
    assert!(list["artifacts"].as_array().expect("a list").iter().any(|one| one["hash"] == hash.as_str()), "{list:#}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("taken.onnx");
    let got = home.output(&["get", "latest", "export", "onnx", "-o", &file.display().to_string()]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    assert_eq!(blake3::hash(&std::fs::read(&file).expect("written")).to_hex().as_str(), hash);
    let got = home.output(&["get", "1", "export", "onnx", "-o", "-"]);
    assert_eq!(blake3::hash(&got.stdout).to_hex().as_str(), hash);
    let wrong = home.output(&["get", "1", "export", "onx"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("it has: onnx, reference, safetensors"), "{}", text(&wrong.stderr));
}

#[test]
fn a_removed_run_leaves_garbage_and_a_sound_store() {
    let home = Home::new();
    home.run("exported.yaml", &[]).succeeded();
    home.run("exported.yaml", &["-P", "seed=9"]).succeeded();
    assert!(home.output(&["verify"]).status.success());
    let gc = |more: &[&str]| -> Value {
        let args: Vec<&str> = ["gc", "--json"].into_iter().chain(more.iter().copied()).collect();
        serde_json::from_slice(&home.output(&args).stdout).expect("JSON")
    };
    assert_eq!(gc(&[])["artifacts"], serde_json::json!([]));
    let removed = home.output(&["rm", "1"]);
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    // The second run also uses the data and the model of the first: only the export is unused.
    let found = gc(&[]);
    assert!(found["artifacts"].as_array().is_some_and(|files| !files.is_empty()), "{found:#}");
    let deleted = gc(&["--delete"]);
    assert_eq!(deleted["artifacts"], found["artifacts"]);
    assert!(home.output(&["verify"]).status.success());
    let again = home.run("exported.yaml", &["-P", "seed=9"]);
    assert_eq!(again.succeeded().worked(), Vec::<&str>::new(), "what the second run had is still known");
    assert!(home.output(&["show", "1"]).status.code() == Some(2));
}

#[test]
fn damage_is_found_and_named() {
    let home = Home::new();
    let ran = home.run("exported.yaml", &[]);
    let hash = ran.succeeded().task("train")["outputs"]["model"]["$artifact"].as_str().expect("a hash").to_owned();
    let file = home.artifact(&hash).expect("in the store");
    std::fs::remove_file(&file).expect("removed");
    std::fs::write(&file, "not a model").expect("written");
    let verified = home.output(&["verify"]);
    assert_eq!(verified.status.code(), Some(1));
    let said = text(&verified.stdout);
    assert!(said.contains("made by `train` of run 1") && said.contains("its content is damaged"), "{said}");
    let got = home.output(&["get", "1", "train", "model", "-o", "-"]);
    assert!(got.status.code() == Some(2) && got.stdout.is_empty(), "{}", text(&got.stderr));
}
