//! Cases of operations that are values: each example is one.

use assay_tensor::{Example, ExampleSize, FusedOp, Tensor};

use super::{Case, Operand};

/// The case of an example.
pub(crate) fn case_of(op: &'static FusedOp, example: Example) -> Case {
    let Example { inputs, settings } = example;
    let operand = |input: assay_tensor::ExampleInput| Operand {
        shape: input.shape,
        low: input.low,
        high: input.high,
        constant: input.constant,
        ids: input.ids,
    };
    let named: Vec<String> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let name = [vec![op.name.to_owned()], named].concat().join(", ");
    let operands: Vec<Operand> = inputs.into_iter().map(operand).collect();
    let case = Case::new(name, operands, move |x| Tensor::fused(op, &x.iter().collect::<Vec<_>>(), &settings));
    if op.gradient.is_some() { case } else { case.constant() }
}

/// The cases of an operation's examples.
pub(crate) fn cases_of(op: &'static FusedOp, size: ExampleSize) -> Vec<Case> {
    (op.examples)(size).into_iter().map(|example| case_of(op, example)).collect()
}
