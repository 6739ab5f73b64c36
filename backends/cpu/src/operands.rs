//! What kernels are called with, from the arguments of an operation.

use assay_tensor::{Array, AttentionOptions, Result, Scan, Shape, TensorError};

use crate::attention;
use crate::scan::{self, Recurrence};
use crate::storage::f32s;

/// For each product of the broadcast batch, which product of this operand it reads.
pub(crate) fn offsets(shape: &Shape, batch: &Shape) -> Vec<usize> {
    let strides = shape.broadcast_strides(batch);
    let place = |mut flat: usize| {
        let mut at = 0;
        for axis in (0..strides.len()).rev() {
            at += flat % batch.dims()[axis] * strides[axis];
            flat /= batch.dims()[axis];
        }
        at
    };
    (0..batch.numel()).map(place).collect()
}

/// The shape of a call of attention, and that of what there is one of a query.
pub(crate) fn call(q: &Array, k: &Array, options: AttentionOptions) -> Result<(attention::Attention, Shape)> {
    let ([b, h, tq, d], [_, _, tk, _]) = (q.dims(), k.dims()) else {
        return Err(TensorError::new("attention", "operands should be [B, H, T, Dh]").shapes([&q.shape, &k.shape]));
    };
    if *tk == 0 || (options.causal && tq > tk) {
        return Err(TensorError::new("attention", "some query sees no key").shapes([&q.shape, &k.shape]));
    }
    Ok((attention::Attention { heads: b * h, tq: *tq, tk: *tk, d: *d, options }, Shape::from([*b, *h, *tq])))
}

/// The arguments that both directions of the scan share.
pub(crate) fn recurrence<'a>(args: &Scan<'a, Array>) -> Result<Recurrence<'a>> {
    let name = "diagonal_scan";
    let [b, t, k] = *args.input_re.dims() else {
        return Err(TensorError::new(name, "the input should be [B, T, K]").shapes([&args.input_re.shape]));
    };
    Ok(Recurrence {
        extent: scan::Extent { b, t, k },
        decay: (f32s(name, args.decay_re)?, f32s(name, args.decay_im)?),
        over_time: args.decay_re.shape.rank() > 1,
        carry: (f32s(name, args.carry_re)?, f32s(name, args.carry_im)?),
    })
}
