//! Verifies stored content: its BLAKE3 hash is recomputed before it is given out.
//!
//! A file that is unchanged since its last verification is not read again. Changes are detected by its size, its inode
//! and both of its times; they are stored in the database or, if that cannot be written, in this process.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use assay_schema::verification;
use assay_server::Content;
use sea_orm::sea_query::OnConflict;
use sea_orm::{EntityTrait, Set};

use crate::artifacts::hash_of;
use crate::rows::{now_millis, to_signed, to_unsigned};
use crate::store::run_blocking;
use crate::{Store, StoreError};

/// A file that was changed this recently, in nanoseconds, may be changed again without a change of its times, whose
/// resolution depends on the file system. Its verification is not stored.
const SETTLED: i64 = 1_000_000_000;

/// The properties of a file when its hash was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    inode: u64,
    /// Nanoseconds since 1970, like the next field.
    modified_at: i64,
    changed_at: i64,
}

/// The verifications of this process.
#[derive(Debug, Default)]
pub(crate) struct Verified(Mutex<HashMap<String, Stamp>>);

impl Verified {
    fn get(&self, hash: &str) -> Option<Stamp> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(hash).copied()
    }

    fn set(&self, hash: &str, stamp: Stamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(hash.to_owned(), stamp);
    }
}

impl Stamp {
    fn from_metadata(file: &std::fs::Metadata) -> Stamp {
        let nanoseconds = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Stamp {
            bytes: file.len(),
            inode: file.ino(),
            modified_at: nanoseconds(file.mtime(), file.mtime_nsec()),
            changed_at: nanoseconds(file.ctime(), file.ctime_nsec()),
        }
    }

    /// Whether any later change of the file would change its times.
    fn is_settled(&self) -> bool {
        let now = i64::try_from(now_millis()).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        now.saturating_sub(self.changed_at.max(self.modified_at)) > SETTLED
    }
}

/// The result of reading a file.
struct Reading {
    hash: String,
    /// `None` if the file changed meanwhile.
    stamp: Option<Stamp>,
}

impl Store {
    /// Whether the artifact with this hash is intact, and its path. The file is read unless it is unchanged since its last
    /// verification.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn verify_artifact(&self, hash: &str) -> Result<Content, StoreError> {
        let path = self.layout.artifact(hash);
        let Ok(found) = std::fs::metadata(&path) else { return Ok(missing_content()) };
        let stamp = Stamp::from_metadata(&found);
        if self.verified.get(hash) == Some(stamp) {
            return Ok(Content::Whole(path));
        }
        if self.load_stamp(hash).await? == Some(stamp) {
            self.verified.set(hash, stamp);
            return Ok(Content::Whole(path));
        }
        self.verify_by_reading(hash, path).await
    }

    /// Like [`Store::verify_artifact`], but always reads the file.
    ///
    /// # Errors
    /// If the verification cannot be stored.
    pub async fn verify_by_reading(&self, hash: &str, path: PathBuf) -> Result<Content, StoreError> {
        let from = path.clone();
        // A file that cannot be read counts as damaged.
        let reading = match run_blocking(move || read_and_hash(&from)).await {
            Ok(reading) => reading,
            Err(_) if !path.exists() => return Ok(missing_content()),
            Err(error) => return Ok(Content::Lost { why: error.message().to_owned() }),
        };
        if reading.hash != hash {
            let why = format!("its content is damaged: it hashes to {}", reading.hash);
            return Ok(Content::Lost { why });
        }
        if let Some(stamp) = reading.stamp.filter(Stamp::is_settled) {
            self.verified.set(hash, stamp);
            if self.is_writable() {
                self.save_stamp(hash, stamp).await?;
            }
        }
        Ok(Content::Whole(path))
    }

    async fn load_stamp(&self, hash: &str) -> Result<Option<Stamp>, StoreError> {
        let found = verification::Entity::find_by_id(hash).one(self.database.reader()).await;
        let row = found.map_err(StoreError::database("look up a verification"))?;
        Ok(row.map(|row| Stamp {
            bytes: to_unsigned(row.bytes),
            inode: row.inode.cast_unsigned(),
            modified_at: row.modified_at,
            changed_at: row.changed_at,
        }))
    }

    async fn save_stamp(&self, hash: &str, stamp: Stamp) -> Result<(), StoreError> {
        use verification::Column;
        let failed = || StoreError::database("remember a verification");
        let row = verification::ActiveModel {
            hash: Set(hash.to_owned()),
            bytes: Set(to_signed(stamp.bytes)),
            inode: Set(stamp.inode.cast_signed()),
            modified_at: Set(stamp.modified_at),
            changed_at: Set(stamp.changed_at),
        };
        let newest = OnConflict::column(Column::Hash)
            .update_columns([Column::Bytes, Column::Inode, Column::ModifiedAt, Column::ChangedAt])
            .to_owned();
        let tx = self.database.begin_write().await?;
        let insert = verification::Entity::insert(row).on_conflict(newest);
        insert.exec_without_returning(&tx).await.map_err(failed())?;
        tx.commit().await.map_err(failed())
    }
}

fn missing_content() -> Content {
    Content::Lost { why: "its file is missing".into() }
}

fn read_and_hash(path: &Path) -> Result<Reading, StoreError> {
    let stamp =
        || std::fs::metadata(path).map(|file| Stamp::from_metadata(&file)).map_err(StoreError::io("read", path));
    let before = stamp()?;
    let (hash, _) = hash_of(path, |_| Ok(()))?;
    Ok(Reading { hash, stamp: (stamp()? == before).then_some(before) })
}
