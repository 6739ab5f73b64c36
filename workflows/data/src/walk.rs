//! The files below a folder. Sizing, hashing, storing and reading a folder share this walk, so that all visit the same files.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::DataError;

/// The depth limit of nested folders.
const DEEPEST: usize = 32;

/// A file below a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// The path below the folder, with `/` between folders.
    pub name: String,
    /// Its path on this machine.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Which files below a folder are visited.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    /// Whether a file or a folder with this name is skipped.
    pub leaves_out: fn(&str) -> bool,
    /// Whether links to folders are followed. If not, they are refused, since they may be circular.
    pub follows_links: bool,
}

impl Walk {
    /// The files of a dataset: hidden files and folders (`.git`) are skipped. A link to a file is read as the file.
    pub const DATASET: Walk = Walk { leaves_out: is_hidden, follows_links: false };

    /// All files below `folder`. In every folder, entries are in the order of their names.
    ///
    /// # Errors
    /// As [`Walk::visit_files`].
    pub fn find_files(self, folder: &Path) -> Result<Vec<FoundFile>, DataError> {
        let mut found = Vec::new();
        self.visit_files(folder, &mut |file| {
            found.push(file);
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Calls `observe` with every file below `folder`, in the order of [`Walk::find_files`], until it breaks.
    ///
    /// # Errors
    /// If a folder cannot be read, a name is not UTF-8, an entry is neither a file nor a folder, or folders are nested too deeply.
    pub fn visit_files(
        self,
        folder: &Path,
        observe: &mut dyn FnMut(FoundFile) -> ControlFlow<()>,
    ) -> Result<(), DataError> {
        self.visit_below(folder, "", 0, observe).map(|_| ())
    }

    fn visit_below(
        self,
        folder: &Path,
        below: &str,
        depth: usize,
        observe: &mut dyn FnMut(FoundFile) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, DataError> {
        if depth == DEEPEST {
            let what = format!("lies in folders more than {DEEPEST} deep; perhaps a link points back");
            return Err(entry_error(folder, &what, "remove the link, or name another folder"));
        }
        for name in self.entry_names(folder)? {
            let path = folder.join(&name);
            let found = std::fs::metadata(&path).map_err(|error| read_error(&path, &error))?;
            let name = format!("{below}{name}");
            let flow = if found.is_file() {
                observe(FoundFile { name, path, bytes: found.len() })
            } else if found.is_dir() && (self.follows_links || !path.is_symlink()) {
                self.visit_below(&path, &format!("{name}/"), depth + 1, observe)?
            } else {
                let what = if found.is_dir() { "is a link to a folder" } else { "is not a regular file" };
                return Err(entry_error(&path, what, "remove it from the folder, or name another folder"));
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The sorted names of a folder's entries, without skipped ones.
    fn entry_names(self, folder: &Path) -> Result<Vec<String>, DataError> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|error| read_error(folder, &error))? {
            let name = entry.map_err(|error| read_error(folder, &error))?.file_name();
            match name.to_str() {
                Some(name) if (self.leaves_out)(name) => {}
                Some(name) => names.push(name.to_owned()),
                None => return Err(entry_error(&folder.join(&name), "has a name that is not UTF-8", "rename it")),
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

/// Whether a file or folder of this name is hidden.
#[must_use]
pub fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

fn read_error(path: &Path, error: &std::io::Error) -> DataError {
    entry_error(path, &format!("cannot be read: {error}"), "check the path and its permissions")
}

fn entry_error(path: &Path, what: &str, hint: &str) -> DataError {
    DataError::new(format!("`{}` {what}", path.display()), hint)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn write(folder: &Path, name: &str) {
        std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        std::fs::write(folder.join(name), name).unwrap();
    }

    #[test]
    fn files_come_in_order_without_hidden_ones() {
        let folder = tempfile::tempdir().unwrap();
        ["b/z", "b/.git/x", ".hidden", "a", "b/c/d"].iter().for_each(|name| write(folder.path(), name));
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("c")).unwrap();
        let found = Walk::DATASET.find_files(folder.path()).unwrap();
        let names: Vec<(&str, u64)> = found.iter().map(|file| (file.name.as_str(), file.bytes)).collect();
        assert_eq!(names, [("a", 1), ("b/c/d", 5), ("b/z", 3), ("c", 1)]);
        assert_eq!(found[1].path, folder.path().join("b/c/d"));
    }

    #[test]
    fn what_may_lead_in_a_circle_or_has_no_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("back")).unwrap();
        let message = |walk: Walk| walk.find_files(folder.path()).unwrap_err().message;
        assert!(message(Walk::DATASET).ends_with("/back` is a link to a folder"));
        assert!(message(Walk { follows_links: true, ..Walk::DATASET }).contains("perhaps a link points back"));
        std::fs::remove_file(folder.path().join("back")).unwrap();
        std::fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
        assert!(message(Walk::DATASET).ends_with("has a name that is not UTF-8"));
    }
}
