//! A folder as one file: a tar archive that depends only on the names and contents of the folder's files, so that the same files
//! always have the same hash.
//!
//! Files are ordered by path. Hidden files and folders (`.git`) are skipped. A link to a file counts as the file; a link to a
//! folder is refused, since it may be circular.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use assay_data::{DataError, Walk};

use crate::{StoreError, StoreErrorKind};

/// Writes the archive of `folder`. Returns its hash and its size in bytes.
///
/// # Errors
/// If the folder has no files, or a file cannot be read or changes meanwhile, or `target` cannot be written.
pub(crate) fn pack(folder: &Path, target: &mut dyn Write) -> Result<(String, u64), StoreError> {
    let failed = |error: DataError| StoreError::new(StoreErrorKind::Io, error.message, &error.hint);
    let files = Walk::DATASET.find_files(folder).map_err(failed)?;
    if files.is_empty() {
        return Err(refused(folder, "contains no file", "name a folder with the files of the dataset"));
    }
    let hashed = Hashed { target, hasher: blake3::Hasher::new(), bytes: 0 };
    let mut archive = tar::Builder::new(hashed);
    for file in files {
        append(&mut archive, &file.path, Path::new(&file.name))?;
    }
    let hashed = archive.into_inner().map_err(StoreError::io("pack", folder))?;
    Ok((hashed.hasher.finalize().to_hex().to_string(), hashed.bytes))
}

fn append(archive: &mut tar::Builder<Hashed<'_>>, path: &Path, name: &Path) -> Result<(), StoreError> {
    let file = File::open(path).map_err(StoreError::io("read", path))?;
    let bytes = file.metadata().map_err(StoreError::io("read", path))?.len();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(bytes);
    header.set_mode(0o444);
    let mut content = Counted { file: file.take(bytes), bytes: 0 };
    archive.append_data(&mut header, name, &mut content).map_err(StoreError::io("pack", path))?;
    match content.bytes == bytes {
        true => Ok(()),
        false => Err(refused(path, "became shorter while it was read", "run again when nothing writes to it")),
    }
}

fn refused(path: &Path, what: &str, hint: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Io, format!("`{}` {what}", path.display()), hint)
}

struct Hashed<'a> {
    target: &'a mut dyn Write,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Write for Hashed<'_> {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        self.target.write_all(piece)?;
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.target.flush()
    }
}

struct Counted {
    file: std::io::Take<File>,
    bytes: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(folder: &Path) -> Result<(String, Vec<u8>), StoreError> {
        let mut archive = Vec::new();
        let (hash, bytes) = pack(folder, &mut archive)?;
        assert_eq!(hash, blake3::hash(&archive).to_hex().to_string());
        assert_eq!(bytes, archive.len() as u64);
        Ok((hash, archive))
    }

    #[test]
    fn the_archive_depends_on_names_and_contents_alone() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let long = format!("{}/b.txt", "folder".repeat(20));
        for (folder, names) in [(&one, [long.as_str(), "a.txt"]), (&two, ["a.txt", long.as_str()])] {
            for name in names {
                let path = folder.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, if name == "a.txt" { "first" } else { "second" }).unwrap();
            }
        }
        std::fs::write(two.path().join(".hidden"), "left out").unwrap();
        let (first, archive) = packed(one.path()).unwrap();
        assert_eq!(first, packed(two.path()).unwrap().0);
        let mut archive = tar::Archive::new(archive.as_slice());
        let mut read = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            read.push((entry.path().unwrap().display().to_string(), text));
        }
        assert_eq!(read, [("a.txt".to_owned(), "first".to_owned()), (long, "second".to_owned())]);
        std::fs::write(two.path().join("a.txt"), "other").unwrap();
        assert_ne!(first, packed(two.path()).unwrap().0);
    }

    #[test]
    fn a_link_counts_as_the_file_that_it_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "text").unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("b")).unwrap();
        let linked = packed(folder.path()).unwrap().0;
        std::fs::remove_file(folder.path().join("b")).unwrap();
        std::fs::write(folder.path().join("b"), "text").unwrap();
        assert_eq!(linked, packed(folder.path()).unwrap().0);
    }

    #[test]
    fn what_cannot_be_packed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(packed(folder.path()).unwrap_err().message().ends_with("contains no file"));
        std::fs::create_dir(folder.path().join("x")).unwrap();
        std::os::unix::fs::symlink("x", folder.path().join("y")).unwrap();
        let message = packed(folder.path()).unwrap_err().message().to_owned();
        assert!(message.ends_with("/y` is a link to a folder"), "{message}");
    }
}
