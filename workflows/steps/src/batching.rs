//! How many sequences form a batch: a fixed number, or as many as fit a budget of tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dataset::Split;

/// A budget for a batch: a batch has many short or few long sequences, so that batches cost about the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Tokens of a batch, padding included: its sequences, of which a pair has two, times the longest of them.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub max_tokens: usize,
    /// Sequences of a batch.
    #[serde(default = "max_sequences")]
    #[schemars(range(min = 1, max = 65536))]
    pub max_sequences: usize,
}

fn max_sequences() -> usize {
    1024
}

/// How batches are formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batching {
    /// This number of sequences each.
    Sequences(usize),
    /// As many as fit the budget.
    Tokens(Budget),
}

impl Batching {
    /// Divides sequences into batches of neighbours in `order`, which is sorted by length, the shortest first. A batch
    /// is never empty, so a sequence that exceeds the budget is a separate batch: callers that do not accept this check
    /// [`Batching::longest`] first.
    #[must_use]
    pub fn cut(self, order: &[usize], length: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
        match self {
            Batching::Sequences(size) => order.chunks(size.max(1)).map(<[usize]>::to_vec).collect(),
            Batching::Tokens(budget) => budget.cut(order, length),
        }
    }

    /// All samples of a split in batches, the shortest first.
    #[must_use]
    pub fn sorted(self, split: &Split) -> Vec<Vec<usize>> {
        let lengths = split.sample_lengths();
        let mut order: Vec<_> = (0..split.len()).collect();
        order.sort_by_key(|index| lengths.of(*index));
        self.for_samples_of(split).cut(&order, |index| lengths.of(index))
    }

    /// The batching for the samples of a split, whose length is that of the longer sequence of a pair: a budget of tokens covers both.
    #[must_use]
    pub fn for_samples_of(self, split: &Split) -> Batching {
        match self {
            Batching::Tokens(Budget { max_tokens, max_sequences }) if split.has_pairs() => {
                Batching::Tokens(Budget { max_tokens: max_tokens / 2, max_sequences })
            }
            _ => self,
        }
    }

    /// The longest sequence that fits; `None` if every sequence fits.
    #[must_use]
    pub fn longest(self) -> Option<usize> {
        match self {
            Batching::Sequences(_) => None,
            Batching::Tokens(budget) => Some(budget.max_tokens),
        }
    }

    /// Whether there are enough sequences for `batches` batches.
    #[must_use]
    pub fn is_enough(self, batches: usize, sequences: usize, tokens: usize) -> bool {
        match self {
            Batching::Sequences(size) => sequences >= batches * size,
            Batching::Tokens(budget) => {
                sequences >= batches.saturating_mul(budget.max_sequences)
                    || tokens >= batches.saturating_mul(budget.max_tokens)
            }
        }
    }
}

impl Budget {
    fn cut(self, order: &[usize], length: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
        let mut batches: Vec<Vec<usize>> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        for &sequence in order {
            // Sequences are sorted by length, so the added one is the longest.
            let padded = (open.len() + 1) * length(sequence);
            if !open.is_empty() && (padded > self.max_tokens || open.len() == self.max_sequences) {
                batches.push(std::mem::take(&mut open));
            }
            open.push(sequence);
        }
        if !open.is_empty() {
            batches.push(open);
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn batches_of_a_budget_keep_within_it_and_waste_none(
            mut lengths in prop::collection::vec(1_usize..40, 1..120),
            max_tokens in 40_usize..200,
            max_sequences in 1_usize..20,
        ) {
            lengths.sort_unstable();
            let order: Vec<_> = (0..lengths.len()).collect();
            let batches = Batching::Tokens(Budget { max_tokens, max_sequences }).cut(&order, |at| lengths[at]);
            prop_assert_eq!(batches.concat(), order, "every sequence once, in order");
            let padded = |batch: &[usize]| batch.len() * batch.iter().map(|at| lengths[*at]).max().unwrap_or(0);
            for (at, batch) in batches.iter().enumerate() {
                prop_assert!(!batch.is_empty() && batch.len() <= max_sequences && padded(batch) <= max_tokens);
                let Some(next) = batches.get(at + 1) else { continue };
                let more = [batch.as_slice(), &next[..1]].concat();
                prop_assert!(more.len() > max_sequences || padded(&more) > max_tokens, "one more would have fitted");
            }
        }
    }

    #[test]
    fn what_is_beyond_the_budget_is_alone() {
        let lengths = [2, 9, 3];
        let budget = Batching::Tokens(Budget { max_tokens: 6, max_sequences: 8 });
        assert_eq!(budget.cut(&[0, 2, 1], |at| lengths[at]), [vec![0, 2], vec![1]]);
        assert_eq!((budget.longest(), Batching::Sequences(3).longest()), (Some(6), None));
        assert_eq!(Batching::Sequences(2).cut(&[0, 2, 1], |at| lengths[at]), [vec![0, 2], vec![1]]);
    }
}
