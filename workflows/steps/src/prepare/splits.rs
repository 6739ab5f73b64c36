//! Assigns published samples to the splits of a dataset: official splits are kept, and a split that is not published is taken
//! from the training samples.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::prepared::{ConfigProblem, MAX_TOKENS};
use crate::context::StepError;
use crate::random::shuffle;

/// The number of requested samples, and the fraction of training samples that replaces a split that is not published.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplitSizes {
    /// The maximum number of samples of train, valid and test; `None` for all.
    pub most: [Option<usize>; 3],
    /// The fraction of the training samples that is used for validation.
    pub valid_fraction: f64,
    /// The fraction of the training samples that is used for the test.
    pub test_fraction: f64,
    /// The seed of the selection.
    pub seed: u64,
}

/// The samples of a split: the published split (0 train, 1 valid, 2 test), and the indices in it, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenSamples {
    pub from: usize,
    pub samples: Vec<usize>,
}

impl SplitSizes {
    /// The first invalid parameter, as far as it can be detected without the data.
    #[must_use]
    pub fn find_problem(&self) -> Option<ConfigProblem> {
        if let Some(found) = fractions_problem(self.valid_fraction, self.test_fraction) {
            return Some(found);
        }
        let at = self.most.iter().position(|most| *most == Some(0))?;
        let key = ["train", "valid", "test"][at];
        Some((key, format!("{key} 0 leaves a split without samples"), "give at least 1, or leave it out".into()))
    }

    /// Assigns the published samples: `published` has the numbers of train, valid and test samples, and `None` for a split that
    /// is not published.
    ///
    /// # Errors
    /// [`StepError::Failed`] if a split would have no sample.
    pub fn assign_samples(&self, published: [Option<usize>; 3]) -> Result<[ChosenSamples; 3], StepError> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut orders = published.map(|count| (0..count.unwrap_or(0)).collect::<Vec<_>>());
        orders.iter_mut().for_each(|order| shuffle(order, &mut rng));
        let [mut train, valid, test] = orders;
        let all = train.len() as f64;
        let mut cut = |order: Vec<usize>, at: usize, fraction: f64| {
            if published[at].is_some() {
                return ChosenSamples { from: at, samples: order };
            }
            let count = self.most[at].unwrap_or((all * fraction).round() as usize).min(train.len());
            ChosenSamples { from: 0, samples: train.split_off(train.len() - count) }
        };
        let test = cut(test, 2, self.test_fraction);
        let valid = cut(valid, 1, self.valid_fraction);
        let mut splits = [ChosenSamples { from: 0, samples: train }, valid, test];
        for (at, (split, most)) in splits.iter_mut().zip(self.most).enumerate() {
            split.samples.truncate(most.unwrap_or(usize::MAX));
            split.samples.sort_unstable();
            if split.samples.is_empty() {
                let name = ["train", "valid", "test"][at];
                let message = format!("the split `{name}` has no sample: {all} training samples are published");
                let hint = "lower valid, test and their fractions, or take more data";
                return Err(StepError::Failed { message, hint: Some(hint.into()) });
            }
        }
        Ok(splits)
    }
}

/// Why a dataset cannot be divided with these fractions for validation and test.
#[must_use]
pub fn fractions_problem(valid: f64, test: f64) -> Option<ConfigProblem> {
    for (key, fraction) in [("valid_fraction", valid), ("test_fraction", test)] {
        if !(fraction > 0.0 && fraction < 1.0) {
            let message = format!("{key} {fraction} leaves a split empty");
            return Some((key, message, "give a fraction above 0 and below 1, such as 0.1".into()));
        }
    }
    (valid + test >= 1.0).then(|| {
        let message = "valid_fraction and test_fraction together leave nothing to train on".to_owned();
        ("test_fraction", message, "give fractions whose sum is below 1".into())
    })
}

/// Refuses a dataset with too many tokens before memory is allocated for it. `what` is the subject of the message, in the plural.
///
/// # Errors
/// [`StepError::Failed`] above [`MAX_TOKENS`].
pub fn check_tokens(tokens: u64, what: &str, hint: &str) -> Result<(), StepError> {
    if tokens <= MAX_TOKENS {
        return Ok(());
    }
    let message = format!("{what} are {tokens} tokens, and the limit is {MAX_TOKENS}");
    Err(StepError::Failed { message, hint: Some(hint.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: SplitSizes = SplitSizes { most: [None; 3], valid_fraction: 0.1, test_fraction: 0.2, seed: 1 };

    #[test]
    fn official_splits_stay_what_they_are() {
        let [train, valid, test] = SIZES.assign_samples([Some(20), Some(3), Some(5)]).unwrap();
        assert_eq!(train, ChosenSamples { from: 0, samples: (0..20).collect() });
        assert_eq!(valid, ChosenSamples { from: 1, samples: vec![0, 1, 2] });
        assert_eq!(test, ChosenSamples { from: 2, samples: (0..5).collect() });
    }

    #[test]
    fn what_is_not_published_is_cut_from_the_training_samples() {
        let [train, valid, test] = SIZES.assign_samples([Some(20), None, None]).unwrap();
        assert_eq!([train.samples.len(), valid.samples.len(), test.samples.len()], [14, 2, 4]);
        let mut all = [train.samples, valid.samples, test.samples].concat();
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
        let fewer = SplitSizes { most: [Some(5), Some(4), Some(1)], ..SIZES };
        let sizes = fewer.assign_samples([Some(20), None, Some(9)]).unwrap().map(|split| split.samples.len());
        assert_eq!(sizes, [5, 4, 1]);
        assert_ne!(
            fewer.assign_samples([Some(20), None, None]),
            SplitSizes { seed: 2, ..fewer }.assign_samples([Some(20), None, None])
        );
    }

    #[test]
    fn a_split_without_samples_is_refused() {
        let message = |sizes: SplitSizes, published| sizes.assign_samples(published).unwrap_err().to_string();
        assert_eq!(
            message(SIZES, [Some(2), None, Some(1)]),
            "the split `valid` has no sample: 2 training samples are published"
        );
        let greedy = SplitSizes { most: [None, Some(9), None], ..SIZES };
        assert!(message(greedy, [Some(9), None, Some(1)]).contains("the split `train` has no sample"));
        assert_eq!(
            SplitSizes { valid_fraction: 0.5, test_fraction: 0.5, ..SIZES }.find_problem().unwrap().0,
            "test_fraction"
        );
        assert_eq!(SplitSizes { most: [Some(0), None, None], ..SIZES }.find_problem().unwrap().0, "train");
    }
}
