//! The source of a dataset: a local file or folder in a config, and the record of the files that were read.

use assay_data::{DataError, Files};
use assay_spec::ArtifactRef;
use serde::{Deserialize, Deserializer, Serialize};

use crate::context::{Context, StepError};
use crate::dataset::{OtherFiles, SourceFile, Sources};

/// The size limit of a file or folder of a dataset, in bytes.
pub const MOST_BYTES: u64 = 64 << 30;

/// If there are more files, only the first are recorded individually.
const RECORDED: usize = 100;

/// A file or a folder: by its path in a workflow file, by its content in a resolved config.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)] // Written only; reading says what is wrong itself.
pub enum LocalFile {
    /// A path, for a step that is run manually.
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
    /// The files at this path, with the name of the whole for messages.
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

/// As [`digest_files`], for files of one dataset.
///
/// # Errors
/// If one cannot be read.
pub fn digests(files: &Files, names: &[String]) -> Result<Sources, StepError> {
    digest_files(names.iter().map(|name| (files, name.as_str())))
}

/// The hashes of files that were read: of each of the first hundred, and of all others together.
///
/// # Errors
/// If one cannot be read.
pub fn digest_files<'a>(named: impl Iterator<Item = (&'a Files, &'a str)>) -> Result<Sources, StepError> {
    let mut sources = Sources::default();
    let (mut hasher, mut count, mut bytes) = (blake3::Hasher::new(), 0, 0);
    for (files, name) in named {
        let digest = files.digest(name)?;
        if sources.files.len() < RECORDED {
            sources.files.push(SourceFile { name: digest.name, bytes: digest.bytes, blake3: digest.blake3 });
        } else {
            hasher.update(digest.blake3.as_bytes());
            count += 1;
            bytes += digest.bytes;
        }
    }
    let blake3 = hasher.finalize().to_hex().to_string();
    sources.others = (count > 0).then_some(OtherFiles { count, bytes, blake3 });
    Ok(sources)
}

impl From<DataError> for StepError {
    fn from(error: DataError) -> Self {
        StepError::Failed { message: error.message, hint: Some(error.hint) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_files_are_recorded_together() {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..RECORDED + 3).map(|at| format!("{at:04}")).collect();
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), name).unwrap());
        let files = Files::open(folder.path(), "many", folder.path()).unwrap();
        let sources = digests(&files, &names).unwrap();
        assert_eq!((sources.files.len(), sources.files[99].name.as_str()), (RECORDED, "0099"));
        let others = sources.others.unwrap();
        assert_eq!((others.count, others.bytes), (3, 12));
        assert_eq!(digests(&files, &names[..RECORDED]).unwrap().others, None);
        let twice = names.iter().chain(&names).map(|name| (&files, name.as_str()));
        assert_eq!(digest_files(twice).unwrap().others.unwrap().count, RECORDED + 6);
    }
}
