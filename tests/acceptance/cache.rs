//! Known results are not computed again, and only valid results count as known.

use crate::support::Home;

#[test]
fn the_same_file_again_runs_nothing() {
    let home = Home::new();
    let first = home.run("tiny.yaml", &[]);
    assert_eq!(first.succeeded().worked().len(), 9);
    let second = home.run("tiny.yaml", &[]);
    assert_eq!(second.succeeded().worked(), Vec::<&str>::new());
    for (before, after) in std::iter::zip(first.tasks(), second.tasks()) {
        assert_eq!(before["metrics"], after["metrics"]);
        assert_eq!(before["outputs"], after["outputs"]);
        assert_eq!((&after["state"], &after["attempts"]), (&"cached".into(), &0.into()));
    }
}

#[test]
fn a_changed_value_runs_what_depends_on_it_and_nothing_else() {
    let home = Home::new();
    home.run("tiny.yaml", &[]).succeeded();
    let changed = home.run("tiny.yaml", &["-P", "lr=2e-3"]);
    let worked = changed.succeeded().worked();
    assert_eq!(worked.len(), 8, "{worked:?}");
    assert_eq!(changed.task("data")["cached"], true);
    // Earlier results are still known.
    assert!(home.run("tiny.yaml", &[]).succeeded().worked().is_empty());
}

#[test]
fn a_lost_artifact_is_made_again_and_only_it() {
    let home = Home::new();
    let first = home.run("tiny.yaml", &[]);
    first.succeeded();
    let address = "train[states=8]#2";
    let hash = first.task(address)["outputs"]["model"]["$artifact"].as_str().expect("a hash").to_owned();
    let shown = home.output(&["show", "latest", "--json"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains(&hash));
    std::fs::remove_file(home.artifact(&hash).expect("in the store")).expect("it can be removed");
    let again = home.run("tiny.yaml", &[]);
    assert_eq!(again.succeeded().worked(), [address]);
    assert_eq!(again.task(address)["outputs"], first.task(address)["outputs"], "the same bits come out");
}

#[test]
fn the_plan_says_what_will_happen() {
    let home = Home::new();
    let plan = |args: &[&str]| -> Vec<String> {
        let file = crate::support::fixture("tiny.yaml");
        let args: Vec<&str> = ["plan", &file, "--json"].into_iter().chain(args.iter().copied()).collect();
        let output = home.output(&args);
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the plan is JSON");
        let tasks = plan["tasks"].as_array().expect("tasks").iter();
        tasks.map(|task| task["would"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let fresh = plan(&[]);
    assert_eq!(fresh[0], "run");
    assert!(fresh[1..].iter().all(|would| would == "depends"), "{fresh:?}");
    home.run("tiny.yaml", &[]).succeeded();
    assert!(plan(&[]).iter().all(|would| would == "cached"));
    let changed = plan(&["-P", "lr=1e-3"]);
    assert_eq!((changed[0].as_str(), changed[1].as_str()), ("cached", "run"));
}

/// Changes one byte in the middle of a stored file, but not its size or name.
fn damage(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).expect("writable");
    let mut content = std::fs::read(path).expect("readable");
    let middle = content.len() / 2;
    content[middle] ^= 0x55;
    std::fs::write(path, content).expect("written");
}

#[test]
fn a_damaged_artifact_is_made_again_before_anything_reads_it() {
    let home = Home::new();
    let first = home.run("exported.yaml", &[]);
    let model = |ran: &crate::support::Ran| ran.task("train")["outputs"]["model"].clone();
    let hash = model(first.succeeded())["$artifact"].as_str().expect("a hash").to_owned();
    damage(&home.artifact(&hash).expect("in the store"));
    let file = crate::support::fixture("exported.yaml");
    let plan = home.output(&["plan", &file, "--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).expect("the plan is JSON");
    let because = plan["tasks"][1]["because"].as_str().unwrap_or_default();
    assert!(plan["tasks"][1]["would"] == "run" && because.contains("its content is damaged"), "{plan:#}");
    // Another seed gives another export of the same model: it must not read damaged content.
    let said = home.output(&["run", &file, "-P", "seed=9"]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let again = "train: runs again, since the stored output `model` cannot be used";
    assert_eq!(said.matches(again).count(), 1, "{said}");
    let again = home.shown("2");
    assert_eq!(again.succeeded().worked(), ["train", "export"]);
    assert_eq!(model(&again), model(&first), "the same bits come out");
    let log = home.output(&["logs", "2", "train"]);
    assert!(String::from_utf8_lossy(&log.stdout).contains("runs again, since the stored output `model`"));
}
