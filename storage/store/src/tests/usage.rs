//! What workers did.

use assay_core::{RunId, TaskIx};

use super::lifecycle::store_with_story;
use super::story::{attempt_began, new_run};

#[tokio::test]
async fn attempts_are_found_by_their_times() {
    let (_folder, store) = store_with_story().await;
    let all = store.attempts_since(0, 100).await.unwrap();
    let first = all.last().unwrap();
    assert_eq!((first.run, first.job.as_str(), first.address.as_str()), (RunId(1), "data", "data"));
    assert!(all.windows(2).all(|pair| pair[0].began_at >= pair[1].began_at), "the latest first: {all:#?}");
    let last = all.iter().filter_map(|attempt| attempt.ended_at).max().unwrap();
    assert_eq!(store.attempts_since(last + 1, 100).await.unwrap(), []);
    assert_eq!(store.attempts_since(0, 1).await.unwrap(), all[..1]);

    // One in progress counts as long as the process of its run is alive.
    store.append_records(RunId(1), vec![attempt_began(2, 1, last + 10)]).await.unwrap();
    let live = store.begin_run(new_run()).await.unwrap();
    store.append_records(live, vec![attempt_began(0, 1, last + 10)]).await.unwrap();
    let found = store.attempts_since(last + 1, 100).await.unwrap();
    let open: Vec<(RunId, TaskIx, Option<u64>)> = found.iter().map(|one| (one.run, one.ix, one.ended_at)).collect();
    assert_eq!(open, [(live, TaskIx(0), None)]);
}

#[tokio::test]
async fn the_latest_greeting_of_each_backend_is_kept() {
    let (_folder, store) = store_with_story().await;
    let found = store.executors(100).await.unwrap();
    assert!(!found.is_empty());
    let mut places: Vec<(&str, &str)> = found.iter().map(|one| (one.worker.as_str(), one.backend.as_str())).collect();
    places.dedup();
    assert_eq!(places.len(), found.len(), "{found:#?}");
    assert!(found.iter().all(|one| one.greeting.is_object() && one.used_at > 0), "{found:#?}");
    assert_eq!(store.executors(0).await.unwrap(), []);
}

#[tokio::test]
async fn runs_whose_tasks_made_files_are_found() {
    let (_folder, store) = store_with_story().await;
    store.begin_run(new_run()).await.unwrap();
    assert_eq!(store.runs_with_artifacts(RunId(i64::MAX), 10).await.unwrap(), [RunId(1)], "the second made none yet");
    assert_eq!(store.runs_with_artifacts(RunId(1), 10).await.unwrap(), []);
    assert_eq!(store.runs_with_artifacts(RunId(2), 0).await.unwrap(), []);
}
