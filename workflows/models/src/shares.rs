//! Shares of a batch that are learned from side by side: [`Shares`].
//!
//! A device with threads of its own learns faster where each takes whole sequences from the first layer to the last and
//! back than where all of them share each operation: nobody waits at the end of an operation, and what a thread has made
//! is still in its cache when it goes on with it. The shares follow from the batch and the kind of device alone, and
//! what they give is added in their order, so that the number of threads changes no bit.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use assay_tensor::Device;

use crate::error::ModelError;

/// More shares than this are not made: each adds its gradients to the others'.
const MOST: usize = 8;

/// The sequences of each share, of about equal numbers.
pub(crate) struct Shares(Vec<Range<usize>>);

impl Shares {
    /// As many shares as are worth a thread of their own, one at least.
    pub fn new(device: &Device, lengths: &[usize]) -> Self {
        let sequences = lengths.len();
        let worth = |tokens: usize| lengths.iter().sum::<usize>() / tokens.max(1);
        let count =
            device.kernels().capabilities().tokens_a_thread.map_or(1, worth).clamp(1, MOST.min(sequences.max(1)));
        let bound = |share: usize| share * sequences / count;
        Shares((0..count).map(|share| bound(share)..bound(share + 1)).collect())
    }

    /// The sequences of each.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.0
    }
}

/// What `learn` gives for each of so many shares, in order.
///
/// # Errors
/// The first share's that fails.
pub(crate) fn each<T: Send>(
    device: &Device,
    count: usize,
    learn: impl Fn(usize) -> Result<T, ModelError> + Sync,
) -> Result<Vec<T>, ModelError> {
    let results: Vec<Mutex<Option<Result<T, ModelError>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    device.kernels().concurrently(count, &|share| {
        let result = learn(share);
        *results[share].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    });
    let skipped = || Err(ModelError::Input("the device left out a share of the batch".into()));
    results
        .into_iter()
        .map(|r| r.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(skipped))
        .collect()
}
