//! The cases: operations on operands of given shapes.

pub(crate) mod fused;
mod heads;
pub(crate) mod operations;
mod primitives;
pub(crate) mod random;

use assay_tensor::{DType, Device, ExampleSize, FUSED_OPS, HostData, Result, Shape, Tensor};

use crate::operands::{Numbers, to_tensor};

type Apply = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;

/// One operation on operands of given shapes and ranges.
pub struct Case {
    /// What it is, for reports.
    pub name: String,
    operands: Vec<Operand>,
    apply: Apply,
    /// Whether a gradient is wanted of every operand that is not a constant.
    pub differentiable: bool,
    /// Whether it is defined in f32 only, on the oracle too.
    pub f32_only: bool,
    /// The step of central differences in f64.
    pub step: f64,
    /// A factor on the tolerances.
    pub slack: f64,
}

/// The shape of an operand and the range of its elements.
#[derive(Debug, Clone)]
struct Operand {
    shape: Shape,
    low: f64,
    high: f64,
    /// Whether no gradient is wanted of it.
    constant: bool,
    /// Whether it consists of ids (u32) below `high`.
    ids: bool,
}

/// An operand between -2 and 2.
fn floats(shape: impl Into<Shape>) -> Operand {
    between(-2.0, 2.0, shape)
}

/// An operand between `low` and `high`.
fn between(low: f64, high: f64, shape: impl Into<Shape>) -> Operand {
    Operand { shape: shape.into(), low, high, constant: false, ids: false }
}

impl Case {
    fn new(
        name: impl Into<String>,
        operands: impl Into<Vec<Operand>>,
        apply: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'static,
    ) -> Case {
        let operands = operands.into();
        let shapes: Vec<String> = operands.iter().map(|o| o.shape.to_string()).collect();
        Case {
            name: format!("{} of {}", name.into(), shapes.join(", ")),
            operands,
            apply: Box::new(apply),
            differentiable: true,
            f32_only: false,
            step: 1e-5,
            slack: 1.0,
        }
    }

    /// The case of an operation with one value.
    fn single(
        name: impl Into<String>,
        operands: impl Into<Vec<Operand>>,
        apply: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
    ) -> Case {
        Case::new(name, operands, move |x| Ok(vec![apply(x)?]))
    }

    fn constant(self) -> Case {
        Case { differentiable: false, ..self }
    }

    /// The number of elements of all operands together.
    pub fn size(&self) -> usize {
        self.operands.iter().map(|operand| operand.shape.numel()).sum()
    }

    /// The operands' elements: the same in every run.
    pub(crate) fn operand_values(&self) -> Vec<Vec<f64>> {
        let of = |(i, o): (usize, &Operand)| {
            let (mut numbers, count) = (Numbers::new(i as u64 + 1), o.shape.numel());
            match o.ids {
                true => numbers.random_ids(o.high as u32, count).into_iter().map(f64::from).collect(),
                false => numbers.numbers_between(o.low, o.high, count),
            }
        };
        self.operands.iter().enumerate().map(of).collect()
    }

    /// [`Case::operand_values`] with the floats rounded to bf16.
    pub(crate) fn rounded_values(&self) -> Vec<Vec<f64>> {
        let round = |values: Vec<f64>| HostData::from_f64(&values, DType::Bf16).to_f64();
        let of = |(values, operand): (Vec<f64>, &Operand)| if operand.ids { values } else { round(values) };
        self.operand_values().into_iter().zip(&self.operands).map(of).collect()
    }

    /// The operands on a device, as leaves where gradients are wanted.
    pub(crate) fn to_device(&self, device: &Device, float: DType, values: &[Vec<f64>]) -> Result<Vec<Tensor>> {
        let make = |(operand, values): (&Operand, &Vec<f64>)| {
            let x = to_tensor(device, if operand.ids { DType::U32 } else { float }, values, &operand.shape)?;
            Ok(if self.differentiable && !operand.constant { x.variable() } else { x })
        };
        self.operands.iter().zip(values).map(make).collect()
    }

    /// Those of some operands, or of what belongs to each, of which a gradient is wanted, with their numbers.
    pub(crate) fn variables<'a, T>(&self, of: &'a [T]) -> impl Iterator<Item = (usize, &'a T)> {
        let wanted = |(i, _): &(usize, &T)| self.differentiable && !self.operands[*i].constant;
        of.iter().enumerate().filter(wanted)
    }

    /// The operation itself.
    pub(crate) fn apply(&self, operands: &[Tensor]) -> Result<Vec<Tensor>> {
        (self.apply)(operands)
    }

    /// A scalar that depends on every element of the values that have a gradient in its own way: their sum with fixed weights.
    pub(crate) fn weighted_sum(&self, outputs: &[Tensor]) -> Result<Option<Tensor>> {
        let mut total: Option<Tensor> = None;
        for (i, y) in outputs.iter().enumerate().filter(|(_, y)| y.is_tracked()) {
            let weights = Numbers::new(1000 + i as u64).numbers_between(-1.0, 1.0, y.numel());
            let part = y.mul(&to_tensor(y.device(), y.dtype().wide(), &weights, y.shape())?)?.sum_all()?;
            total = Some(match total {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
        Ok(total)
    }
}

/// The cases on small shapes: ragged, of extent 1, and empty where that is legal.
pub fn small() -> Vec<Case> {
    let mut cases = primitives::small();
    cases.extend(fused::small());
    cases.extend(examples(ExampleSize::Small));
    cases
}

/// The cases on shapes beyond one tile, or one block, of kernels that cut their work.
pub fn medium() -> Vec<Case> {
    let mut cases = primitives::medium();
    cases.extend(fused::medium());
    cases.extend(examples(ExampleSize::Medium));
    cases
}

/// The cases on shapes that are worth several threads.
pub fn large() -> Vec<Case> {
    let mut cases = primitives::large();
    cases.extend(fused::large());
    cases.extend(examples(ExampleSize::Large));
    cases
}

/// The examples of the operations that `assay-tensor` declares as values.
fn examples(size: ExampleSize) -> impl Iterator<Item = Case> {
    FUSED_OPS.into_iter().flat_map(move |op| operations::cases_of(op, size))
}
