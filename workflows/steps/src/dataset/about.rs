//! The description of a dataset: [`About`].

use serde::{Deserialize, Serialize};

/// The description of a dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The name, such as `listops`.
    pub name: String,
    /// One sentence.
    pub description: String,
    /// The text of each token, in the order of the ids.
    pub vocabulary: Vec<String>,
    /// The task of a model. Files of early versions lack it: they have labels.
    #[serde(default, skip_serializing_if = "Goal::is_classify")]
    pub objective: Goal,
    /// Number of classes; labels are smaller. 0 for a language model.
    pub classes: usize,
    /// The length limit of a sequence, in tokens.
    pub max_length: usize,
    /// The config of the dataset.
    pub config: serde_json::Value,
    /// The name of each class; empty if classes only have numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The name of each group of sequences that is also scored separately, such as the task of a question; empty without groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whether each sample is a pair of documents, which a model encodes separately.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pairs: bool,
    /// How text became tokens: `bytes`, or the name of a tokenizer; absent if the data are not text for a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// The amounts of text for which perplexities are reported; absent if the data are not text for a language model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextUnits>,
    /// The files from which it was read; empty if it was generated.
    #[serde(default, skip_serializing_if = "Sources::is_empty")]
    pub sources: Sources,
}

/// The files from which a dataset was read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sources {
    /// The files with their hashes; of very many files, the first hundred.
    pub files: Vec<SourceFile>,
    /// The files that are not listed individually.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<OtherFiles>,
}

/// The files of a dataset that are not listed individually.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OtherFiles {
    /// The number of files.
    pub count: usize,
    /// The sum of their sizes as published, in bytes.
    pub bytes: u64,
    /// BLAKE3, in hexadecimal, of their concatenated hexadecimal hashes.
    pub blake3: String,
}

/// A file from which a dataset was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Its path within its folder or archive.
    pub name: String,
    /// Its size as published, in bytes.
    pub bytes: u64,
    /// BLAKE3 of its bytes as published, in hexadecimal.
    pub blake3: String,
}

impl Sources {
    /// Whether the dataset was generated, without reading files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// The task of a model for a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Predict its label.
    #[default]
    Classify,
    /// Predict each next token.
    Predict,
}

impl Goal {
    fn is_classify(&self) -> bool {
        *self == Goal::Classify
    }
}

/// The text of the predicted tokens of each split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TextUnits {
    /// Of the split `train`.
    pub train: Units,
    /// Of the split `valid`.
    pub valid: Units,
    /// Of the split `test`.
    pub test: Units,
}

/// An amount of text: that of all predicted tokens, which are the tokens of each sequence except the first. If a tokenizer changes the
/// text, it is the amount before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Units {
    /// Bytes of UTF-8, or of the file if the tokens are bytes.
    pub bytes: u64,
    /// Words that start in it. A word is a longest run of bytes without ASCII white space.
    pub words: u64,
}

impl Units {
    /// Adds the text of a token.
    pub fn add(&mut self, other: Units) {
        self.bytes += other.bytes;
        self.words += other.words;
    }
}

impl TextUnits {
    /// The text of the split with this name.
    #[must_use]
    pub fn of(&self, split: &str) -> Units {
        match split {
            "train" => self.train,
            "valid" => self.valid,
            _ => self.test,
        }
    }
}
