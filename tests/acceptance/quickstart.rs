//! The main job: the quickstart of the README.

use std::process::Command;

use assay_store::Store;
use serde_json::Value;

use crate::support::Home;

#[test]
fn the_quickstart_does_all_that_it_says() {
    let home = Home::new();
    let ran = home.run("quickstart.yaml", &[]);
    let tasks = ran.succeeded().tasks();
    let of = |job: &'static str| tasks.iter().filter(move |task| task["job"] == job);
    assert_eq!((of("ten").count(), of("transformer").count()), (8, 2));
    for task in of("export") {
        assert!(metric(task, "export/max_difference") <= 1e-4, "{task:#}");
    }
    for task in of("benchmark") {
        for model in ["f32", "int8"] {
            assert!(metric(task, &format!("latency/{model}/64/median")) > 0.0, "{task:#}");
        }
    }
    for task in of("quantize") {
        assert!(metric(task, "quantized/accuracy") > 0.0, "{task:#}");
    }
    crate::documentation::every_metric_is_described(&ran);
    let again = home.run("quickstart.yaml", &[]);
    assert!(again.succeeded().worked().is_empty(), "the same file again runs nothing");
    the_loss_falls_in_every_cell(&home, ran.tasks());
    a_second_runtime_agrees(&home, of("export"));
}

fn metric(task: &Value, name: &str) -> f64 {
    task["metrics"][name].as_f64().unwrap_or_else(|| panic!("no number `{name}` in {task:#}"))
}

/// Compares the first tenth of the curve with the last, since single points are noisy.
fn the_loss_falls_in_every_cell(home: &Home, tasks: &[Value]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for (ix, task) in (0..).map(assay_core::TaskIx).zip(tasks) {
        if task["metrics"]["train/loss"].is_null() {
            continue;
        }
        let name = vec!["train/loss".to_owned()];
        let curve = runtime.block_on(async {
            let store = Store::open_read_only(&home.store()).await.expect("the store");
            store.series(assay_core::RunId(1), ix, None, &name, None).await.expect("the curve")
        });
        let values = &curve.series.first().expect("a curve of the training loss").values;
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let tenth = (values.len() / 10).max(1);
        let (first, last) = (mean(&values[..tenth]), mean(&values[values.len() - tenth..]));
        assert!(last < 0.95 * first, "the loss of {} does not visibly fall: {first} -> {last}", task["address"]);
    }
}

/// onnxruntime, installed by `tests/run`, computes the same results as the models.
fn a_second_runtime_agrees<'a>(home: &Home, exports: impl Iterator<Item = &'a Value>) {
    let python = std::env::var_os("ASSAY_TEST_PYTHON").expect("ASSAY_TEST_PYTHON is set by tests/run");
    let mut check = Command::new(python);
    check.arg(assay_tests::root().join("tests/onnx/check.py"));
    for export in exports {
        for output in ["onnx", "reference"] {
            let hash = export["outputs"][output]["$artifact"].as_str().expect("an artifact");
            check.arg(home.artifact(hash).expect("the artifact is in the store"));
        }
    }
    let output = check.output().expect("python starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}
