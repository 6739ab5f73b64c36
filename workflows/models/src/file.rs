//! Files of named arrays: safetensors, written such that equal contents are equal bytes.
//!
//! The `safetensors` crate keeps metadata in a hash map, whose order differs between processes, and an artifact is
//! named by the hash of its bytes. So this module writes the header: metadata first, then the arrays, both in the order
//! of their names, padded with spaces to a multiple of eight bytes. Any safetensors reader can read the result.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

/// The size limit of a file, in bytes: it limits the cost of a wrong path.
const MAX_BYTES: u64 = 16 << 30;

/// An array in the file's layout: little endian, row major.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its elements.
    pub bytes: Vec<u8>,
}

/// Named arrays and named texts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArrayFile {
    /// The texts, such as `assay.model`.
    pub metadata: BTreeMap<String, String>,
    /// The arrays.
    pub arrays: BTreeMap<String, Array>,
}

/// Why a file of arrays could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A file operation failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The bytes are not a safetensors file.
    #[error("not a safetensors file: {0}")]
    Format(String),
    /// Required content is missing or different.
    #[error("{0}")]
    Content(String),
}

macro_rules! elements {
    ($new:ident, $get:ident, $type:ty, $dtype:ident) => {
        #[doc = concat!("An array of `", stringify!($type), "`; `values` are as many as the product of `shape`.")]
        #[must_use]
        pub fn $new(values: &[$type], shape: &[usize]) -> Self {
            debug_assert_eq!(values.len(), shape.iter().product::<usize>());
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            Array { dtype: Dtype::$dtype, shape: shape.to_vec(), bytes }
        }

        #[doc = concat!("The elements, if they are `", stringify!($type), "`.")]
        #[must_use]
        pub fn $get(&self) -> Option<Vec<$type>> {
            const SIZE: usize = size_of::<$type>();
            if self.dtype != Dtype::$dtype {
                return None;
            }
            Some(self.bytes.as_chunks::<SIZE>().0.iter().map(|bytes| <$type>::from_le_bytes(*bytes)).collect())
        }
    };
}

impl Array {
    elements!(f32, to_f32, f32, F32);
    elements!(f64, to_f64, f64, F64);
    elements!(u32, to_u32, u32, U32);
    elements!(u64, to_u64, u64, U64);
    elements!(i8, to_i8, i8, I8);
}

impl ArrayFile {
    /// The file as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut header = Map::new();
        let metadata: Map<String, Value> = self.metadata.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        header.insert("__metadata__".into(), Value::Object(metadata));
        // Arrays of larger elements come first, so that each starts at a multiple of its element size.
        let mut order: Vec<_> = self.arrays.iter().collect();
        order.sort_by_key(|(_, array)| std::cmp::Reverse(array.dtype.bitsize()));
        let mut at = 0;
        for (name, array) in &order {
            let end = at + array.bytes.len();
            let entry = json!({"dtype": array.dtype, "shape": array.shape, "data_offsets": [at, end]});
            header.insert((*name).clone(), entry);
            at = end;
        }
        let mut text = Value::Object(header).to_string().into_bytes();
        text.resize(text.len().next_multiple_of(8), b' ');
        let mut bytes = Vec::with_capacity(8 + text.len() + at);
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text);
        order.iter().for_each(|(_, array)| bytes.extend(&array.bytes));
        bytes
    }

    /// Reads a file that [`ArrayFile::to_bytes`] or another program wrote.
    ///
    /// # Errors
    /// [`FileError::Format`]; never panics, for any bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FileError> {
        let format = |error: safetensors::SafeTensorError| FileError::Format(error.to_string());
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(format)?;
        let metadata = header.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
        let tensors = SafeTensors::deserialize(bytes).map_err(format)?;
        let arrays = tensors
            .tensors()
            .into_iter()
            .map(|(name, view)| {
                let array = Array { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() };
                (name, array)
            })
            .collect();
        Ok(ArrayFile { metadata, arrays })
    }

    /// Writes the file; returns its size in bytes.
    ///
    /// # Errors
    /// [`FileError::Io`].
    pub fn write(&self, path: &Path) -> Result<u64, FileError> {
        let bytes = self.to_bytes();
        std::fs::write(path, &bytes).map_err(|source| io_error(path, source))?;
        Ok(bytes.len() as u64)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`FileError::Io`], or [`FileError::Format`] if it is not a safetensors file or larger than 16 GiB.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let length = std::fs::metadata(path).map_err(|source| io_error(path, source))?.len();
        if length > MAX_BYTES {
            return Err(FileError::Format(format!("{length} bytes are more than the limit of {MAX_BYTES}")));
        }
        Self::from_bytes(&std::fs::read(path).map_err(|source| io_error(path, source))?)
    }

    /// The text `key`, parsed as JSON.
    ///
    /// # Errors
    /// [`FileError::Content`] if it is missing or is not of this type.
    pub fn json<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<T, FileError> {
        let text = self.metadata.get(key).ok_or_else(|| FileError::Content(format!("`{key}` is missing")))?;
        serde_json::from_str(text).map_err(|error| FileError::Content(format!("`{key}` cannot be read: {error}")))
    }

    /// The array `name`.
    ///
    /// # Errors
    /// [`FileError::Content`] if it is missing.
    pub fn array(&self, name: &str) -> Result<&Array, FileError> {
        self.arrays.get(name).ok_or_else(|| FileError::Content(format!("the array `{name}` is missing")))
    }
}

fn io_error(path: &Path, source: std::io::Error) -> FileError {
    FileError::Io { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ArrayFile {
        let metadata = [("b", "2"), ("a", "{\"x\":1}")].map(|(k, v)| (k.to_string(), v.to_string()));
        let arrays = [
            ("q", Array::i8(&[-1, 2, 3], &[3])),
            ("x", Array::f32(&[0.1, -0.0, f32::NAN, 4.0], &[2, 2])),
            ("n", Array::u32(&[], &[0, 5])),
        ];
        let arrays = arrays.map(|(name, array)| (name.to_string(), array));
        ArrayFile { metadata: metadata.into(), arrays: arrays.into() }
    }

    #[test]
    fn what_is_written_is_read_and_the_bytes_are_always_the_same() {
        let bytes = sample().to_bytes();
        let back = ArrayFile::from_bytes(&bytes).unwrap();
        assert_eq!(back, sample());
        assert_eq!(back.to_bytes(), bytes);
        assert_eq!(back.array("q").unwrap().to_i8().unwrap(), [-1, 2, 3]);
        assert_eq!(back.json::<Value>("a").unwrap(), json!({"x": 1}));
        let header = std::str::from_utf8(&bytes[8..8 + 30]).unwrap();
        assert!(header.starts_with(r#"{"__metadata__":{"a":"{\"x\":1"#), "{header}");
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()) % 8, 0);
    }

    #[test]
    fn a_broken_file_is_an_error_and_never_a_panic() {
        let bytes = sample().to_bytes();
        for cut in 0..bytes.len() {
            assert!(ArrayFile::from_bytes(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() - 16 {
            let mut broken = bytes.clone();
            broken[at] ^= 0x15;
            let _ = ArrayFile::from_bytes(&broken);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let file = sample();
        assert_eq!(file.array("w").unwrap_err().to_string(), "the array `w` is missing");
        assert_eq!(file.json::<u32>("c").unwrap_err().to_string(), "`c` is missing");
        assert!(file.array("q").unwrap().to_f32().is_none());
    }
}
