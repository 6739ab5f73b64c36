//! A crash at each named point. Afterwards the store is always as if the story had ended after some step.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use assay_core::{Epoch, RunId, TaskIx};
use assay_server::RunStateName;

use super::dump::{dump, list_tree};
use super::story::{LENGTH, play_story};
use crate::failure_point::{FailurePoint, Trap};
use crate::{Recovered, Store};

/// Opens and repairs the store, as `assay run` does; returns the store, and the recovered runs.
async fn reopen_store(home: &Path) -> (Store, Vec<Recovered>) {
    let store = Store::open(home).await.unwrap();
    let recovered = store.recover_runs().await.unwrap();
    (store, recovered)
}

/// The store of a process that died after the first `n` steps, after its recovery.
async fn after_prefix(n: usize) -> String {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let store = Store::open(&home).await.unwrap();
    play_story(&store, folder.path(), 0..n).await.unwrap();
    drop(store);
    dump(&reopen_store(&home).await.0).await
}

/// The invariants of every store in which nothing is in progress.
async fn sanity_check(store: &Store) {
    for run in store.runs(100, 0).await.unwrap() {
        assert_ne!(run.state, RunStateName::Running);
        let seqs: Vec<u64> = store.journal(run.id).await.unwrap().iter().map(|entry| entry.seq).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
        for artifact in store.artifacts(run.id).await.unwrap() {
            assert!(artifact.present, "{artifact:?}");
        }
    }
    let mut files = Vec::new();
    list_tree(&store.home().join("artifacts"), "", &mut files);
    for file in files {
        let content = std::fs::read(store.home().join("artifacts").join(file.trim_start_matches('/'))).unwrap();
        assert_eq!(file.replace('/', ""), blake3::hash(&content).to_hex().to_string());
    }
    // Only the current session has files.
    let entries: BTreeSet<_> =
        std::fs::read_dir(store.home().join("work")).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(entries.len(), 2, "{entries:?}");
}

#[tokio::test]
async fn a_crash_anywhere_leaves_a_prefix_of_what_happened() {
    let mut prefixes = Vec::new();
    for n in 0..=LENGTH {
        prefixes.push(after_prefix(n).await);
    }
    for point in Trap::ALL {
        // The trap is set before each step in turn, so that every point is reached if possible.
        let mut reached = 0;
        for armed_before in 0..LENGTH {
            let folder = tempfile::tempdir().unwrap();
            let home = folder.path().join("home");
            let store = Store::open(&home).await.unwrap();
            play_story(&store, folder.path(), 0..armed_before).await.unwrap();
            store.trap.arm_point(point);
            let died = play_story(&store, folder.path(), armed_before..armed_before + 1).await.is_err();
            drop(store);

            let store = Store::open(&home).await.unwrap();
            store.trap.arm_point(point);
            let died = died | store.recover_runs().await.is_err();
            drop(store);
            reached += usize::from(died);

            let (store, _) = reopen_store(&home).await;
            let found = dump(&store).await;
            let known = without_unnamed_files(&found);
            assert!(
                prefixes.iter().any(|prefix| without_unnamed_files(prefix) == known),
                "{point:?} before deed {armed_before} left\n{found}"
            );
            sanity_check(&store).await;
        }
        // After a batch no error is reported, since the batch is committed. All other points are failures of the call.
        let silent = matches!(point, FailurePoint::BatchCommitted);
        assert!(reached > 0 || silent, "{point:?} was never reached");
    }
}

/// A crash may leave one trace: a file in `artifacts/` without a row, with the right content.
fn without_unnamed_files(dump: &str) -> String {
    dump.lines().filter(|line| !line.starts_with("file artifacts/")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn points_that_were_not_sealed_are_read_all_the_same_and_sealed_later() {
    for point in [FailurePoint::BatchCommitted, FailurePoint::SegmentWritten] {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let store = Store::open(&home).await.unwrap();
        store.trap.arm_point(point);
        play_story(&store, folder.path(), 0..LENGTH).await.unwrap();
        let task = TaskIx(1);
        let before = store.series(RunId(1), task, None, &[], None).await.unwrap();
        assert_eq!(before.series.len(), 2);
        assert!(dump(&store).await.contains("point 1/1@2"), "{point:?} was not reached");
        drop(store);

        let (store, recovered) = reopen_store(&home).await;
        assert_eq!(recovered, [], "the run was over");
        assert_eq!(store.series(RunId(1), task, None, &[], None).await.unwrap(), before);
        assert!(!dump(&store).await.contains("point "), "{point:?}: all is sealed");
    }
}

#[tokio::test]
async fn an_interrupted_run_ends_with_its_last_sign_of_life() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let store = Store::open(&home).await.unwrap();
    play_story(&store, folder.path(), 0..2).await.unwrap();
    let began = store.run(RunId(1)).await.unwrap().unwrap().summary.created_at;
    store.append_records(RunId(1), vec![super::story::log_record(0, 1, began + 5000, "still here")]).await.unwrap();
    drop(store);
    let (store, _) = reopen_store(&home).await;
    assert_eq!(store.run(RunId(1)).await.unwrap().unwrap().summary.ended_at, Some(began + 5000));
    assert_eq!(store.attempts(RunId(1), TaskIx(0)).await.unwrap()[0].ended_at, Some(began + 5000));
}

#[tokio::test]
async fn an_interrupted_run_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let store = Store::open(&home).await.unwrap();
    play_story(&store, folder.path(), 0..6).await.unwrap();
    let workdir = store.create_workdir(RunId(1), TaskIx(1), Epoch(1)).await.unwrap();
    drop(store);
    let (store, recovered) = reopen_store(&home).await;
    assert_eq!(recovered, [Recovered { run: RunId(1), name: "small".into(), unfinished: 2 }]);
    assert!(!workdir.exists());
    insta::assert_snapshot!(dump(&store).await);
    assert_eq!(store.recover_runs().await.unwrap(), []);
}

#[tokio::test]
async fn what_attempts_left_for_later_ones_is_kept_for_two_weeks() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let [old, new] = ['a', 'b'].map(|key| store.resume_dir(&super::story::key(key)));
    for place in [&old, &new] {
        std::fs::create_dir_all(place).unwrap();
        std::fs::write(place.join("checkpoint"), "half way").unwrap();
    }
    let days = |days: u64| SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
    std::fs::File::open(&old).unwrap().set_modified(days(15)).unwrap();
    std::fs::File::open(&new).unwrap().set_modified(days(13)).unwrap();
    drop(store);
    let (store, _) = reopen_store(folder.path()).await;
    assert!(!old.exists() && new.join("checkpoint").exists());
    let outside = store.resume_dir("../../etc");
    assert_eq!(outside, folder.path().join("resume/no-such-key"), "only a key becomes a path");
}

#[tokio::test]
async fn what_an_interrupted_run_finished_is_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let store = Store::open(&home).await.unwrap();
    play_story(&store, folder.path(), 0..6).await.unwrap();
    drop(store);
    let (store, _) = reopen_store(&home).await;
    assert!(super::story::known_result(&store, 'a').await.is_some());
    assert!(super::story::known_result(&store, 'b').await.is_none());
}

#[tokio::test]
async fn a_run_whose_process_lives_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let first = Store::open(&home).await.unwrap();
    play_story(&first, folder.path(), 0..6).await.unwrap();
    let workdir = first.create_workdir(RunId(1), TaskIx(1), Epoch(1)).await.unwrap();
    let (second, recovered) = reopen_store(&home).await;
    assert_eq!(recovered, []);
    assert!(workdir.exists());
    assert_eq!(second.run(RunId(1)).await.unwrap().unwrap().summary.state, RunStateName::Running);
    play_story(&first, folder.path(), 6..9).await.expect("it goes on");
    first.close().await;
    assert_eq!(second.recover_runs().await.unwrap().len(), 1, "a closed store has no process behind it");
}
