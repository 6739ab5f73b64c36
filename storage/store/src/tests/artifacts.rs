//! Artifacts: what comes in, what is damaged, what is gone.

use std::os::unix::fs::PermissionsExt;

use assay_core::RunId;
use assay_spec::ArtifactRef;

use super::lifecycle::told;
use super::story::key;
use crate::{Store, StoreErrorKind};

async fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("home")).await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn a_file_comes_in_under_its_hash_and_is_protected() {
    let (folder, store) = store().await;
    let file = folder.path().join("model.safetensors");
    let content = vec![7; 3 << 20];
    std::fs::write(&file, &content).unwrap();
    let artifact = store.ingest(&file, "model.safetensors").await.unwrap();
    let hash = blake3::hash(&content).to_hex().to_string();
    assert_eq!(artifact, ArtifactRef { hash: hash.clone(), name: "model.safetensors".into(), bytes: 3 << 20 });
    let path = store.artifact_path(&artifact);
    assert_eq!(std::fs::read(&path).unwrap(), content);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
    let view = store.artifact(&hash).await.unwrap().unwrap();
    assert!(view.present && view.path == path && view.bytes == 3 << 20, "{view:?}");
    assert_eq!(store.artifact(&key('0')).await.unwrap(), None);
    assert_eq!(store.artifact("../../etc/passwd").await.unwrap(), None);
}

#[tokio::test]
async fn the_same_content_twice_is_one_artifact_and_an_empty_one_is_legal() {
    let (folder, store) = store().await;
    let file = folder.path().join("f");
    std::fs::write(&file, "").unwrap();
    let first = store.ingest(&file, "first").await.unwrap();
    let second = store.ingest(&file, "second").await.unwrap();
    assert_eq!((first.hash.as_str(), first.bytes), (second.hash.as_str(), 0));
    assert_eq!(store.artifact(&first.hash).await.unwrap().unwrap().name, "first");
}

#[tokio::test]
async fn what_is_no_file_is_refused() {
    let (folder, store) = store().await;
    // A device that never ends is none either.
    for (path, text) in [
        (folder.path().join("nothing"), "cannot read `"),
        (folder.path().to_owned(), "is no regular file"),
        ("/dev/zero".into(), "`/dev/zero` is no regular file"),
    ] {
        let error = store.ingest(&path, "x").await.unwrap_err();
        assert!(error.kind() == StoreErrorKind::Io && error.to_string().contains(text), "{error}");
    }
}

#[tokio::test]
async fn a_damaged_or_missing_artifact_is_a_miss_and_the_same_content_repairs_it() {
    let (folder, store) = told().await;
    let model = blake3::hash(b"a model").to_hex().to_string();
    let path = store.artifact(&model).await.unwrap().unwrap().path;
    for damage in [None, Some("short"), Some("longer than it was"), Some("")] {
        assert!(store.lookup(&key('b')).await.unwrap().is_some());
        std::fs::remove_file(&path).unwrap();
        if let Some(content) = damage {
            std::fs::write(&path, content).unwrap();
        }
        assert!(store.lookup(&key('b')).await.unwrap().is_none(), "{damage:?}");
        assert!(store.lookup(&key('a')).await.unwrap().is_some(), "the other one is whole");
        assert!(!store.artifact(&model).await.unwrap().unwrap().present);
        let present: Vec<bool> = store.artifacts(RunId(1)).await.unwrap().iter().map(|a| a.present).collect();
        assert_eq!(present, [true, false, false]);
        let file = folder.path().join("again");
        std::fs::write(&file, "a model").unwrap();
        store.ingest(&file, "again").await.unwrap();
    }
    assert!(store.lookup(&key('b')).await.unwrap().is_some());
}

#[tokio::test]
async fn a_damaged_segment_is_told_with_its_name() {
    let (_folder, store) = told().await;
    let path = store.home().join("metrics/1/1-2.parquet");
    std::fs::write(&path, "nonsense").unwrap();
    let error = store.series(RunId(1), assay_core::TaskIx(1), None, &[], None).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Damaged);
    assert!(error.to_string().contains("1-2.parquet` is damaged"), "{error}");
    assert_eq!(store.last_metrics(RunId(1)).await.unwrap().len(), 2, "the last values need no segment");
}
