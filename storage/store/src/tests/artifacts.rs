//! Storing artifacts; damaged and missing artifacts.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use assay_core::RunId;
use assay_schema::verification;
use assay_server::Lookup;
use assay_spec::ArtifactRef;
use sea_orm::{EntityTrait, Set};

use super::lifecycle::store_with_story;
use super::story::{key, known_result};
use crate::{Content, Store, StoreErrorKind};

async fn open_store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("home")).await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn a_file_comes_in_under_its_hash_and_is_protected() {
    let (folder, store) = open_store().await;
    let file = folder.path().join("model.safetensors");
    let content = vec![7; 3 << 20];
    std::fs::write(&file, &content).unwrap();
    let artifact = store.ingest_file(&file, "model.safetensors").await.unwrap();
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
    let (folder, store) = open_store().await;
    let file = folder.path().join("f");
    std::fs::write(&file, "").unwrap();
    let first = store.ingest_file(&file, "first").await.unwrap();
    let second = store.ingest_file(&file, "second").await.unwrap();
    assert_eq!((first.hash.as_str(), first.bytes), (second.hash.as_str(), 0));
    assert_eq!(store.artifact(&first.hash).await.unwrap().unwrap().name, "first");
}

#[tokio::test]
async fn what_is_neither_file_nor_folder_is_refused() {
    let (folder, store) = open_store().await;
    // An endless device is also refused.
    for (path, text) in
        [(folder.path().join("nothing"), "cannot read `"), ("/dev/zero".into(), "`/dev/zero` is not a regular file")]
    {
        let error = store.ingest_file(&path, "x").await.unwrap_err();
        assert!(error.kind() == StoreErrorKind::Io && error.to_string().contains(text), "{error}");
    }
}

#[tokio::test]
async fn a_damaged_or_missing_artifact_is_a_miss_and_the_same_content_repairs_it() {
    let (folder, store) = store_with_story().await;
    let model = blake3::hash(b"a model").to_hex().to_string();
    let path = store.artifact(&model).await.unwrap().unwrap().path;
    for damage in [None, Some("short"), Some("longer than it was"), Some("")] {
        assert!(known_result(&store, 'b').await.is_some());
        std::fs::remove_file(&path).unwrap();
        if let Some(content) = damage {
            std::fs::write(&path, content).unwrap();
        }
        let lookup = store.look_up_result(&key('b')).await.unwrap();
        assert!(matches!(&lookup, Lookup::Lost { .. }), "{damage:?}: {lookup:?}");
        assert!(known_result(&store, 'a').await.is_some(), "the other one is whole");
        assert!(!store.artifact(&model).await.unwrap().unwrap().present);
        let present: Vec<bool> = store.artifacts(RunId(1)).await.unwrap().iter().map(|a| a.present).collect();
        assert_eq!(present, [true, false, false]);
        let file = folder.path().join("again");
        std::fs::write(&file, "a model").unwrap();
        store.ingest_file(&file, "again").await.unwrap();
    }
    assert!(known_result(&store, 'b').await.is_some());
}

/// Overwrites a file with other bytes of the same length, and preserves its inode and, if possible, its times.
fn flip_byte(path: &std::path::Path, keep_times: bool) {
    let modified = std::fs::metadata(path).unwrap().modified().unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut content = std::fs::read(path).unwrap();
    content[0] ^= 0xff;
    std::fs::write(path, content).unwrap();
    if keep_times {
        std::fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
    }
}

#[tokio::test]
async fn flipped_bytes_of_the_same_size_are_found() {
    for keep_times in [false, true] {
        let (folder, store) = store_with_story().await;
        let model = blake3::hash(b"a model").to_hex().to_string();
        let Content::Whole(path) = store.verify_artifact(&model).await.unwrap() else { panic!("it is whole") };
        flip_byte(&path, keep_times);
        let Lookup::Lost { why, .. } = store.look_up_result(&key('b')).await.unwrap() else { panic!("it is damaged") };
        assert!(why.contains("its content is damaged: it hashes to"), "{why}");
        // Every further read finds the damage, in every process.
        assert!(matches!(store.verify_artifact(&model).await.unwrap(), Content::Lost { .. }));
        let reader = Store::open_read_only(store.home()).await.unwrap();
        assert!(matches!(reader.verify_artifact(&model).await.unwrap(), Content::Lost { .. }));
        let file = folder.path().join("again");
        std::fs::write(&file, "a model").unwrap();
        store.ingest_file(&file, "again").await.unwrap();
        assert!(known_result(&store, 'b').await.is_some());
    }
}

#[tokio::test]
async fn a_verified_file_that_nobody_touched_is_not_read_again() {
    let (_folder, store) = store_with_story().await;
    let model = blake3::hash(b"a model").to_hex().to_string();
    let path = store.artifact(&model).await.unwrap().unwrap().path;
    // Verifications of recently changed files are not stored, so this file gets an old time.
    let file = std::fs::metadata(&path).unwrap();
    let row = verification::ActiveModel {
        // A wrong hash: a full read finds it, a stored verification does not.
        hash: Set("e".repeat(64)),
        bytes: Set(file.len().cast_signed()),
        inode: Set(file.ino().cast_signed()),
        modified_at: Set(file.mtime() * 1_000_000_000 + file.mtime_nsec()),
        changed_at: Set(file.ctime() * 1_000_000_000 + file.ctime_nsec()),
    };
    let other = store.layout.artifact(&"e".repeat(64));
    std::fs::create_dir_all(other.parent().unwrap()).unwrap();
    std::fs::rename(&path, &other).unwrap();
    let moved = std::fs::metadata(&other).unwrap();
    let row = verification::ActiveModel { changed_at: Set(moved.ctime() * 1_000_000_000 + moved.ctime_nsec()), ..row };
    let tx = store.database.begin_write().await.unwrap();
    verification::Entity::insert(row).exec_without_returning(&tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(store.verify_artifact(&"e".repeat(64)).await.unwrap(), Content::Whole(other.clone()));
    let read = store.verify_by_reading(&"e".repeat(64), other).await.unwrap();
    assert!(matches!(read, Content::Lost { .. }), "{read:?}");
}

#[tokio::test]
async fn a_damaged_segment_is_told_with_its_name() {
    let (_folder, store) = store_with_story().await;
    let path = store.home().join("metrics/1/1-2.parquet");
    std::fs::write(&path, "nonsense").unwrap();
    let error = store.series(RunId(1), assay_core::TaskIx(1), None, &[], None).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Damaged);
    assert!(error.to_string().contains("1-2.parquet` is damaged"), "{error}");
    assert_eq!(store.last_metrics(RunId(1)).await.unwrap().len(), 2, "the last values need no segment");
}
