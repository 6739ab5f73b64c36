//! The files of a published dataset: one file, a folder, or a tar archive, optionally compressed with gzip.
//!
//! The first bytes of a file determine its type, not its name: the store keeps files under their hash, and a folder as a tar
//! archive. Only an archive that is compressed as a whole is unpacked, into a scratch folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::{DataError, FoundFile, Walk, is_hidden};

/// The largest file that is read as a whole, in bytes.
pub const WHOLE: u64 = 4 << 30;

/// A compressed archive with more bytes than this is not unpacked.
const MOST_UNPACKED: u64 = 64 << 30;

/// The files of a dataset.
#[derive(Debug, Clone)]
pub struct Files {
    name: String,
    is_collection: bool,
    places: BTreeMap<String, Place>,
}

/// The location of a file's bytes.
#[derive(Debug, Clone)]
struct Place {
    path: PathBuf,
    offset: u64,
    bytes: u64,
}

/// A file that was read, as recorded in the results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    /// The path within the folder or archive.
    pub name: String,
    /// Its size as published, in bytes.
    pub bytes: u64,
    /// BLAKE3 of the bytes as published, in hexadecimal.
    pub blake3: String,
}

impl Files {
    /// Opens the files at `path`, which messages call `name`. `scratch` is a folder for decompressed archives.
    ///
    /// # Errors
    /// If the path does not exist, has an unknown compression, is a damaged archive, or has more than 64 GiB when unpacked.
    pub fn open(path: &Path, name: &str, scratch: &Path) -> Result<Files, DataError> {
        Files::open_up_to(path, name, scratch, MOST_UNPACKED)
    }

    fn open_up_to(path: &Path, name: &str, scratch: &Path, most: u64) -> Result<Files, DataError> {
        let found = std::fs::metadata(path).map_err(|error| unreadable(name, &error))?;
        let mut files = Files { name: name.to_owned(), is_collection: found.is_dir(), places: BTreeMap::new() };
        if found.is_dir() {
            for FoundFile { name, path, bytes } in Walk::DATASET.find_files(path)? {
                files.places.insert(name, Place { path, offset: 0, bytes });
            }
            return files.checked();
        }
        let start = Start::of(path, 0, found.len(), name)?;
        if start.is_tar() {
            files.add_archive(path)?;
        } else if start.is_gzip() && Start::read(&mut decompressed(path, 0, found.len(), name)?, name)?.is_tar() {
            let (unpacked, mut target) = create_unpacked(scratch)?;
            unpack_archive(decompressed(path, 0, found.len(), name)?, &mut target, (name, &unpacked), most)?;
            files.add_archive(&unpacked)?;
        } else {
            let place = Place { path: path.to_owned(), offset: 0, bytes: found.len() };
            files.places.insert(base(name).to_owned(), place);
        }
        files.checked()
    }

    fn checked(self) -> Result<Files, DataError> {
        match self.places.is_empty() {
            false => Ok(self),
            true => Err(DataError::new(format!("`{}` contains no file", self.name), "name the data's folder or file")),
        }
    }

    fn add_archive(&mut self, path: &Path) -> Result<(), DataError> {
        self.is_collection = true;
        let name = self.name.clone();
        let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
        let length = file.metadata().map_err(|error| unreadable(&name, &error))?.len();
        let mut archive = tar::Archive::new(file);
        for entry in archive.entries_with_seek().map_err(|error| broken(&name, &error))? {
            let entry = entry.map_err(|error| broken(&name, &error))?;
            let inside = entry.path().map_err(|error| broken(&name, &error))?.to_string_lossy().into_owned();
            let inside = inside.trim_start_matches("./").to_owned();
            let hidden = inside.split('/').any(is_hidden);
            if hidden || !entry.header().entry_type().is_file() {
                continue;
            }
            let place = Place { path: path.to_owned(), offset: entry.raw_file_position(), bytes: entry.size() };
            if place.offset.saturating_add(place.bytes) > length {
                let message = format!("the archive `{name}` is truncated: `{inside}` is not complete");
                return Err(DataError::new(message, "get it again"));
            }
            self.places.insert(inside, place);
        }
        Ok(())
    }

    /// The name of the dataset in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a folder or an archive, even with a single file.
    #[must_use]
    pub fn is_collection(&self) -> bool {
        self.is_collection
    }

    /// The paths of all files, in order, with `/` between folders.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// The path of the file whose name without folders is one of `wanted`, with or without `.gz`.
    ///
    /// # Errors
    /// If no file matches, or more than one.
    pub fn find(&self, wanted: &[&str]) -> Result<&str, DataError> {
        let plain = |name: &'_ str| wanted.contains(&base(name).trim_end_matches(".gz"));
        let found: Vec<&str> = self.names().filter(|name| plain(name)).collect();
        let [only] = found.as_slice() else {
            let wanted = wanted.first().copied().unwrap_or_default();
            return Err(match found.as_slice() {
                [first, second, ..] => DataError::new(
                    format!("`{}` contains both `{first}` and `{second}`", self.name),
                    "keep the intended one",
                ),
                _ => DataError::new(
                    format!("`{}` contains no file `{wanted}`", self.name),
                    format!("it contains {}; name the folder that has the published files", self.some_names()),
                ),
            });
        };
        Ok(only)
    }

    /// A few of the names, for messages.
    #[must_use]
    pub fn some_names(&self) -> String {
        let shown: Vec<String> = self.names().take(4).map(|name| format!("`{name}`")).collect();
        let rest = self.places.len() - shown.len();
        if rest == 0 { shown.join(", ") } else { format!("{} and {rest} more", shown.join(", ")) }
    }

    /// The size of a file as published, in bytes; 0 if no file has this name.
    #[must_use]
    pub fn bytes(&self, name: &str) -> u64 {
        self.places.get(name).map_or(0, |place| place.bytes)
    }

    /// The size of a file's content in bytes: of a file in gzip format, after decompression, which reads all of it.
    ///
    /// # Errors
    /// As [`Files::reader`]; if it is truncated.
    pub fn content_bytes(&self, name: &str) -> Result<u64, DataError> {
        let Place { path, offset, bytes } = self.place(name)?;
        let is_gzip = Start::of(path, *offset, *bytes, name)?.is_gzip();
        let mut reader = self.reader(name)?;
        if !is_gzip {
            return Ok(*bytes);
        }
        std::io::copy(&mut reader, &mut std::io::sink()).map_err(|error| broken(name, &error))
    }

    /// Reads a file from its start, decompressed if it is in gzip format.
    ///
    /// # Errors
    /// If it does not exist, or has an unknown compression.
    pub fn reader(&self, name: &str) -> Result<Box<dyn Read + Send>, DataError> {
        let Place { path, offset, bytes } = self.place(name)?;
        let start = Start::of(path, *offset, *bytes, name)?;
        if start.is_gzip() {
            return decompressed(path, *offset, *bytes, name);
        }
        if let Some(what) = start.other_compression() {
            let message = format!("`{name}` is compressed by {what}");
            return Err(DataError::new(message, "decompress it first; only gzip is read as it is"));
        }
        Ok(Box::new(BufReader::new(part(path, *offset, *bytes, name)?)))
    }

    /// A file as published, for formats with random access.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn section(&self, name: &str) -> Result<Section, DataError> {
        let Place { path, offset, bytes } = self.place(name)?;
        let file = File::open(path).map_err(|error| unreadable(name, &error))?;
        let mut section = Section { file, offset: *offset, bytes: *bytes, position: 0 };
        section.rewind().map_err(|error| unreadable(name, &error))?;
        Ok(section)
    }

    /// Reads a whole file, decompressed if it is in gzip format.
    ///
    /// # Errors
    /// As [`Files::reader`]; if it is truncated, or has more than `most` bytes.
    pub fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, DataError> {
        let too_large = || DataError::new(format!("`{name}` has more than {most} bytes"), "take a part of it");
        self.read_if_small(name, most)?.ok_or_else(too_large)
    }

    /// As [`Files::read`]; `None` if the file has more than `most` bytes.
    ///
    /// # Errors
    /// As [`Files::reader`]; if it is truncated.
    pub fn read_if_small(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, DataError> {
        let mut bytes = Vec::new();
        let mut reader = self.reader(name)?.take(most.saturating_add(1));
        reader.read_to_end(&mut bytes).map_err(|error| broken(name, &error))?;
        Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= most))
    }

    /// Reads a whole file as text.
    ///
    /// # Errors
    /// As [`Files::read`]; if it is not UTF-8, with the line.
    pub fn read_text(&self, name: &str, most: u64) -> Result<String, DataError> {
        String::from_utf8(self.read(name, most)?).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count();
            DataError::new(
                format!("`{name}`, line {line}: the text is not UTF-8"),
                "convert it to UTF-8, for example with `iconv`",
            )
        })
    }

    /// The size and hash of a file's bytes as published.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn digest(&self, name: &str) -> Result<Digest, DataError> {
        let Place { path, offset, bytes } = self.place(name)?;
        let mut hasher = blake3::Hasher::new();
        let mut source = part(path, *offset, *bytes, name)?;
        hasher.update_reader(&mut source).map_err(|error| unreadable(name, &error))?;
        Ok(Digest { name: name.to_owned(), bytes: *bytes, blake3: hasher.finalize().to_hex().to_string() })
    }

    fn place(&self, name: &str) -> Result<&Place, DataError> {
        let missing =
            || DataError::new(format!("`{}` contains no file `{name}`", self.name), "give the files as published");
        self.places.get(name).ok_or_else(missing)
    }
}

/// A file, or the part of an archive that is a file.
#[derive(Debug)]
pub struct Section {
    file: File,
    offset: u64,
    bytes: u64,
    position: u64,
}

impl Section {
    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.bytes.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let read = self.file.read(&mut buffer[..wanted])?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for Section {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let outside = || std::io::Error::new(ErrorKind::InvalidInput, "a position before the beginning of the file");
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.bytes.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or_else(outside)?;
        let place = self.offset.checked_add(self.position).ok_or_else(outside)?;
        self.file.seek(SeekFrom::Start(place))?;
        Ok(self.position)
    }
}

/// A path's last part.
#[must_use]
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn part(path: &Path, offset: u64, bytes: u64, name: &str) -> Result<std::io::Take<File>, DataError> {
    let mut file = File::open(path).map_err(|error| unreadable(name, &error))?;
    file.seek(SeekFrom::Start(offset)).map_err(|error| unreadable(name, &error))?;
    Ok(file.take(bytes))
}

fn decompressed(path: &Path, offset: u64, bytes: u64, name: &str) -> Result<Box<dyn Read + Send>, DataError> {
    Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, part(path, offset, bytes, name)?))))
}

/// The first bytes of a file, which identify its type.
struct Start([u8; 512], usize);

impl Start {
    fn of(path: &Path, offset: u64, bytes: u64, name: &str) -> Result<Start, DataError> {
        Start::read(&mut part(path, offset, bytes, name)?, name)
    }

    fn read(reader: &mut dyn Read, name: &str) -> Result<Start, DataError> {
        let mut start = Start([0; 512], 0);
        while start.1 < start.0.len() {
            match reader.read(&mut start.0[start.1..]).map_err(|error| broken(name, &error))? {
                0 => break,
                read => start.1 += read,
            }
        }
        Ok(start)
    }

    fn is_gzip(&self) -> bool {
        self.0.starts_with(&[0x1f, 0x8b])
    }

    fn is_tar(&self) -> bool {
        self.1 == 512 && &self.0[257..262] == b"ustar"
    }

    fn other_compression(&self) -> Option<&'static str> {
        let kinds: [(&[u8], &str); 5] = [
            (b"\xfd7zXZ\0", "xz"),
            (b"BZh", "bzip2"),
            (b"\x28\xb5\x2f\xfd", "zstd"),
            (b"PK\x03\x04", "zip"),
            (b"7z\xbc\xaf\x27\x1c", "7z"),
        ];
        kinds.into_iter().find(|(magic, _)| self.0.starts_with(magic)).map(|(_, name)| name)
    }
}

/// Creates a file for a decompressed archive. The archives of a dataset share the folder, such as one for training and one for the test.
fn create_unpacked(scratch: &Path) -> Result<(PathBuf, File), DataError> {
    let mut number = 1_u32;
    loop {
        let path = scratch.join(format!("unpacked-{number}.tar"));
        match File::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(unwritable(&path, &error)),
        }
    }
}

/// Copies a decompressed archive, called `name`, to a file at `place`. Fails at more than `most` bytes.
fn unpack_archive(
    mut source: Box<dyn Read + Send>,
    target: &mut File,
    (name, place): (&str, &Path),
    most: u64,
) -> Result<(), DataError> {
    let (mut piece, mut total) = (vec![0; 1 << 16], 0);
    loop {
        let read = source.read(&mut piece).map_err(|error| broken(name, &error))?;
        if read == 0 {
            return Ok(());
        }
        total += read as u64;
        if total > most {
            return Err(DataError::new(
                format!("the archive `{name}` has more than {most} bytes when it is decompressed"),
                "unpack the files that you need, and name their folder",
            ));
        }
        target.write_all(&piece[..read]).map_err(|error| unwritable(place, &error))?;
    }
}

fn unreadable(name: &str, error: &std::io::Error) -> DataError {
    DataError::new(format!("`{name}` cannot be read: {error}"), "check the path and its permissions")
}

fn unwritable(path: &Path, error: &std::io::Error) -> DataError {
    DataError::new(format!("`{}` cannot be written: {error}", path.display()), "make room on the disk")
}

/// A read error, usually from a truncated file.
pub(crate) fn broken(name: &str, error: &std::io::Error) -> DataError {
    let what = match error.kind() {
        ErrorKind::UnexpectedEof => "is truncated".to_owned(),
        _ => format!("is damaged: {error}"),
    };
    DataError::new(format!("`{name}` {what}"), "get it again, and compare its size with the published one")
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, *content).unwrap();
        }
        archive.into_inner().unwrap()
    }

    fn opened(content: &[u8]) -> (tempfile::TempDir, Result<Files, DataError>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0123abcd");
        std::fs::write(&path, content).unwrap();
        let files = Files::open(&path, "set", folder.path());
        (folder, files)
    }

    #[test]
    fn a_file_a_folder_and_an_archive_read_alike() {
        let (plain, packed) = (b"some text".as_slice(), gzip(b"more text"));
        let members: &[(&str, &[u8])] = &[("data/a.txt", plain), ("data/b.txt.gz", &packed), (".x/a.txt", b"hidden")];
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in members {
            std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let archive = tar_of(members);
        let (_tar, tar) = opened(&archive);
        let (_tgz, tgz) = opened(&gzip(&archive));
        for files in [Files::open(folder.path(), "set", folder.path()).unwrap(), tar.unwrap(), tgz.unwrap()] {
            assert_eq!(files.names().collect::<Vec<_>>(), ["data/a.txt", "data/b.txt.gz"]);
            assert_eq!(files.read(files.find(&["a.txt"]).unwrap(), 100).unwrap(), plain);
            assert_eq!(files.read_text(files.find(&["b.txt"]).unwrap(), 100).unwrap(), "more text");
            let digest = files.digest("data/b.txt.gz").unwrap();
            assert_eq!(
                (digest.bytes, digest.blake3),
                (packed.len() as u64, blake3::hash(&packed).to_hex().to_string())
            );
        }
        let (_one, one) = opened(plain);
        assert_eq!(one.unwrap().names().collect::<Vec<_>>(), ["set"]);
    }

    #[test]
    fn what_is_damaged_says_so() {
        let whole = gzip(&[7; 5000]);
        let (_a, files) = opened(&whole[..whole.len() - 9]);
        let message = files.unwrap().read("set", 9000).unwrap_err().message;
        assert_eq!(message, "`set` is truncated");
        let mut flipped = gzip(b"a text of which a byte is wrong");
        let middle = flipped.len() - 6;
        flipped[middle] ^= 0xff;
        let (_b, files) = opened(&flipped);
        assert!(files.and_then(|files| files.read("set", 9000)).unwrap_err().message.contains("is damaged"));
        let archive = tar_of(&[("a.txt", &[1; 3000])]);
        let (_c, files) = opened(&archive[..2000]);
        assert!(files.unwrap_err().message.contains("truncated: `a.txt` is not complete"));
        let (_d, files) = opened(b"\x28\xb5\x2f\xfd and so on");
        assert_eq!(files.unwrap().read("set", 99).unwrap_err().message, "`set` is compressed by zstd");
        let (_e, files) = opened(b"good\nb\xffd\n");
        assert_eq!(files.unwrap().read_text("set", 99).unwrap_err().message, "`set`, line 2: the text is not UTF-8");
    }

    #[test]
    fn an_archive_that_grows_without_bound_is_not_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bomb");
        let archive = tar_of(&[("zeros", &[0; 1 << 20])]);
        std::fs::write(&path, gzip(&archive)).unwrap();
        assert!(Files::open_up_to(&path, "bomb", folder.path(), archive.len() as u64).is_ok());
        let error = Files::open_up_to(&path, "bomb", folder.path(), 1 << 18).unwrap_err();
        assert_eq!(error.message, "the archive `bomb` has more than 262144 bytes when it is decompressed");
        assert!(std::fs::metadata(folder.path().join("unpacked-2.tar")).unwrap().len() <= 1 << 18);
    }

    #[test]
    fn archives_may_share_a_scratch_folder() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, gzip(&tar_of(&[("text", text)]))).unwrap();
            Files::open(&path, name, folder.path()).unwrap()
        };
        let (train, test) = (open("train", b"one"), open("test", b"two"));
        assert_eq!(train.read_text("text", 9).unwrap(), "one");
        assert_eq!(test.read_text("text", 9).unwrap(), "two");
    }

    #[test]
    fn what_is_missing_doubled_or_large_is_named() {
        let (_a, files) = opened(&tar_of(&[("a/x", b"123"), ("b/x", b"456")]));
        let files = files.unwrap();
        assert!(files.find(&["x"]).unwrap_err().message.contains("contains both `a/x` and `b/x`"));
        let error = files.find(&["y"]).unwrap_err();
        assert_eq!(error.message, "`set` contains no file `y`");
        assert!(error.hint.contains("`a/x`, `b/x`"), "{}", error.hint);
        assert_eq!(files.read("a/x", 2).unwrap_err().message, "`a/x` has more than 2 bytes");
        assert!(Files::open(Path::new("/nowhere"), "set", Path::new("/")).is_err());
    }
}
