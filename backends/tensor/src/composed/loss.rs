//! Composed forms of cross entropy and its gradient.

use crate::args::{Binary, Reduce};
use crate::array::Array;
use crate::dtype::HostData;
use crate::error::{Result, TensorError};
use crate::kernels::{CrossEntropy, Kernels};
use crate::math::Math;
use crate::softmax::log_sum_exp;

pub(crate) fn cross_entropy<K: Kernels + ?Sized>(
    k: &K,
    logits: &Array,
    targets: &Array,
    smoothing: f64,
) -> Result<(Array, Array)> {
    let m = Math(k);
    let n = logits.dims()[0];
    let lse = log_sum_exp(k, logits)?.viewed(n);
    let places = target_offsets(k, logits, targets)?;
    let picked = k.gather_rows(&logits.viewed([logits.numel(), 1]), &places)?.viewed(n);
    let mean = m.reduce_last(Reduce::Mean, logits)?.viewed(n);
    let expected = m.add(&m.scale(&picked, 1.0 - smoothing)?, &m.scale(&mean, smoothing)?)?;
    Ok((m.sub(&lse, &expected)?, lse))
}

pub(crate) fn cross_entropy_hits<K: Kernels + ?Sized>(
    k: &K,
    logits: &Array,
    targets: &Array,
    smoothing: f64,
) -> Result<CrossEntropy> {
    let (losses, lse) = k.cross_entropy(logits, targets, smoothing)?;
    let reached = k.gather_rows(&logits.viewed([logits.numel(), 1]), &target_offsets(k, logits, targets)?)?;
    let hits = k.binary(Binary::Equal, &reached, &Math(k).reduce_last(Reduce::Max, logits)?)?;
    let hits = hits.viewed(&targets.shape);
    Ok(CrossEntropy { losses, lse, hits })
}

pub(crate) fn cross_entropy_backward<K: Kernels + ?Sized>(
    k: &K,
    logits: &Array,
    targets: &Array,
    lse: &Array,
    grad: &Array,
    smoothing: f64,
) -> Result<Array> {
    let m = Math(k);
    let [n, classes] = [logits.dims()[0], logits.shape.last()];
    let column = grad.viewed([n, 1]);
    let p = m.exp(&m.sub(logits, &lse.viewed([n, 1]))?)?;
    let soft = m.mul(&m.offset(&p, -smoothing / classes as f64)?, &column)?;
    let hot =
        k.scatter_add_rows(&m.scale(&column, 1.0 - smoothing)?, &target_offsets(k, logits, targets)?, n * classes)?;
    m.sub(&soft, &hot.viewed(&logits.shape))
}

/// Where each row's target stands among all logits, as ids into a table of one column.
fn target_offsets<K: Kernels + ?Sized>(k: &K, logits: &Array, targets: &Array) -> Result<Array> {
    let classes = logits.shape.last();
    let HostData::U32(ids) = k.download(targets)? else {
        return Err(TensorError::new("cross_entropy", "the targets are not u32"));
    };
    let place = |(row, id): (usize, u32)| {
        let id = id as usize;
        if id >= classes {
            return Err(TensorError::new("cross_entropy", format!("target {id} of row {row} is beyond the classes"))
                .shapes([&logits.shape]));
        }
        u32::try_from(row * classes + id)
            .map_err(|_| TensorError::new("cross_entropy", "too many logits").shapes([&logits.shape]))
    };
    let places = ids.into_iter().enumerate().map(place).collect::<Result<Vec<u32>>>()?;
    k.upload(HostData::U32(places), &targets.shape)
}
