//! What is known is not computed again, and nothing else is taken for known.

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
    // And what was known before is still known.
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
