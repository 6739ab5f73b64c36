//! The fused operation `attention`: softmax(scale Q K^T) V.
//!
//! | | |
//! |---|---|
//! | inputs | q [B, H, Tq, Dh]; k and v [B, H, Tk, Dh]; bf16 where the device multiplies bf16 |
//! | settings | `scale`; `causal`: query i sees keys up to i + Tk - Tq only; `full`: the scores are materialised |
//! | values | O [B, H, Tq, Dh], and the log-sum-exp of the scaled scores of each query [B, H, Tq], which is a constant; both f32 for bf16 |
//! | gradient | with P = softmax(s Q K^T): dV = P^T G, dP = G V^T, dS = s P (dP - sum G O), dQ = dS K, dK = dS^T Q |
//!
//! `attention_backward` gives dQ, dK and dV from q, k, v, O, the log-sum-exp and G, with the same settings. A backend that multiplies
//! bf16 may round the softmax's weights to it where q, k and v all are bf16, and on the way back the gradients of O and the scores.

use crate::args::{AttentionKind, AttentionOptions, Reduce};
use crate::array::Array;
use crate::check;
use crate::dtype::HostData;
use crate::error::{Result, TensorError};
use crate::fusion::{
    Arguments, Bf16Operands, Example, ExampleInput, ExampleSize, FusedOp, GradientRule, Setting, Upstreams,
};
use crate::kernels::Kernels;
use crate::math::Math;
use crate::shape::Shape;
use crate::softmax::log_sum_exp;
use crate::tensor::Tensor;

/// See the module.
pub static ATTENTION: FusedOp = FusedOp {
    name: "attention",
    compose: materialised,
    gradient: Some(GradientRule { inputs: &[0, 1, 2], values: &[0, 1], outputs: 1, rule: gradient }),
    bf16: Bf16Operands::Multiplied(&[0, 1, 2]),
    examples,
};

/// See the module.
pub static ATTENTION_BACKWARD: FusedOp = FusedOp {
    name: "attention_backward",
    compose: materialised_backward,
    gradient: None,
    bf16: Bf16Operands::Multiplied(&[0, 1, 2]),
    examples: examples_backward,
};

/// The arguments of `attention`.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// The queries.
    pub q: &'a Array,
    /// The keys.
    pub k: &'a Array,
    /// The values.
    pub v: &'a Array,
    /// How it is computed.
    pub options: AttentionOptions,
}

impl<'a> Attention<'a> {
    /// The arguments of a call.
    ///
    /// # Errors
    /// If one is missing.
    pub fn of_call(call: Arguments<'a>) -> Result<Attention<'a>> {
        let [q, k, v] = call.operands()?;
        Ok(Attention { q, k, v, options: AttentionOptions::of_call(call)? })
    }

    /// The value and the log-sum-exp.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn run(&self, k: &dyn Kernels) -> Result<(Array, Array)> {
        let (settings, inputs) = (self.options.settings(), [self.q, self.k, self.v]);
        let [out, lse] = ATTENTION.values(k, Arguments::new(&inputs, &settings))?;
        Ok((out, lse))
    }
}

/// The arguments of `attention_backward`.
#[derive(Debug, Clone, Copy)]
pub struct AttentionBackward<'a> {
    /// Those of the attention.
    pub of: Attention<'a>,
    /// The value that it gave.
    pub out: &'a Array,
    /// The log-sum-exp that it gave.
    pub lse: &'a Array,
    /// The gradient of the value.
    pub grad: &'a Array,
}

impl<'a> AttentionBackward<'a> {
    /// The arguments of a call.
    ///
    /// # Errors
    /// If one is missing.
    pub fn of_call(call: Arguments<'a>) -> Result<AttentionBackward<'a>> {
        let [q, k, v, out, lse, grad] = call.operands()?;
        let of = Attention { q, k, v, options: AttentionOptions::of_call(call)? };
        Ok(AttentionBackward { of, out, lse, grad })
    }

    /// The gradients of q, k and v.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn run(&self, k: &dyn Kernels) -> Result<[Array; 3]> {
        let Attention { q, k: keys, v, options } = self.of;
        let inputs = [q, keys, v, self.out, self.lse, self.grad];
        ATTENTION_BACKWARD.values(k, Arguments::new(&inputs, &options.settings()))
    }
}

impl AttentionOptions {
    /// The options of a call.
    fn of_call(call: Arguments<'_>) -> Result<AttentionOptions> {
        let kind = if call.is_set("full") { AttentionKind::Full } else { AttentionKind::Flash };
        Ok(AttentionOptions { causal: call.is_set("causal"), scale: call.required("scale")?, kind })
    }

    fn settings(self) -> Vec<Setting> {
        let full = self.kind == AttentionKind::Full;
        [("scale", self.scale)]
            .into_iter()
            .chain(self.causal.then_some(("causal", 1.0)))
            .chain(full.then_some(("full", 1.0)))
            .collect()
    }
}

impl Tensor {
    /// Attention of these queries [B, H, Tq, Dh] to `k` and `v` [B, H, Tk, Dh]: softmax(scale Q K^T) V, in f32. Where all three
    /// are bf16, a device that multiplies bf16 may round the weights of the softmax to it, and on the way back the gradients
    /// of result and scores; all sums are f32.
    ///
    /// # Errors
    /// Where a query would see no key: Tk is 0, or it is causal and Tq > Tk. If shapes or types do not fit.
    pub fn attention(&self, k: &Tensor, v: &Tensor, options: AttentionOptions) -> Result<Tensor> {
        let name = ATTENTION.name;
        check::float_types(name, &[self, k, v])?;
        let [b, h, tq, dh] = check::expected_rank(name, "queries", self, "[B, H, T, Dh]")?;
        let [_, _, tk, _] = check::expected_rank(name, "keys", k, "[B, H, T, Dh]")?;
        check::expected_shape(name, "keys", k, &Shape::from([b, h, tk, dh]))?;
        check::expected_shape(name, "values", v, k.shape())?;
        if tk == 0 || (options.causal && tq > tk) {
            let problem = format!("some of {tq} queries would see none of {tk} keys");
            return Err(TensorError::new(name, problem).shapes([self.shape(), k.shape()]));
        }
        let [out, _] = Tensor::fused_values(&ATTENTION, &[self, k, v], &options.settings())?;
        Ok(out)
    }
}

/// The definition of `attention`.
fn materialised(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let (Attention { q, k: keys, v, options }, m) = (Attention::of_call(call)?, Math(k));
    let (q, keys, v) = (m.to_wide_type(q)?, m.to_wide_type(keys)?, m.to_wide_type(v)?);
    let scores = attention_scores(k, &q, &keys, options)?;
    let lse = log_sum_exp(k, &scores)?;
    let weights = m.exp(&m.sub(&scores, &lse)?)?;
    let lse = lse.viewed(&q.dims()[..3]);
    Ok(vec![k.matmul(&weights, &v, false, false)?, lse])
}

/// The definition of `attention_backward`.
fn materialised_backward(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let (AttentionBackward { of: Attention { q, k: keys, v, options }, out, lse, grad }, m) =
        (AttentionBackward::of_call(call)?, Math(k));
    let (q, keys, v) = (m.to_wide_type(q)?, m.to_wide_type(keys)?, m.to_wide_type(v)?);
    let column = lse.viewed([q.dims()[0], q.dims()[1], q.dims()[2], 1]);
    let weights = m.exp(&m.sub(&attention_scores(k, &q, &keys, options)?, &column)?)?;
    let dv = k.matmul(&weights, grad, true, false)?;
    let dweights = k.matmul(grad, &v, false, true)?;
    let inner = m.reduce_last(Reduce::Sum, &m.mul(grad, out)?)?;
    let dscores = m.scale(&m.mul(&weights, &m.sub(&dweights, &inner)?)?, options.scale)?;
    let dq = k.matmul(&dscores, &keys, false, false)?;
    let dk = k.matmul(&dscores, &q, true, false)?;
    Ok(vec![dq, dk, dv])
}

/// scale Q K^T, with minus infinity where a query may not look.
fn attention_scores(k: &dyn Kernels, q: &Array, keys: &Array, options: AttentionOptions) -> Result<Array> {
    let m = Math(k);
    let scores = m.scale(&k.matmul(q, keys, false, true)?, options.scale)?;
    if !options.causal {
        return Ok(scores);
    }
    let (tq, tk) = (q.dims()[2], keys.dims()[2]);
    let mask = |i: usize| if i % tk > i / tk + tk - tq { f64::NEG_INFINITY } else { 0.0 };
    let mask: Vec<f64> = (0..tq * tk).map(mask).collect();
    m.add(&scores, &k.upload(HostData::from_f64(&mask, q.dtype), &Shape::from([tq, tk]))?)
}

fn gradient(k: &dyn Kernels, call: Upstreams<'_>) -> Result<Vec<Option<Array>>> {
    let ([q, keys, v], [out, lse], [Some(g)]) = (call.inputs, call.values, call.gradients) else {
        return Ok(vec![None; 3]);
    };
    let gradients = ATTENTION_BACKWARD.run(k, Arguments::new(&[q, keys, v, out, lse, g], call.settings))?;
    Ok(gradients.into_iter().map(Some).collect())
}

/// Extents B, H, Tq, Tk and Dh.
fn example_sizes(size: ExampleSize) -> &'static [[usize; 5]] {
    match size {
        ExampleSize::Small => &[[1, 1, 1, 1, 1], [2, 2, 3, 3, 4], [1, 2, 2, 5, 3], [1, 1, 0, 2, 3]],
        ExampleSize::Medium => &[[1, 2, 70, 130, 17], [1, 1, 65, 65, 70], [1, 1, 3, 66, 130], [1, 1, 2, 5, 257]],
        ExampleSize::Large => &[[3, 2, 130, 150, 17]],
    }
}

fn examples(size: ExampleSize) -> Vec<Example> {
    let of = |&[b, h, tq, tk, width]: &[usize; 5]| {
        let inputs = [tq, tk, tk].map(|t| ExampleInput::floats([b, h, t, width]));
        let options = [AttentionKind::Full, AttentionKind::Flash]
            .into_iter()
            .flat_map(|kind| [false, true].map(|causal| AttentionOptions { causal, scale: 0.6, kind }));
        options.map(move |options| Example { inputs: inputs.to_vec(), settings: options.settings() })
    };
    example_sizes(size).iter().flat_map(of).collect()
}

/// The log-sum-exp need not be that of the scores: the gradient is a function of what it is given. The scores are small.
fn examples_backward(size: ExampleSize) -> Vec<Example> {
    let small = |example: Example| {
        let mut inputs: Vec<ExampleInput> =
            example.inputs.iter().map(|input| ExampleInput::between(-0.4, 0.4, input.shape.clone())).collect();
        let out = inputs[0].shape.clone();
        let rows = Shape::from(&out.dims()[..3]);
        inputs.extend([ExampleInput::floats(out.clone()), ExampleInput::between(1.0, 3.0, rows)]);
        inputs.push(ExampleInput::floats(out));
        Example { inputs, ..example }
    };
    examples(size).into_iter().map(small).collect()
}
