//! The option `tokenizer` of `dataset: text` and `dataset: table`.

use assay_data::Files;
use assay_data::text::TextTokenizer;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::source::LocalFile;
use crate::context::{Context, StepError};
use crate::step::ArtifactSchema;

/// The word for tokens that are bytes.
const BYTES: &str = "bytes";
/// The size limit of a `tokenizer.json`, in bytes.
const MOST_BYTES: u64 = 1 << 28;

/// How text becomes tokens.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum TokenizerChoice {
    /// A token is a byte.
    #[default]
    Bytes,
    /// A `tokenizer.json`: the output of a step `tokenizer`, or a local file.
    File(LocalFile),
}

impl TokenizerChoice {
    /// Whether tokens are bytes.
    #[must_use]
    pub fn is_bytes(&self) -> bool {
        *self == TokenizerChoice::Bytes
    }

    /// Reads the tokenizer. Returns its description for results too: `bytes`, or the name and the hash of the file.
    ///
    /// # Errors
    /// If the file cannot be read or is not a tokenizer.
    pub fn open(&self, context: &dyn Context) -> Result<(TextTokenizer, String), StepError> {
        let TokenizerChoice::File(file) = self else { return Ok((TextTokenizer::Bytes, BYTES.into())) };
        let files: Files = file.open(context)?;
        let names: Vec<&str> = files.names().collect();
        let [name] = names.as_slice() else {
            let message = format!("`{}` contains {} files, and a tokenizer is one file", files.name(), names.len());
            return Err(StepError::Failed { message, hint: Some("name its `tokenizer.json`".into()) });
        };
        let json = files.read(name, MOST_BYTES)?;
        let hash = blake3::hash(&json).to_hex();
        Ok((TextTokenizer::from_json(&json, name)?, format!("{name}, BLAKE3 {hash}")))
    }
}

impl Serialize for TokenizerChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            TokenizerChoice::Bytes => serializer.serialize_str(BYTES),
            TokenizerChoice::File(file) => file.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for TokenizerChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match LocalFile::deserialize(deserializer)? {
            LocalFile::Path(path) if path == BYTES => TokenizerChoice::Bytes,
            file => TokenizerChoice::File(file),
        })
    }
}

impl JsonSchema for TokenizerChoice {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Tokenizer".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let artifact = generator.subschema_for::<ArtifactSchema>();
        json_schema!({
            "anyOf": [{"type": "string"}, artifact],
            "format": assay_spec::LOCAL_FILE,
            "x-max-bytes": MOST_BYTES,
            "x-other-values": [BYTES],
        })
    }
}
