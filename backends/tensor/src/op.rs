//! The differentiable operations as the tape records them, each with what its gradient rule needs.

use crate::args::Unary;
use crate::array::Array;
use crate::checkpoint::Recompute;
use crate::fusion::{ExampleSize, FUSED_OPS, FusedCall, FusedOp};
use crate::shape::Shape;

/// Declares the operations once: the enum, the name of each, and the list of all names.
macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident $({ $($field:ident: $type:ty),* $(,)? })? = $name:literal,)*) => {
        /// A recorded operation. The fields are what its rule in [`crate::gradient`] needs.
        pub(crate) enum Op {
            /// A variable, where the walk back ends.
            Leaf,
            /// A unary operation that is not affine; `saved` is its value or its argument.
            Unary { op: Unary, saved: Array },
            /// Negation, scaling or an offset.
            Affine { op: Unary },
            /// Any operation that is a value.
            Fused { call: Box<FusedCall> },
            $($(#[$doc])* $variant $({ $($field: $type),* })?,)*
        }

        impl Op {
            /// The name of the operation.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    Op::Leaf => "leaf",
                    Op::Unary { op, .. } | Op::Affine { op } => op.name(),
                    Op::Fused { call } => call.op.name,
                    $(Op::$variant $({ $($field: _),* })? => $name,)*
                }
            }
        }

        /// The names of all differentiable operations of this crate that have a case. The conformance suite checks each against central
        /// differences, and fails if one has no case.
        pub fn operation_names() -> Vec<&'static str> {
            let has_case = |op: &&&FusedOp| op.gradient.is_some() && !(op.examples)(ExampleSize::Small).is_empty();
            let fused = FUSED_OPS.iter().filter(has_case).map(|op| op.name);
            Unary::ALL.iter().map(|op| op.name()).chain([$($name),*]).chain(fused).collect()
        }
    };
}

operations! {
    Add = "add",
    Sub = "sub",
    Mul { a: Array, b: Array } = "mul",
    Div { a: Array, b: Array } = "div",
    Maximum { a: Array, b: Array } = "maximum",
    Minimum { a: Array, b: Array } = "minimum",
    Sum { axes: Vec<usize> } = "sum",
    Mean { axes: Vec<usize> } = "mean",
    /// `y` has the shape of `x` with extent 1 along the axes.
    Max { axes: Vec<usize>, x: Array, y: Array } = "max",
    MatMul { a: Array, b: Array, trans_a: bool, trans_b: bool } = "matmul",
    Reshape = "reshape",
    Broadcast = "broadcast",
    Permute { axes: Vec<usize> } = "permute",
    Slice { axis: usize, start: usize } = "slice",
    /// Several values: chunks of these shapes, one after the other along the axis.
    Split { axis: usize, shapes: Vec<Shape> } = "split",
    Concat { axis: usize } = "concat",
    Rows { ids: Array } = "rows",
    Cast = "cast",
    /// Several values, whose history is made again when their gradients are wanted.
    Checkpoint { again: Recompute } = "checkpoint",
}
