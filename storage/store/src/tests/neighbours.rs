//! Several handles on one store, in this process and in others.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use assay_core::{RunId, TaskIx};
use assay_server::{RunStateName, TaskStateName};

use super::story::{attempt_began, journal_entry, metric_point, metrics_record, new_run};
use crate::Store;

/// An environment variable for the process that the tests below start: the store to write.
const HOME: &str = "ASSAY_STORE_TEST_HOME";
/// The number of batches to write; without it, the process never ends.
const BATCHES: &str = "ASSAY_STORE_TEST_BATCHES";

/// Writes a run of this many batches, each with one journal entry and ten points.
async fn write_run(store: &Store, batches: u64) -> RunId {
    let run = store.begin_run(new_run()).await.unwrap();
    store.append_records(run, vec![attempt_began(0, 1, 1)]).await.unwrap();
    for seq in 1..=batches {
        let points = (0..10).map(|i| metric_point("train/loss", seq * 10 + i, i as f64)).collect();
        store.append_records(run, vec![journal_entry(seq), metrics_record(0, 1, points)]).await.unwrap();
    }
    run
}

/// Not a test: the function of the other process.
#[tokio::test]
async fn the_other_process() {
    let Ok(home) = std::env::var(HOME) else { return };
    let batches = std::env::var(BATCHES).map_or(u64::MAX, |batches| batches.parse().unwrap());
    let store = Store::open(Path::new(&home)).await.unwrap();
    write_run(&store, batches).await;
}

fn other_process(home: &Path, batches: Option<u64>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["tests::neighbours::the_other_process", "--exact"]).env(HOME, home).stdout(Stdio::null());
    if let Some(batches) = batches {
        command.env(BATCHES, batches.to_string());
    }
    command.spawn().unwrap()
}

async fn assert_whole(store: &Store, run: RunId, batches: u64) {
    let seqs: Vec<u64> = store.journal(run).await.unwrap().iter().map(|entry| entry.seq).collect();
    assert_eq!(seqs, (1..=batches).collect::<Vec<_>>());
    let steps = store.series(run, TaskIx(0), None, &[], None).await.unwrap().series.remove(0).steps;
    assert_eq!(steps, (10..(batches + 1) * 10).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_and_a_reader_in_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Store::open(folder.path()).await.unwrap(), Store::open(folder.path()).await.unwrap());
    let reader = Store::open_read_only(folder.path()).await.unwrap();
    let writing = [first, second].map(|store| tokio::spawn(async move { write_run(&store, 40).await }));
    while writing.iter().any(|task| !task.is_finished()) {
        for run in reader.runs(10, 0).await.unwrap() {
            let (entries, series) = (
                reader.journal(run.id).await.unwrap(),
                reader.series(run.id, TaskIx(0), None, &[], None).await.unwrap(),
            );
            let points = series.series.first().map_or(0, |series| series.total);
            assert!(points.is_multiple_of(10) && points >= 10 * entries.len() as u64, "a part of a batch was seen");
        }
    }
    for task in writing {
        assert_whole(&reader, task.await.unwrap(), 40).await;
    }
}

#[tokio::test]
async fn two_processes_write_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut others = [(); 2].map(|()| other_process(folder.path(), Some(30)));
    let store = Store::open(folder.path()).await.unwrap();
    write_run(&store, 30).await;
    for other in &mut others {
        assert!(other.wait().unwrap().success());
    }
    for run in 1..=3 {
        assert_whole(&store, RunId(run), 30).await;
    }
}

#[tokio::test]
async fn a_process_that_is_killed_leaves_a_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let mut other = other_process(folder.path(), None);
    while store.journal(RunId(1)).await.unwrap().len() < 20 {
        assert!(other.try_wait().unwrap().is_none(), "the other process ended by itself");
    }
    assert_eq!(store.recover_runs().await.unwrap(), [], "it lives");
    assert_eq!(store.run(RunId(1)).await.unwrap().unwrap().summary.state, RunStateName::Running);
    other.kill().unwrap();
    other.wait().unwrap();
    // Readers see immediately that the run has ended, before the store is repaired.
    let reader = Store::open_read_only(folder.path()).await.unwrap();
    let seen = reader.run(RunId(1)).await.unwrap().unwrap().summary;
    assert_eq!((seen.state, reader.runs(1, 0).await.unwrap()[0].state), (RunStateName::Interrupted, seen.state));
    assert!(reader.tasks(RunId(1)).await.unwrap().iter().all(|task| task.state == TaskStateName::Cancelled));
    let recovered = store.recover_runs().await.unwrap();
    assert_eq!(recovered.iter().map(|run| run.run).collect::<Vec<_>>(), [RunId(1)]);
    assert_eq!(store.run(RunId(1)).await.unwrap().unwrap().summary.state, RunStateName::Interrupted);
    let batches = store.journal(RunId(1)).await.unwrap().len() as u64;
    assert_whole(&store, RunId(1), batches).await;
}
