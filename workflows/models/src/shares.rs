//! Shares of a batch that are processed in parallel: [`Shares`].
//!
//! A device with threads learns faster if each thread processes whole sequences, forward and backward, than if all
//! threads share each operation: no thread waits at the end of an operation, and its data stay in its cache. The shares
//! depend only on the batch and the kind of device, and their results are added in their order, so the number of threads
//! changes no bit.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use assay_tensor::Device;

use crate::error::ModelError;

/// The maximum number of shares: the gradients of each share are added.
const MOST: usize = 8;

/// The sequences of each share, of about equal numbers.
pub(crate) struct Shares(Vec<Range<usize>>);

impl Shares {
    /// As many shares as are worth a separate thread, at least one. Each consists of whole samples of `of_sample` sequences.
    pub fn new(device: &Device, lengths: &[usize], of_sample: usize) -> Self {
        let samples = lengths.len() / of_sample.max(1);
        let worth = |tokens: usize| lengths.iter().sum::<usize>() / tokens.max(1);
        let most = MOST.min(samples.max(1));
        let count = device.kernels().capabilities().tokens_a_thread.map_or(1, worth).clamp(1, most);
        let bound = |share: usize| share * samples / count * of_sample;
        Shares((0..count).map(|share| bound(share)..bound(share + 1)).collect())
    }

    /// The sequences of each share.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.0
    }
}

/// The results of `learn` for each share, in order.
///
/// # Errors
/// The error of the first share that fails.
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
    let skipped = || Err(ModelError::Input("the device did not return a share of the batch".into()));
    results
        .into_iter()
        .map(|r| r.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(skipped))
        .collect()
}
