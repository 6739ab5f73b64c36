//! A session: the lock of one process on a store, and its folder for unfinished work.
//!
//! The lock is advisory and belongs to the open file, so the kernel releases it however the process ends.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::StoreError;
use crate::layout::Layout;

/// The gate lock: while it is held, no other process opens or repairs this store. Released when dropped.
pub(crate) struct Gate {
    _file: File,
}

impl Gate {
    /// Waits for the lock; blocks the thread. It is held only for short times.
    pub(crate) fn enter_gate(layout: &Layout) -> Result<Gate, StoreError> {
        let path = layout.gate();
        let file = lock_file(&path)?;
        file.lock().map_err(StoreError::io("lock", &path))?;
        Ok(Gate { _file: file })
    }
}

fn lock_file(path: &Path) -> Result<File, StoreError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).map_err(StoreError::io("open", path))
}

/// The lock of one process on a store.
#[derive(Debug)]
pub(crate) struct Session {
    name: String,
    folder: PathBuf,
    lock: PathBuf,
    _file: File,
    files: AtomicU64,
}

impl Session {
    /// Starts a session with a unique name, which is stored with its runs.
    pub(crate) fn begin(layout: &Layout, _gate: &Gate, now: u64) -> Result<Session, StoreError> {
        let mut nth = 0;
        let (name, lock) = loop {
            let name = format!("{now}-{}-{nth}", std::process::id());
            let lock = layout.work().join(format!("{name}.lock"));
            if !lock.exists() {
                break (name, lock);
            }
            nth += 1;
        };
        let file = lock_file(&lock)?;
        file.lock().map_err(StoreError::io("lock", &lock))?;
        let folder = layout.work().join(&name);
        std::fs::create_dir(&folder).map_err(StoreError::io("make the folder", &folder))?;
        Ok(Session { name, folder, lock, _file: file, files: AtomicU64::new(0) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A unique path for a file that is being stored.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.folder.join(format!("new-{}", self.files.fetch_add(1, Ordering::Relaxed)))
    }

    /// Removes the session's files. If this fails, they are removed when the store is opened next.
    pub(crate) fn remove_folder(&self) {
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_file(&self.lock);
    }
}

/// How long unused state that attempts left for later ones is kept: two weeks.
const KEPT: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Removes old state that attempts left for later ones: their work was abandoned.
pub(crate) fn forget_old_resumes(layout: &Layout, now: SystemTime) {
    // Errors are ignored: the next call tries again.
    for entry in std::fs::read_dir(layout.resume()).into_iter().flatten().flatten() {
        let touched = entry.metadata().and_then(|data| data.modified());
        if touched.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > KEPT)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The process whose session has this name, see [`Session::begin`].
pub(crate) fn process_of(name: &str) -> Option<u32> {
    name.split('-').nth(1)?.parse().ok()
}

/// Whether the process of a session is still alive.
pub(crate) fn is_alive(layout: &Layout, name: &str) -> Result<bool, StoreError> {
    let path = layout.work().join(format!("{name}.lock"));
    match File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::io("open", &path)(error)),
        Ok(file) => is_held(&file, &path),
    }
}

/// Tests with a shared lock, so that two processes that test at the same time do not see each other as the owner.
fn is_held(file: &File, path: &Path) -> Result<bool, StoreError> {
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock", path)(error)),
    }
}

/// Removes the files of dead sessions.
pub(crate) fn remove_leftovers(layout: &Layout, _gate: &Gate) -> Result<(), StoreError> {
    let work = layout.work();
    let entries = std::fs::read_dir(&work).map_err(StoreError::io("list", &work))?;
    for entry in entries {
        let path = entry.map_err(StoreError::io("list", &work))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if is_alive(layout, name.strip_suffix(".lock").unwrap_or(name))? {
            continue;
        }
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(StoreError::io("remove", &path))?;
    }
    Ok(())
}
