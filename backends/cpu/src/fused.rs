//! Which fused operations have a kernel of their own here, by name. All others run by their definition.

use assay_tensor::{
    ADD_SCALED, ADD_SCALED_BACKWARD, ATTENTION, ATTENTION_BACKWARD, Arguments, Array, Attention, AttentionBackward,
    CROSS_ENTROPY, CROSS_ENTROPY_BACKWARD, DROPOUT, Dropout, FeedForward, FeedForwardBackward, LAYER_NORM, Linear,
    Result, Shape, TOP_K_MASK, cross_entropy_hits,
};

use crate::device::Cpu;
use crate::memory::storage::{f32s, u32s};
use crate::ops::attention::{self, attention_call};
use crate::ops::{elementwise, gather, norm, reduce, selection, softmax};
use crate::threads::denormals::FlushGuard;
use crate::threads::split::Threads;

/// A kernel of a fused operation.
pub(crate) type FusedKernel = fn(&Cpu, Arguments<'_>) -> Result<Vec<Array>>;

/// From the operation to its kernel.
pub(crate) static FUSED_KERNELS: [(&str, FusedKernel); 25] = [
    ("add_scaled", Cpu::add_scaled),
    ("add_scaled_backward", Cpu::add_scaled_backward),
    ("attend_token", Cpu::attend_token),
    ("attention", Cpu::attend),
    ("attention_backward", Cpu::attend_backward),
    ("cross_entropy", Cpu::cross_entropy),
    ("cross_entropy_backward", Cpu::cross_entropy_backward),
    ("diagonal_scan", Cpu::scan_states),
    ("diagonal_scan_backward", Cpu::scan_backward),
    ("dropout", Cpu::drop_elements),
    ("feed_forward", |cpu, call| cpu.feed_forward_in_chunks(FeedForward::of_call(call)?)),
    ("feed_forward_backward", |cpu, call| {
        cpu.feed_forward_backward_in_chunks(FeedForwardBackward::of_call(call)?, call)
    }),
    ("heads", Cpu::split_heads),
    ("heads_backward", Cpu::join_heads),
    ("layer_norm", Cpu::layer_norm),
    ("layer_norm_backward", |cpu, call| cpu.norm_backward(call)),
    ("linear", |cpu, call| Ok(vec![cpu.linear_layer(Linear::of_call(call)?)?])),
    ("linear_gelu", |cpu, call| cpu.affine_gelu(call.operands()?).map(Vec::from)),
    ("linear_gelu_backward", Cpu::affine_gelu_backward),
    ("log_softmax", |cpu, call| cpu.by_rows(call, softmax::log_softmax)),
    ("log_softmax_backward", |cpu, call| cpu.by_rows_back(call, softmax::log_softmax_backward)),
    ("route_token", Cpu::route_token),
    ("softmax", |cpu, call| cpu.by_rows(call, softmax::softmax)),
    ("softmax_backward", |cpu, call| cpu.by_rows_back(call, softmax::softmax_backward)),
    ("top_k_mask", Cpu::mark_largest),
];

/// The names of the fused operations that have a kernel here.
pub fn fused_kernel_names() -> impl Iterator<Item = &'static str> {
    FUSED_KERNELS.iter().map(|(name, _)| *name)
}

impl Cpu {
    /// A row-wise operation with one operand: `work` gets x, the width of a row, and y.
    fn apply_rows(
        &self,
        operation: &'static str,
        x: &Array,
        work: impl Fn(&Threads, &[f32], usize, &mut [f32]),
    ) -> Result<Array> {
        let _flushed = FlushGuard::here();
        let mut y = self.take_block(operation, &x.shape)?;
        if !y.is_empty() {
            work(&self.threads, f32s(operation, x)?, x.shape.last(), &mut y);
        }
        Ok(self.f32_array(y, &x.shape))
    }

    /// A fused operation by [`Cpu::apply_rows`].
    pub(crate) fn by_rows(
        &self,
        call: Arguments<'_>,
        work: fn(&Threads, &[f32], usize, &mut [f32]),
    ) -> Result<Vec<Array>> {
        Ok(vec![self.apply_rows("softmax", call.input(0)?, work)?])
    }

    /// A fused operation by [`Cpu::apply_rows`], of a value and its gradient.
    pub(crate) fn by_rows_back(
        &self,
        call: Arguments<'_>,
        work: fn(&Threads, &[f32], &[f32], usize, &mut [f32]),
    ) -> Result<Vec<Array>> {
        let name = "softmax";
        let g = f32s(name, call.input(1)?)?;
        Ok(vec![self.apply_rows(name, call.input(0)?, |threads, y, d, dx| work(threads, y, g, d, dx))?])
    }

    fn mark_largest(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let k = call.required("k")? as usize;
        let mark = |threads: &Threads, x: &[f32], d, y: &mut [f32]| selection::top_k_mask(threads, x, k, d, y);
        Ok(vec![self.apply_rows(TOP_K_MASK.name, call.input(0)?, mark)?])
    }

    fn drop_elements(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let (Dropout { x, p, seed, number }, name) = (Dropout::of_call(call)?, DROPOUT.name);
        // The definition reads the seed, and comes here again with the key.
        if seed.is_some() {
            return (DROPOUT.compose)(self, call);
        }
        let mut y = self.take_block(name, &x.shape)?;
        selection::dropout(&self.threads, f32s(name, x)?, p, number, &mut y);
        Ok(vec![self.f32_array(y, &x.shape)])
    }

    fn add_scaled(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let ([a, b, scale], name) = (call.operands()?, ADD_SCALED.name);
        let mut y = self.take_block(name, &a.shape)?;
        elementwise::add_scaled(&self.threads, f32s(name, a)?, f32s(name, b)?, f32s(name, scale)?, &mut y);
        Ok(vec![self.f32_array(y, &a.shape)])
    }

    fn add_scaled_backward(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let ([b, scale, grad], name) = (call.operands()?, ADD_SCALED_BACKWARD.name);
        let (d, mut db) = (scale.numel(), self.take_block(name, &b.shape)?);
        let mut parts = self.memory.zeroed_block(name, b.shape.rows().div_ceil(norm::BLOCK) * d)?;
        let mut sums = vec![0.0; d];
        let operands = (f32s(name, b)?, f32s(name, scale)?, f32s(name, grad)?);
        elementwise::add_scaled_backward(&self.threads, operands, &mut db, &mut parts);
        reduce::over_sequences(&parts, &mut sums);
        Ok(vec![self.f32_array(db, &b.shape), self.f32_array(sums, &scale.shape)])
    }

    fn layer_norm(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let ([x, gain, bias], eps, name) = (call.operands()?, call.required("eps")?, LAYER_NORM.name);
        let count = Shape::from(x.shape.rows());
        let (mut y, mut mean, mut rstd) =
            (self.take_block(name, &x.shape)?, self.take_block(name, &count)?, self.take_block(name, &count)?);
        if !y.is_empty() {
            let affine = (f32s(name, gain)?, f32s(name, bias)?);
            norm::norm_forward(&self.threads, f32s(name, x)?, affine, eps, (&mut y, &mut mean, &mut rstd));
        }
        Ok(vec![self.f32_array(y, &x.shape), self.f32_array(mean, &count), self.f32_array(rstd, &count)])
    }

    fn cross_entropy(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let ([logits, targets], smoothing, name) = (call.operands()?, call.required("smoothing")?, CROSS_ENTROPY.name);
        let (list, classes) = (u32s(name, targets)?, logits.shape.last());
        gather::check_ids(name, list, classes, &logits.shape)?;
        let (mut loss, mut lse) = (self.take_block(name, &targets.shape)?, self.take_block(name, &targets.shape)?);
        let operands = (f32s(name, logits)?, list);
        softmax::cross_entropy(&self.threads, operands, smoothing, classes, (&mut loss, &mut lse));
        let mut values = vec![self.f32_array(loss, &targets.shape), self.f32_array(lse, &targets.shape)];
        if call.is_set("hits") {
            values.push(cross_entropy_hits(self, logits, targets)?);
        }
        Ok(values)
    }

    fn cross_entropy_backward(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let name = CROSS_ENTROPY_BACKWARD.name;
        let ([logits, targets, lse, grad], smoothing) = (call.operands()?, call.required("smoothing")?);
        if call.is_set("bf16") {
            return (CROSS_ENTROPY_BACKWARD.compose)(self, call);
        }
        let (list, lse, g) = (u32s(name, targets)?, f32s(name, lse)?, f32s(name, grad)?);
        gather::check_ids(name, list, logits.shape.last(), &logits.shape)?;
        let dx = self.apply_rows(name, logits, |threads, x, d, dx| {
            softmax::cross_entropy_backward(threads, (x, list, lse), g, smoothing, d, dx);
        });
        Ok(vec![dx?])
    }

    fn attend(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let (Attention { q, k, v, options }, name) = (Attention::of_call(call)?, ATTENTION.name);
        let (call, queries) = attention_call(q, k, options)?;
        let (mut out, mut lse) = (self.take_block(name, &q.shape)?, self.take_block(name, &queries)?);
        let operands = [f32s(name, q)?, f32s(name, k)?, f32s(name, v)?];
        attention::attention_forward(&self.threads, call, operands, &mut out, &mut lse);
        Ok(vec![self.f32_array(out, &q.shape), self.f32_array(lse, &queries)])
    }

    fn attend_backward(&self, call: Arguments<'_>) -> Result<Vec<Array>> {
        let _flushed = FlushGuard::here();
        let name = ATTENTION_BACKWARD.name;
        let AttentionBackward { of: Attention { q, k, v, options }, out, lse, grad } =
            AttentionBackward::of_call(call)?;
        let (call, _) = attention_call(q, k, options)?;
        let (mut dq, mut dk, mut dv) =
            (self.take_block(name, &q.shape)?, self.take_block(name, &k.shape)?, self.take_block(name, &v.shape)?);
        let saved = attention::SavedTensors {
            q: f32s(name, q)?,
            k: f32s(name, k)?,
            v: f32s(name, v)?,
            out: f32s(name, out)?,
            lse: f32s(name, lse)?,
            grad: f32s(name, grad)?,
        };
        attention::attention_backward(&self.threads, call, saved, [&mut dq, &mut dk, &mut dv]);
        Ok(vec![self.f32_array(dq, &q.shape), self.f32_array(dk, &k.shape), self.f32_array(dv, &v.shape)])
    }
}
