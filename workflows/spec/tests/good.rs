//! Files without problems: their meaning, as whole states.

use std::fmt::Write;

use assay_spec::{Backoff, Escalation, Job, Resource, Retry, Task, Workflow, check};
use serde_json::json;

mod fake;

fn checked(text: &str) -> Workflow {
    check("good.yaml", text, &fake::kinds(), &[]).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The whole content of a workflow, destructured so that a new field cannot hide.
fn show(workflow: &Workflow) -> String {
    let mut out = String::new();
    let Workflow { name, description, params, jobs, tasks, .. } = workflow;
    writeln!(out, "{name} ({description:?}) {}", json!(params)).unwrap();
    for Job { name, kind, needs, tasks, awaits, max_parallel, fail_fast } in jobs {
        assert_eq!(*awaits, None);
        writeln!(out, "job {name}: {kind} needs {needs:?} tasks {tasks:?} at most {max_parallel:?} fast {fail_fast}")
            .unwrap();
    }
    for (place, task) in tasks.iter().enumerate() {
        let Task {
            address,
            cell,
            job,
            job_index,
            kind,
            matrix,
            replicate,
            needs,
            each,
            resources,
            retry,
            timeout,
            max_parallel,
            trigger,
            continue_on_error,
        } = task;
        assert_eq!(workflow.jobs[*job_index].name, *job);
        assert_eq!(*address, replicate.map_or_else(|| cell.clone(), |number| format!("{cell}#{number}")));
        let Retry { max, when, backoff: Backoff { duration, factor }, escalate, exclude_node } = retry;
        let Escalation { memory: memory_factor, timeout: timeout_factor } = escalate;
        writeln!(out, "{place:2} {address} = {job}/{kind} {} #{replicate:?}", json!(matrix)).unwrap();
        writeln!(out, "   needs {needs:?} each {each:?} timeout {timeout:?} at most {max_parallel:?}").unwrap();
        writeln!(out, "   after {trigger:?}, continue on error {continue_on_error}").unwrap();
        writeln!(out, "   retry {max} {} {duration:?} x{factor}", when.join("|")).unwrap();
        if memory_factor.or(*timeout_factor).is_some() || *exclude_node {
            writeln!(out, "   then memory x{memory_factor:?} timeout x{timeout_factor:?} elsewhere {exclude_node}")
                .unwrap();
        }
        for Resource { backend, cpus, memory, exclusive, label } in resources {
            writeln!(
                out,
                "   on {backend} cpus {cpus} memory {memory:?} exclusive {exclusive}{}",
                label.as_ref().map(|label| format!(" label {label}")).unwrap_or_default()
            )
            .unwrap();
        }
    }
    out
}

#[test]
fn a_sweep_becomes_tasks() {
    insta::assert_snapshot!(show(&checked(include_str!("good/sweep.yaml"))));
}

#[test]
fn plain_yaml_is_understood() {
    insta::assert_snapshot!(show(&checked(include_str!("good/plain.yaml"))));
}

#[test]
fn an_override_keeps_its_type() {
    let text = "params: {seed: 17, lr: 0.5, name: x, on: false, list: [1]}\njobs: {a: {uses: report}}";
    let set = |pairs: &[(&str, &str)]| {
        let overrides: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        check("f.yaml", text, &fake::kinds(), &overrides).map(|workflow| json!(workflow.params))
    };
    assert_eq!(
        set(&[("seed", "18"), ("lr", "2"), ("name", "18"), ("on", "true"), ("list", "[2, \"a\"]")]),
        Ok(json!({"seed": 18, "lr": 2.0, "name": "18", "on": true, "list": [2, "a"]}))
    );
    let problems = set(&[("seed", "x"), ("lr", "fast"), ("on", "yes"), ("list", "2"), ("sed", "1")]).unwrap_err();
    insta::assert_snapshot!(problems.to_string());
}

#[test]
fn environment_variables_are_not_visible() {
    let text = "jobs: {a: {uses: report, with: {title: \"${{ env.LAB }}\"}}}";
    let error = check("f.yaml", text, &fake::kinds(), &[]).unwrap_err().to_string();
    assert!(error.contains("unknown name `env`") && error.contains("set it with `-P NAME=VALUE`"), "{error}");
}

#[test]
fn a_workflow_without_a_name_is_called_as_its_file() {
    let named = |file: &str| check(file, "jobs: {a: {uses: report}}", &fake::kinds(), &[]).unwrap().name;
    assert_eq!(named("catalog/quick.start.yaml"), "quick.start");
    assert_eq!(named("x.yml"), "x");
    assert_eq!(named(""), "workflow");
}

#[test]
fn an_axis_that_changes_nothing_is_pointed_out() {
    let warned = |jobs: &str| {
        let workflow = checked(&format!("jobs:\n{jobs}"));
        workflow.warnings.problems.iter().map(|problem| (problem.line, problem.message.clone())).collect::<Vec<_>>()
    };
    let found = warned(
        "  a:\n    strategy: {matrix: {title: [x, y], seed: [1, 2, 3]}}\n    uses: report\n    with: {title: \"${{ matrix.title }}\"}",
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, 3);
    assert!(found[0].1.contains("`seed`") && found[0].1.contains("3 values"), "{found:?}");
    let with = "uses: report\n    with: {title: \"t${{ matrix.seed }}\"}";
    for used in [
        format!("  a:\n    strategy: {{matrix: {{seed: [1, 2]}}}}\n    {with}"),
        "  a:\n    strategy: {matrix: {seed: [1]}}\n    uses: report".to_owned(),
        "  a:\n    strategy: {matrix: {seed: [1, 2]}}\n    uses: report\n    with: {title: \"t${{ matrix | length }}\"}".to_owned(),
        "  a:\n    strategy: {matrix: {cpus: [1, 2]}}\n    uses: report\n    resources: [{cpus: \"${{ matrix.cpus }}\"}]".to_owned(),
        // The axis selects the cell of `a`.
        format!("  a:\n    strategy: {{matrix: {{seed: [1, 2]}}}}\n    {with}\n  b:\n    needs: [a]\n    strategy: {{matrix: {{seed: [1, 2]}}}}\n    uses: report"),
        // Inherited, not the job's own.
        format!("  a:\n    strategy: {{matrix: {{seed: [1, 2]}}}}\n    {with}\n  b:\n    strategy: {{each: a}}\n    uses: report"),
    ] {
        assert_eq!(warned(&used), [], "{used}");
    }
    let unused_in_each = format!(
        "  a:\n    strategy: {{matrix: {{seed: [1, 2]}}}}\n    {with}\n  b:\n    strategy: {{each: a, matrix: {{length: [1, 2]}}}}\n    uses: report"
    );
    assert_eq!(warned(&unused_in_each).len(), 1);
}
