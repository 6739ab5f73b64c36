//! The differentiable operations as the tape records them, each with what its gradient rule needs.

use crate::args::{AttentionOptions, Unary};
use crate::array::Array;
use crate::checkpoint::Recompute;
use crate::fusion::{FUSED_OPS, FusedCall};
use crate::shape::Shape;

/// What decides which elements dropout keeps.
pub(crate) enum MaskKey {
    /// The key itself.
    Known(u64),
    /// The key [`crate::mix`](seed ^ place), of a seed on the device.
    At { seed: Array, place: u64 },
}

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

        /// The names of all differentiable operations of this crate. The conformance suite checks each against central
        /// differences, and fails if one has no case.
        pub fn operation_names() -> Vec<&'static str> {
            let fused = FUSED_OPS.iter().filter(|op| op.gradient.is_some()).map(|op| op.name);
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
    Dropout { p: f64, key: MaskKey } = "dropout",
    Linear { x: Array, weight: Array } = "linear",
    LinearOnto { x: Array, weight: Array } = "linear_onto",
    /// `argument` is that of GELU.
    FeedForward { x: Array, up: Array, argument: Array, down: Array } = "feed_forward",
    AddScaled { b: Array, scale: Array } = "add_scaled",
    LayerNorm { x: Array, gain: Array, mean: Array, rstd: Array } = "layer_norm",
    CrossEntropy { logits: Array, targets: Array, lse: Array, smoothing: f64 } = "cross_entropy",
    /// The input and the weight of the layer that gave the logits, which are [N, V].
    LinearCrossEntropy { x: Array, weight: Array, logits: Array, targets: Array, lse: Array, smoothing: f64 }
        = "linear_cross_entropy",
    Attention { q: Array, k: Array, v: Array, out: Array, lse: Array, options: AttentionOptions } = "attention",
    /// Several values, whose history is made again when their gradients are wanted.
    Checkpoint { again: Recompute } = "checkpoint",
}
