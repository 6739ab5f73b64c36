//! Files come into the store under the hash of their content.

use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use assay_core::{Epoch, RunId, TaskIx};
use assay_schema::artifact;
use assay_spec::ArtifactRef;
use sea_orm::sea_query::OnConflict;
use sea_orm::{EntityTrait, Set};

use crate::failure_point::FailurePoint;
use crate::folders::pack;
use crate::rows::{now_millis, to_signed};
use crate::store::run_blocking;
use crate::{ArtifactView, OutputView, RunArtifact, Store, StoreError, StoreErrorKind, rows};

impl Store {
    /// Takes a finished file into the store under its hash. The file stays where it is. A folder is taken as a tar archive of its
    /// files (`folders.rs`).
    ///
    /// It is copied even where a rename would do: what is hashed is what is stored, whoever still has the file open. A
    /// content that is there already is replaced by the same content, which repairs it if it was damaged.
    ///
    /// # Errors
    /// If the file cannot be read, or the store not written.
    pub async fn ingest_file(&self, file: &Path, name: &str) -> Result<ArtifactRef, StoreError> {
        let (from, temporary) = (file.to_owned(), self.session()?.temporary());
        let (hash, bytes) = run_blocking({
            let temporary = temporary.clone();
            move || {
                // What cannot be read to its end leaves nothing behind.
                copy_and_hash(&from, &temporary).inspect_err(|_| drop(std::fs::remove_file(&temporary)))
            }
        })
        .await?;
        self.trap.check_point(FailurePoint::ArtifactCopied)?;
        let path = self.layout.artifact(&hash);
        run_blocking(move || place_file(&temporary, &path)).await?;
        self.trap.check_point(FailurePoint::ArtifactPlaced)?;

        let failed = || StoreError::database("record an artifact");
        let tx = self.database.begin_write().await?;
        let row = artifact::ActiveModel {
            hash: Set(hash.clone()),
            name: Set(name.to_owned()),
            bytes: Set(to_signed(bytes)),
            created_at: Set(to_signed(now_millis())),
        };
        // The first name stays: others may have shown it already.
        let known = OnConflict::column(artifact::Column::Hash).do_nothing().to_owned();
        let insert = artifact::Entity::insert(row).on_conflict(known);
        insert.exec_without_returning(&tx).await.map_err(failed())?;
        tx.commit().await.map_err(failed())?;
        Ok(ArtifactRef { hash, name: name.to_owned(), bytes })
    }

    /// Where an artifact's content lies, or would lie.
    #[must_use]
    pub fn artifact_path(&self, artifact: &ArtifactRef) -> PathBuf {
        self.layout.artifact(&artifact.hash)
    }

    /// An artifact by its hash.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn artifact(&self, hash: &str) -> Result<Option<ArtifactView>, StoreError> {
        let found = artifact::Entity::find_by_id(hash).one(self.database.reader()).await;
        let row = found.map_err(StoreError::database("look up an artifact"))?;
        Ok(row.map(|row| {
            let (path, bytes) = (self.layout.artifact(&row.hash), rows::to_unsigned(row.bytes));
            ArtifactView {
                present: is_whole(&path, bytes),
                path,
                hash: row.hash,
                name: row.name,
                bytes,
                created_at: rows::to_unsigned(row.created_at),
            }
        }))
    }

    /// The artifacts among the outputs of a run's tasks, in the order of the tasks.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn artifacts(&self, run: RunId) -> Result<Vec<RunArtifact>, StoreError> {
        let mut found = Vec::new();
        for task in self.tasks(run).await? {
            for (output, value) in task.outputs {
                let OutputView::Artifact { hash, name, bytes } = value else { continue };
                let present = is_whole(&self.layout.artifact(&hash), bytes);
                found.push(RunArtifact {
                    ix: task.ix,
                    address: task.address.clone(),
                    output,
                    hash,
                    name,
                    bytes,
                    present,
                });
            }
        }
        Ok(found)
    }

    /// Where attempts at the work of a cache key leave what a later one can resume from. It need not exist.
    #[must_use]
    pub fn resume_dir(&self, key: &str) -> PathBuf {
        self.layout.resume_of(key)
    }

    /// A new empty folder for one attempt's work, on the same file system as the artifacts.
    ///
    /// # Errors
    /// If it cannot be made.
    pub async fn create_workdir(&self, run: RunId, task: TaskIx, epoch: Epoch) -> Result<PathBuf, StoreError> {
        let folder = self.session()?.folder().join(format!("{run}-{task}-{epoch}"));
        run_blocking(move || {
            if folder.exists() {
                std::fs::remove_dir_all(&folder).map_err(StoreError::io("empty the folder", &folder))?;
            }
            std::fs::create_dir_all(&folder).map_err(StoreError::io("make the folder", &folder))?;
            Ok(folder)
        })
        .await
    }
}

/// Whether a file is there with the size that it should have.
fn is_whole(path: &Path, bytes: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == bytes)
}

/// What a file or a folder would be known by in a store, which it does not enter.
///
/// # Errors
/// If the file cannot be read.
pub async fn content_of(file: &Path) -> Result<ArtifactRef, StoreError> {
    let name = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let from = file.to_owned();
    let (hash, bytes) = run_blocking(move || match from.is_dir() {
        true => pack(&from, &mut std::io::sink()),
        false => hash_of(&from, |_| Ok(())),
    })
    .await?;
    Ok(ArtifactRef { hash, name, bytes })
}

/// Reads a file from end to end: its hash and size. Each piece is given to `take`.
pub(crate) fn hash_of(
    from: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<(String, u64), StoreError> {
    let mut source = File::open(from).map_err(StoreError::io("read", from))?;
    let (mut hasher, mut bytes) = (blake3::Hasher::new(), 0);
    // As large as the file, if that is small: most outputs are, and a buffer of zeros costs more than they do.
    let length = source.metadata().map_or(0, |data| data.len());
    let mut buffer = vec![0; usize::try_from(length + 1).unwrap_or(usize::MAX).clamp(4 << 10, 1 << 20)];
    loop {
        let read = source.read(&mut buffer).map_err(StoreError::io("read", from))?;
        let Some(piece) = buffer.get(..read).filter(|piece| !piece.is_empty()) else { break };
        hasher.update(piece);
        take(piece)?;
        bytes += read as u64;
    }
    Ok((hasher.finalize().to_hex().to_string(), bytes))
}

/// Copies a file, or packs a folder, flushes the copy, and tells its hash and size.
fn copy_and_hash(from: &Path, to: &Path) -> Result<(String, u64), StoreError> {
    // A pipe may never say anything, and a device never end.
    let found = std::fs::metadata(from).map_err(StoreError::io("read", from))?;
    if !found.is_file() && !found.is_dir() {
        let message = format!("`{}` is no regular file", from.display());
        return Err(StoreError::new(StoreErrorKind::Io, message, "name a file or a folder, not a pipe or a device"));
    }
    let mut target = File::create(to).map_err(StoreError::io("write", to))?;
    let found = match found.is_dir() {
        true => pack(from, &mut target)?,
        false => hash_of(from, |piece| target.write_all(piece).map_err(StoreError::io("write", to)))?,
    };
    target.set_permissions(Permissions::from_mode(0o444)).map_err(StoreError::io("protect", to))?;
    target.sync_all().map_err(StoreError::io("write", to))?;
    Ok(found)
}

/// Gives a flushed file its final name, and flushes that.
fn place_file(temporary: &Path, path: &Path) -> Result<(), StoreError> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).map_err(StoreError::io("make the folder", folder))?;
    std::fs::rename(temporary, path).map_err(StoreError::io("write", path))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::io("write", folder))
}
