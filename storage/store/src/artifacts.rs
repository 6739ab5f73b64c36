//! Files are stored under the hash of their content.

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
    /// Stores a finished file under its hash. The original file is kept. A folder is stored as a tar archive of its files
    /// (`folders.rs`).
    ///
    /// The file is copied even if a rename would be possible: the hash is then that of the stored content, even if another process still
    /// has the file open. Existing content is replaced by the same content, which repairs a damaged file.
    ///
    /// # Errors
    /// If the file cannot be read, or the store cannot be written.
    pub async fn ingest_file(&self, file: &Path, name: &str) -> Result<ArtifactRef, StoreError> {
        let (from, temporary) = (file.to_owned(), self.session()?.temporary());
        let (hash, bytes) = run_blocking({
            let temporary = temporary.clone();
            move || {
                // A file that cannot be read completely leaves no copy.
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
        // The first name is kept, since it may already have been displayed.
        let known = OnConflict::column(artifact::Column::Hash).do_nothing().to_owned();
        let insert = artifact::Entity::insert(row).on_conflict(known);
        insert.exec_without_returning(&tx).await.map_err(failed())?;
        tx.commit().await.map_err(failed())?;
        Ok(ArtifactRef { hash, name: name.to_owned(), bytes })
    }

    /// The path of an artifact's content, which need not exist.
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

    /// The folder in which attempts at the work of a cache key leave state for later attempts. It need not exist.
    #[must_use]
    pub fn resume_dir(&self, key: &str) -> PathBuf {
        self.layout.resume_of(key)
    }

    /// Creates an empty folder for one attempt's work, on the same file system as the artifacts.
    ///
    /// # Errors
    /// If it cannot be created.
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

/// Whether a file exists with the expected size.
fn is_whole(path: &Path, bytes: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == bytes)
}

/// The artifact that a file or a folder would become, without storing it.
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

/// Reads a file completely; returns its hash and size. Each block is passed to `take`.
pub(crate) fn hash_of(
    from: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<(String, u64), StoreError> {
    let mut source = File::open(from).map_err(StoreError::io("read", from))?;
    let (mut hasher, mut bytes) = (blake3::Hasher::new(), 0);
    // The size of the file, if it is small: most outputs are small, and zeroing a larger buffer would cost more than reading them.
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

/// Copies a file, or packs a folder, flushes the copy, and returns its hash and size.
fn copy_and_hash(from: &Path, to: &Path) -> Result<(String, u64), StoreError> {
    // Reading a pipe may block for ever, and a device may never end.
    let found = std::fs::metadata(from).map_err(StoreError::io("read", from))?;
    if !found.is_file() && !found.is_dir() {
        let message = format!("`{}` is not a regular file", from.display());
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

/// Renames a flushed file to its final name, and flushes the folder.
fn place_file(temporary: &Path, path: &Path) -> Result<(), StoreError> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder).map_err(StoreError::io("make the folder", folder))?;
    std::fs::rename(temporary, path).map_err(StoreError::io("write", path))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::io("write", folder))
}
