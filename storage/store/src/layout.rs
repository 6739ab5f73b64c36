//! The paths in a store.

use std::path::{Path, PathBuf};

use assay_core::{Epoch, RunId, TaskIx};

use crate::StoreError;
use crate::error::{NOT_A_STORE, StoreErrorKind};

/// The paths of one store.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    home: PathBuf,
}

impl Layout {
    pub(crate) fn new(home: &Path) -> Self {
        Layout { home: home.to_owned() }
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.home.join("assay.db")
    }

    /// The lock that is held while the store is opened or repaired.
    pub(crate) fn gate(&self) -> PathBuf {
        self.home.join("assay.lock")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.home.join("work")
    }

    /// The folder for state that attempts leave for later ones, with a folder for each cache key.
    pub(crate) fn resume(&self) -> PathBuf {
        self.home.join("resume")
    }

    /// The folder of one cache key; for an invalid key, a path that does not exist.
    pub(crate) fn resume_of(&self, key: &str) -> PathBuf {
        self.resume().join(if is_hash(key) { key } else { "no-such-key" })
    }

    pub(crate) fn artifacts(&self) -> PathBuf {
        self.home.join("artifacts")
    }

    pub(crate) fn metrics(&self) -> PathBuf {
        self.home.join("metrics")
    }

    /// The path of an artifact's content. A hash comes from outside, so only a well-formed hash becomes a path.
    pub(crate) fn artifact(&self, hash: &str) -> PathBuf {
        let folder = self.artifacts();
        if is_hash(hash) { folder.join(&hash[..2]).join(&hash[2..]) } else { folder.join("no-such-hash") }
    }

    /// A segment's path as it is stored: relative, with `/`.
    pub(crate) fn segment_name(run: RunId, task: TaskIx, epoch: Epoch) -> String {
        format!("{run}/{task}-{epoch}.parquet")
    }

    pub(crate) fn segment(&self, name: &str) -> PathBuf {
        self.metrics().join(name)
    }

    /// Refuses a home that is not a folder.
    pub(crate) fn check_home(&self) -> Result<(), StoreError> {
        if self.home.exists() && !self.home.is_dir() {
            let message = format!("`{}` is a file, not a store", self.home.display());
            return Err(StoreError::new(StoreErrorKind::NotAStore, message, NOT_A_STORE));
        }
        Ok(())
    }

    /// Removes the empty folders that opening created, if the home turns out not to be a store.
    pub(crate) fn remove_empty(&self) {
        let _ = std::fs::remove_file(self.gate());
        for folder in ["artifacts", "metrics", "work"] {
            // If the folder is not empty, or cannot be removed, it is kept.
            let _ = std::fs::remove_dir(self.home.join(folder));
        }
    }

    /// Creates missing folders.
    pub(crate) fn create_folders(&self) -> Result<(), StoreError> {
        self.check_home()?;
        for folder in [self.home.clone(), self.artifacts(), self.metrics(), self.work()] {
            std::fs::create_dir_all(&folder).map_err(StoreError::io("make the folder", &folder))?;
        }
        Ok(())
    }
}

/// Whether a text is a BLAKE3 hash in our notation.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hash_becomes_a_path() {
        let layout = Layout::new(Path::new("/home"));
        let hash = "0f".repeat(32);
        assert_eq!(layout.artifact(&hash), Path::new("/home/artifacts/0f").join("0f".repeat(31)));
        for bad in ["", "../../../etc/passwd", &"0F".repeat(32), &"é".repeat(32), &format!("{}/", "0".repeat(63))] {
            assert_eq!(layout.artifact(bad), Path::new("/home/artifacts/no-such-hash"), "{bad}");
        }
    }
}
