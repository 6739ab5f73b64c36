//! Results of finished tasks in expressions: metrics, collected cells, `best`, and conditions.

use std::collections::BTreeMap;

use assay_spec::{
    ArtifactRef, Conclusion, Decision, Finished, Output, Outputs, ResolvedStep, TriggerRule, Workflow, check,
};
use serde_json::{Value, json};

mod fake;

fn checked(text: &str) -> Workflow {
    check("f.yaml", text, &fake::kinds(), &[]).unwrap_or_else(|problems| panic!("{problems}"))
}

/// A training that produced a model, and reported these metrics.
fn trained(place: usize, metrics: &[(&str, f64)]) -> Finished {
    let hash = format!("{place:064x}");
    let model = Output::Artifact(ArtifactRef { hash, name: "model".into(), bytes: 1 });
    let outputs = Outputs::from([("model".to_owned(), model), ("dataset".to_owned(), Output::Value(json!({})))]);
    let metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Finished { conclusion: Conclusion::Success, outputs, metrics }
}

/// A sweep over two state counts with two replicates, and a report with these values.
fn sweep(values: &str) -> Workflow {
    checked(&format!(
        "params: {{metric: valid/loss}}\njobs:\n  data: {{uses: prepare, with: {{dataset: text, file: x}}}}\n  train:\n    \
         needs: data\n    uses: train\n    strategy: {{matrix: {{states: [4, 8]}}, replicates: 2}}\n    \
         with: {{data: \"${{{{ needs.data.outputs.dataset }}}}\", model: {{family: ten, dim: 1, states: \"${{{{ matrix.states }}}}\"}}}}\n  \
         report:\n    uses: report\n    needs: train\n    with:\n      values: {{v: \"${{{{ {values} }}}}\"}}\n"
    ))
}

/// The validation losses of the four trainings, in the order 4#1, 8#1, 4#2, 8#2; `None` for a failed one.
type Losses = [Option<f64>; 4];

const LOSSES: Losses = [Some(0.5), Some(0.25), Some(0.75), Some(0.5)];

fn report(workflow: &Workflow, losses: Losses) -> Result<ResolvedStep, String> {
    let finished = |task: usize| match task {
        0 => Some(trained(0, &[])),
        _ => Some(match losses[task - 1] {
            Some(loss) => trained(task, &[("valid/loss", loss), ("valid/accuracy", 1.0 - loss)]),
            None => Finished::without_result(Conclusion::Failure),
        }),
    };
    workflow.resolve(5, &finished).map_err(|error| error.to_string())
}

fn value(expression: &str, losses: Losses) -> Result<Value, String> {
    report(&sweep(expression), losses).map(|step| step.config["values"]["v"].clone())
}

#[track_caller]
fn gives(expression: &str, expected: Value) {
    assert_eq!(value(expression, LOSSES), Ok(expected), "{expression}");
}

#[track_caller]
fn fails(expression: &str, losses: Losses, words: &[&str]) {
    let error = value(expression, losses).unwrap_err();
    assert!(words.iter().all(|word| error.contains(word)), "{expression}: {error}");
}

#[test]
fn metrics_are_collected_over_cells() {
    gives("needs.train.cells | map(attribute='metrics.valid/loss') | list", json!([0.5, 0.25, 0.75, 0.5]));
    gives("needs.train.cells | map(attribute='metrics.valid/loss') | sum / 4", json!(0.5));
    gives("needs.train.cells[2].metrics['valid/loss'] + needs.train.cells[2].replicate", json!(2.75));
    gives(
        "needs.train.cells | selectattr('metrics.valid/loss', 'lt', 0.4) | map(attribute='matrix.states') | list",
        json!([8]),
    );
    gives("needs.train.cells | map(attribute='result') | unique", json!(["success"]));
    gives("needs.train.result", json!("success"));
    let not_finite = [Some(f64::NAN), Some(1.0), Some(1.0), Some(1.0)];
    fails(
        "needs.train.cells[0].metrics['valid/loss']",
        not_finite,
        &["`train[states=4]#1` is not finite: NaN", "f.yaml:13:"],
    );
    let expression = "needs.train.cells | map(attribute='metrics.valid/loss') | sum";
    fails(expression, not_finite, &["the metric `valid/loss` of `train[states=4]#1` is not finite"]);
    fails(
        "needs.train.cells[0].metrics['valid/lss']",
        LOSSES,
        &["has no metric `valid/lss`", "did you mean `valid/loss`?"],
    );
    let failed = [None, Some(1.0), Some(1.0), Some(1.0)];
    fails("needs.train.cells[0].outputs.model", failed, &["`train[states=4]#1` has no output `model`", "it failed"]);
    assert_eq!(value("needs.train.result", failed), Ok(json!("failure")));
    assert_eq!(value("needs.train.cells[0].metrics['valid/loss'] | default(9)", failed), Ok(json!(9)));
}

#[test]
fn filters_that_compare_refuse_metrics_that_are_missing_or_not_finite() {
    let losses = "needs.train.cells | map(attribute='metrics.valid/loss')";
    let filters = [
        format!("{losses} | max"),
        format!("{losses} | min"),
        format!("{losses} | sort | first"),
        format!("{losses} | unique | length"),
        "needs.train.cells | sort(attribute='metrics.valid/loss') | map(attribute='replicate') | first".to_owned(),
        "needs.train.cells | unique(attribute='metrics.valid/loss') | length".to_owned(),
        "needs.train.cells | sum(attribute='metrics.valid/loss')".to_owned(),
        "needs.train.cells | sum('metrics.valid/loss')".to_owned(),
        "needs.train.cells | selectattr('metrics.valid/loss', 'lt', 1) | length".to_owned(),
        "needs.train.cells | selectattr('metrics.valid/loss') | length".to_owned(),
        "[needs.train.cells[0].metrics['valid/loss'], 1, needs.train.cells[2].metrics['valid/loss']] | max".to_owned(),
    ];
    for expression in &filters {
        assert!(value(expression, LOSSES).is_ok(), "{expression}");
        let not_finite = [Some(0.5), Some(0.25), Some(f64::NAN), Some(1.0)];
        fails(expression, not_finite, &["the metric `valid/loss` of `train[states=4]#2` is not finite: NaN"]);
        let failed = [Some(0.5), Some(0.25), None, Some(1.0)];
        fails(expression, failed, &["`train[states=4]#2` has no metric `valid/loss`", "it failed"]);
    }
    // An expression can test whether a value exists, and replace a missing one.
    let failed = [Some(0.5), Some(0.25), None, Some(1.0)];
    let given = |expression: &str| value(expression, failed);
    let there = "needs.train.cells | selectattr('metrics.valid/loss', 'defined') | map(attribute='metrics.valid/loss')";
    assert_eq!(given(&format!("{there} | max")), Ok(json!(1.0)));
    assert_eq!(given("needs.train.cells | map(attribute='metrics.valid/loss', default=9) | max"), Ok(json!(9)));
    gives("needs.train.cells | sum(attribute='metrics.valid/loss') / 4", json!(0.5));
    gives(
        "needs.train.cells | sort(attribute='metrics.valid/loss') | map(attribute='replicate') | list",
        json!([1, 1, 2, 2]),
    );
}

#[test]
fn the_message_of_an_error_is_about_what_its_own_expression_looked_up() {
    let failed = [None, Some(1.0), Some(1.0), Some(1.0)];
    // The first value has a default; `matrix` is missing in the second one.
    fails(
        "[needs.train.cells[0].metrics['valid/loss'] | default(0), needs.train.cells[1].matrix.none] | list",
        failed,
        &["the expression has no value"],
    );
    fails(
        "0 if needs.train.cells[0].metrics['valid/loss'] is undefined and needs.train.cells[1].matrix.none else 1",
        failed,
        &["the expression has no value"],
    );
    // Of two expressions that fail, each has a separate reason.
    let both = "needs.train.cells[0].outputs.model }}\", w: \"${{ needs.train.cells[1].metrics['none']";
    let error = value(both, failed).unwrap_err();
    let at = |words: &str| error.find(words).unwrap_or_else(|| panic!("{words}: {error}"));
    let (output, metric) = (at("has no output `model`"), at("has no metric `none`"));
    assert!(output < metric && at("v: \"") < metric, "{error}");
    // A missing value that the first expression replaced is not a reason for an error of the second.
    let second =
        "needs.train.cells[0].metrics['valid/loss'] | default(1) }}\", w: \"${{ needs.train.cells[1].matrix.none";
    fails(second, failed, &["the expression has no value"]);
}

#[test]
fn best_takes_the_direction_that_the_config_of_the_job_declares() {
    let workflow = |with: &str, call: &str| {
        let text = format!(
            "params: {{better: lower}}\njobs:\n  tune: {{uses: program, strategy: {{matrix: {{n: [1, 2]}}}}, with: {{n: \"${{{{ matrix.n }}}}\", {with}}}}}\n  \
             report: {{uses: report, needs: tune, with: {{values: {{v: \"${{{{ {call} }}}}\"}}}}}}\n"
        );
        check("f.yaml", &text, &fake::kinds(), &[])
    };
    let chosen = |with: &str, call: &str| {
        let workflow = workflow(with, call).map_err(|problems| problems.to_string())?;
        let finished = |task: usize| Some(trained(task, &[("loss", task as f64)]));
        workflow.resolve(2, &finished).map(|step| step.config["values"]["v"].clone()).map_err(|error| error.to_string())
    };
    let best = "best(needs.tune, 'loss').matrix.n";
    assert_eq!(chosen("metrics: {loss: {better: lower}}", best), Ok(json!(1)));
    assert_eq!(chosen("metrics: {loss: {better: higher}}", best), Ok(json!(2)));
    assert_eq!(chosen("metrics: {loss: {better: \"${{ params.better }}\"}}", best), Ok(json!(1)));
    assert_eq!(
        chosen("metrics: {loss: {better: higher}}", "best(needs.tune, 'loss', mode='min').matrix.n"),
        Ok(json!(1))
    );
    for with in ["metrics: {loss: {}}", "metrics: {other: {better: lower}}", "note: none"] {
        let error = workflow(with, best).unwrap_err().to_string();
        assert!(error.contains("the metric `loss` has no better direction"), "{with}: {error}");
        assert!(error.contains("`metrics: {loss: {better: lower}}`"), "{with}: {error}");
        assert_eq!(chosen(with, "best(needs.tune, 'loss', mode='max').matrix.n"), Ok(json!(2)));
    }
    // A value that depends on the cell is not known before the run, nor for the job as a whole.
    let error = chosen("metrics: {loss: {better: \"${{ 'lower' if matrix.n else 'higher' }}\"}}", best).unwrap_err();
    assert!(error.contains("write `mode='min'` or `mode='max'`"), "{error}");
}

#[test]
fn a_condition_passes_on_what_best_had_to_leave_out() {
    let text = "jobs:\n  data: {uses: prepare, with: {dataset: text, file: x}}\n  train:\n    needs: data\n    uses: train\n    continue-on-error: true\n    \
                strategy: {matrix: {states: [4, 8]}}\n    with: {data: \"${{ needs.data.outputs.dataset }}\", model: {family: ten, dim: 1, states: 4}}\n  \
                report: {uses: report, needs: train, if: \"best(needs.train, 'valid/loss').metrics['valid/loss'] < 1\"}\n";
    let workflow = checked(text);
    let finished = |task: usize| match task {
        1 => Some(Finished::without_result(Conclusion::Failure)),
        _ => Some(trained(task, &[("valid/loss", 0.5)])),
    };
    let decision = workflow.condition(3, &finished).unwrap();
    assert_eq!(decision.skipped, None);
    assert!(decision.warnings[0].contains("`train[states=4]` is left out of `best("), "{decision:?}");
}

#[test]
fn the_metrics_of_one_task_are_numbers_in_the_config_and_its_key() {
    let text = "jobs:\n  data: {uses: prepare, with: {dataset: text, file: x}}\n  train:\n    needs: data\n    uses: train\n    \
                strategy: {matrix: {states: [4, 8]}}\n    with: {data: \"${{ needs.data.outputs.dataset }}\", model: {family: ten, dim: 1, states: 4}}\n  \
                axis:\n    needs: train\n    uses: report\n    strategy: {matrix: {states: [8]}}\n    with: {ratio: \"${{ needs.train.metrics['valid/loss'] }}\"}\n  \
                each:\n    uses: report\n    strategy: {each: train}\n    with: {ratio: \"${{ each.metrics['valid/loss'] }}\"}\n";
    let workflow = checked(text);
    let resolve = |task: usize, loss: f64| {
        let finished = move |place: usize| Some(trained(place, &[("valid/loss", loss + place as f64 / 8.0)]));
        workflow.resolve(task, &finished).unwrap()
    };
    let place = |address: &str| workflow.tasks.iter().position(|task| task.address == address).unwrap();
    let axis = resolve(place("axis[states=8]"), 0.25);
    assert_eq!(axis.config["ratio"], json!(0.5));
    assert_eq!(resolve(place("each[states=4]"), 0.25).config["ratio"], json!(0.375));
    assert_ne!(axis.key, resolve(place("axis[states=8]"), 0.125).key);
    assert_eq!(axis.key, resolve(place("axis[states=8]"), 0.25).key);
}

#[test]
fn best_takes_the_cell_with_the_best_mean() {
    gives("best(needs.train, 'valid/loss').matrix.states", json!(8));
    gives("best(needs.train, 'valid/loss').metrics['valid/loss']", json!(0.375));
    gives("best(needs.train, 'valid/accuracy').metrics['valid/accuracy']", json!(0.625));
    gives("best(needs.train, params.metric, mode='max').matrix", json!({"states": 4}));
    // Of the best cell, the outputs of its best replicate.
    gives("best(needs.train, 'valid/loss').outputs.model['$artifact']", json!(format!("{:064x}", 2)));
    gives("best(needs.train, 'valid/loss').replicate", json!(1));
    gives(
        "best(needs.train, 'valid/loss').replicates | map(attribute='metrics.valid/loss') | list",
        json!([0.25, 0.5]),
    );
    gives("best(needs.train, 'valid/loss').replicates | length", json!(2));
    // Of equal cells the first one, for either direction.
    let equal = [Some(0.5), Some(0.25), Some(0.5), Some(0.75)];
    for expression in
        ["best(needs.train, 'valid/loss').matrix.states", "best(needs.train, 'valid/loss', mode='max').matrix.states"]
    {
        assert_eq!(value(expression, equal), Ok(json!(4)), "{expression}");
    }
    fails("best(needs.train, params.metric, mode='least')", LOSSES, &["`mode` is 'min' or 'max', not 'least'"]);
    let text = "params: {a: 1}\njobs: {r: {uses: report, with: {values: {v: \"${{ best(params, 'valid/loss') }}\"}}}}";
    let error = check("f.yaml", text, &fake::kinds(), &[]).unwrap_err().to_string();
    assert!(error.contains("`best` takes a job that this one needs"), "{error}");
    fails("best(needs.train, 'valid/' ~ 'los').matrix", LOSSES, &["has no better direction"]);
    let expression = "best(needs.train, 'valid/' ~ 'los', mode='min').matrix";
    fails(expression, LOSSES, &["no cell of `train`", "did you mean `valid/loss`?"]);
    fails("best(needs.train, 'valid/loss').metrics['valid/' ~ 'los']", LOSSES, &["has no metric `valid/los`"]);
}

#[test]
fn a_cell_with_a_failed_replicate_is_left_out_of_best_with_a_warning() {
    let workflow = sweep("best(needs.train, 'valid/loss').matrix.states");
    let step = report(&workflow, [Some(0.5), Some(0.25), Some(0.75), None]).unwrap();
    assert_eq!(step.config["values"]["v"], json!(4));
    let expected = "`train[states=8]` is left out of `best(needs.train, 'valid/loss')`: `train[states=8]#2` failed";
    assert_eq!(step.warnings, [expected]);
    let step = report(&workflow, [Some(f64::INFINITY), Some(0.25), Some(0.75), Some(0.5)]).unwrap();
    assert_eq!(step.config["values"]["v"], json!(8));
    assert!(step.warnings[0].contains("is not finite: inf"), "{:?}", step.warnings);
    assert_eq!(report(&workflow, LOSSES).unwrap().warnings, [""; 0]);
    let none = report(&workflow, [None, Some(0.25), Some(0.75), None]).unwrap_err();
    assert!(none.contains("no cell of `train` has a usable `valid/loss`: `train[states=4]#1` failed"), "{none}");
    assert!(none.contains("f.yaml:13:"), "{none}");
}

/// The decision of a condition for a task that needs `a` and `b`, where `a` needs `root`.
fn condition(text: &str, conclusions: [Conclusion; 3]) -> Result<Option<String>, String> {
    let workflow = checked(&format!(
        "params: {{steps: 3}}\njobs:\n  root: {{uses: report, continue-on-error: false}}\n  a: {{uses: report, needs: root}}\n  \
         b: {{uses: report}}\n  last:\n    uses: report\n    needs: [a, b]\n    if: {text}\n"
    ));
    let place = |job: &str| workflow.tasks.iter().position(|task| task.job == job).unwrap();
    let known: BTreeMap<usize, Conclusion> = std::iter::zip(["root", "a", "b"].map(place), conclusions).collect();
    let finished = |task: usize| known.get(&task).map(|conclusion| Finished::without_result(*conclusion));
    workflow.condition(place("last"), &finished).map(|decision| decision.skipped).map_err(|error| error.to_string())
}

#[test]
fn conditions_ask_how_the_needs_ended() {
    use Conclusion::{Cancelled, Failure, Skipped, Success};
    let all = [Success, Success, Success];
    let cases = [
        ("success()", all, true),
        ("success()", [Success, Success, Failure], false),
        ("success()", [Success, Skipped, Success], false),
        // Further ancestors count only for `failure()`.
        ("success()", [Failure, Success, Success], true),
        ("failure()", [Failure, Skipped, Success], true),
        ("failure()", all, false),
        ("failure()", [Success, Skipped, Success], false),
        ("always()", [Failure, Skipped, Cancelled], true),
        ("cancelled()", [Success, Success, Cancelled], true),
        ("not cancelled()", all, true),
        ("${{ failure() or params.steps > 2 }}", all, true),
        ("needs.a.result == 'skipped' and always()", [Failure, Skipped, Success], true),
        ("params.steps > 3", all, false),
        ("false", all, false),
        ("true", all, true),
    ];
    for (text, conclusions, runs) in cases {
        let reason = condition(text, conclusions).unwrap();
        assert_eq!(reason.is_none(), runs, "{text} {conclusions:?}: {reason:?}");
        if let Some(reason) = reason {
            let written = text.trim_start_matches("${{ ").trim_end_matches(" }}");
            assert_eq!(reason, format!("its condition `{written}` is false"));
        }
    }
}

#[test]
fn a_condition_with_a_status_function_waits_for_all_needs() {
    let rule = |text: &str| checked(&format!("jobs:\n  a: {{uses: report, if: {text}}}")).tasks[0].trigger;
    assert_eq!(rule("1 > 2"), TriggerRule::AllSuccess);
    assert_eq!(rule("always()"), TriggerRule::AllDone);
    assert_eq!(rule("success() or cancelled()"), TriggerRule::AllDone);
    // It depends on all ancestors, which may still run while a need is already skipped.
    assert_eq!(rule("1 > 2 and not failure()"), TriggerRule::AncestorsDone);
}

#[test]
fn a_tolerated_failure_counts_as_a_success_and_leaves_no_outputs() {
    let workflow = checked(
        "jobs:\n  data: {uses: prepare, continue-on-error: true, with: {dataset: text, file: x}}\n  train:\n    needs: data\n    if: success()\n    \
         uses: train\n    with: {data: \"${{ needs.data.outputs.dataset }}\", model: {family: ten, dim: 1, states: 1}}\n",
    );
    assert!(workflow.tasks[0].continue_on_error && !workflow.tasks[1].continue_on_error);
    let failed = |_: usize| Some(Finished::without_result(Conclusion::Failure));
    assert_eq!(workflow.condition(1, &failed), Ok(Decision::default()));
    let error = workflow.resolve(1, &failed).unwrap_err().to_string();
    assert!(error.contains("`data` has no output `dataset`") && error.contains("it failed; see its log"), "{error}");
}

#[test]
fn continue_on_error_may_differ_between_cells() {
    let workflow = checked(
        "jobs:\n  a: {uses: report, strategy: {matrix: {n: [1, 2]}}, continue-on-error: \"${{ matrix.n == 2 }}\", with: {title: \"t${{ matrix.n }}\"}}",
    );
    assert_eq!(workflow.tasks.iter().map(|task| task.continue_on_error).collect::<Vec<_>>(), [false, true]);
}
