//! Jobs whose cells depend on results, and the tasks that they get.

use std::collections::BTreeMap;

use assay_spec::{ArtifactRef, Conclusion, Decision, Expanded, Finished, Output, Outputs, Workflow, check};
use serde_json::json;

mod fake;

const HEAD: &str = "jobs:\n  data: {uses: prepare, with: {dataset: text, file: x}}\n  train:\n    needs: data\n    uses: train\n    \
                    strategy: {matrix: {states: [4, 8]}}\n    with: {data: \"${{ needs.data.outputs.dataset }}\", model: {family: ten, dim: 1, states: \"${{ matrix.states }}\"}}\n";

fn checked(jobs: &str) -> Workflow {
    let text = format!("{HEAD}{jobs}");
    check("f.yaml", &text, &fake::kinds(), &[]).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Every task succeeds; a training reports its index as its loss.
fn success(task: usize) -> Option<Finished> {
    let file = ArtifactRef { hash: format!("{task:064x}"), name: "file".into(), bytes: 1 };
    let mut outputs: Outputs =
        ["dataset", "model"].map(|name| (name.to_owned(), Output::Artifact(file.clone()))).into();
    outputs.insert("tokenizer".into(), Output::Value(json!([2, 3])));
    let metrics = BTreeMap::from([("valid/loss".to_owned(), task as f64)]);
    Some(Finished { conclusion: Conclusion::Success, outputs, metrics })
}

fn place(workflow: &Workflow, job: &str) -> usize {
    workflow.jobs.iter().position(|known| known.name == job).unwrap()
}

fn expand(workflow: &Workflow, job: &str) -> Expanded {
    workflow.expand(place(workflow, job), &success)
}

/// The addresses of the tasks from an index on.
fn addresses(expanded: &Expanded) -> Vec<&str> {
    expanded.workflow.tasks[expanded.first..].iter().map(|task| task.address.as_str()).collect()
}

/// The needs of a task, by their addresses.
fn needs<'a>(workflow: &'a Workflow, address: &str) -> Vec<&'a str> {
    let task = workflow.tasks.iter().find(|task| task.address == address).unwrap();
    task.needs.iter().map(|&need| workflow.tasks[need].address.as_str()).collect()
}

#[test]
fn the_cells_of_a_job_follow_from_results_and_what_is_behind_it_follows_with_it() {
    let workflow = checked(
        "  refine:\n    needs: train\n    uses: report\n    strategy: {matrix: {states: \"${{ [best(needs.train, 'valid/loss').matrix.states, 5] }}\", n: [1, 2]}, replicates: 2}\n    \
         with: {title: \"s${{ matrix.states }}\"}\n  each: {uses: report, strategy: {each: refine}}\n  axis: {uses: report, needs: refine, strategy: {matrix: {states: [5]}}}\n  \
         other: {uses: report}\n",
    );
    assert_eq!(
        workflow.tasks.iter().map(|task| task.address.as_str()).collect::<Vec<_>>(),
        ["data", "train[states=4]", "train[states=8]", "other"]
    );
    let awaits = |job: &str| workflow.jobs[place(&workflow, job)].awaits.clone();
    assert_eq!((awaits("refine"), awaits("each"), awaits("axis")), (Some(vec![1]), Some(vec![2]), Some(vec![2])));
    assert_eq!(awaits("other"), None);
    let expanded = expand(&workflow, "refine");
    assert_eq!((expanded.first, expanded.jobs.as_slice()), (4, [2, 3, 4].as_slice()));
    assert_eq!(addresses(&expanded)[..2], ["refine[n=1,states=4]#1", "refine[n=2,states=4]#1"]);
    assert_eq!(addresses(&expanded).len(), 8 + 8 + 1);
    let after = &expanded.workflow;
    assert!(after.jobs.iter().all(|job| job.awaits.is_none() && !job.tasks.is_empty()));
    assert_eq!(needs(after, "each[n=2,states=5]#2"), ["refine[n=2,states=5]#2"]);
    assert_eq!(needs(after, "axis[states=5]").len(), 4);
    // The cells depend on all of `train`, which has no cell with five states.
    assert_eq!(needs(after, "refine[n=1,states=5]#1"), ["train[states=4]", "train[states=8]"]);
    assert!(after.tasks.iter().enumerate().all(|(place, task)| task.needs.iter().all(|&need| need < place)));
    let ix = after.tasks.iter().position(|task| task.address == "refine[n=1,states=5]#1").unwrap();
    assert_eq!(after.resolve(ix, &success).unwrap().config["title"], json!("s5"));
    // The existing tasks are unchanged.
    assert_eq!(after.tasks[..4], workflow.tasks[..]);
}

#[test]
fn cells_may_follow_from_cells_that_followed_from_results() {
    let workflow = checked(
        "  one: {uses: train, needs: [data, train], strategy: {matrix: {states: \"${{ [best(needs.train, 'valid/loss').matrix.states] }}\"}}, \
         with: {data: \"${{ needs.data.outputs.dataset }}\", model: {family: ten, dim: 1, states: \"${{ matrix.states }}\"}}}\n  \
         two: {uses: report, needs: one, strategy: {matrix: {n: \"${{ needs.one.outputs.tokenizer }}\"}}}\n",
    );
    let first = expand(&workflow, "one");
    assert_eq!(addresses(&first), ["one[states=4]"]);
    assert_eq!(first.workflow.jobs[place(&workflow, "two")].awaits, Some(vec![place(&workflow, "one")]));
    let second = expand(&first.workflow, "two");
    assert_eq!(addresses(&second), ["two[n=2]", "two[n=3]"]);
    assert_eq!(needs(&second.workflow, "two[n=3]"), ["one[states=4]"]);
}

#[test]
fn an_axis_may_list_several_values_that_follow_from_results() {
    let workflow = checked(
        "  r:\n    uses: report\n    needs: train\n    strategy:\n      matrix:\n        n:\n          \
         - \"${{ best(needs.train, 'valid/loss').matrix.states - 1 }}\"\n          \
         - \"${{ best(needs.train, 'valid/loss').matrix.states + 1 }}\"\n          - {x: \"${{ needs.train.result }}\"}\n",
    );
    assert_eq!(addresses(&expand(&workflow, "r")).len(), 3);
    assert_eq!(addresses(&expand(&workflow, "r"))[..2], ["r[n=3]", "r[n=5]"]);
}

#[test]
fn a_whole_matrix_may_be_computed() {
    let matrix = |value: &str| {
        let text = format!(
            "params: {{grid: {{a: [1, 2], exclude: [{{a: 1}}], include: [{{b: 3}}]}}}}\njobs:\n  r: {{uses: report, strategy: {{matrix: \"${{{{ {value} }}}}\"}}}}\n"
        );
        check("f.yaml", &text, &fake::kinds(), &[])
    };
    let workflow = matrix("params.grid").unwrap();
    assert_eq!(workflow.tasks.iter().map(|task| task.address.as_str()).collect::<Vec<_>>(), ["r[a=2,b=3]"]);
    let refused = |value: &str| matrix(value).unwrap_err().to_string();
    assert!(refused("[1, 2]").contains("`matrix` takes a mapping of lists, not"), "{}", refused("[1, 2]"));
    assert!(refused("{'a': 1}").contains("the axis `a` takes a list of values"), "{}", refused("{'a': 1}"));
    assert!(refused("{'a b': [1]}").contains("cannot be the name of an axis"));
    let workflow = checked(
        "  r: {uses: report, needs: train, strategy: {matrix: \"${{ {'states': needs.train.cells | map(attribute='matrix.states') | list} }}\"}}\n",
    );
    assert_eq!(addresses(&expand(&workflow, "r")), ["r[states=4]", "r[states=8]"]);
}

/// The messages of the single task of a job whose cells could not be computed.
fn fails(matrix: &str) -> String {
    let workflow = checked(&format!(
        "  one: {{uses: train, needs: data, with: {{data: \"${{{{ needs.data.outputs.dataset }}}}\", model: {{family: ten, dim: 1, states: 1}}}}}}\n  \
         r:\n    uses: report\n    needs: [one, train]\n    strategy: {{matrix: {matrix}}}\n  behind: {{uses: report, strategy: {{each: r}}}}\n"
    ));
    let expanded = expand(&workflow, "r");
    assert_eq!(addresses(&expanded), ["r", "behind"]);
    assert_eq!(needs(&expanded.workflow, "behind"), ["r"]);
    assert_eq!(expanded.workflow.condition(expanded.first, &success), Ok(Decision::default()));
    expanded.workflow.resolve(expanded.first, &success).unwrap_err().to_string()
}

#[test]
fn cells_that_cannot_be_decided_fail_one_task_with_the_reason() {
    let cases: [(&str, &[&str]); 6] = [
        (
            "{x: \"${{ needs.one.outputs.model }}\"}",
            &["the axis `x` takes a list of values, not an artifact", "f.yaml:12:"],
        ),
        (
            "{x: \"${{ needs.one.metrics['valid/loss'] }}\"}",
            &["takes a list of values, not the number", "give it a list"],
        ),
        ("{x: \"${{ [] if needs.one.result else [] }}\"}", &["the axis `x` has no values"]),
        ("\"${{ needs.one.outputs.tokenizer }}\"", &["`matrix` takes a mapping of lists"]),
        ("\"${{ needs.one.outputs.model }}\"", &["`matrix` takes a mapping of lists, not an artifact"]),
        ("{x: \"${{ [needs.one.metrics['ten/none']] }}\"}", &["`one` has no metric `ten/none`"]),
    ];
    for (matrix, words) in cases {
        let error = fails(matrix);
        assert!(error.starts_with("the cells of `r` cannot be decided"), "{error}");
        assert!(words.iter().all(|word| error.contains(word)), "{matrix}: {error}");
    }
}

#[test]
fn a_job_that_will_be_skipped_has_one_task_and_no_error() {
    let jobs = |condition: &str| {
        checked(&format!(
            "  r:\n    uses: report\n    needs: train\n    if: {condition}\n    strategy: {{matrix: {{x: \"${{{{ [best(needs.train, 'valid/loss').matrix.states] }}}}\"}}}}\n"
        ))
    };
    let failed = |task: usize| match task {
        1 => Some(Finished::without_result(Conclusion::Failure)),
        _ => success(task),
    };
    let none_left = |_: usize| Some(Finished::without_result(Conclusion::Failure));
    let expand = |condition: &str, finished: &dyn Fn(usize) -> Option<Finished>| {
        let workflow = jobs(condition);
        let expanded = workflow.expand(place(&workflow, "r"), finished);
        let condition = expanded.workflow.condition(expanded.first, finished).unwrap().skipped;
        (addresses(&expanded).join(" "), condition, expanded.warnings)
    };
    // Its trigger rule skips it.
    assert_eq!(expand("true", &failed).0, "r");
    assert_eq!(expand("1 > 2", &success), ("r".into(), Some("its condition `1 > 2` is false".into()), vec![]));
    let (cells, condition, warnings) = expand("always()", &failed);
    assert_eq!((cells.as_str(), condition), ("r[x=8]", None));
    assert!(warnings[0].contains("`train[states=4]` is left out"), "{warnings:?}");
    assert_eq!(expand("failure() and false", &none_left).0, "r");
}

#[test]
fn a_part_of_a_workflow_keeps_the_jobs_that_decide_its_cells() {
    let workflow = checked(
        "  other: {uses: report}\n  r: {uses: report, needs: train, strategy: {matrix: {x: \"${{ [best(needs.train, 'valid/loss').matrix.states] }}\"}}}\n",
    );
    let part = workflow.only(&["r".to_owned()]).unwrap();
    assert_eq!(part.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["data", "train", "r"]);
    assert_eq!(addresses(&expand(&part, "r")), ["r[x=4]"]);
}

#[test]
fn the_backends_of_jobs_without_tasks_are_known() {
    let workflow = checked(
        "  r: {uses: report, needs: train, resources: [{backend: cuda}], strategy: {matrix: {x: \"${{ [best(needs.train, 'valid/loss').matrix.states] }}\"}}}\n",
    );
    assert_eq!(workflow.backends().into_iter().collect::<Vec<_>>(), ["cpu", "cuda"]);
    // Also if an axis names them, either its own or one of the job that it is derived from.
    let workflow = checked(
        "  r:\n    uses: report\n    needs: train\n    resources: [{backend: \"${{ matrix.on }}\"}]\n    \
         strategy: {matrix: {on: [cuda, torch], x: \"${{ [best(needs.train, 'valid/loss').matrix.states] }}\", include: [{on: rocm, x: 2}]}}\n  \
         s: {uses: report, strategy: {each: r, matrix: {suffix: [a, b]}}, resources: {backend: \"${{ each.matrix.on }}-${{ matrix.suffix }}\"}}\n",
    );
    let backends = workflow.backends();
    for backend in ["cuda", "torch", "rocm", "cuda-a", "rocm-b"] {
        assert!(backends.contains(backend), "{backend}: {backends:?}");
    }
    // Jobs that are derived from two others, level by level: each is visited once.
    let mut jobs = "  a0: {uses: report, needs: train, strategy: {matrix: {x: \"${{ [needs.train.result] }}\"}}}\n  b0: {uses: report, needs: a0}\n".to_owned();
    for level in 1..30 {
        let above = level - 1;
        for name in ["a", "b"] {
            jobs.push_str(&format!(
                "  {name}{level}: {{uses: report, strategy: {{each: [a{above}, b{above}]}}, resources: {{backend: \"${{{{ matrix.job }}}}\"}}}}\n"
            ));
        }
    }
    assert!(checked(&jobs).backends().contains("a28"));
}

#[test]
fn settings_of_jobs_behind_decided_cells_can_use_their_axes() {
    let check = |settings: &str| {
        let text = format!(
            "{HEAD}  r: {{uses: report, needs: train, strategy: {{matrix: \"${{{{ {{'x': [best(needs.train, 'valid/loss').matrix.states]}} }}}}\"}}}}\n  \
             s: {{uses: report, strategy: {{each: r}}, {settings}}}\n"
        );
        check("f.yaml", &text, &fake::kinds(), &[]).unwrap_or_else(|problems| panic!("{problems}"))
    };
    let expanded = expand(&check("timeout-minutes: \"${{ each.matrix.x }}\""), "r");
    assert_eq!(addresses(&expanded), ["r[x=4]", "s[x=4]"]);
    assert_eq!(expanded.workflow.tasks.last().unwrap().timeout.as_secs(), 240);
    assert_eq!(expanded.workflow.resolve(expanded.first + 1, &success).map(|step| step.kind), Ok("report".into()));
    // A value that the cells lack is found once they are known: in settings, and in a condition.
    for settings in ["timeout-minutes: \"${{ each.matrix.y }}\"", "if: matrix.y > 1"] {
        let expanded = expand(&check(settings), "r");
        let error = expanded.workflow.resolve(expanded.first + 1, &success).unwrap_err().to_string();
        assert!(error.contains("has no axis `y`"), "{settings}: {error}");
    }
}

#[test]
fn a_task_that_stands_for_a_job_without_cells_keeps_continue_on_error() {
    let workflow = |tolerated: &str| {
        checked(&format!(
            "  r: {{uses: report, needs: train, continue-on-error: {tolerated}, strategy: {{matrix: {{x: \"${{{{ [] if needs.train.result else [] }}}}\"}}}}}}\n  \
             s: {{uses: report, strategy: {{each: r}}, timeout-minutes: \"${{{{ each.matrix.x }}}}\", continue-on-error: {tolerated}}}\n"
        ))
    };
    for (tolerated, expected) in
        [("true", true), ("false", false), ("\"${{ 1 < 2 }}\"", true), ("\"${{ matrix.x > 1 }}\"", false)]
    {
        let expanded = expand(&workflow(tolerated), "r");
        assert_eq!(addresses(&expanded), ["r", "s"]);
        let found: Vec<bool> = expanded.workflow.tasks[expanded.first..].iter().map(|t| t.continue_on_error).collect();
        assert_eq!(found, [expected; 2], "{tolerated}");
        assert!(
            expanded.workflow.resolve(expanded.first, &success).unwrap_err().to_string().contains("cannot be decided")
        );
        // The settings of a derived job are not a separate error.
        let derived = expanded.workflow.resolve(expanded.first + 1, &success);
        assert!(derived.is_ok(), "{derived:?}");
    }
}

#[test]
fn cells_behind_a_condition_on_failures_wait_for_everything_above() {
    let jobs = |condition: &str| {
        checked(&format!(
            "  mid: {{uses: report, needs: train}}\n  \
             r: {{uses: report, needs: mid, if: {condition}, strategy: {{matrix: {{x: \"${{{{ [needs.mid.result] }}}}\"}}}}}}\n"
        ))
    };
    let awaits = |condition: &str| {
        let workflow = jobs(condition);
        workflow.jobs[place(&workflow, "r")].awaits.clone()
    };
    assert_eq!((awaits("always()"), awaits("failure()")), (Some(vec![2]), Some(vec![0, 1, 2])));
    let workflow = jobs("failure()");
    assert_eq!(workflow.deciders(place(&workflow, "r")), [place(&workflow, "mid")]);
    let ended = |task: usize| match task {
        1 => Some(Finished::without_result(Conclusion::Failure)),
        3 => Some(Finished::without_result(Conclusion::Skipped)),
        _ => success(task),
    };
    assert_eq!(addresses(&workflow.expand(place(&workflow, "r"), &ended)), ["r[x=skipped]"]);
}

#[test]
fn a_matrix_from_results_is_checked_before_the_run_as_far_as_it_can_be() {
    let told = |matrix: &str| {
        let text =
            format!("{HEAD}  r: {{uses: report, needs: train, strategy: {{matrix: {matrix}, replicates: 2}}}}\n");
        check("f.yaml", &text, &fake::kinds(), &[]).unwrap_err().to_string()
    };
    let cases = [
        ("{x: \"${{ needs.train.outputs.tokenizer }}\"}", "the matrix of `r` has 2 tasks of `train` to choose from"),
        ("{x: \"${{ needs.data.outputs.dataset }}\"}", "`data` is not among the needs of `r`"),
        ("{x: \"${{ [best(needs.train, 'valid/lss').matrix.states] }}\"}", "did you mean `valid/loss`?"),
        ("{x: \"${{ [matrix.y, needs.train.result] }}\", y: [1]}", "`matrix` cannot be used in `strategy.matrix`"),
        ("{x: \"${{ needs.train.cells }}\", y: 3}", "the axis `y` takes a list of values"),
    ];
    for (matrix, words) in cases {
        assert!(told(matrix).contains(words), "{matrix}: {}", told(matrix));
    }
    let replicates = format!(
        "{HEAD}  r: {{uses: report, needs: train, strategy: {{replicates: \"${{{{ needs.train.cells | length }}}}\"}}}}\n"
    );
    let error = check("f.yaml", &replicates, &fake::kinds(), &[]).unwrap_err().to_string();
    assert!(error.contains("`needs` cannot be used in `strategy`"), "{error}");
}
