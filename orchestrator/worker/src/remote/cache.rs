//! Downloaded artifacts: a folder of files by hash with a size limit; the least recently used are removed first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::files::{TransferError, Transport, hash_file};

/// The cache of one worker.
#[derive(Clone)]
pub(super) struct Cache {
    folder: PathBuf,
    /// The size limit in bytes. Files in use stay even if they exceed it.
    most: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// How many attempts use a file.
    used: BTreeMap<String, usize>,
    /// Files whose content was compared with their hash in this process.
    verified: BTreeSet<String>,
    /// For each requested file: held while it is downloaded. Two downloads into one file would mix their bytes.
    fetching: BTreeMap<String, Arc<Mutex<()>>>,
}

/// Files that an attempt uses. They stay until this is dropped.
pub(super) struct InUse {
    cache: Cache,
    hashes: Vec<String>,
}

impl Cache {
    pub(super) fn open(folder: &Path, most: u64) -> std::io::Result<Cache> {
        std::fs::create_dir_all(folder)?;
        Ok(Cache { folder: folder.to_owned(), most, state: Arc::default() })
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks files as used before they are fetched.
    pub(super) fn reserve(&self, hashes: &[String]) -> InUse {
        let mut state = self.lock_state();
        for hash in hashes {
            *state.used.entry(hash.clone()).or_default() += 1;
        }
        InUse { cache: self.clone(), hashes: hashes.to_vec() }
    }

    /// The file with this content, downloaded if it is not cached. Blocks; of several callers for one hash, one downloads.
    pub(super) fn fetch(&self, transport: &Transport, hash: &str) -> Result<PathBuf, TransferError> {
        if !assay_wire::is_hash(hash) {
            return Err(TransferError::Refused { status: 400, message: format!("`{hash}` is not a hash") });
        }
        let fetching = Arc::clone(self.lock_state().fetching.entry(hash.to_owned()).or_default());
        let _one_at_a_time = fetching.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.folder.join(hash);
        if path.exists() && (self.lock_state().verified.contains(hash) || hash_file(&path)? == hash) {
            // The least recently used file is evicted first; if the time cannot be set, the file is evicted earlier.
            let _ = std::fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        } else {
            let part = self.folder.join(format!("{hash}.part"));
            transport.download(&format!("/api/v1/artifacts/{hash}"), hash, &part)?;
            std::fs::rename(&part, &path)?;
        }
        self.lock_state().verified.insert(hash.to_owned());
        self.evict();
        Ok(path)
    }

    /// Evicts the least recently used files until the rest fits.
    fn evict(&self) {
        let mut files: Vec<(SystemTime, u64, String)> = Vec::new();
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let (Ok(data), Ok(name)) = (entry.metadata(), entry.file_name().into_string()) else { continue };
            files.push((data.modified().unwrap_or(SystemTime::UNIX_EPOCH), data.len(), name));
        }
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        files.sort();
        let mut state = self.lock_state();
        for (_, bytes, name) in files {
            if total <= self.most {
                return;
            }
            let used = state.used.contains_key(name.trim_end_matches(".part"));
            if !used && std::fs::remove_file(self.folder.join(&name)).is_ok() {
                state.verified.remove(&name);
                total -= bytes;
            }
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut state = self.cache.lock_state();
        for hash in &self.hashes {
            if let Some(count) = state.used.get_mut(hash) {
                *count -= 1;
                if *count == 0 {
                    state.used.remove(hash);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_files_go_first_and_used_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path(), 25).unwrap();
        let put = |name: &str, age: u64| {
            let path = folder.path().join(name);
            std::fs::write(&path, [0; 10]).unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 - age);
            std::fs::File::open(path).unwrap().set_modified(at).unwrap();
        };
        let left = || {
            let mut names: Vec<String> = std::fs::read_dir(folder.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        for (name, age) in [("a", 40), ("b", 30), ("c", 20), ("d", 10)] {
            put(name, age);
        }
        let used = cache.reserve(&["a".to_owned()]);
        cache.evict();
        assert_eq!(left(), ["a", "d"]);
        drop(used);
        put("e", 5);
        cache.evict();
        assert_eq!(left(), ["d", "e"]);
    }
}
