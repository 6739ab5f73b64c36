//! Which published samples go into which split of a dataset: official splits stay what they are, and what is not published is cut
//! from the training samples.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::made::Impossible;
use crate::context::StepError;
use crate::random::shuffle;

/// How many samples are wanted, and what part of the training samples replaces a split that is not published.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wanted {
    /// The most samples of train, valid and test; all where there is none.
    pub most: [Option<usize>; 3],
    /// The part of the training samples that is for validation.
    pub valid_fraction: f64,
    /// The part of the training samples that is for the test.
    pub test_fraction: f64,
    /// Which samples are taken follows from it.
    pub seed: u64,
}

/// The samples of a split: of which published split (0 train, 1 valid, 2 test), and which of it, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    pub from: usize,
    pub samples: Vec<usize>,
}

impl Wanted {
    /// What makes it impossible, whatever the data.
    #[must_use]
    pub fn impossible(&self) -> Option<Impossible> {
        for (key, fraction) in [("valid_fraction", self.valid_fraction), ("test_fraction", self.test_fraction)] {
            if !(fraction > 0.0 && fraction < 1.0) {
                let message = format!("{key} {fraction} leaves a split without samples");
                return Some((key, message, "give a fraction above 0 and below 1, such as 0.1".into()));
            }
        }
        if self.valid_fraction + self.test_fraction >= 1.0 {
            let message = "valid_fraction and test_fraction together leave nothing to train on".to_owned();
            return Some(("test_fraction", message, "give fractions whose sum is below 1".into()));
        }
        let at = self.most.iter().position(|most| *most == Some(0))?;
        let key = ["train", "valid", "test"][at];
        Some((key, format!("{key} 0 leaves a split without samples"), "give at least 1, or leave it out".into()))
    }

    /// Deals the published samples: `published` says how many there are of train, valid and test, and none where a split is not
    /// published.
    ///
    /// # Errors
    /// [`StepError::Failed`] if a split would have no sample.
    pub fn deal(&self, published: [Option<usize>; 3]) -> Result<[Chosen; 3], StepError> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut orders = published.map(|count| (0..count.unwrap_or(0)).collect::<Vec<_>>());
        orders.iter_mut().for_each(|order| shuffle(order, &mut rng));
        let [mut train, valid, test] = orders;
        let all = train.len() as f64;
        let mut cut = |order: Vec<usize>, at: usize, fraction: f64| {
            if published[at].is_some() {
                return Chosen { from: at, samples: order };
            }
            let count = self.most[at].unwrap_or((all * fraction).round() as usize).min(train.len());
            Chosen { from: 0, samples: train.split_off(train.len() - count) }
        };
        let test = cut(test, 2, self.test_fraction);
        let valid = cut(valid, 1, self.valid_fraction);
        let mut splits = [Chosen { from: 0, samples: train }, valid, test];
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

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted { most: [None; 3], valid_fraction: 0.1, test_fraction: 0.2, seed: 1 };

    #[test]
    fn official_splits_stay_what_they_are() {
        let [train, valid, test] = WANTED.deal([Some(20), Some(3), Some(5)]).unwrap();
        assert_eq!(train, Chosen { from: 0, samples: (0..20).collect() });
        assert_eq!(valid, Chosen { from: 1, samples: vec![0, 1, 2] });
        assert_eq!(test, Chosen { from: 2, samples: (0..5).collect() });
    }

    #[test]
    fn what_is_not_published_is_cut_from_the_training_samples() {
        let [train, valid, test] = WANTED.deal([Some(20), None, None]).unwrap();
        assert_eq!([train.samples.len(), valid.samples.len(), test.samples.len()], [14, 2, 4]);
        let mut all = [train.samples, valid.samples, test.samples].concat();
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
        let fewer = Wanted { most: [Some(5), Some(4), Some(1)], ..WANTED };
        let sizes = fewer.deal([Some(20), None, Some(9)]).unwrap().map(|split| split.samples.len());
        assert_eq!(sizes, [5, 4, 1]);
        assert_ne!(fewer.deal([Some(20), None, None]), Wanted { seed: 2, ..fewer }.deal([Some(20), None, None]));
    }

    #[test]
    fn a_split_without_samples_is_refused() {
        let message = |wanted: Wanted, published| wanted.deal(published).unwrap_err().to_string();
        assert_eq!(
            message(WANTED, [Some(2), None, Some(1)]),
            "the split `valid` has no sample: 2 training samples are published"
        );
        let greedy = Wanted { most: [None, Some(9), None], ..WANTED };
        assert!(message(greedy, [Some(9), None, Some(1)]).contains("the split `train` has no sample"));
        assert_eq!(
            Wanted { valid_fraction: 0.5, test_fraction: 0.5, ..WANTED }.impossible().unwrap().0,
            "test_fraction"
        );
        assert_eq!(Wanted { most: [Some(0), None, None], ..WANTED }.impossible().unwrap().0, "train");
    }
}
