//! A file of arrays in safetensors format that is read array by array: only what is asked for is in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use assay_models::FileError;
use safetensors::Dtype;
use safetensors::tensor::Metadata;

/// The size limit of a header, in bytes.
const MOST_HEADER: u64 = 100_000_000;

/// An open file.
pub struct OpenFile {
    file: Arc<File>,
    path: String,
    metadata: Metadata,
    /// The position of the first array.
    start: u64,
}

/// An array in a file.
#[derive(Debug, Clone)]
pub struct StoredArray {
    file: Arc<File>,
    /// The position of its first byte.
    start: u64,
    /// The number of elements.
    pub count: u64,
    dtype: Dtype,
}

impl OpenFile {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// If it cannot be read, is not in safetensors format, or is truncated.
    pub fn open(path: &Path) -> Result<OpenFile, FileError> {
        let name = path.display().to_string();
        let failed = |source| FileError::Io { path: name.clone(), source };
        let format = |what: String| FileError::Format(what);
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0).map_err(|error| format(format!("it has no header: {error}")))?;
        let length = u64::from_le_bytes(length);
        if length > MOST_HEADER.min(size.saturating_sub(8)) {
            return Err(format(format!("its header of {length} bytes does not fit a file of {size}")));
        }
        let mut header = vec![0; length as usize];
        file.read_exact_at(&mut header, 8).map_err(failed)?;
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| format(error.to_string()))?;
        let expected = 8 + length + metadata.data_len() as u64;
        if size != expected {
            return Err(format(format!("it has {size} bytes instead of {expected}")));
        }
        Ok(OpenFile { file: Arc::new(file), path: name, metadata, start: 8 + length })
    }

    /// The text `key` of the metadata, parsed as JSON.
    ///
    /// # Errors
    /// If it is missing or of another type.
    pub fn json<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<T, FileError> {
        let text = self.metadata.metadata().as_ref().and_then(|texts| texts.get(key));
        let text = text.ok_or_else(|| FileError::Content(format!("`{key}` is missing")))?;
        serde_json::from_str(text).map_err(|error| FileError::Content(format!("`{key}` cannot be read: {error}")))
    }

    /// The array `name`; `None` if the file does not contain it.
    pub fn find(&self, name: &str) -> Option<StoredArray> {
        let info = self.metadata.info(name)?;
        let count = info.shape.iter().product::<usize>() as u64;
        let start = self.start + info.data_offsets.0 as u64;
        Some(StoredArray { file: Arc::clone(&self.file), start, count, dtype: info.dtype })
    }

    /// The array `name`.
    ///
    /// # Errors
    /// If the file does not contain it.
    pub fn array(&self, name: &str) -> Result<StoredArray, FileError> {
        self.find(name).ok_or_else(|| FileError::Content(format!("the array `{name}` is missing")))
    }

    /// All elements of the array `name`.
    ///
    /// # Errors
    /// If the file does not contain it, or it does not hold whole numbers.
    pub fn numbers(&self, name: &str) -> Result<Vec<u64>, FileError> {
        let array = self.array(name)?;
        let wrong = || FileError::Content(format!("`{name}` is not an array of whole numbers"));
        let size = array.element_size().ok_or_else(wrong)?;
        let bytes =
            array.read_bytes(0, array.count).map_err(|source| FileError::Io { path: self.path.clone(), source })?;
        Ok(bytes.chunks_exact(size).map(little_endian).collect())
    }

    /// As [`OpenFile::numbers`], of an array of U32.
    ///
    /// # Errors
    /// As [`OpenFile::numbers`].
    pub fn numbers_u32(&self, name: &str) -> Result<Vec<u32>, FileError> {
        if self.array(name)?.dtype != Dtype::U32 {
            return Err(FileError::Content(format!("`{name}` is not an array of u32")));
        }
        Ok(self.numbers(name)?.into_iter().map(|number| number as u32).collect())
    }
}

impl StoredArray {
    /// Bytes of an element; `None` if elements are not whole numbers of 1, 2, 4 or 8 bytes without a sign.
    fn element_size(&self) -> Option<usize> {
        match self.dtype {
            Dtype::U8 => Some(1),
            Dtype::U16 => Some(2),
            Dtype::U32 => Some(4),
            Dtype::U64 => Some(8),
            _ => None,
        }
    }

    /// Whether its elements are tokens: whole numbers of at most 32 bits.
    pub fn holds_tokens(&self) -> bool {
        matches!(self.dtype, Dtype::U8 | Dtype::U16 | Dtype::U32)
    }

    /// `count` elements from the element `first` on.
    ///
    /// # Errors
    /// If the file cannot be read, or has become shorter.
    pub fn read_tokens(&self, first: u64, count: u64) -> std::io::Result<Vec<u32>> {
        let bytes = self.read_bytes(first, count)?;
        let size = self.element_size().unwrap_or(1);
        Ok(bytes.chunks_exact(size).map(|bytes| little_endian(bytes) as u32).collect())
    }

    fn read_bytes(&self, first: u64, count: u64) -> std::io::Result<Vec<u8>> {
        let size = self.element_size().unwrap_or(1) as u64;
        let mut bytes = vec![0; (count * size) as usize];
        // Positioned reads use the same page cache as a mapping, but pages that were read do not count as memory of this process, and a
        // file that was truncated is an error instead of a signal.
        self.file.read_exact_at(&mut bytes, self.start + first * size)?;
        Ok(bytes)
    }

    /// Whether two arrays are the same place of the same open file.
    pub fn is_same(&self, other: &StoredArray) -> bool {
        Arc::ptr_eq(&self.file, &other.file) && (self.start, self.count) == (other.start, other.count)
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
