//! One split of a dataset: [`Split`].

use std::borrow::Cow;

use assay_models::{Array, ArrayFile, FileError};

use super::about::{About, Goal};
use super::file::OpenFile;
use super::sequences::{Bounds, Sequences};
use crate::context::StepError;

/// The samples of one split. A sample is a sequence, or a pair of sequences.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Split {
    sequences: Sequences,
    /// The second sequence of each sample of a dataset of pairs.
    seconds: Option<Sequences>,
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

    /// Appends a pair of sequences with its label. Either all samples of a split are pairs, or none.
    pub fn push_pair(&mut self, first: &[u32], second: &[u32], label: u32) {
        self.push(first, label);
        self.seconds.get_or_insert_default().push(second);
    }

    /// Appends a sequence without a label, for a language model.
    pub fn push_unlabelled(&mut self, tokens: &[u32]) {
        self.sequences.push(tokens);
    }

    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sequences.bounds().len()
    }

    /// Whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether samples are pairs.
    #[must_use]
    pub fn has_pairs(&self) -> bool {
        self.seconds.is_some()
    }

    /// The tokens of sample `index`, which must be below [`Split::len`]: those of the first sequence of a pair.
    ///
    /// # Errors
    /// If they cannot be read from the file.
    pub fn read(&self, index: usize) -> Result<Cow<'_, [u32]>, StepError> {
        self.sequences.read(index)
    }

    /// The tokens of the second sequence of sample `index`; `None` if samples are not pairs.
    ///
    /// # Errors
    /// As [`Split::read`].
    pub fn read_second(&self, index: usize) -> Result<Option<Cow<'_, [u32]>>, StepError> {
        self.seconds.as_ref().map(|seconds| seconds.read(index)).transpose()
    }

    /// The sequences of the samples `indices`, as a model reads them: one for each sample, or the two of each pair, one after the other.
    ///
    /// # Errors
    /// As [`Split::read`].
    pub fn read_batch(&self, indices: &[usize]) -> Result<Vec<Cow<'_, [u32]>>, StepError> {
        let mut sequences = Vec::with_capacity(indices.len() * (1 + usize::from(self.has_pairs())));
        for index in indices {
            sequences.push(self.read(*index)?);
            sequences.extend(self.read_second(*index)?);
        }
        Ok(sequences)
    }

    /// The labels of the samples `indices`; empty for a language model.
    #[must_use]
    pub fn labels_of(&self, indices: &[usize]) -> Vec<u32> {
        indices.iter().filter_map(|index| self.labels.get(*index).copied()).collect()
    }

    /// The tokens of a sequence of a test.
    #[cfg(test)]
    pub fn sequence(&self, index: usize) -> Vec<u32> {
        self.read(index).expect("a sequence").into_owned()
    }

    /// Sequences of a test, which may be inconsistent.
    #[cfg(test)]
    pub fn of_parts(tokens: &[u32], offsets: &[u32], labels: &[u32]) -> Split {
        let sequences = Sequences::in_memory(tokens.to_vec(), offsets.to_vec());
        Split { sequences, labels: labels.to_vec(), ..Split::default() }
    }

    /// Whether its sequences are the parts of documents: [`super::TextWriter`] writes them.
    #[must_use]
    pub(super) fn has_documents(&self) -> bool {
        matches!(self.sequences.bounds(), Bounds::Documents(_))
    }

    /// The tokens of all sequences in memory, one after another; without those of second sequences.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        self.sequences.tokens().unwrap_or_default()
    }

    /// The label of each sample; empty for a language model.
    #[must_use]
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The group of each sample; empty without groups.
    #[must_use]
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// The lengths of the samples. Copies are cheap.
    #[must_use]
    pub fn sample_lengths(&self) -> SampleLengths {
        let seconds = self.seconds.as_ref().map(|seconds| seconds.bounds().clone());
        SampleLengths { sequences: self.sequences.bounds().clone(), seconds }
    }

    /// The length of each sample in tokens: of a pair, that of its longer sequence.
    pub fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        let lengths = self.sample_lengths();
        (0..self.len()).map(move |index| lengths.of(index))
    }

    pub(super) fn write(&self, name: &str, file: &mut ArrayFile) {
        let mut insert = |part: &str, values: &[u32]| {
            file.arrays.insert(format!("{name}.{part}"), Array::u32(values, &[values.len()]));
        };
        insert("tokens", self.tokens());
        insert("offsets", self.sequences.offsets());
        insert("labels", &self.labels);
        if !self.groups.is_empty() {
            insert("groups", &self.groups);
        }
        if let Some(seconds) = &self.seconds {
            insert("second_tokens", seconds.tokens().unwrap_or_default());
            insert("second_offsets", seconds.offsets());
        }
    }

    /// Reads a split and checks it, so that later indices are never out of bounds. Of documents with more than `most_in_memory` tokens,
    /// the tokens stay in the file.
    pub(super) fn read_from(
        name: &str,
        file: &OpenFile,
        about: &About,
        most_in_memory: u64,
    ) -> Result<Self, FileError> {
        let numbers = |part: &str| file.numbers_u32(&format!("{name}.{part}"));
        let groups = if about.groups.is_empty() { Vec::new() } else { numbers("groups")? };
        let documents = format!("{name}.documents");
        let sequences = match file.find(&documents) {
            None => Sequences::in_memory(numbers("tokens")?, numbers("offsets")?),
            Some(_) => {
                let tokens = file.array(&format!("{name}.tokens"))?;
                if !tokens.holds_tokens() {
                    return Err(FileError::Content(format!("`{name}.tokens` is not an array of tokens")));
                }
                let sizes = (about.max_length, about.vocabulary.len());
                Sequences::of_documents(tokens, file.numbers(&documents)?, sizes, most_in_memory)
                    .map_err(|error| FileError::Content(format!("`{name}.tokens` cannot be read: {error}")))?
            }
        };
        let seconds = match about.pairs {
            true => Some(Sequences::in_memory(numbers("second_tokens")?, numbers("second_offsets")?)),
            false => None,
        };
        let split = Split { sequences, seconds, labels: numbers("labels")?, groups };
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
        let problem = std::iter::once(&self.sequences)
            .chain(&self.seconds)
            .find_map(|sequences| sequences.problem(about.vocabulary.len()));
        if problem.is_some() {
            return problem;
        }
        if let Some(seconds) = &self.seconds
            && seconds.bounds().len() != self.len()
        {
            return Some(format!("{} second sequences instead of {}", seconds.bounds().len(), self.len()));
        }
        if about.objective == Goal::Predict && self.lengths().any(|length| length < 2) {
            return Some("a sequence of one token leaves nothing to predict".into());
        }
        if let Some(length) = self.lengths().find(|length| *length > about.max_length) {
            return Some(format!("a sequence of {length} tokens exceeds the maximum of {}", about.max_length));
        }
        let label = self.labels.iter().find(|label| **label as usize >= about.classes)?;
        Some(format!("label {label} is outside the {} classes", about.classes))
    }
}

/// The lengths of the samples of a split.
#[derive(Debug, Clone)]
pub struct SampleLengths {
    sequences: Bounds,
    seconds: Option<Bounds>,
}

impl SampleLengths {
    /// The number of samples.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sequences.len()
    }

    /// The length of sample `index` in tokens: of a pair, that of its longer sequence.
    #[must_use]
    pub fn of(&self, index: usize) -> usize {
        let second = self.seconds.as_ref().map_or(0, |seconds| seconds.length(index));
        self.sequences.length(index).max(second)
    }
}
