//! A run from start to end, and the results of queries about it.

use assay_core::{Epoch, RunId, TaskIx};
use assay_server::{Content, Ledger, Lookup, NewTask, Record, RunStateName, TaskStateName};
use assay_spec::Output;

use super::dump::dump;
use super::story::{LENGTH, key, known_result, play_story};
use crate::Store;

/// A store with the complete story.
pub(super) async fn store_with_story() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("home")).await.unwrap();
    play_story(&store, folder.path(), 0..LENGTH).await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn the_whole_store_at_three_moments() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("home")).await.unwrap();
    for (name, part) in [("begun", 0..1), ("under_way", 1..6), ("over", 6..LENGTH)] {
        play_story(&store, folder.path(), part).await.unwrap();
        insta::assert_snapshot!(name, dump(&store).await);
    }
}

#[tokio::test]
async fn the_views_of_a_run() {
    let (_folder, store) = store_with_story().await;
    let runs = store.runs(10, 0).await.unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!((runs[0].state, runs[0].tasks, runs[0].ended_at), (RunStateName::Succeeded, 3, Some(12)));
    assert_eq!(runs[0].states, [(TaskStateName::Succeeded, 2), (TaskStateName::Cached, 1)].into());
    assert_eq!(store.runs(10, 1).await.unwrap(), []);

    let mut run = store.run(RunId(1)).await.unwrap().unwrap();
    assert!(run.summary.created_at > 1_600_000_000_000);
    run.summary.created_at = 0;
    let tasks = store.tasks(RunId(1)).await.unwrap();
    let attempts = store.attempts(RunId(1), TaskIx(1)).await.unwrap();
    let logs = store.logs(RunId(1), TaskIx(1), 0, 10).await.unwrap();
    let artifacts = store.artifacts(RunId(1)).await.unwrap();
    let shown = serde_json::json!({
        "run": run, "tasks": tasks, "attempts": attempts, "logs": logs, "artifacts": artifacts,
        "journal": store.journal(RunId(1)).await.unwrap().len(),
        "last": store.last_metrics(RunId(1)).await.unwrap().keys().collect::<Vec<_>>(),
        "names": store.metric_names(RunId(1)).await.unwrap(),
    });
    insta::assert_snapshot!(serde_json::to_string_pretty(&shown).unwrap());
}

#[tokio::test]
async fn tasks_that_come_later_stand_behind_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("home")).await.unwrap();
    play_story(&store, folder.path(), 0..1).await.unwrap();
    let before = store.tasks(RunId(1)).await.unwrap();
    let task = NewTask {
        address: "refine[states=5]".into(),
        cell: "refine[states=5]".into(),
        job: "refine".into(),
        kind: "train".into(),
        matrix: [("states".to_owned(), 5.into())].into(),
        replicate: None,
        needs: vec![TaskIx(0)],
        each: None,
    };
    let first = TaskIx(before.len() as u32);
    let skipped =
        Record::State { task: first, state: TaskStateName::Skipped, detail: "its condition is false".into(), at: 5 };
    store.append_records(RunId(1), vec![Record::TasksAdded { first, tasks: vec![task] }, skipped]).await.unwrap();
    let tasks = store.tasks(RunId(1)).await.unwrap();
    assert_eq!(tasks[..before.len()], before);
    let added = store.task(RunId(1), "refine[states=5]").await.unwrap().unwrap();
    assert_eq!(
        (added.ix, added.state, added.detail.as_str()),
        (first, TaskStateName::Skipped, "its condition is false")
    );
    assert_eq!(store.runs(1, 0).await.unwrap()[0].tasks, tasks.len() as u64);
}

#[tokio::test]
async fn a_task_is_found_by_its_place_and_by_its_address() {
    let (_folder, store) = store_with_story().await;
    let by_place = store.task(RunId(1), TaskIx(1)).await.unwrap().unwrap();
    let by_address = store.task(RunId(1), "train[chunk=64,states=16]#1").await.unwrap().unwrap();
    assert_eq!(by_place, by_address);
    assert_eq!(store.task(RunId(1), "train").await.unwrap(), None);
    assert_eq!(store.task(RunId(2), TaskIx(0)).await.unwrap(), None);
    assert_eq!(store.run(RunId(2)).await.unwrap(), None);
}

#[tokio::test]
async fn curves_are_those_of_the_latest_attempt_and_of_the_source() {
    let (_folder, store) = store_with_story().await;
    let own = store.series(RunId(1), TaskIx(1), None, &[], None).await.unwrap();
    let names: Vec<&str> = own.series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["train/loss", "valid/accuracy"]);
    assert_eq!((&own.series[0].steps[..], &own.series[0].values[..]), (&[1, u64::MAX][..], &[2.5, 1.25][..]));
    assert_eq!(own.series[1].values, [f64::INFINITY]);

    let of_cached = store.series(RunId(1), TaskIx(2), None, &[], None).await.unwrap();
    assert_eq!(of_cached, own);
    assert_eq!(of_cached.attempt.map(|attempt| (attempt.ix, attempt.epoch)), Some((TaskIx(1), Epoch(2))));

    let first = store.series(RunId(1), TaskIx(1), Some(Epoch(1)), &["train/loss".into()], None).await.unwrap();
    let bits: Vec<u64> = first.series[0].values.iter().map(|value| value.to_bits()).collect();
    assert_eq!(bits, [2.5_f64, f64::NAN, -0.0].map(f64::to_bits));
    let json = serde_json::to_string(&first.series[0]).unwrap();
    assert_eq!(json, r#"{"name":"train/loss","steps":[1,2,3],"values":[2.5,"NaN",-0.0],"total":3}"#);

    let nothing = store.series(RunId(1), TaskIx(0), None, &[], None).await.unwrap();
    assert_eq!(nothing.series, []);
}

#[tokio::test]
async fn the_log_of_a_cached_task_is_that_of_the_attempt_that_did_the_work() {
    let (_folder, store) = store_with_story().await;
    let texts = |task, after, limit| {
        let store = &store;
        async move {
            let lines = store.logs(RunId(1), TaskIx(task), after, limit).await.unwrap();
            lines.into_iter().map(|line| (line.seq, line.text)).collect::<Vec<_>>()
        }
    };
    assert_eq!(texts(1, 0, 10).await, [(1, "step 2".into()), (2, "once more".into())]);
    assert_eq!(texts(1, 1, 10).await, [(2, "once more".into())]);
    assert_eq!(texts(1, 0, 1).await, [(1, "step 2".into())]);
    assert_eq!(texts(2, 0, 10).await, [(2, "once more".into())]);
}

#[tokio::test]
async fn a_batch_that_names_what_there_is_not_changes_nothing() {
    let (_folder, store) = store_with_story().await;
    let before = dump(&store).await;
    let cases = [
        (1, super::story::state_record(9, TaskStateName::Ready, "", 1), "there is no task 9 of run 1 in the store"),
        (1, super::story::attempt_ended(0, 9, None, 1), "there is no attempt 9 of task 0 of run 1 in the store"),
        (5, super::story::state_record(0, TaskStateName::Ready, "", 1), "there is no task 0 of run 5 in the store"),
    ];
    for (run, record, message) in cases {
        let batch = vec![super::story::state_record(0, TaskStateName::Failed, "changed", 99), record];
        let batch = if run == 1 { batch } else { batch[1..].to_vec() };
        assert_eq!(store.append_records(RunId(run), batch).await.unwrap_err().to_string(), message);
    }
    assert!(
        store.append_records(RunId(1), vec![super::story::journal_entry(8)]).await.is_err(),
        "a number of the journal given twice"
    );
    assert_eq!(dump(&store).await, before);
}

#[tokio::test]
async fn the_server_sees_the_same_store_through_its_port() {
    let (folder, store) = store_with_story().await;
    let ledger: &dyn Ledger = &store;
    let Lookup::Known(hit) = ledger.look_up_result(&key('b')).await.unwrap() else { panic!("no hit") };
    assert_eq!((hit.run, hit.task, hit.epoch), (RunId(1), TaskIx(1), Epoch(2)));
    assert_eq!(hit.metrics["valid/accuracy"], f64::INFINITY);
    assert_eq!(ledger.look_up_result(&key('f')).await.unwrap(), Lookup::Unknown);

    let run = ledger.begin_run(super::story::new_run()).await.unwrap();
    assert_eq!(run, RunId(2));
    let workdir = ledger.create_workdir(run, TaskIx(0), Epoch(1)).await.unwrap();
    std::fs::write(workdir.join("out.txt"), "out").unwrap();
    let artifact = ledger.ingest_file(&workdir.join("out.txt"), "out.txt").await.unwrap();
    let Content::Whole(path) = ledger.locate_content(&artifact).await.unwrap() else { panic!("no content") };
    assert_eq!(std::fs::read_to_string(path).unwrap(), "out");
    let again = ledger.create_workdir(run, TaskIx(0), Epoch(1)).await.unwrap();
    assert!(again == workdir && std::fs::read_dir(&again).unwrap().next().is_none(), "a work folder starts empty");
    assert!(workdir.starts_with(folder.path().join("home")));
}

#[tokio::test]
async fn the_cache_answers_with_the_latest_success() {
    let (_folder, store) = store_with_story().await;
    let run = store.begin_run(super::story::new_run()).await.unwrap();
    let key_of_the_first = super::story::resolved_record(1, 'b');
    store.append_records(run, vec![key_of_the_first, super::story::attempt_began(1, 1, 20)]).await.unwrap();
    assert_eq!(known_result(&store, 'b').await.unwrap().run, RunId(1), "what is under way answers nothing");
    let outputs = [("seconds".to_owned(), Output::Value(2.into()))].into();
    store
        .append_records(run, vec![super::story::succeeded_record(1, 1, outputs, &[("train/loss", 1.0)], 21)])
        .await
        .unwrap();
    let hit = known_result(&store, 'b').await.unwrap();
    assert_eq!((hit.run, hit.epoch, hit.metrics["train/loss"]), (run, Epoch(1), 1.0));
    assert_eq!(hit.outputs["seconds"], Output::Value(2.into()));
}
