//! The connections to `assay.db`, and the check of its version.
//!
//! `synchronous = NORMAL` in WAL mode: a process that dies loses nothing; after a power failure the most recent batches
//! may be missing, but the rest is consistent. Then a few steps run again, while FULL would cost a disk flush in every
//! batch. Segments and artifacts are flushed before the database refers to them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_schema::Migrator;
use sea_orm::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sea_orm::{
    ConnectOptions, ConnectionTrait, Database as Connector, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr,
    EntityTrait, SqliteTransactionMode, Statement, TransactionOptions, TransactionTrait,
};
use sea_orm_migration::{MigratorTrait, seaql_migrations};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::error::{NOT_A_STORE, StoreErrorKind};
use crate::{StoreError, session::Gate};

/// How long a writer waits for others.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of connections for reading.
const READERS: u32 = 4;

/// One connection for writing, if the store was opened for that, and some for reading.
#[derive(Debug)]
pub(crate) struct Database {
    writer: Option<DatabaseConnection>,
    reader: DatabaseConnection,
    /// The file that is read.
    path: PathBuf,
    /// One connection, opened when it is first needed: it counts the changes that others made.
    watcher: OnceCell<DatabaseConnection>,
    /// The folder of the copy that is read, if there is one; removed with it.
    _copy: Option<TempDir>,
}

impl Database {
    /// Opens the database, creates it if it is missing, and migrates it to the current schema.
    pub(crate) async fn open(path: &Path, _gate: &Gate) -> Result<Database, StoreError> {
        let writer = open_connection(path, 1, |options| {
            let options = options.create_if_missing(true).foreign_keys(true);
            options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Normal)
        });
        let writer = writer.await.map_err(StoreError::database(format!("open the database `{}`", path.display())))?;
        check_schema(&writer, path, true).await?;
        Migrator::up(&writer, None)
            .await
            .map_err(StoreError::database(format!("bring `{}` up to date", path.display())))?;
        Ok(Database {
            reader: open_reader(path).await?,
            writer: Some(writer),
            path: path.to_owned(),
            watcher: OnceCell::new(),
            _copy: None,
        })
    }

    /// Opens an existing database for reading only. Its folder need not be writable: SQLite needs to write next to a
    /// database in WAL mode even for reading; if it cannot, the current content is read.
    pub(crate) async fn open_read_only(path: &Path) -> Result<Database, StoreError> {
        match Database::from_reader(path, open_reader(path).await).await {
            Err(error) if error.kind() == StoreErrorKind::Denied => {}
            done => return done,
        }
        if log_size(path) == 0 {
            // The file contains all data.
            return Database::from_reader(path, open_unchanging_reader(path).await).await;
        }
        let copy = copy_of(path)?;
        let inside = copy.path().join(NAME);
        let database = Database::from_reader(path, open_reader(&inside).await).await?;
        Ok(Database { _copy: Some(copy), path: inside, ..database })
    }

    async fn from_reader(path: &Path, reader: Result<DatabaseConnection, StoreError>) -> Result<Database, StoreError> {
        let reader = reader?;
        check_schema(&reader, path, false).await?;
        Ok(Database { reader, writer: None, path: path.to_owned(), watcher: OnceCell::new(), _copy: None })
    }

    /// For queries.
    pub(crate) fn reader(&self) -> &DatabaseConnection {
        &self.reader
    }

    /// A number that differs whenever any other connection, of this process or of another one, has changed the database since.
    pub(crate) async fn data_version(&self) -> Result<i64, StoreError> {
        let open = || open_connection(&self.path, 1, |options| options.pragma("query_only", "ON"));
        let failed = || StoreError::database("look for changes of the database");
        let watcher = self.watcher.get_or_try_init(open).await.map_err(failed())?;
        let query = Statement::from_string(DbBackend::Sqlite, "pragma data_version");
        let row = watcher.query_one_raw(query).await.map_err(failed())?;
        let version = row.map(|row| row.try_get_by_index(0)).transpose().map_err(failed())?;
        Ok(version.unwrap_or(0))
    }

    /// A consistent view over several queries.
    pub(crate) async fn snapshot(&self) -> Result<DatabaseTransaction, StoreError> {
        self.reader.begin().await.map_err(StoreError::database("read the database"))
    }

    /// A transaction for writing. It takes SQLite's write lock at its start: a transaction that reads first and requests
    /// the lock later could be refused at any time.
    pub(crate) async fn begin_write(&self) -> Result<DatabaseTransaction, StoreError> {
        let Some(writer) = &self.writer else {
            return Err(StoreError::new(StoreErrorKind::ReadOnly, "the store is open for reading only", ""));
        };
        let options = TransactionOptions {
            sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
            ..TransactionOptions::default()
        };
        writer.begin_with_options(options).await.map_err(StoreError::database("begin a transaction"))
    }

    pub(crate) async fn close_connections(&self) {
        // The writer is closed last: it merges the write-ahead log into the database. No data are lost if that fails.
        let _ = self.reader.close_by_ref().await;
        if let Some(watcher) = self.watcher.get() {
            let _ = watcher.close_by_ref().await;
        }
        if let Some(writer) = &self.writer {
            let _ = writer.close_by_ref().await;
        }
    }
}

async fn open_reader(path: &Path) -> Result<DatabaseConnection, StoreError> {
    let reader = open_connection(path, READERS, |options| options.pragma("query_only", "ON"));
    reader.await.map_err(StoreError::database(format!("open the database `{}`", path.display())))
}

/// A reader of a database that no process changes.
async fn open_unchanging_reader(path: &Path) -> Result<DatabaseConnection, StoreError> {
    let reader = open_connection(path, READERS, |options| options.pragma("query_only", "ON").immutable(true));
    reader.await.map_err(StoreError::database(format!("open the database `{}`", path.display())))
}

/// The name of the copy of a database.
const NAME: &str = "assay.db";

/// How often copying is repeated if the database changes meanwhile.
const COPIES: usize = 5;

fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log)
}

fn log_size(path: &Path) -> u64 {
    std::fs::metadata(log_of(path)).map_or(0, |log| log.len())
}

/// Copies a database with its write-ahead log to a folder in which it can be opened.
fn copy_of(path: &Path) -> Result<TempDir, StoreError> {
    let folder = TempDir::new().map_err(StoreError::io("make a copy of", path))?;
    let copy = folder.path().join(NAME);
    // A process that writes the database does not wait for this copy.
    let state = || [path.to_owned(), log_of(path)].map(|file| std::fs::metadata(file).and_then(|f| f.modified()).ok());
    for _ in 0..COPIES {
        let before = state();
        for file in [&copy, &log_of(&copy)] {
            // The copy would have the permissions of the original, and could not be overwritten.
            let _ = std::fs::remove_file(file);
        }
        std::fs::copy(path, &copy).map_err(StoreError::io("copy", path))?;
        std::fs::copy(log_of(path), log_of(&copy)).map_err(StoreError::io("copy", &log_of(path)))?;
        if state() == before {
            return Ok(folder);
        }
    }
    let message = format!("`{}` is written all the time, and its folder is read-only", path.display());
    let hint = "allow writing to the folder, or wait until the run is over";
    Err(StoreError::new(StoreErrorKind::Locked, message, hint))
}

/// Connections to a database file, with additional settings.
pub(crate) async fn open_connection(
    path: &Path,
    connections: u32,
    tune: impl Fn(SqliteConnectOptions) -> SqliteConnectOptions + Send + Sync + 'static,
) -> Result<DatabaseConnection, DbErr> {
    // The path is not part of the URL, in which `?` or `%` would have a special meaning.
    let path = path.to_owned();
    let mut options = ConnectOptions::new("sqlite://assay.db");
    options.max_connections(connections).acquire_timeout(PATIENCE).sqlx_logging(false);
    options.map_sqlx_sqlite_opts(move |options| tune(options.filename(&path).busy_timeout(PATIENCE)));
    Connector::connect(options).await
}

/// Refuses files that are not stores, and stores of other versions. A new, empty database is accepted if it may be filled.
async fn check_schema(db: &DatabaseConnection, path: &Path, may_fill: bool) -> Result<(), StoreError> {
    let looking = || StoreError::database(format!("read the database `{}`", path.display()));
    let tables = table_names(db).await.map_err(looking())?;
    if tables.is_empty() && may_fill {
        return Ok(());
    }
    if !tables.iter().any(|table| table == "seaql_migrations") {
        let message = format!("`{}` is a database, but not one of Assay's", path.display());
        return Err(StoreError::new(StoreErrorKind::NotAStore, message, NOT_A_STORE));
    }
    let known = assay_schema::known();
    let applied = seaql_migrations::Entity::find().all(db).await.map_err(looking())?;
    if let Some(unknown) = applied.iter().find(|applied| !known.contains(&applied.version)) {
        let message = format!("the store `{}` was changed by a newer Assay (`{}`)", path.display(), unknown.version);
        let hint = "update this Assay, or use another store with --home";
        return Err(StoreError::new(StoreErrorKind::Newer, message, hint));
    }
    if applied.len() < known.len() && !may_fill {
        let message = format!("the store `{}` was made by an older Assay", path.display());
        return Err(StoreError::new(StoreErrorKind::Older, message, "`assay run` brings it up to date"));
    }
    Ok(())
}

async fn table_names(db: &DatabaseConnection) -> Result<Vec<String>, DbErr> {
    let query = Statement::from_string(DbBackend::Sqlite, "select name from sqlite_master where type = 'table'");
    db.query_all_raw(query).await?.iter().map(|row| row.try_get_by_index(0)).collect()
}
