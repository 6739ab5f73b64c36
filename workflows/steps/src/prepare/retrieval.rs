//! `dataset: lra_retrieval`: pairs of papers from the files of Long Range Arena (Tay et al. 2021), byte by byte. A model encodes both
//! papers separately and predicts whether one cites the other.

use assay_data::lra::{find_pairs, visit_pairs};
use assay_data::text::TextTokenizer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prepared::{ConfigProblem, PreparedDataset, range_problem};
use super::source::{LocalFile, MOST_BYTES, digests};
use super::splits::{SplitSizes, check_tokens};
use crate::context::{Context, StepError};
use crate::dataset::{Goal, Split};

/// The parameters of `dataset: lra_retrieval`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LraRetrieval {
    /// The folder or the archive with the published files (`new_aan_pairs.train.tsv`, `.eval.tsv` and `.test.tsv`), relative to the folder
    /// of the workflow file. Its content, not its path, goes into the store and into the cache key.
    #[schemars(with = "String", extend("format" = assay_spec::LOCAL_FILE, "x-max-bytes" = MOST_BYTES))]
    pub path: LocalFile,
    /// The longest document in bytes; longer documents are cut at the end.
    #[serde(default = "four_thousand")]
    #[schemars(range(min = 1, max = 65536))]
    pub max_length: usize,
    /// The most training pairs; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub train: Option<usize>,
    /// The most validation pairs; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub valid: Option<usize>,
    /// The most test pairs; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub test: Option<usize>,
    /// Decides which pairs are chosen.
    #[serde(default)]
    pub seed: u64,
}

fn four_thousand() -> usize {
    4000
}

impl LraRetrieval {
    /// The first invalid parameter, as far as it can be detected without the files.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        range_problem(&[("max_length", self.max_length, 1, 65536)]).or_else(|| self.split_sizes().find_problem())
    }

    fn split_sizes(&self) -> SplitSizes {
        let most = [self.train, self.valid, self.test];
        SplitSizes { most, valid_fraction: 0.1, test_fraction: 0.1, seed: self.seed }
    }

    /// # Errors
    /// [`StepError::Failed`] if the files cannot be read, or hold too many tokens.
    pub fn make_dataset(&self, context: &dyn Context) -> Result<PreparedDataset, StepError> {
        let files = self.path.open(context)?;
        let names = find_pairs(&files)?;
        let kept = |text: &'_ [u8]| text.len().min(self.max_length);
        // The tokens of each pair: only the chosen pairs are held.
        let mut lengths: [Vec<usize>; 3] = Default::default();
        for (name, lengths) in names.iter().zip(&mut lengths) {
            visit_pairs(&files, name, &mut |pair| {
                lengths.push(kept(pair.first) + kept(pair.second));
                check_cancelled(lengths.len(), context)
            })?;
        }
        let chosen = self.split_sizes().assign_samples(lengths.each_ref().map(|lengths| Some(lengths.len())))?;
        let tokens = chosen.iter().flat_map(|split| split.samples.iter().map(|at| lengths[split.from][*at] as u64));
        let what = format!("the pairs of `{}`", files.name());
        check_tokens(tokens.sum(), &what, "take fewer with train, valid and test, or lower max_length")?;
        let mut splits = [(); 3].map(|()| Split::default());
        let mut cut = 0_u64;
        for ((name, split), chosen) in names.iter().zip(&mut splits).zip(&chosen) {
            let (mut at, mut wanted) = (0, chosen.samples.iter().peekable());
            visit_pairs(&files, name, &mut |pair| {
                at += 1;
                check_cancelled(at, context)?;
                if wanted.next_if(|wanted| **wanted + 1 == at).is_some() {
                    let tokens = |text: &[u8]| text[..kept(text)].iter().copied().map(u32::from).collect::<Vec<u32>>();
                    cut += u64::from(pair.first.len().max(pair.second.len()) > self.max_length);
                    split.push_pair(&tokens(pair.first), &tokens(pair.second), pair.label);
                }
                Ok::<(), StepError>(())
            })?;
        }
        let max_length = splits.iter().flat_map(|split| split.lengths()).max().unwrap_or(1);
        let [train, valid, test] = splits;
        let warning = || format!("{cut} pairs have a document longer than max_length, which loses its end");
        Ok(PreparedDataset {
            name: "lra_retrieval",
            description: format!("Pairs of papers of `{}`; the label is whether one cites the other.", files.name()),
            vocabulary: TextTokenizer::Bytes.vocabulary(),
            goal: Goal::Classify,
            classes: 2,
            labels: ["unrelated", "cites"].map(String::from).into(),
            pairs: true,
            max_length,
            train,
            valid,
            test,
            metrics: vec![("data/cut", cut as f64)],
            warnings: (cut > 0).then(warning).into_iter().collect(),
            sources: digests(&files, &names)?,
            ..PreparedDataset::default()
        })
    }
}

fn check_cancelled(at: usize, context: &dyn Context) -> Result<(), StepError> {
    if at.is_multiple_of(4096) && context.cancelled() { Err(StepError::Cancelled) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::dataset::Dataset;
    use crate::evaluate::Evaluate;
    use crate::prepare::Prepare;
    use crate::testing::TestContext;
    use crate::train::Train;

    /// Files in the published layout: a pair cites if both documents have the same first letter.
    fn write_files(folder: &std::path::Path) {
        for (name, count) in [("train", 240), ("eval", 40), ("test", 60)] {
            let line = |at: usize| {
                let (first, second) = (["a", "b"][at % 2], ["a", "b"][at / 2 % 2]);
                let label = if first == second { "1.0" } else { "0.0" };
                let (some, more) = ("x".repeat(1 + at % 5), "yz".repeat(1 + at % 3));
                let split = &name[1..2];
                format!("{label}\tP{at}\tQ{at}\t{first}{some}{at}\t{second}{split}{more}{at}\n")
            };
            let text: String = (0..count).map(line).collect();
            std::fs::write(folder.join(format!("new_aan_pairs.{name}.tsv")), text).unwrap();
        }
    }

    #[test]
    fn published_pairs_keep_their_splits_and_are_learned() {
        let folder = tempfile::tempdir().unwrap();
        write_files(folder.path());
        let mut context = TestContext::new(assay_cpu::device(2).unwrap());
        let config = json!({"dataset": "lra_retrieval", "path": folder.path(), "train": 200, "max_length": 6});
        context.run(&Prepare, config).unwrap();
        let dataset = Dataset::read(&context.artifacts["dataset"]).unwrap();
        assert_eq!(dataset.splits().map(|(_, split)| split.len()), [200, 40, 60]);
        assert!(dataset.about.pairs && dataset.test.has_pairs());
        assert_eq!(dataset.test.sequence(1), b"bxx1".map(u32::from));
        assert_eq!(dataset.test.read_second(1).unwrap().unwrap().into_owned(), b"aeyzyz".map(u32::from));
        assert_eq!((dataset.test.labels()[..4].to_vec(), dataset.about.max_length), (vec![1, 0, 0, 1], 6));
        assert_eq!(context.last("data/test/shared_with/train"), Some(0.0));
        let data = json!(context.provide(&context.artifacts["dataset"].clone()));
        for (family, more) in [
            ("ten", json!({"states": 8})),
            ("pulse", json!({"states": 4, "chunk": 4})),
            ("transformer", json!({"heads": 2})),
        ] {
            let mut model = json!({"family": family, "dim": 16, "layers": 1});
            model.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let train = json!({
                "data": data, "model": model, "optimizer": {"name": "adamw", "lr": 1e-2},
                "batching": {"max_tokens": 384}, "accumulate": 2, "curriculum": [{"until_step": 150, "max_length": 6}],
            });
            context.run(&Train, train).unwrap();
            let accuracy = context.last("test/accuracy").unwrap();
            assert!(accuracy > 0.9, "{family}: {accuracy}");
            let trained = json!(context.provide(&context.artifacts["model"].clone()));
            context.run(&Evaluate, json!({"model": trained, "data": data})).unwrap();
            assert!((context.last("test/accuracy").unwrap() - accuracy).abs() < 1e-9);
            assert_eq!(context.values["accuracy"]["n"], 60);
        }
    }

    #[test]
    fn models_of_pairs_and_of_single_sequences_are_not_mixed_up() {
        let folder = tempfile::tempdir().unwrap();
        write_files(folder.path());
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        context.run(&Prepare, json!({"dataset": "lra_retrieval", "path": folder.path(), "max_length": 6})).unwrap();
        let pairs = json!(context.provide(&context.artifacts["dataset"].clone()));
        let config = json!({"family": "ten", "dim": 4, "layers": 1, "states": 2});
        let single = context.provide_model(config.clone(), 1);
        let error = context.run(&Evaluate, json!({"model": single, "data": pairs})).unwrap_err();
        let expected = "the model reads one sequence, and a sample of `lra_retrieval` is a pair";
        assert_eq!(error.to_string(), expected);
        let train = json!({
            "data": pairs, "model": config, "optimizer": {"name": "adamw", "lr": 1e-2}, "batch_size": 4,
            "curriculum": [{"until_step": 2, "max_length": 6}],
        });
        context.run(&Train, train).unwrap();
        let model = json!(context.provide(&context.artifacts["model"].clone()));
        let data = context.provide_dataset();
        let error = context.run(&Evaluate, json!({"model": model, "data": data})).unwrap_err();
        assert_eq!(error.to_string(), "the model classifies pairs, and a sample of `toy` is one sequence");
        let error = context.run(&crate::export::Export, json!({"model": model})).unwrap_err();
        assert!(error.to_string().contains("classifies pairs of sequences"), "{error}");
        let benchmark =
            json!({"models": {"pairs": model, "single": single}, "lengths": [5], "batch": 3, "samples": 20});
        context.run(&crate::benchmark::Benchmark, benchmark).unwrap();
        assert!(context.last("latency/pairs/5/median").unwrap() > 0.0);
    }
}
