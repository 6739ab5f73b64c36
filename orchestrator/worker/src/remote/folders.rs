//! The folders of a worker's unfinished work.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use assay_core::AttemptId;

/// The folders of one lifetime of a worker. They are removed when it ends.
pub(super) struct Folders {
    root: PathBuf,
}

/// Prevents a second worker from using a folder.
pub(super) fn lock_folder(folder: &Path) -> io::Result<File> {
    std::fs::create_dir_all(folder)?;
    let file = File::options().write(true).create(true).truncate(false).open(folder.join("worker.lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let what = format!("another worker uses the folder `{}`; name another one with --cache", folder.display());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, what))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl Folders {
    /// Creates the folders of a lifetime and removes those of earlier ones.
    pub(super) fn create(folder: &Path, life: &str) -> io::Result<Folders> {
        let lives = folder.join("lives");
        match std::fs::remove_dir_all(&lives) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let root = std::path::absolute(lives.join(life))?;
        for name in ["work", "spool", "resume", "outgoing"] {
            std::fs::create_dir_all(root.join(name))?;
        }
        Ok(Folders { root })
    }

    pub(super) fn spool(&self) -> PathBuf {
        self.root.join("spool")
    }

    /// An empty folder for an attempt.
    pub(super) fn work(&self, attempt: AttemptId) -> io::Result<PathBuf> {
        let name = format!("{}-{}-{}", attempt.task.run, attempt.task.task, attempt.epoch);
        let path = self.root.join("work").join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// The folder with state from which attempts at the same work resume; `None` if the text is not a cache key.
    pub(super) fn resume(&self, key: &str) -> Option<PathBuf> {
        assay_wire::is_hash(key).then(|| self.root.join("resume").join(key))
    }

    /// A folder for copies of files on their way to the server.
    pub(super) fn outgoing(&self, attempt: AttemptId) -> io::Result<PathBuf> {
        let path = self.outgoing_path(attempt);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Where [`Folders::outgoing`] creates the folder.
    pub(super) fn outgoing_path(&self, attempt: AttemptId) -> PathBuf {
        let name = format!("{}-{}-{}", attempt.task.run, attempt.task.task, attempt.epoch);
        self.root.join("outgoing").join(name)
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        // If this fails, the next worker here removes the folder when it starts.
        let _ = std::fs::remove_dir_all(&self.root);
    }
}
