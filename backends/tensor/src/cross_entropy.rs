//! The fused operations `cross_entropy` and `linear_cross_entropy`: the loss of a classifier, and of one with its last layer.
//!
//! With l a row of logits and q the target distribution, 1 - s on the target plus s / V on every class (Szegedy et al., 2016):
//!
//! | | cross_entropy | linear_cross_entropy |
//! |---|---|---|
//! | inputs | logits [N, V], targets (u32, \[N\]) | x [.., K], weight [V, K], targets (u32, one for each row); a bias \[V\], if there is one |
//! | settings | `smoothing` (s); `hits`, if they are wanted | `smoothing` |
//! | values | lse(l) - q . l in nats \[N\]; lse \[N\]; hits \[N\]: 1 where no logit is larger than the target's, else 0 | the losses, the hits, the logits and lse, for l = x W^T + b |
//! | gradient | dl = g (softmax(l) - q) | dx = dl W, dW = dl^T x, db = sum dl over all rows |
//!
//! Only the losses have a gradient. A row with NaN may have either as its hit. A target beyond V is refused.
//!
//! `cross_entropy_backward` gives dl from logits, targets, lse and g, with the settings `smoothing` and, if dl is to be rounded to it,
//! `bf16`.

use crate::args::{Binary, Reduce};
use crate::array::Array;
use crate::check;
use crate::dtype::{DType, HostData};
use crate::error::{Result, TensorError};
use crate::fusion::{
    Arguments, Bf16Operands, Example, ExampleInput, ExampleSize, FusedOp, GradientRule, Setting, Upstreams,
};
use crate::kernels::Kernels;
use crate::linear::{LINEAR, linear_gradients};
use crate::math::Math;
use crate::shape::Shape;
use crate::softmax::log_sum_exp;
use crate::tensor::Tensor;

/// See the module.
pub static CROSS_ENTROPY: FusedOp = FusedOp {
    name: "cross_entropy",
    compose: row_losses,
    gradient: Some(GradientRule { inputs: &[0, 1], values: &[1], outputs: 1, rule: gradient }),
    bf16: Bf16Operands::Converted,
    examples,
};

/// See the module.
pub static CROSS_ENTROPY_BACKWARD: FusedOp = FusedOp {
    name: "cross_entropy_backward",
    compose: |k, call| Ok(vec![gradient_of_logits(k, call)?]),
    gradient: None,
    bf16: Bf16Operands::Converted,
    examples: examples_backward,
};

/// See the module.
pub static LINEAR_CROSS_ENTROPY: FusedOp = FusedOp {
    name: "linear_cross_entropy",
    compose: layer_losses,
    gradient: Some(GradientRule { inputs: &[0, 1, 2], values: &[2, 3], outputs: 1, rule: layer_gradient }),
    bf16: Bf16Operands::Kept(&[0, 1]),
    examples: layer_examples,
};

impl Tensor {
    /// The cross entropy in nats of each row of these logits [N, V] with `targets` (u32, \[N\]): [N]. With
    /// `smoothing` s in [0, 1] the target distribution is 1 - s on the target plus s / V on every class
    /// (Szegedy et al., 2016).
    ///
    /// # Errors
    /// On a target beyond V, and if shapes or types do not fit.
    pub fn cross_entropy(&self, targets: &Tensor, smoothing: f64) -> Result<Tensor> {
        let name = CROSS_ENTROPY.name;
        check::float_types(name, &[self])?;
        check::class_labels(name, self, targets)?;
        self.check_rows(name)?;
        let [n, _] = check::expected_rank(name, "logits", self, "[N, V]")?;
        check::expected_shape(name, "targets", targets, &Shape::from(n))?;
        check_smoothing(name, smoothing)?;
        let [losses, _] = Tensor::fused_values(&CROSS_ENTROPY, &[self, targets], &[("smoothing", smoothing)])?;
        Ok(losses)
    }

    /// [`Tensor::cross_entropy`] of the rows of [`Tensor::linear`] with `targets` (u32, one for each row) in one operation, whose
    /// logits and their gradient no other operation sees: the losses \[N\]; and 1 for each row in which no logit is larger
    /// than the target's, else 0, which is a constant.
    ///
    /// # Errors
    /// As there.
    pub fn linear_cross_entropy(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        targets: &Tensor,
        smoothing: f64,
    ) -> Result<(Tensor, Tensor)> {
        let name = LINEAR_CROSS_ENTROPY.name;
        let classes = self.check_layer(name, weight, bias)?;
        check::class_labels(name, self, targets)?;
        check::expected_shape(name, "targets", targets, &Shape::from(self.shape().rows()))?;
        check_smoothing(name, smoothing)?;
        if classes == 0 {
            return Err(TensorError::new(name, "there is no class").shapes([weight.shape()]));
        }
        let inputs: Vec<&Tensor> = [self, weight, targets].into_iter().chain(bias).collect();
        let [losses, hits, ..]: [Tensor; 4] =
            Tensor::fused_values(&LINEAR_CROSS_ENTROPY, &inputs, &[("smoothing", smoothing)])?;
        Ok((losses, hits))
    }
}

fn check_smoothing(operation: &'static str, smoothing: f64) -> Result<()> {
    if (0.0..=1.0).contains(&smoothing) {
        return Ok(());
    }
    Err(TensorError::new(operation, format!("a smoothing of {smoothing} is not in [0, 1]")))
}

/// The definition of `cross_entropy`.
fn row_losses(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([logits, targets], smoothing, m) = (call.operands()?, call.required("smoothing")?, Math(k));
    let n = logits.dims()[0];
    let lse = log_sum_exp(k, logits)?.viewed(n);
    let reached = picked_logits(k, logits, targets)?;
    let mean = m.reduce_last(Reduce::Mean, logits)?.viewed(n);
    let expected = m.add(&m.scale(&reached.viewed(n), 1.0 - smoothing)?, &m.scale(&mean, smoothing)?)?;
    let mut values = vec![m.sub(&lse, &expected)?, lse];
    if call.is_set("hits") {
        values.push(target_hits(k, logits, &reached)?);
    }
    Ok(values)
}

/// The hits alone, for a backend whose kernel of `cross_entropy` does not give them.
///
/// # Errors
/// Those of the primitives, and if a target is beyond the classes.
pub fn cross_entropy_hits(k: &dyn Kernels, logits: &Array, targets: &Array) -> Result<Array> {
    target_hits(k, logits, &picked_logits(k, logits, targets)?)
}

/// 1 where the target's logit is the largest of its row.
fn target_hits(k: &dyn Kernels, logits: &Array, reached: &Array) -> Result<Array> {
    let hits = k.binary(Binary::Equal, reached, &Math(k).reduce_last(Reduce::Max, logits)?)?;
    Ok(hits.viewed(reached.dims()[0]))
}

/// The logit of each row's target, [N, 1].
fn picked_logits(k: &dyn Kernels, logits: &Array, targets: &Array) -> Result<Array> {
    let places = target_offsets(k, logits, targets)?;
    Ok(k.gather_rows(&logits.viewed([logits.numel(), 1]), &places)?.viewed([targets.numel(), 1]))
}

/// The definition of `cross_entropy_backward`.
fn gradient_of_logits(k: &dyn Kernels, call: Arguments<'_>) -> Result<Array> {
    let ([logits, targets, lse, g], smoothing, m) = (call.operands()?, call.required("smoothing")?, Math(k));
    let [n, classes] = [logits.dims()[0], logits.shape.last()];
    let column = g.viewed([n, 1]);
    let p = m.exp(&m.sub(logits, &lse.viewed([n, 1]))?)?;
    let soft = m.mul(&m.offset(&p, -smoothing / classes as f64)?, &column)?;
    let hot =
        k.scatter_add_rows(&m.scale(&column, 1.0 - smoothing)?, &target_offsets(k, logits, targets)?, n * classes)?;
    let gradient = m.sub(&soft, &hot.viewed(&logits.shape))?;
    if call.is_set("bf16") { k.cast(&gradient, DType::Bf16) } else { Ok(gradient) }
}

/// Where each row's target stands among all logits, as ids into a table of one column.
fn target_offsets(k: &dyn Kernels, logits: &Array, targets: &Array) -> Result<Array> {
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

fn gradient(k: &dyn Kernels, call: Upstreams<'_>) -> Result<Vec<Option<Array>>> {
    let ([logits, targets], [lse], [Some(g)]) = (call.inputs, call.values, call.gradients) else {
        return Ok(vec![None; 2]);
    };
    let [dl] = CROSS_ENTROPY_BACKWARD.values(k, Arguments::new(&[logits, targets, lse, g], call.settings))?;
    Ok(vec![Some(dl), None])
}

/// The definition of `linear_cross_entropy`.
fn layer_losses(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let ([x, weight, targets], bias) = ([call.input(0)?, call.input(1)?, call.input(2)?], call.inputs.get(3));
    let inputs: Vec<&Array> = [x, weight].into_iter().chain(bias.copied()).collect();
    let settings = bias.map(|_| ("bias", 1.0));
    let [logits] = LINEAR.values(k, Arguments::new(&inputs, settings.as_slice()))?;
    let logits = logits.viewed([x.shape.rows(), weight.dims()[0]]);
    let settings = [("smoothing", call.required("smoothing")?), ("hits", 1.0)];
    let [losses, lse, hits] = CROSS_ENTROPY.values(k, Arguments::new(&[&logits, targets], &settings))?;
    Ok(vec![losses, hits, logits, lse])
}

fn layer_gradient(k: &dyn Kernels, call: Upstreams<'_>) -> Result<Vec<Option<Array>>> {
    let ([x, weight, targets], [logits, lse], [Some(g)]) = (call.inputs, call.values, call.gradients) else {
        return Ok(vec![None; call.shapes.len()]);
    };
    // The gradient is as large as the logits; where it is only multiplied as bf16, it is never anything else.
    let narrow = k.capabilities().multiplies_bf16 && x.dtype == DType::Bf16 && weight.dtype == DType::Bf16;
    let mut settings: Vec<Setting> = call.settings.to_vec();
    settings.extend(narrow.then_some(("bf16", 1.0)));
    let [dl] = CROSS_ENTROPY_BACKWARD.values(k, Arguments::new(&[logits, targets, lse, g], &settings))?;
    let dl = dl.viewed(x.shape.with(x.shape.rank() - 1, logits.shape.last()));
    let [dx, dweight] = linear_gradients(k, x, weight, &dl, call.arrived)?;
    let mut gradients = vec![dx, dweight, None];
    if let Some(bias) = call.shapes.get(3) {
        gradients.push(call.arrived.is_wanted(3).then(|| Math(k).sum_to(&dl, bias)).transpose()?);
    }
    Ok(gradients)
}

fn example([n, v]: [usize; 2], smoothing: f64, hits: bool) -> Example {
    let mut settings = vec![("smoothing", smoothing)];
    settings.extend(hits.then_some(("hits", 1.0)));
    Example { inputs: vec![ExampleInput::between(-4.0, 4.0, [n, v]), ExampleInput::ids(v, n)], settings }
}

fn example_sizes(size: ExampleSize) -> Vec<([usize; 2], f64)> {
    match size {
        ExampleSize::Small => {
            vec![([1, 1], 0.0), ([4, 5], 0.0), ([3, 33], 0.1), ([5, 7], 1.0), ([0, 3], 0.2)]
        }
        ExampleSize::Medium => vec![([5, 700], 0.1)],
        ExampleSize::Large => vec![([1500, 130], 0.1)],
    }
}

fn examples(size: ExampleSize) -> Vec<Example> {
    let both = |(sizes, smoothing)| [false, true].map(|hits| example(sizes, smoothing, hits));
    example_sizes(size).into_iter().flat_map(both).collect()
}

/// The log-sum-exp need not be that of the logits: the gradient is a function of what it is given.
fn examples_backward(size: ExampleSize) -> Vec<Example> {
    let of = |(sizes, smoothing): ([usize; 2], f64)| {
        let mut example = example(sizes, smoothing, false);
        example.inputs.extend([ExampleInput::between(3.0, 5.0, sizes[0]), ExampleInput::floats(sizes[0])]);
        example
    };
    example_sizes(size).into_iter().map(of).collect()
}

fn layer_examples(size: ExampleSize) -> Vec<Example> {
    let sizes: &[([usize; 3], f64)] = match size {
        ExampleSize::Small => &[([1, 1, 1], 0.0), ([4, 3, 5], 0.0), ([6, 5, 8], 0.1), ([0, 2, 3], 0.2)],
        ExampleSize::Medium => &[([70, 9, 132], 0.1)],
        ExampleSize::Large => &[([600, 33, 130], 0.1)],
    };
    let of = |&([n, k, v], smoothing): &([usize; 3], f64)| {
        [false, true].map(|bias| {
            let mut inputs = vec![ExampleInput::floats([n, k]), ExampleInput::floats([v, k]), ExampleInput::ids(v, n)];
            inputs.extend(bias.then(|| ExampleInput::floats(v)));
            Example { inputs, settings: vec![("smoothing", smoothing)] }
        })
    };
    sizes.iter().flat_map(of).collect()
}
