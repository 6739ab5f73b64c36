//! A number of parameters determines the width of a model: `plan` shows it, and the run agrees.

use serde_json::Value;

use crate::support::{Home, fixture};

#[test]
fn the_plan_and_the_run_agree_on_the_size_of_each_model() {
    let home = Home::new();
    let plan: Value = serde_json::from_slice(&home.output(&["plan", &fixture("sized.yaml"), "--json"]).stdout).unwrap();
    let planned: Vec<&Value> =
        plan["tasks"].as_array().unwrap().iter().filter(|task| task["kind"] == "train").collect();
    assert_eq!(planned.len(), 2);
    let ran = home.run("sized.yaml", &[]);
    for task in planned {
        let (size, address) = (&task["model"], task["address"].as_str().unwrap());
        let count = size["parameters"].as_f64().unwrap();
        assert!((3800.0..=4200.0).contains(&count) && size["chosen"] == true, "{size}");
        let metrics = &ran.succeeded().task(address)["metrics"];
        for (name, expected) in [
            ("model/parameters", count),
            ("chosen/parameters", count),
            ("chosen/dim", size["dim"].as_f64().unwrap()),
            // The second evaluation is not an improvement by 1.
            ("stopped/step", 10.0),
        ] {
            assert_eq!(metrics[name].as_f64(), Some(expected), "{name} of {address}: {metrics}");
        }
        assert!(metrics["kept/step"].as_f64().is_some_and(|step| step <= 10.0), "{metrics}");
    }
    let text = |args: &[&str]| String::from_utf8_lossy(&home.output(args).stdout).into_owned();
    let table = text(&["plan", &fixture("sized.yaml"), "-P", "size=5k"]);
    assert!(table.contains("parameters") && table.contains("(dim "), "{table}");
    let shown = text(&["show", "latest"]);
    let heading = shown.lines().find(|line| line.contains("parameters"));
    assert!(heading.is_some_and(|heading| heading.contains("dim")), "{shown}");
}

#[test]
fn a_size_out_of_reach_is_refused_by_the_plan() {
    let output = Home::new().output(&["plan", &fixture("sized.yaml"), "-P", "size=10"]);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no width gives 10 parameters within 5 %; the nearest are ") && said.contains("(dim 1)"),
        "{said}"
    );
    assert!(said.contains("CANNOT RUN"), "{said}");
}
