//! Verifying, removing and moving results; and the states of runs whose process is gone.

use assay_core::{Epoch, RunId, TaskIx};
use assay_server::{CachedResult, Record, RunStateName, TaskStateName};

use super::lifecycle::store_with_story;
use super::story::{attempt_began, key, known_result, new_run, play_story, resolved_record, state_record};
use crate::{AttemptRef, Store, StoreErrorKind};

#[tokio::test]
async fn every_hash_of_the_store_is_computed_again() {
    let (_folder, store) = store_with_story().await;
    let audit = store.audit_files().await.unwrap();
    assert_eq!((audit.artifacts, audit.segments, audit.faults.len()), (2, 2, 0), "{audit:?}");
    let model = store.artifact(&blake3::hash(b"a model").to_hex()).await.unwrap().unwrap();
    std::fs::remove_file(&model.path).unwrap();
    std::fs::write(&model.path, "A MODEL").unwrap();
    let segment = store.home().join("metrics/1/1-2.parquet");
    std::fs::remove_file(&segment).unwrap();
    let faults = store.audit_files().await.unwrap().faults;
    let [artifact, metrics] = &faults[..] else { panic!("{faults:?}") };
    assert_eq!(
        (&artifact.path, artifact.made_by.clone()),
        (&model.path, Some((RunId(1), new_run().tasks[1].address.clone())))
    );
    assert!(artifact.why.contains("its content is damaged"), "{artifact:?}");
    assert_eq!((&metrics.path, metrics.why.as_str()), (&segment, "its file is missing"));
    let reader = Store::open_read_only(store.home()).await.unwrap();
    assert_eq!(reader.audit_files().await.unwrap().faults, faults, "also where nothing can be written");
}

#[tokio::test]
async fn garbage_is_what_no_run_refers_to_and_no_live_run_may_have_made() {
    let (folder, store) = store_with_story().await;
    assert_eq!(store.find_garbage().await.unwrap().artifacts, []);
    let file = folder.path().join("orphan");
    std::fs::write(&file, "nobody's").unwrap();
    let orphan = store.ingest_file(&file, "orphan").await.unwrap();
    let stray = store.home().join("metrics/9/9-9.parquet");
    std::fs::create_dir_all(stray.parent().unwrap()).unwrap();
    std::fs::write(&stray, "half a segment").unwrap();

    let other = Store::open(store.home()).await.unwrap();
    other.begin_run(new_run()).await.unwrap();
    let kept = store.remove_garbage().await.unwrap();
    assert_eq!((kept.artifacts.len(), kept.segments.len(), kept.kept), (0, 0, 2), "a run is under way");
    drop(other);

    let found = store.find_garbage().await.unwrap();
    let names: Vec<&str> = found.artifacts.iter().chain(&found.segments).map(|file| file.name.as_str()).collect();
    assert_eq!(names, [orphan.hash.as_str(), "9/9-9.parquet"]);
    assert!(store.artifact_path(&orphan).exists(), "it was only looked for");
    assert_eq!(store.remove_garbage().await.unwrap(), found);
    assert!(!store.artifact_path(&orphan).exists() && !stray.exists());
    assert_eq!(store.artifact(&orphan.hash).await.unwrap(), None);
    assert_eq!(store.audit_files().await.unwrap().faults, []);
    assert!(known_result(&store, 'a').await.is_some() && known_result(&store, 'b').await.is_some());
}

#[tokio::test]
async fn a_removed_run_passes_on_what_others_had_from_it() {
    let (_folder, store) = store_with_story().await;
    let result = known_result(&store, 'b').await.unwrap();
    let curves = store.series(RunId(1), TaskIx(1), None, &[], None).await.unwrap().series;
    for run in [2, 3] {
        store.begin_run(new_run()).await.unwrap();
        let result = CachedResult { task: TaskIx(1), ..result.clone() };
        let batch = vec![resolved_record(1, 'b'), Record::Cached { task: TaskIx(1), result, at: 20 }];
        store.append_records(RunId(run), batch).await.unwrap();
        store.append_records(RunId(run), vec![Record::Ended { state: RunStateName::Succeeded, at: 21 }]).await.unwrap();
    }
    let removed = store.remove_run(RunId(1)).await.unwrap();
    let heir = AttemptRef { run: RunId(2), ix: TaskIx(1), epoch: Epoch(2) };
    assert_eq!((removed.run, removed.passed_on), (RunId(1), vec![heir]));
    assert_eq!(store.run(RunId(1)).await.unwrap(), None);
    for run in [2, 3] {
        let task = store.task(RunId(run), TaskIx(1)).await.unwrap().unwrap();
        assert_eq!(task.source, Some(heir));
        assert_eq!(store.series(RunId(run), TaskIx(1), None, &[], None).await.unwrap().series, curves);
        let log = store.logs(RunId(run), TaskIx(1), 0, 100).await.unwrap();
        assert_eq!(log.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["once more"]);
    }
    assert_eq!(known_result(&store, 'b').await.unwrap().run, RunId(2), "and the cache still answers");
    assert!(known_result(&store, 'a').await.is_none(), "what nobody had from it is gone");
    // No run refers to the dataset any more; the model is still in use.
    let garbage = store.find_garbage().await.unwrap();
    let data = blake3::hash(b"some data").to_hex().to_string();
    assert_eq!(garbage.artifacts.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), [data]);
    assert_eq!(garbage.segments, []);
    for run in [2, 3] {
        store.remove_run(RunId(run)).await.unwrap();
    }
    assert!(store.runs(10, 0).await.unwrap().is_empty());
    assert_eq!(store.remove_garbage().await.unwrap().artifacts.len(), 2);
}

#[tokio::test]
async fn a_run_under_way_is_not_removed_and_one_that_is_not_there_is_named() {
    let (_folder, store) = store_with_story().await;
    let other = Store::open(store.home()).await.unwrap();
    let run = other.begin_run(new_run()).await.unwrap();
    let error = store.remove_run(run).await.unwrap_err();
    assert_eq!(error.to_string(), "run 2 is in progress; stop it first, or wait until it is over");
    drop(other);
    store.remove_run(run).await.unwrap();
    assert_eq!(store.remove_run(run).await.unwrap_err().kind(), StoreErrorKind::Unknown);
}

#[tokio::test]
async fn a_run_whose_process_is_gone_is_shown_as_interrupted_by_whoever_looks() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let writer = Store::open(&home).await.unwrap();
    play_story(&writer, folder.path(), 0..6).await.unwrap();
    writer
        .append_records(RunId(1), vec![state_record(2, TaskStateName::Ready, "", 7), attempt_began(2, 1, 7)])
        .await
        .unwrap();
    let reader = Store::open_read_only(&home).await.unwrap();
    let states = async || -> Vec<TaskStateName> {
        reader.tasks(RunId(1)).await.unwrap().into_iter().map(|task| task.state).collect()
    };
    use TaskStateName as S;
    assert_eq!(reader.runs(1, 0).await.unwrap()[0].state, RunStateName::Running);
    assert_eq!(states().await, [S::Succeeded, S::Running, S::Ready]);
    drop(writer);
    let run = &reader.runs(1, 0).await.unwrap()[0];
    assert_eq!(run.state, RunStateName::Interrupted);
    assert_eq!(run.states, [(S::Succeeded, 1), (S::Cancelled, 2)].into());
    assert_eq!(reader.run(RunId(1)).await.unwrap().unwrap().summary.state, RunStateName::Interrupted);
    assert_eq!(states().await, [S::Succeeded, S::Cancelled, S::Cancelled]);
    let task = reader.task(RunId(1), TaskIx(1)).await.unwrap().unwrap();
    assert_eq!(
        (task.state, task.detail.as_str()),
        (S::Cancelled, "interrupted: the process that ran it exited unexpectedly")
    );
    assert_eq!(task.cache_key, Some(key('b')));
    let attempt = reader.attempts(RunId(1), TaskIx(1)).await.unwrap().remove(0);
    assert_eq!(attempt.failure.map(|failure| failure.class).as_deref(), Some("preempted"));
}

#[tokio::test]
async fn a_full_disk_has_an_error_kind_of_its_own() {
    use sea_orm::ConnectionTrait;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    // SQLite reports the size limit of a database like a full disk.
    let tx = store.database.begin_write().await.unwrap();
    tx.execute_unprepared("pragma max_page_count = 1").await.unwrap();
    tx.commit().await.unwrap();
    let mut run = new_run();
    run.source = "x".repeat(1 << 20);
    let error = store.begin_run(run).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NoSpace, "{error}");
    assert!(assay_server::LedgerError::from(error).is_disk_full());
}
