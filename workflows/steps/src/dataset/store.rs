//! Datasets and their files: [`Dataset`].

use std::path::Path;

use assay_models::{ArrayFile, FileError, Objective, Task};

use super::about::{About, Goal};
use super::file::OpenFile;
use super::split::Split;
use crate::context::StepError;

/// The tokens of a split of text stay in the file if there are more.
const MOST_IN_MEMORY: u64 = 1 << 26;

/// The metadata key of [`About`].
pub(super) const ABOUT: &str = "assay.dataset";

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

impl Dataset {
    /// The requirements of this dataset for a model.
    #[must_use]
    pub fn task(&self) -> Task {
        let objective = match self.about.objective {
            Goal::Classify if self.about.pairs => Objective::ClassifyPairs(self.about.classes),
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
        if self.splits().iter().any(|(_, split)| split.has_documents()) {
            return Err(StepError::failed("the dataset of a text is written as it is read"));
        }
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
        Self::read_with(path, MOST_IN_MEMORY)
    }

    /// As [`Dataset::read`]; the tokens of a split of text stay in the file if there are more than `most_in_memory`.
    ///
    /// # Errors
    /// As [`Dataset::read`].
    pub(crate) fn read_with(path: &Path, most_in_memory: u64) -> Result<Self, StepError> {
        let read = || {
            let file = OpenFile::open(path)?;
            let about: About = file.json(ABOUT)?;
            let split = |name: &str| Split::read_from(name, &file, &about, most_in_memory);
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
    use super::super::about::Sources;
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
            pairs: false,
            tokenizer: None,
            text: None,
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
        let mut missing = Split::default();
        missing.push_grouped(&[0, 1], 1, 0);
        let mut outside = missing.clone();
        missing.push(&[2], 0);
        outside.push_grouped(&[2], 0, 2);
        for (split, message) in [(missing, "1 groups instead of 2"), (outside, "group 2 is outside the 2 groups")] {
            grouped.valid = split;
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
    fn pairs_are_kept_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d.safetensors");
        let mut pairs = dataset();
        pairs.about.pairs = true;
        for split in [&mut pairs.train, &mut pairs.valid, &mut pairs.test] {
            *split = Split::default();
            split.push_pair(&[0, 1], &[2], 1);
            split.push_pair(&[2], &[1, 1, 0], 0);
        }
        pairs.write(&path).unwrap();
        let back = Dataset::read(&path).unwrap();
        assert_eq!(back, pairs);
        assert_eq!(back.task().objective, Objective::ClassifyPairs(2));
        let batch = back.train.read_batch(&[1, 0]).unwrap();
        assert_eq!(batch.concat(), [2, 1, 1, 0, 0, 1, 2]);
        assert_eq!((back.train.lengths().collect::<Vec<_>>(), back.train.labels_of(&[1, 0])), (vec![2, 3], vec![0, 1]));
        pairs.about.max_length = 2;
        pairs.write(&path).unwrap();
        assert!(Dataset::read(&path).unwrap_err().to_string().contains("exceeds the maximum of 2"));
        let mut single = dataset();
        single.about.pairs = true;
        single.write(&path).unwrap();
        assert!(Dataset::read(&path).unwrap_err().to_string().contains("`train.second_tokens` is missing"));
    }

    #[test]
    fn a_dataset_that_contradicts_itself_is_refused() {
        let parts = |tokens: [u32; 6], offsets: [u32; 3]| Split::of_parts(&tokens, &offsets, &[1, 0]);
        let tokens = [0, 1, 2, 2, 0, 1];
        refused(|d| d.train = parts([3, 1, 2, 2, 0, 1], [0, 2, 6]), "token 3 is outside the vocabulary of 3");
        refused(|d| d.test = Split::of_parts(&[2], &[0, 1], &[2]), "label 2 is outside the 2 classes");
        refused(|d| d.train = parts(tokens, [0, 0, 6]), "sequence 0 has no token");
        refused(|d| d.train = parts(tokens, [0, 7, 6]), "sequence 1 has no token");
        refused(|d| d.train = parts(tokens, [0, 2, 5]), "do not span its 6 tokens");
        refused(|d| d.valid = Split::of_parts(&[0], &[0, 1], &[1, 0]), "2 labels instead of 1");
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
