//! Fused operations as values: a [`FusedOp`] is a name, a definition in terms of primitives, a gradient rule, and examples.
//!
//! One file declares all of it, in this crate or in one that uses it. A backend may have a faster kernel: it finds it by the
//! operation's name in [`Kernels::fused`]; without one, the definition runs. Operands and settings are plain data, so that a backend
//! can have a kernel for an operation that is declared in a crate above it.

use std::fmt;

use crate::array::Array;
use crate::check;
use crate::error::{Result, TensorError};
use crate::heads::{HEADS, HEADS_BACKWARD};
use crate::kernels::Kernels;
use crate::math::Math;
use crate::op::Op;
use crate::scan::{DIAGONAL_SCAN, DIAGONAL_SCAN_BACKWARD};
use crate::shape::Shape;
use crate::softmax::{LOG_SOFTMAX, LOG_SOFTMAX_BACKWARD, SOFTMAX, SOFTMAX_BACKWARD};
use crate::tape::Node;
use crate::tensor::Tensor;

/// The operations that this crate declares.
pub static FUSED_OPS: [&FusedOp; 8] = [
    &DIAGONAL_SCAN,
    &DIAGONAL_SCAN_BACKWARD,
    &HEADS,
    &HEADS_BACKWARD,
    &LOG_SOFTMAX,
    &LOG_SOFTMAX_BACKWARD,
    &SOFTMAX,
    &SOFTMAX_BACKWARD,
];

/// A fused operation.
pub struct FusedOp {
    /// The name, by which backends find their kernel; no two operations have the same.
    pub name: &'static str,
    /// The definition, in terms of primitives and other operations. Operands have been checked.
    pub compose: fn(&dyn Kernels, Arguments<'_>) -> Result<Vec<Array>>,
    /// The gradients of the inputs. Without a rule the operation is for inference, and refuses tracked operands.
    pub gradient: Option<GradientRule>,
    /// Operands and settings on which every backend is tested.
    pub examples: fn(ExampleSize) -> Vec<Example>,
}

/// A number or a switch that an operation is given beside its operands. An absent one means that the option is off.
pub type Setting = (&'static str, f64);

/// The operands and settings of one call.
#[derive(Debug, Clone, Copy)]
pub struct Arguments<'a> {
    /// The operands, in the order that the operation documents. Floats have one type, which is never bf16.
    pub inputs: &'a [&'a Array],
    /// The settings, in any order.
    pub settings: &'a [Setting],
}

impl<'a> Arguments<'a> {
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
    /// One gradient for each input, in its shape; none for a constant.
    pub rule: fn(&dyn Kernels, Upstreams<'_>) -> Result<Vec<Option<Array>>>,
}

/// What a gradient rule is given.
#[derive(Debug, Clone, Copy)]
pub struct Upstreams<'a> {
    /// Those that [`GradientRule::inputs`] names, in the type that is computed in.
    pub inputs: &'a [Array],
    /// Those that [`GradientRule::values`] names.
    pub values: &'a [Array],
    /// The settings of the call.
    pub settings: &'a [Setting],
    /// The shapes of all inputs.
    pub shapes: &'a [&'a Shape],
    /// The gradient of each value; none where nothing depends on it.
    pub gradients: &'a [Option<Array>],
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

/// An operand of an example: floats, drawn at random.
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
}

impl ExampleInput {
    /// An operand between -2 and 2.
    pub fn floats(shape: impl Into<Shape>) -> ExampleInput {
        ExampleInput::between(-2.0, 2.0, shape)
    }

    /// An operand between two numbers.
    pub fn between(low: f64, high: f64, shape: impl Into<Shape>) -> ExampleInput {
        ExampleInput { shape: shape.into(), low, high, constant: false }
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
        match k.fused(self.name, call) {
            Some(done) => done,
            None => (self.compose)(k, call),
        }
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
        let Some(first) = inputs.first() else {
            return Err(TensorError::new(op.name, "there are no operands"));
        };
        let mut tracked = false;
        for input in inputs {
            let types_fit = !input.dtype().is_float() || input.dtype().wide() == first.dtype().wide();
            check::matching_operands(op.name, first, input, types_fit)?;
            tracked |= input.is_tracked();
        }
        if tracked && op.gradient.is_none() {
            return Err(TensorError::new(op.name, "the operation has no gradient").hint("detach() the operands"));
        }
        let k = first.kernels();
        let is_narrow = |input: &&Tensor| input.dtype() != input.dtype().wide();
        let values = if inputs.iter().any(is_narrow) {
            let wide = inputs.iter().map(|input| input.wide_array()).collect::<Result<Vec<_>>>()?;
            op.run(k, Arguments { inputs: &wide.iter().collect::<Vec<_>>(), settings })?
        } else {
            let arrays: Vec<&Array> = inputs.iter().map(|input| input.array()).collect();
            op.run(k, Arguments { inputs: &arrays, settings })?
        };
        let Some(rule) = op.gradient.filter(|_| tracked) else {
            return Ok(values.into_iter().map(|value| Tensor::from_array(first.device(), value)).collect());
        };
        let kept =
            |numbers: &[usize], of: &dyn Fn(usize) -> Option<Array>| numbers.iter().filter_map(|&i| of(i)).collect();
        let call = FusedCall {
            op,
            inputs: kept(rule.inputs, &|i| inputs.get(i).map(|input| input.array().clone())),
            values: kept(rule.values, &|i| values.get(i).cloned()),
            settings: settings.to_vec(),
        };
        Ok(Tensor::recorded_many(values, inputs, || Op::Fused { call: Box::new(call) }))
    }
}

/// The gradients of the inputs of a node whose operation is fused.
pub(crate) fn fused_gradients(
    k: &dyn Kernels,
    node: &Node,
    call: &FusedCall,
    gradients: &[Option<Array>],
) -> Result<Vec<Option<Array>>> {
    let none = || vec![None; node.inputs.len()];
    let (Some(rule), true) = (call.op.gradient, gradients.iter().any(Option::is_some)) else { return Ok(none()) };
    let inputs = call.inputs.iter().map(|x| Math(k).to_wide_type(x)).collect::<Result<Vec<_>>>()?;
    let shapes: Vec<&Shape> = node.inputs.iter().map(|input| &input.shape).collect();
    (rule.rule)(
        k,
        Upstreams { inputs: &inputs, values: &call.values, settings: &call.settings, shapes: &shapes, gradients },
    )
}

/// The entry of `list` for the operation of this name, for a backend's [`Kernels::fused`].
#[inline]
pub fn find_kernel<K: Copy>(list: &[(&str, K)], name: &str) -> Option<K> {
    list.iter().find(|(known, _)| *known == name).map(|(_, kernel)| *kernel)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_every_operation_has_examples() {
        let names: BTreeSet<&str> = FUSED_OPS.iter().map(|op| op.name).collect();
        assert_eq!(names.len(), FUSED_OPS.len());
        assert!(FUSED_OPS.iter().all(|op| !(op.examples)(ExampleSize::Small).is_empty()));
    }

    #[test]
    fn what_is_missing_is_named() {
        let call = Arguments { inputs: &[], settings: &[("heads", 2.0)] };
        assert_eq!((call.count("heads"), call.setting("first")), (Some(2), None));
        assert!(call.input(0).unwrap_err().to_string().contains("input 0 is missing"));
        assert!(call.required("scale").unwrap_err().to_string().contains("`scale`"));
    }
}
