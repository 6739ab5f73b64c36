//! Fused operations as values: a [`FusedOp`] is a name, a definition in terms of primitives, a gradient rule, and examples.
//!
//! One file declares all of it, in this crate or in one that uses it. A backend may have a faster kernel: it finds it by the
//! operation's name in [`Kernels::fused`]; without one, the definition runs. Operands and settings are plain data, so that a backend
//! can have a kernel for an operation that is declared in a crate above it.

use std::cell::RefCell;
use std::fmt;

use crate::add_scaled::{ADD_SCALED, ADD_SCALED_BACKWARD};
use crate::array::Array;
use crate::attention::{ATTENTION, ATTENTION_BACKWARD};
use crate::check;
use crate::cross_entropy::{CROSS_ENTROPY, CROSS_ENTROPY_BACKWARD, LINEAR_CROSS_ENTROPY};
use crate::dtype::DType;
use crate::error::{Result, TensorError};
use crate::feed_forward::{FEED_FORWARD, FEED_FORWARD_BACKWARD};
use crate::gradient::Sums;
use crate::heads::{HEADS, HEADS_BACKWARD};
use crate::kernels::Kernels;
use crate::layer_norm::{LAYER_NORM, LAYER_NORM_BACKWARD, LAYER_NORM_BF16};
use crate::linear::{LINEAR, LINEAR_GELU, LINEAR_GELU_BACKWARD};
use crate::math::Math;
use crate::op::Op;
use crate::scan::{DIAGONAL_SCAN, DIAGONAL_SCAN_BACKWARD};
use crate::selection::{DROPOUT, TOP_K_MASK};
use crate::shape::Shape;
use crate::softmax::{LOG_SOFTMAX, LOG_SOFTMAX_BACKWARD, SOFTMAX, SOFTMAX_BACKWARD};
use crate::tape::Node;
use crate::tensor::Tensor;

/// The operations that this crate declares.
pub static FUSED_OPS: [&FusedOp; 25] = [
    &ADD_SCALED,
    &ADD_SCALED_BACKWARD,
    &ATTENTION,
    &ATTENTION_BACKWARD,
    &CROSS_ENTROPY,
    &CROSS_ENTROPY_BACKWARD,
    &DIAGONAL_SCAN,
    &DIAGONAL_SCAN_BACKWARD,
    &DROPOUT,
    &FEED_FORWARD,
    &FEED_FORWARD_BACKWARD,
    &HEADS,
    &HEADS_BACKWARD,
    &LAYER_NORM,
    &LAYER_NORM_BF16,
    &LAYER_NORM_BACKWARD,
    &LINEAR,
    &LINEAR_CROSS_ENTROPY,
    &LINEAR_GELU,
    &LINEAR_GELU_BACKWARD,
    &LOG_SOFTMAX,
    &LOG_SOFTMAX_BACKWARD,
    &SOFTMAX,
    &SOFTMAX_BACKWARD,
    &TOP_K_MASK,
];

/// A fused operation.
pub struct FusedOp {
    /// The name, by which backends find their kernel; no two operations have the same.
    pub name: &'static str,
    /// The definition, in terms of primitives and other operations. Operands have been checked.
    pub compose: fn(&dyn Kernels, Arguments<'_>) -> Result<Vec<Array>>,
    /// The gradients of the inputs. Without a rule the operation is for inference, and refuses tracked operands.
    pub gradient: Option<GradientRule>,
    /// Which operands it reads as bf16.
    pub bf16: Bf16Operands,
    /// Operands and settings on which every backend is tested.
    pub examples: fn(ExampleSize) -> Vec<Example>,
}

/// Which operands of bf16 reach an operation, and its gradient rule, as they are. All others are converted to f32 first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bf16Operands {
    /// None.
    Converted,
    /// Those of these numbers, on a device with [`Capabilities::multiplies_bf16`](crate::Capabilities::multiplies_bf16).
    Multiplied(&'static [usize]),
    /// Those of these numbers, on every device.
    Kept(&'static [usize]),
}

impl Bf16Operands {
    /// Whether operand `i` is converted first.
    fn converts(self, k: &dyn Kernels, i: usize) -> bool {
        match self {
            Bf16Operands::Converted => true,
            Bf16Operands::Multiplied(kept) => !kept.contains(&i) || !k.capabilities().multiplies_bf16,
            Bf16Operands::Kept(kept) => !kept.contains(&i),
        }
    }
}

/// A number or a switch that an operation is given beside its operands. An absent one means that the option is off.
pub type Setting = (&'static str, f64);

/// The operands and settings of one call.
#[derive(Debug, Clone, Copy)]
pub struct Arguments<'a> {
    /// The operands, in the order that the operation documents. Floats have one type; [`FusedOp::bf16`] names those that may be bf16
    /// instead of f32.
    pub inputs: &'a [&'a Array],
    /// The settings, in any order.
    pub settings: &'a [Setting],
    /// Value i is to be added to the array in place i, if there is one. A kernel that does so takes the array out and may use its
    /// memory again. What a kernel leaves, [`FusedOp::run`] adds.
    pub sums: &'a [RefCell<Option<Array>>],
}

impl<'a> Arguments<'a> {
    /// Operands and settings, and nothing that values are added to.
    #[inline]
    pub fn new(inputs: &'a [&'a Array], settings: &'a [Setting]) -> Arguments<'a> {
        Arguments { inputs, settings, sums: &[] }
    }

    /// Takes out what value `i` is to be added to, if there is something.
    #[inline]
    pub fn take_sum(&self, i: usize) -> Option<Array> {
        self.sums.get(i).and_then(|sum| sum.borrow_mut().take())
    }

    /// Whether a switch is on.
    #[inline]
    pub fn is_set(&self, name: &str) -> bool {
        self.setting(name).is_some()
    }

    /// The operands, if there are N.
    ///
    /// # Errors
    /// If there are more or fewer.
    #[inline]
    pub fn operands<const N: usize>(&self) -> Result<[&'a Array; N]> {
        <[&Array; N]>::try_from(self.inputs).map_err(|_| {
            TensorError::new("fused operation", format!("{N} inputs are needed, there are {}", self.inputs.len()))
        })
    }

    /// The setting of this name, if it is there.
    #[inline]
    pub fn setting(&self, name: &str) -> Option<f64> {
        self.settings.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The setting of this name as a count, if it is there.
    #[inline]
    pub fn count(&self, name: &str) -> Option<usize> {
        self.setting(name).map(|value| value as usize)
    }

    /// Input number `i`.
    ///
    /// # Errors
    /// If there are fewer.
    #[inline]
    pub fn input(&self, i: usize) -> Result<&'a Array> {
        self.inputs.get(i).copied().ok_or_else(|| {
            TensorError::new("fused operation", format!("input {i} is missing, there are {}", self.inputs.len()))
        })
    }

    /// The setting of this name.
    ///
    /// # Errors
    /// If it is missing.
    #[inline]
    pub fn required(&self, name: &str) -> Result<f64> {
        let missing = || TensorError::new("fused operation", format!("the setting `{name}` is missing"));
        self.setting(name).ok_or_else(missing)
    }
}

/// How the gradients of an operation's inputs follow from those of its values.
#[derive(Clone, Copy)]
pub struct GradientRule {
    /// The inputs that the rule reads: the tape keeps these. Numbers beyond the inputs of a call are ignored.
    pub inputs: &'static [usize],
    /// The values that the rule reads: the tape keeps these.
    pub values: &'static [usize],
    /// How many values have a gradient: the first ones. The others are constants.
    pub outputs: usize,
    /// One gradient for each input, in its shape; none for a constant.
    pub rule: fn(&dyn Kernels, Upstreams<'_>) -> Result<Vec<Option<Array>>>,
}

/// What a gradient rule is given.
#[derive(Clone, Copy)]
pub struct Upstreams<'a> {
    /// Those that [`GradientRule::inputs`] names, with bf16 as [`FusedOp::bf16`] says.
    pub inputs: &'a [Array],
    /// Those that [`GradientRule::values`] names.
    pub values: &'a [Array],
    /// The settings of the call.
    pub settings: &'a [Setting],
    /// The shapes of all inputs.
    pub shapes: &'a [&'a Shape],
    /// The gradient of each value; none where nothing depends on it.
    pub gradients: &'a [Option<Array>],
    /// What has arrived at the inputs so far.
    pub arrived: &'a InputSums<'a>,
}

/// The gradients that other operations gave the inputs of an operation so far. A rule may add its own part to them.
pub struct InputSums<'a> {
    sums: RefCell<&'a mut dyn Sums>,
    tracked: Vec<bool>,
}

impl InputSums<'_> {
    /// Whether a gradient is wanted of an input. A rule may compute others too.
    pub fn is_wanted(&self, input: usize) -> bool {
        self.tracked.get(input).copied().unwrap_or(false)
    }

    /// Takes what has been added up as the gradient of an input. A rule that takes it gives the sum with its own part in it.
    pub fn take(&self, input: usize) -> Option<Array> {
        self.is_wanted(input).then(|| self.sums.borrow_mut().take_sum(input)).flatten()
    }

    /// Defers adding g^T x, of the rows of both, to the gradient of an input, and says whether it did: products of few rows are
    /// batched.
    ///
    /// # Errors
    /// Those of products that were waiting.
    pub fn defer_product(&self, input: usize, g: &Array, x: &Array) -> Result<bool> {
        match self.is_wanted(input) {
            true => self.sums.borrow_mut().defer_product(input, g, x),
            false => Ok(false),
        }
    }
}

/// How large the operands of examples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExampleSize {
    /// Ragged, of extent 1, and empty where that is legal.
    Small,
    /// Beyond one tile or block of kernels that cut their work.
    Medium,
    /// Worth several threads.
    Large,
}

/// The operands and settings of a call on which backends are tested.
#[derive(Debug, Clone)]
pub struct Example {
    /// The operands.
    pub inputs: Vec<ExampleInput>,
    /// The settings.
    pub settings: Vec<Setting>,
}

/// An operand of an example, drawn at random.
#[derive(Debug, Clone)]
pub struct ExampleInput {
    /// Its shape.
    pub shape: Shape,
    /// Its elements are above this
    pub low: f64,
    /// and below this.
    pub high: f64,
    /// Whether the gradient rule takes it as a constant.
    pub constant: bool,
    /// Whether it consists of ids (u32) instead of floats.
    pub ids: bool,
}

impl ExampleInput {
    /// An operand between -2 and 2.
    pub fn floats(shape: impl Into<Shape>) -> ExampleInput {
        ExampleInput::between(-2.0, 2.0, shape)
    }

    /// An operand between two numbers.
    pub fn between(low: f64, high: f64, shape: impl Into<Shape>) -> ExampleInput {
        ExampleInput { shape: shape.into(), low, high, constant: false, ids: false }
    }

    /// Ids below `limit`.
    pub fn ids(limit: usize, shape: impl Into<Shape>) -> ExampleInput {
        ExampleInput { shape: shape.into(), low: 0.0, high: limit as f64, constant: true, ids: true }
    }

    /// The same as a constant.
    pub fn constant(self) -> ExampleInput {
        ExampleInput { constant: true, ..self }
    }
}

impl FusedOp {
    /// The operation on arrays: the kernel of the backend, or the definition.
    ///
    /// # Errors
    /// Those of the kernel or of the definition.
    #[inline]
    pub fn run(&self, k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
        let mut values = match k.fused(self.name, call) {
            Some(done) => done,
            None => (self.compose)(k, call),
        }?;
        for (i, value) in values.iter_mut().enumerate().take(call.sums.len()) {
            if let Some(sum) = call.take_sum(i) {
                *value = k.accumulate(sum, value)?;
            }
        }
        Ok(values)
    }

    /// [`FusedOp::run`] for an operation with N values.
    ///
    /// # Errors
    /// Those of the kernel or of the definition, and if there are more or fewer values.
    #[inline]
    pub fn values<const N: usize>(&self, k: &dyn Kernels, call: Arguments<'_>) -> Result<[Array; N]> {
        let values = self.run(k, call)?;
        let found = values.len();
        values.try_into().map_err(|_| self.wrong_count(found, N))
    }

    #[cold]
    fn wrong_count(&self, found: usize, expected: usize) -> TensorError {
        TensorError::new(self.name, format!("the kernel gave {found} values, not {expected}"))
    }
}

impl fmt::Debug for FusedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FusedOp({})", self.name)
    }
}

/// What the tape keeps of a call.
pub(crate) struct FusedCall {
    pub(crate) op: &'static FusedOp,
    inputs: Vec<Array>,
    values: Vec<Array>,
    settings: Vec<Setting>,
}

impl Tensor {
    /// A fused operation on `inputs`, of which there is at least one: all on one device; floats of one type, with which bf16 goes as
    /// its wider form. Whether shapes and settings fit is for the function to check that calls this.
    ///
    /// # Errors
    /// If devices or types differ, if an input is tracked and the operation has no gradient, or if the device fails.
    pub fn fused(op: &'static FusedOp, inputs: &[&Tensor], settings: &[Setting]) -> Result<Vec<Tensor>> {
        let (values, device) = (run_checked(op, inputs, settings)?, inputs[0].device());
        match op.gradient.filter(|_| inputs.iter().any(|input| input.is_tracked())) {
            Some(rule) => Ok(record_values(op, rule, inputs, settings, values)),
            None => Ok(values.into_iter().map(|value| Tensor::from_array(device, value)).collect()),
        }
    }

    /// [`Tensor::fused`] for an operation with N values.
    ///
    /// # Errors
    /// As there, and if there are more or fewer values.
    pub fn fused_values<const N: usize>(
        op: &'static FusedOp,
        inputs: &[&Tensor],
        settings: &[Setting],
    ) -> Result<[Tensor; N]> {
        let values = run_checked(op, inputs, settings)?;
        let found = values.len();
        // Small operations for inference notice each allocation, so that the list of values stays the only one.
        match op.gradient.filter(|_| inputs.iter().any(|input| input.is_tracked())) {
            Some(rule) => {
                let values = record_values(op, rule, inputs, settings, values);
                values.try_into().map_err(|_| op.wrong_count(found, N))
            }
            None => {
                let values: [Array; N] = values.try_into().map_err(|_| op.wrong_count(found, N))?;
                Ok(values.map(|value| Tensor::from_array(inputs[0].device(), value)))
            }
        }
    }
}

/// Inputs of most operations: their arrays are listed without an allocation.
const FEW: usize = 8;

/// The values, after the checks of [`Tensor::fused`]. There is at least one input.
#[inline]
fn run_checked(op: &'static FusedOp, inputs: &[&Tensor], settings: &[Setting]) -> Result<Vec<Array>> {
    let Some(first) = inputs.first() else {
        return Err(TensorError::new(op.name, "there are no operands"));
    };
    let (k, mut tracked, mut converted) = (first.kernels(), false, false);
    for (i, input) in inputs.iter().enumerate() {
        let types_fit = !input.dtype().is_float() || input.dtype().wide() == first.dtype().wide();
        check::matching_operands(op.name, first, input, types_fit)?;
        tracked |= input.is_tracked();
        converted |= input.dtype() == DType::Bf16 && op.bf16.converts(k, i);
    }
    if tracked && op.gradient.is_none() {
        return Err(TensorError::new(op.name, "the operation has no gradient").hint("detach() the operands"));
    }
    if converted {
        let convert = |(i, input): (usize, &&Tensor)| match op.bf16.converts(k, i) {
            true => input.wide_array(),
            false => Ok(input.array().clone()),
        };
        let arrays = inputs.iter().enumerate().map(convert).collect::<Result<Vec<_>>>()?;
        return op.run(k, Arguments::new(&arrays.iter().collect::<Vec<_>>(), settings));
    }
    if inputs.len() > FEW {
        let arrays: Vec<&Array> = inputs.iter().map(|input| input.array()).collect();
        return op.run(k, Arguments::new(&arrays, settings));
    }
    let mut arrays = [first.array(); FEW];
    arrays.iter_mut().zip(inputs).for_each(|(array, input)| *array = input.array());
    op.run(k, Arguments::new(&arrays[..inputs.len()], settings))
}

/// The values of a call with tracked inputs, on the tape if they have a gradient.
fn record_values(
    op: &'static FusedOp,
    rule: GradientRule,
    inputs: &[&Tensor],
    settings: &[Setting],
    mut values: Vec<Array>,
) -> Vec<Tensor> {
    let kept = |numbers: &[usize], of: &dyn Fn(usize) -> Option<Array>| numbers.iter().filter_map(|&i| of(i)).collect();
    let call = FusedCall {
        op,
        inputs: kept(rule.inputs, &|i| inputs.get(i).map(|input| input.array().clone())),
        values: kept(rule.values, &|i| values.get(i).cloned()),
        settings: settings.to_vec(),
    };
    let constants = values.split_off(rule.outputs.min(values.len()));
    let mut outputs = Tensor::recorded_many(values, inputs, || Op::Fused { call: Box::new(call) });
    outputs.extend(constants.into_iter().map(|value| Tensor::from_array(inputs[0].device(), value)));
    outputs
}

/// The gradients of the inputs of a node whose operation is fused.
pub(crate) fn fused_gradients(
    k: &dyn Kernels,
    node: &Node,
    call: &FusedCall,
    gradients: &[Option<Array>],
    sums: &mut dyn Sums,
) -> Result<Vec<Option<Array>>> {
    let none = || vec![None; node.inputs.len()];
    let (Some(rule), true) = (call.op.gradient, gradients.iter().any(Option::is_some)) else { return Ok(none()) };
    let read = |(i, x): (&usize, &Array)| match call.op.bf16.converts(k, *i) {
        true => Math(k).to_wide_type(x),
        false => Ok(x.clone()),
    };
    let inputs = rule.inputs.iter().zip(&call.inputs).map(read).collect::<Result<Vec<_>>>()?;
    let shapes: Vec<&Shape> = node.inputs.iter().map(|input| &input.shape).collect();
    let tracked = node.inputs.iter().map(|input| input.is_tracked()).collect();
    let arrived = InputSums { sums: RefCell::new(sums), tracked };
    (rule.rule)(
        k,
        Upstreams {
            inputs: &inputs,
            values: &call.values,
            settings: &call.settings,
            shapes: &shapes,
            gradients,
            arrived: &arrived,
        },
    )
}

/// The entry of `list` for the operation of this name, for a backend's [`Kernels::fused`].
#[inline]
pub fn find_kernel<K: Copy>(list: &[(&str, K)], name: &str) -> Option<K> {
    // Most names differ in length, so that this is faster than a search by their order.
    list.iter().find(|(known, _)| *known == name).map(|(_, kernel)| *kernel)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_operations_have_examples() {
        let names: BTreeSet<&str> = FUSED_OPS.iter().map(|op| op.name).collect();
        assert_eq!(names.len(), FUSED_OPS.len());
        let without = FUSED_OPS.iter().filter(|op| (op.examples)(ExampleSize::Small).is_empty());
        // Values of bf16 are compared by a check of their own.
        assert_eq!(without.map(|op| op.name).collect::<Vec<_>>(), ["layer_norm_bf16"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let call = Arguments::new(&[], &[("heads", 2.0)]);
        assert_eq!((call.count("heads"), call.setting("first")), (Some(2), None));
        assert!(call.input(0).unwrap_err().to_string().contains("input 0 is missing"));
        assert!(call.required("scale").unwrap_err().to_string().contains("`scale`"));
    }
}
