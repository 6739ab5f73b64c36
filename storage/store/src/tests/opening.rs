//! Opening stores of every kind, and the error messages if that fails.

use std::path::Path;
use std::time::Duration;

use sea_orm::{ConnectionTrait, Database};

use super::story::{LENGTH, new_run, play_story};
use crate::{Store, StoreErrorKind};

async fn execute_sql(database: &Path, sql: &str) {
    let db = Database::connect(format!("sqlite://{}?mode=rwc", database.display())).await.unwrap();
    db.execute_unprepared(sql).await.unwrap();
    db.close().await.unwrap();
}

/// The messages of both ways of opening, without the folder's name.
async fn refusals(home: &Path) -> String {
    let (writing, reading) = (Store::open(home).await.map(drop), Store::open_read_only(home).await.map(drop));
    let say = |result: Result<(), crate::StoreError>| match result {
        Ok(()) => "opens".to_owned(),
        Err(error) => format!("{:?}: {error}", error.kind()),
    };
    let text = format!("writing: {}\nreading: {}", say(writing), say(reading));
    text.replace(&home.display().to_string(), "HOME")
}

#[tokio::test]
async fn a_store_is_made_where_there_is_none_and_opens_again() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("deep/odd %?# name/.assay");
    let store = Store::open(&home).await.unwrap();
    play_story(&store, folder.path(), 0..LENGTH).await.unwrap();
    store.close().await;
    let left: Vec<_> = std::fs::read_dir(home.join("work")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let store = Store::open(&home).await.unwrap();
    assert_eq!(store.runs(10, 0).await.unwrap().len(), 1);
}

#[tokio::test]
async fn reading_what_is_not_there_says_so_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("none");
    let error = Store::open_read_only(&home).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Absent);
    assert_eq!(
        error.to_string().replace(&home.display().to_string(), "HOME"),
        "there is no store in `HOME`; `assay run` makes one; name another folder with --home"
    );
    assert!(!home.exists());
}

#[tokio::test]
async fn a_store_of_a_newer_assay_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    Store::open(folder.path()).await.unwrap().close().await;
    let newer = "insert into seaql_migrations (version, applied_at) values ('m9999_future', 0)";
    execute_sql(&folder.path().join("assay.db"), newer).await;
    insta::assert_snapshot!(refusals(folder.path()).await, @r"
    writing: Newer: the store `HOME/assay.db` was changed by a newer Assay (`m9999_future`); update this Assay, or use another store with --home
    reading: Newer: the store `HOME/assay.db` was changed by a newer Assay (`m9999_future`); update this Assay, or use another store with --home
    ");
}

#[tokio::test]
async fn a_store_that_lacks_a_migration_is_not_read_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    Store::open(folder.path()).await.unwrap().close().await;
    execute_sql(&folder.path().join("assay.db"), "delete from seaql_migrations").await;
    let error = Store::open_read_only(folder.path()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Older);
    assert_eq!(error.hint(), Some("`assay run` brings it up to date"));
}

#[tokio::test]
async fn what_is_no_store_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::create_dir(&text).unwrap();
    std::fs::write(text.join("assay.db"), "shopping list: ".repeat(100)).unwrap();
    insta::assert_snapshot!(refusals(&text).await, @r"
    writing: NotAStore: cannot open the database `HOME/assay.db`: file is not a database; name another folder with --home
    reading: NotAStore: cannot open the database `HOME/assay.db`: file is not a database; name another folder with --home
    ");
    assert!(std::fs::read_to_string(text.join("assay.db")).unwrap().starts_with("shopping list"));

    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    execute_sql(&other.join("assay.db"), "create table birds (name text)").await;
    insta::assert_snapshot!(refusals(&other).await, @r"
    writing: NotAStore: `HOME/assay.db` is a database, but not one of Assay's; name another folder with --home
    reading: NotAStore: `HOME/assay.db` is a database, but not one of Assay's; name another folder with --home
    ");

    let file = folder.path().join("file");
    std::fs::write(&file, "a file").unwrap();
    insta::assert_snapshot!(refusals(&file).await, @r"
    writing: NotAStore: `HOME` is a file, not a store; name another folder with --home
    reading: NotAStore: `HOME` is a file, not a store; name another folder with --home
    ");
}

#[tokio::test]
async fn a_store_for_reading_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Store::open(folder.path()).await.unwrap();
    let reader = Store::open_read_only(folder.path()).await.unwrap();
    let error = reader.begin_run(new_run()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (StoreErrorKind::ReadOnly, "the store is open for reading only")
    );
    let refused = reader.database.reader().execute_unprepared("delete from runs").await;
    assert!(refused.is_err(), "the connection itself is for reading only");
    writer.begin_run(new_run()).await.unwrap();
    assert_eq!(reader.runs(10, 0).await.unwrap().len(), 1, "but it sees what others write");
}

#[tokio::test]
async fn a_database_that_is_held_too_long_is_called_locked() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).await.unwrap();
    let _held = store.database.begin_write().await.unwrap();
    let path = folder.path().join("assay.db");
    let other = crate::database::open_connection(&path, 1, |options| options.busy_timeout(Duration::from_millis(1)));
    let refused = other.await.unwrap().execute_unprepared("begin immediate").await.unwrap_err();
    let error = crate::StoreError::database("write events")(refused);
    insta::assert_snapshot!(
        format!("{:?}: {error}", error.kind()),
        @"Locked: cannot write events: database is locked; another process has held the store's lock for half a minute; wait for it, or see whether it hangs"
    );
}

#[test]
fn what_the_file_system_says_becomes_something_to_do() {
    use std::io::{Error, ErrorKind};
    let say = |kind: ErrorKind| {
        let error = crate::StoreError::io("write", Path::new("x/y"))(Error::from(kind));
        format!("{:?}: {error}", error.kind())
    };
    let kinds = [ErrorKind::StorageFull, ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem, ErrorKind::Other];
    insta::assert_snapshot!(kinds.map(say).join("\n"), @r"
    NoSpace: cannot write `x/y`: no storage space; free some space on that disk, or put the store elsewhere with --home
    Denied: cannot write `x/y`: permission denied; see who owns that folder, or put the store elsewhere with --home
    Denied: cannot write `x/y`: read-only filesystem or storage medium; see who owns that folder, or put the store elsewhere with --home
    Io: cannot write `x/y`: other error
    ");
}
