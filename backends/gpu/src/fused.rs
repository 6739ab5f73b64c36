//! Which fused operations have a kernel of their own here, by name. All others run by their definition.

use std::sync::Arc;

use assay_tensor::{
    Arguments, Array, Attention, DType, Dropout, FEED_FORWARD_BACKWARD, FeedForward, FeedForwardBackward, Linear,
    Result,
};

use crate::attention::Saved;
use crate::gpu::Gpu;

/// A kernel of a fused operation.
pub(crate) type FusedKernel = fn(&Gpu, Arguments<'_>) -> Result<Vec<Array>>;

/// From the operation to its kernel.
pub(crate) static FUSED_KERNELS: [(&str, FusedKernel); 22] = [
    ("add_scaled", |gpu, call| Ok(vec![gpu.scaled_sum(call.operands()?)?])),
    ("add_scaled_backward", |gpu, call| gpu.scaled_sum_backward(call.operands()?)),
    ("attention", |gpu, call| gpu.attend(Attention::of_call(call)?)),
    ("attention_backward", |gpu, call| gpu.attend_back(Saved::of_call(call)?)),
    ("cross_entropy", Gpu::compute_cross_entropies),
    ("cross_entropy_backward", |gpu, call| Ok(vec![gpu.entropies_backward(call)?])),
    ("diagonal_scan", Gpu::scan_states),
    ("diagonal_scan_backward", Gpu::scan_backward),
    ("dropout", |gpu, call| {
        let Dropout { x, p, seed, number } = Dropout::of_call(call)?;
        Ok(vec![match seed {
            Some(seed) => gpu.drop_out_at(x, p, seed, number)?,
            None => gpu.drop_out(x, p, number)?,
        }])
    }),
    ("feed_forward", Gpu::feed_forward),
    ("feed_forward_backward", |gpu, call| {
        let back = FeedForwardBackward::of_call(call)?;
        match gpu.feed_forward_bf16_backward(back, call)? {
            Some(gradients) => Ok(gradients),
            None => (FEED_FORWARD_BACKWARD.compose)(gpu, call),
        }
    }),
    ("layer_norm", |gpu, call| gpu.normalise_rows(call.operands()?, call.required("eps")?)),
    ("layer_norm_backward", |gpu, call| {
        // A sum that something else holds is left to the caller.
        let exclusive =
            |sum: &mut Option<Array>| sum.as_mut().is_some_and(|sum| Arc::get_mut(&mut sum.buffer).is_some());
        let sum = match call.sums.first() {
            Some(sum) if exclusive(&mut sum.borrow_mut()) => call.take_sum(0),
            _ => None,
        };
        gpu.normalised_backward(sum, call.operands()?)
    }),
    ("layer_norm_bf16", |gpu, call| gpu.normalised_bf16(call.operands()?, call.required("eps")?)),
    ("linear", |gpu, call| {
        let Linear { x, weight, bias, base } = Linear::of_call(call)?;
        Ok(vec![gpu.linear_product_onto(base, x, weight, bias)?])
    }),
    ("linear_gelu", |gpu, call| gpu.linear_and_gelu(call.operands()?)),
    ("linear_gelu_backward", |gpu, call| gpu.linear_and_gelu_backward(call.operands()?)),
    ("log_softmax", |gpu, call| gpu.normalise_by("log_softmax", call)),
    ("log_softmax_backward", |gpu, call| gpu.normalise_by("log_softmax_backward", call)),
    ("softmax", |gpu, call| gpu.normalise_by("softmax", call)),
    ("softmax_backward", |gpu, call| gpu.normalise_by("softmax_backward", call)),
    ("top_k_mask", |gpu, call| Ok(vec![gpu.mark_largest(call.input(0)?, call.required("k")? as usize)?])),
];

impl Gpu {
    /// bf16 operands on the way that multiplies them, if all three are bf16, else f32.
    fn attend(&self, of: Attention<'_>) -> Result<Vec<Array>> {
        if [of.q, of.k, of.v].iter().all(|x| x.dtype == DType::Bf16) {
            return self.attend_bf16(of);
        }
        let [q, k, v] = [of.q, of.k, of.v].map(|x| self.convert_dtype(x, DType::F32));
        self.compute_attention(Attention { q: &q?, k: &k?, v: &v?, ..of })
    }

    fn attend_back(&self, saved: Saved<'_>) -> Result<Vec<Array>> {
        let of = saved.of;
        if [of.q, of.k, of.v].iter().all(|x| x.dtype == DType::Bf16) {
            return self.attend_bf16_backward(saved);
        }
        let [q, k, v] = [of.q, of.k, of.v].map(|x| self.convert_dtype(x, DType::F32));
        self.attend_backward(Saved { of: Attention { q: &q?, k: &k?, v: &v?, ..of }, ..saved })
    }

    fn feed_forward(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let call = FeedForward::of_call(call)?;
        if call.bf16
            && let Some(done) = self.feed_forward_bf16(call)?
        {
            return Ok(done);
        }
        call.compose(self)
    }
}
