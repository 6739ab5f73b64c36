//! What a dataset is read from: a local file or folder that a config names, and the record of what was read.

use assay_data::{DataError, Files};
use assay_spec::ArtifactRef;
use serde::{Deserialize, Deserializer, Serialize};

use crate::context::{Context, StepError};
use crate::dataset::SourceFile;

/// No file or folder of a dataset is larger, in bytes.
pub const MOST_BYTES: u64 = 64 << 30;

/// Of more files than this, only the first are recorded one by one.
const RECORDED: usize = 100;

/// A file or a folder: by its path as a person writes it, by its content as soon as the workflow runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)] // Written only; reading says what is wrong itself.
pub enum LocalFile {
    /// A path, for a step that is run by hand.
    Path(String),
    /// The content, in the store.
    Content(ArtifactRef),
}

impl<'de> Deserialize<'de> for LocalFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(path) => Ok(LocalFile::Path(path)),
            other => serde_json::from_value(other).map(LocalFile::Content).map_err(D::Error::custom),
        }
    }
}

impl LocalFile {
    /// The files that it stands for, and what people call the whole.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(&self, context: &dyn Context) -> Result<Files, StepError> {
        let (path, name) = match self {
            LocalFile::Path(path) => {
                let name =
                    std::path::Path::new(path).file_name().map_or(path.clone(), |name| name.to_string_lossy().into());
                (path.into(), name)
            }
            LocalFile::Content(artifact) => (context.input(artifact)?, artifact.name.clone()),
        };
        Ok(Files::open(&path, &name, &context.workdir())?)
    }
}

/// The hashes of files that were read: of each, or of the first hundred and of all together.
///
/// # Errors
/// If one cannot be read.
pub fn digests(files: &Files, names: &[String]) -> Result<Vec<SourceFile>, StepError> {
    let (mut found, mut all, mut bytes) = (Vec::new(), blake3::Hasher::new(), 0);
    for name in names {
        let digest = files.digest(name)?;
        all.update(digest.blake3.as_bytes());
        bytes += digest.bytes;
        if found.len() < RECORDED {
            found.push(SourceFile { name: digest.name, bytes: digest.bytes, blake3: digest.blake3 });
        }
    }
    if names.len() > RECORDED {
        let blake3 = all.finalize().to_hex().to_string();
        found.push(SourceFile { name: format!("all {} files, by their hashes", names.len()), bytes, blake3 });
    }
    Ok(found)
}

impl From<DataError> for StepError {
    fn from(error: DataError) -> Self {
        StepError::Failed { message: error.message, hint: Some(error.hint) }
    }
}
