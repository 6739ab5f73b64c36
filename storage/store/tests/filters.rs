//! The filters of runs: their language, and what they find.

use std::collections::BTreeMap;
use std::time::Instant;

use assay_core::{Epoch, RunId, TaskIx};
use assay_server::{GitState, Marks, NewRun, NewTask, Record, RunStateName};
use assay_spec::{Better, MetricKind, Outputs, StepKind};
use assay_store::{FilterError, RunFilter, Store, quote_filter_value};
use serde_json::{Value, json};

const METRICS: &[MetricKind] =
    &[MetricKind { name: "test/accuracy", unit: "", better: Better::Higher, headline: Some("accuracy"), covers: "" }];

fn kinds() -> Vec<StepKind> {
    vec![StepKind {
        name: "train",
        version: 1,
        measures: false,
        about: "",
        schema: Value::Null.into(),
        outputs: &[],
        metrics: METRICS,
        check: |_| Vec::new(),
    }]
}

fn task(job: &str, matrix: Value, replicate: u32) -> NewTask {
    let matrix: BTreeMap<String, Value> = serde_json::from_value(matrix).unwrap();
    let cell = format!("{job}{}", serde_json::to_string(&matrix).unwrap());
    NewTask {
        address: format!("{cell}#{replicate}"),
        cell,
        job: job.into(),
        kind: "train".into(),
        matrix,
        replicate: Some(replicate),
        needs: Vec::new(),
        each: None,
    }
}

/// A run of tasks, each with its metrics.
async fn add_run(store: &Store, name: &str, params: Value, tags: &[&str], tasks: &[(NewTask, Value)]) -> RunId {
    let new = NewRun {
        name: name.into(),
        file: format!("{name}.yaml"),
        source: String::new(),
        params,
        machine: json!({}),
        version: "0.1.0".into(),
        marks: Marks {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            note: "as in the paper".into(),
            git: Some(GitState { commit: format!("c0ffee{name}"), dirty: false }),
        },
        tasks: tasks.iter().map(|(task, _)| task.clone()).collect(),
    };
    let run = store.begin_run(new).await.unwrap();
    let mut records = Vec::new();
    for (ix, (_, metrics)) in tasks.iter().enumerate() {
        let (task, epoch) = (TaskIx(ix as u32), Epoch(1));
        let number = |value: &Value| value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap());
        let metrics: BTreeMap<String, f64> =
            metrics.as_object().unwrap().iter().map(|(name, value)| (name.clone(), number(value))).collect();
        records.push(Record::AttemptBegan { task, epoch, worker: "here".into(), backend: "cpu".into(), at: 1 });
        records.push(Record::Succeeded { task, epoch, outputs: Outputs::new(), metrics, at: 2 });
    }
    store.append_records(run, records).await.unwrap();
    run
}

async fn end(store: &Store, run: RunId, state: RunStateName) {
    let at = store.run(run).await.unwrap().unwrap().summary.created_at + 90_000;
    store.append_records(run, vec![Record::Ended { state, at }]).await.unwrap();
}

async fn found(store: &Store, filter: &str) -> Vec<i64> {
    let filter = RunFilter::parse(filter, &kinds()).unwrap();
    store.find_runs(&filter, 100, 0).await.unwrap().iter().map(|run| run.id.0).collect()
}

#[tokio::test]
async fn runs_are_found_by_what_is_known_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let sweep = |accuracies: [f64; 2]| {
        vec![
            (task("ten", json!({"states": 16}), 1), json!({"test/accuracy": accuracies[0]})),
            (task("ten", json!({"states": 64}), 1), json!({"test/accuracy": accuracies[1]})),
            (task("benchmark", json!({"states": 64, "job": "ten"}), 1), json!({"latency/median": 0.002})),
        ]
    };
    let first = add_run(&store, "quickstart", json!({"seed": 17}), &["x", "paper"], &sweep([0.4, 0.6])).await;
    let second = add_run(&store, "Quick two", json!({"seed": 18, "states": 99}), &["x%_'"], &sweep([0.6, 0.4])).await;
    let odd = json!({"axis \"q\"": "a b", "flag": true});
    let third = add_run(
        &store,
        "other",
        json!({}),
        &[],
        &[(task("one", odd, 1), json!({"loss": "NaN"})), (task("two", json!({"states": "16"}), 2), json!({}))],
    )
    .await;
    end(&store, first, RunStateName::Succeeded).await;
    end(&store, second, RunStateName::Failed).await;
    for (filter, expected) in [
        ("", &[3, 2, 1][..]),
        ("state:failed", &[2]),
        ("state:failed,succeeded", &[2, 1]),
        ("state!=failed", &[3, 1]),
        ("state:running", &[3]),
        ("state:interrupted", &[]),
        ("quick", &[2, 1]),
        ("name~QUICK", &[2, 1]),
        ("name:quickstart", &[1]),
        ("name!~quick", &[3]),
        ("name:\"Quick two\"", &[2]),
        ("tag:x", &[1]),
        ("tag:\"x%_'\"", &[2]),
        ("tag~x", &[2, 1]),
        ("tag!=x", &[3, 2]),
        ("file~.yaml note~PAPER", &[3, 2, 1]),
        ("commit:c0ffeeq", &[2, 1]),
        ("run>1 run!=3", &[2]),
        ("tasks:3", &[2, 1]),
        ("failed:0 cached<1", &[3, 2, 1]),
        ("took<=90s state!=running", &[2, 1]),
        ("age<1h started>2020-01-01 ended<2020-01-01", &[]),
        ("seed:17", &[1]),
        ("params.seed!=17", &[2]),
        ("states>32", &[2, 1]),
        ("states>64", &[2]),
        ("matrix.states>64", &[]),
        ("states:16", &[3, 2, 1]),
        ("accuracy>50%", &[2, 1]),
        ("metrics.accuracy>0.5", &[2, 1]),
        ("matrix.states>32 accuracy>0.5", &[1]),
        ("matrix.states > 32 latency/median<3ms accuracy < 0.5", &[2]),
        ("loss>0", &[]),
        ("loss:NaN", &[3]),
        ("flag:true", &[3]),
        ("flag:1", &[]),
        ("\"axis \\\"q\\\"\"~b", &[3]),
        ("nothing>0", &[]),
        ("\"state\":failed", &[]),
    ] {
        assert_eq!(found(&store, filter).await, expected, "{filter}");
    }
    let filter = RunFilter::default().with_tag("x").with_state(RunStateName::Succeeded).with_name_part("start");
    assert_eq!(store.find_runs(&filter, 1, 0).await.unwrap()[0].id, first);
    assert_eq!(store.find_runs(&RunFilter::parse("states:16", &[]).unwrap(), 1, 1).await.unwrap()[0].id, second);
    assert_eq!(store.run_params(&[second, third]).await.unwrap()[&2]["seed"], 18);
}

#[tokio::test]
async fn a_run_without_its_process_is_interrupted_for_a_filter_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    add_run(&store, "one", json!({}), &[], &[]).await;
    drop(store);
    let store = Store::open(folder.path()).await.unwrap();
    assert_eq!(found(&store, "state:interrupted").await, [1]);
    assert_eq!(found(&store, "state:running").await, [] as [i64; 0]);
    assert_eq!(found(&store, "state!=interrupted").await, [] as [i64; 0]);
}

#[test]
fn what_cannot_be_read_is_named_with_its_place() {
    let wrong = |text: &str| RunFilter::parse(text, &[]).unwrap_err();
    for (text, start, end, message, hint) in [
        ("tag:x state:fialed", 12, 18, "there is no state `fialed`", "did you mean `failed`?"),
        ("é state>1", 2, 7, "`state` is compared with `:` or `!=`", "as in `state:failed`"),
        ("name>3", 0, 4, "`name` is a text and has no order", "write `name:VALUE` or `name~PART`"),
        ("states>many", 7, 11, "`many` is not a number", "give a number, or did you mean `state`?"),
        ("took>5x", 5, 7, "`5x` is not a value of `took`", "give a duration such as 90s, 5m, 2h or 7d"),
        ("started:2026-11-23", 0, 7, "`started` cannot be compared like this", "write `started<..` or `started>.."),
        ("tag:", 4, 4, "a value is missing for `tag`", "write it behind the sign"),
        ("tag:a,", 6, 6, "a value is missing for `tag`", "write it behind the sign"),
        ("a >", 3, 3, "a value is missing for `a`", "write it behind the sign"),
        ("x :y =z", 5, 6, "a field is missing before this sign", "as in `state:failed`"),
        ("name:\"two", 5, 6, "this quote is not closed", "add a `\"`"),
        ("a>1,2", 4, 5, "this sign takes one value", "write one number"),
        ("params.>1", 0, 7, "a name is missing in `params.`", "as in `params.seed`"),
    ] {
        let error = wrong(text);
        assert_eq!((error.start, error.end, error.message.as_str()), (start, end, message), "{text}");
        assert!(error.hint.contains(hint), "{text}: {}", error.hint);
    }
    let error: FilterError = wrong("tag:x state:fialed");
    assert_eq!(error.to_string(), "character 13: there is no state `fialed`");
    assert_eq!(error.marked("tag:x state:fialed"), "tag:x state:fialed\n            ^^^^^^");
    assert!(wrong(&"a ".repeat(30)).message.contains("more than 20 conditions"));
    assert!(wrong(&"a".repeat(3000)).message.contains("longer than 2000"));
}

proptest::proptest! {
    #[test]
    fn any_value_can_be_quoted(text in "\\PC{0,12}") {
        let filter = RunFilter::parse(&format!("tag:{}", quote_filter_value(&text)), &[]);
        proptest::prop_assert_eq!(filter.unwrap(), RunFilter::default().with_tag(&text));
    }

    #[test]
    fn any_text_is_read_or_refused_with_a_place_inside(text in "\\PC{0,40}") {
        if let Err(error) = RunFilter::parse(&text, &[]) {
            let length = text.chars().count();
            proptest::prop_assert!(error.start <= error.end && error.end <= length.max(error.start), "{:?}", error);
            proptest::prop_assert!(error.marked(&text).contains('^'));
        }
    }
}

/// Not a limit that a busy machine could exceed by chance: filters read each task once, which takes well below a second.
#[tokio::test]
async fn thousands_of_neighbours_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    for at in 0..300_u32 {
        let cell = |states: u32| {
            let metrics: serde_json::Map<String, Value> =
                (0..20).map(|n| (format!("group/metric{n}"), json!(f64::from(at * n) / 7.0))).collect();
            (task("ten", json!({"states": states, "at": at}), 1), Value::Object(metrics))
        };
        let run = add_run(&store, "many", json!({"seed": at}), &[], &[cell(16), cell(32), cell(64)]).await;
        end(&store, run, RunStateName::Succeeded).await;
    }
    let start = Instant::now();
    assert_eq!(found(&store, "at:7 states>32 group/metric3:3").await, [8]);
    let took = start.elapsed();
    println!("300 runs of 3 tasks: {took:?}");
    assert!(took.as_secs() < 5, "{took:?}");
}
