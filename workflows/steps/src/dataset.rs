//! Datasets: token sequences in three splits, in one file, for a classifier or for a language model.
//!
//! The file is in safetensors format. For each split S of `train`, `valid` and `test` it contains three arrays of `U32`:
//! `S.tokens` (all sequences, one after another), `S.offsets` (the start of each sequence in `S.tokens`, and the end of the
//! last one) and `S.labels` (one per sequence; empty for a language model, whose targets are the next tokens). If sequences
//! are also scored by groups, it contains `S.groups` (one per sequence). The metadata `assay.dataset` is the JSON of
//! [`About`].

use std::path::Path;

use assay_models::{Array, ArrayFile, FileError, Objective, Task};
use serde::{Deserialize, Serialize};

use crate::context::StepError;

/// The metadata key of [`About`].
const ABOUT: &str = "assay.dataset";

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

/// A dataset in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// The description.
    pub about: About,
    /// For training.
    pub train: Split,
    /// For choices such as early stopping.
    pub valid: Split,
    /// For the final figures.
    pub test: Split,
}

/// One split of a dataset.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Split {
    tokens: Vec<u32>,
    offsets: Vec<u32>,
    labels: Vec<u32>,
    groups: Vec<u32>,
}

impl Split {
    /// Appends a sequence with its label and its group. Either all sequences of a split have a group, or none.
    pub fn push_grouped(&mut self, tokens: &[u32], label: u32, group: u32) {
        self.push(tokens, label);
        self.groups.push(group);
    }

    /// Appends a sequence with its label.
    pub fn push(&mut self, tokens: &[u32], label: u32) {
        self.push_unlabelled(tokens);
        self.labels.push(label);
    }

    /// Appends a sequence without a label, for a language model.
    pub fn push_unlabelled(&mut self, tokens: &[u32]) {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        self.tokens.extend(tokens);
        self.offsets.push(self.tokens.len() as u32);
    }

    /// The number of sequences.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there are no sequences.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tokens of sequence `index`, which must be below [`Split::len`].
    #[must_use]
    pub fn sequence(&self, index: usize) -> &[u32] {
        &self.tokens[self.offsets[index] as usize..self.offsets[index + 1] as usize]
    }

    /// The tokens of all sequences, one after another.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The label of each sequence; empty for a language model.
    #[must_use]
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The group of each sequence; empty without groups.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// The length of each sequence in tokens.
    pub fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        self.offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize)
    }

    fn write(&self, name: &str, file: &mut ArrayFile) {
        for (part, values) in [("tokens", &self.tokens), ("offsets", &self.offsets), ("labels", &self.labels)] {
            file.arrays.insert(format!("{name}.{part}"), Array::u32(values, &[values.len()]));
        }
        if !self.groups.is_empty() {
            file.arrays.insert(format!("{name}.groups"), Array::u32(&self.groups, &[self.groups.len()]));
        }
    }

    /// Reads a split and checks it, so that later indices are never out of bounds.
    fn read(name: &str, file: &ArrayFile, about: &About) -> Result<Self, FileError> {
        let array = |part: &str| {
            let key = format!("{name}.{part}");
            let wrong = || FileError::Content(format!("`{key}` is not an array of u32"));
            file.array(&key)?.to_u32().ok_or_else(wrong)
        };
        let groups = if about.groups.is_empty() { Vec::new() } else { array("groups")? };
        let split = Split { tokens: array("tokens")?, offsets: array("offsets")?, labels: array("labels")?, groups };
        split.problem(about).map_or(Ok(split), |problem| {
            Err(FileError::Content(format!("the split `{name}` is inconsistent: {problem}")))
        })
    }

    fn problem(&self, about: &About) -> Option<String> {
        if self.is_empty() {
            return Some("it has no sequence".into());
        }
        let labels = if about.objective == Goal::Classify { self.len() } else { 0 };
        if labels != self.labels.len() {
            return Some(format!("{} labels instead of {labels}", self.labels.len()));
        }
        let groups = &about.groups;
        if !groups.is_empty() && self.groups.len() != self.len() {
            return Some(format!("{} groups instead of {}", self.groups.len(), self.len()));
        }
        if let Some(group) = self.groups.iter().find(|group| **group as usize >= groups.len()) {
            return Some(format!("group {group} is outside the {} groups", groups.len()));
        }
        let bounds = (self.offsets.first().copied(), self.offsets.last().copied());
        if bounds != (Some(0), u32::try_from(self.tokens.len()).ok()) {
            return Some(format!("its offsets do not span its {} tokens", self.tokens.len()));
        }
        if let Some(at) = self.offsets.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Some(format!("sequence {at} has no token"));
        }
        if about.objective == Goal::Predict && self.lengths().any(|length| length < 2) {
            return Some("a sequence of one token leaves nothing to predict".into());
        }
        if let Some(length) = self.lengths().find(|length| *length > about.max_length) {
            return Some(format!("a sequence of {length} tokens exceeds the maximum of {}", about.max_length));
        }
        if let Some(token) = self.tokens.iter().find(|token| **token as usize >= about.vocabulary.len()) {
            return Some(format!("token {token} is outside the vocabulary of {}", about.vocabulary.len()));
        }
        let label = self.labels.iter().find(|label| **label as usize >= about.classes)?;
        Some(format!("label {label} is outside the {} classes", about.classes))
    }
}

impl Dataset {
    /// The requirements of this dataset for a model.
    #[must_use]
    pub fn task(&self) -> Task {
        let objective = match self.about.objective {
            Goal::Classify => Objective::Classify(self.about.classes),
            Goal::Predict => Objective::Predict,
        };
        Task { vocabulary: self.about.vocabulary.len(), max_length: self.about.max_length, objective }
    }

    /// The splits with their names, in order.
    #[must_use]
    pub fn splits(&self) -> [(&'static str, &Split); 3] {
        [("train", &self.train), ("valid", &self.valid), ("test", &self.test)]
    }

    /// Writes the file; the same dataset gives the same bytes. Returns its size in bytes.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<u64, StepError> {
        let mut file = ArrayFile::default();
        let about = serde_json::to_string(&self.about).map_err(|error| StepError::failed(error.to_string()))?;
        file.metadata.insert(ABOUT.into(), about);
        self.splits().iter().for_each(|(name, split)| split.write(name, &mut file));
        file.write(path).map_err(|error| StepError::failed(format!("the dataset cannot be written: {error}")))
    }

    /// Reads a file that [`Dataset::write`] wrote.
    ///
    /// # Errors
    /// If it cannot be read, is not a dataset, or is inconsistent.
    pub fn read(path: &Path) -> Result<Self, StepError> {
        let read = || {
            let file = ArrayFile::read(path)?;
            let about: About = file.json(ABOUT)?;
            let split = |name: &str| Split::read(name, &file, &about);
            let (train, valid, test) = (split("train")?, split("valid")?, split("test")?);
            Ok(Dataset { about, train, valid, test })
        };
        read().map_err(|error: FileError| StepError::Failed {
            message: format!("the dataset cannot be read: {error}"),
            hint: Some("give the `dataset` output of a `prepare` job: `${{ needs.JOB.outputs.dataset }}`".into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(sequences: &[(&[u32], u32)]) -> Split {
        let mut split = Split::default();
        sequences.iter().for_each(|(tokens, label)| split.push(tokens, *label));
        split
    }

    fn dataset() -> Dataset {
        let about = About {
            name: "toy".into(),
            description: "Three letters.".into(),
            vocabulary: ["a", "b", "c"].map(String::from).into(),
            objective: Goal::Classify,
            classes: 2,
            max_length: 4,
            config: serde_json::json!({"seed": 1}),
            labels: Vec::new(),
            groups: Vec::new(),
            sources: Sources::default(),
        };
        let (train, valid) = (split(&[(&[0, 1], 1), (&[2, 2, 0, 1], 0)]), split(&[(&[0], 1)]));
        Dataset { about, train, valid, test: split(&[(&[2], 0)]) }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.safetensors");
        let bytes = dataset().write(&path).unwrap();
        assert_eq!(bytes, std::fs::metadata(&path).unwrap().len());
        let back = Dataset::read(&path).unwrap();
        assert_eq!(back, dataset());
        assert_eq!(back.train.sequence(1), [2, 2, 0, 1]);
        assert_eq!(back.train.lengths().collect::<Vec<_>>(), [2, 4]);
        assert_eq!(back.task(), Task { vocabulary: 3, max_length: 4, objective: Objective::Classify(2) });
    }

    fn text() -> Dataset {
        let mut dataset = dataset();
        dataset.about.objective = Goal::Predict;
        dataset.about.classes = 0;
        for split in [&mut dataset.train, &mut dataset.valid, &mut dataset.test] {
            *split = Split::default();
            split.push_unlabelled(&[0, 1, 2]);
            split.push_unlabelled(&[2, 1]);
        }
        dataset
    }

    #[test]
    fn a_dataset_of_a_language_model_has_no_labels() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.safetensors");
        text().write(&path).unwrap();
        let back = Dataset::read(&path).unwrap();
        assert_eq!(back, text());
        assert_eq!((back.train.len(), back.train.labels().len()), (2, 0));
        assert_eq!(back.task().objective, Objective::Predict);
        let mut short = text();
        short.test.push_unlabelled(&[1]);
        short.write(&path).unwrap();
        assert!(Dataset::read(&path).unwrap_err().to_string().contains("leaves nothing to predict"));
    }

    #[test]
    fn groups_are_kept_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.safetensors");
        let mut grouped = dataset();
        grouped.about.groups = ["first", "second"].map(String::from).into();
        for split in [&mut grouped.train, &mut grouped.valid, &mut grouped.test] {
            *split = Split::default();
            split.push_grouped(&[0, 1], 1, 1);
            split.push_grouped(&[2], 0, 0);
        }
        grouped.write(&path).unwrap();
        assert_eq!(Dataset::read(&path).unwrap(), grouped);
        assert_eq!(grouped.test.groups(), [1, 0]);
        for (change, message) in [(vec![0], "1 groups instead of 2"), (vec![0, 2], "group 2 is outside the 2 groups")] {
            grouped.valid.groups = change;
            grouped.write(&path).unwrap();
            assert!(Dataset::read(&path).unwrap_err().to_string().contains(message));
        }
    }

    #[test]
    fn a_file_that_does_not_say_its_objective_has_labels() {
        let about = serde_json::to_string(&dataset().about).unwrap();
        assert!(!about.contains("objective"), "{about}");
        assert_eq!(serde_json::from_str::<About>(&about).unwrap(), dataset().about);
    }

    fn refused(change: impl FnOnce(&mut Dataset), part: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.safetensors");
        let mut broken = dataset();
        change(&mut broken);
        broken.write(&path).unwrap();
        let message = Dataset::read(&path).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }

    #[test]
    fn a_dataset_that_contradicts_itself_is_refused() {
        refused(|d| d.train.tokens[0] = 3, "token 3 is outside the vocabulary of 3");
        refused(|d| d.test.labels[0] = 2, "label 2 is outside the 2 classes");
        refused(|d| d.train.offsets[1] = 0, "sequence 0 has no token");
        refused(|d| d.train.offsets[1] = 7, "sequence 1 has no token");
        refused(|d| d.train.offsets[2] = 5, "do not span its 6 tokens");
        refused(|d| d.valid.labels.push(0), "2 labels instead of 1");
        refused(|d| d.about.objective = Goal::Predict, "2 labels instead of 0");
        refused(|d| d.valid = Split::default(), "it has no sequence");
        refused(|d| d.about.max_length = 3, "a sequence of 4 tokens exceeds the maximum of 3");
    }

    #[test]
    fn another_file_is_refused_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.safetensors");
        std::fs::write(&path, b"hello").unwrap();
        let StepError::Failed { message, hint } = Dataset::read(&path).unwrap_err() else { panic!() };
        assert!(message.contains("not a safetensors file"), "{message}");
        assert!(hint.unwrap().contains("needs.JOB.outputs.dataset"));
        assert!(Dataset::read(&folder.path().join("none")).is_err());
    }
}
