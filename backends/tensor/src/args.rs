//! The closed sets of elementwise operations and reductions, and the arguments of the fused operations.

use serde::{Deserialize, Serialize};

/// An operation on each element by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unary {
    /// -x
    Neg,
    /// |x|
    Abs,
    /// e^x
    Exp,
    /// The natural logarithm.
    Ln,
    /// The square root.
    Sqrt,
    /// x^2
    Square,
    /// 1 / x
    Reciprocal,
    /// The hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e^-x)
    Sigmoid,
    /// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): the tanh form, as in Hendrycks and Gimpel (2016).
    Gelu,
    /// x sigmoid(x)
    Silu,
    /// max(x, 0)
    Relu,
    /// The cosine; x in radians.
    Cos,
    /// The sine; x in radians.
    Sin,
    /// The nearest integer, ties to even. Its gradient is zero.
    Round,
    /// A constant multiple.
    Scale(f64),
    /// The sum with a constant.
    Offset(f64),
}

impl Unary {
    /// One of each, with an arbitrary constant where there is one.
    pub const ALL: [Unary; 17] = [
        Unary::Neg,
        Unary::Abs,
        Unary::Exp,
        Unary::Ln,
        Unary::Sqrt,
        Unary::Square,
        Unary::Reciprocal,
        Unary::Tanh,
        Unary::Sigmoid,
        Unary::Gelu,
        Unary::Silu,
        Unary::Relu,
        Unary::Cos,
        Unary::Sin,
        Unary::Round,
        Unary::Scale(0.75),
        Unary::Offset(-0.5),
    ];

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Unary::Neg => "neg",
            Unary::Abs => "abs",
            Unary::Exp => "exp",
            Unary::Ln => "ln",
            Unary::Sqrt => "sqrt",
            Unary::Square => "square",
            Unary::Reciprocal => "reciprocal",
            Unary::Tanh => "tanh",
            Unary::Sigmoid => "sigmoid",
            Unary::Gelu => "gelu",
            Unary::Silu => "silu",
            Unary::Relu => "relu",
            Unary::Cos => "cos",
            Unary::Sin => "sin",
            Unary::Round => "round",
            Unary::Scale(_) => "scale",
            Unary::Offset(_) => "offset",
        }
    }

    /// Whether the gradient is computed from the value (else from the argument): the tape keeps one of the two.
    pub fn gradient_needs_value(self) -> bool {
        matches!(self, Unary::Exp | Unary::Sqrt | Unary::Reciprocal | Unary::Tanh | Unary::Sigmoid | Unary::Relu)
    }
}

/// An operation on pairs of elements; the operands broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    /// a + b
    Add,
    /// a - b
    Sub,
    /// a b
    Mul,
    /// a / b
    Div,
    /// The larger of the two. Where they are equal, `a` takes the gradient.
    Maximum,
    /// The smaller of the two. Where they are equal, `a` takes the gradient.
    Minimum,
    /// 1 where a = b, 0 elsewhere. No gradient flows.
    Equal,
    /// 1 where a > b, 0 elsewhere. No gradient flows.
    Greater,
}

impl Binary {
    /// Every binary operation.
    pub const ALL: [Binary; 8] = [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Maximum,
        Binary::Minimum,
        Binary::Equal,
        Binary::Greater,
    ];

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::Div => "div",
            Binary::Maximum => "maximum",
            Binary::Minimum => "minimum",
            Binary::Equal => "equal",
            Binary::Greater => "greater",
        }
    }
}

/// What many elements are reduced to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum; 0 where there are none.
    Sum,
    /// Their mean.
    Mean,
    /// The largest. Elements that tie for it share the gradient equally.
    Max,
}

impl Reduce {
    /// Every reduction.
    pub const ALL: [Reduce; 3] = [Reduce::Sum, Reduce::Mean, Reduce::Max];

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "sum",
            Reduce::Mean => "mean",
            Reduce::Max => "max",
        }
    }
}

/// How attention is computed. The results agree to rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    /// softmax(scale Q K^T) V with the scores materialised: O(T^2) memory, the oracle.
    Full,
    /// An online softmax over blocks of keys: O(T) memory; the backward pass recomputes from the log-sum-exp
    /// (Dao et al., 2022).
    #[default]
    Flash,
}

/// The options of attention over q [B, H, Tq, Dh] and k, v [B, H, Tk, Dh].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionOptions {
    /// Query i sees keys up to i + Tk - Tq only, so that queries may be the tail of a longer sequence.
    pub causal: bool,
    /// The factor on the scores, usually 1 / sqrt(Dh).
    pub scale: f64,
    /// How it is computed.
    pub kind: AttentionKind,
}

/// The settings of one AdamW update (Loshchilov and Hutter, 2019), for g = `grad_scale` grad:
///
/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
/// param = param - lr (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay param)
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// The number of this update, counting from 1.
    pub step: u64,
    /// The learning rate.
    pub lr: f64,
    /// The decay rates of the first and the second moment.
    pub betas: (f64, f64),
    /// What keeps the quotient finite, usually 1e-8.
    pub eps: f64,
    /// The decoupled weight decay.
    pub weight_decay: f64,
    /// A factor on the gradient: 1, or less where its norm is clipped.
    pub grad_scale: f64,
}

impl AdamW {
    /// What of the settings changes from update to update, as a device works with it: lr, 1 / (1 - beta1^step),
    /// 1 / (1 - beta2^step), and 1 - lr `weight_decay`. Worked out in f64, and rounded once.
    pub fn factors(&self) -> [f32; 4] {
        let unbiased = |beta: f64| 1.0 / (1.0 - beta.powf(self.step as f64));
        let keep = 1.0 - self.lr * self.weight_decay;
        [self.lr, unbiased(self.betas.0), unbiased(self.betas.1), keep].map(|factor| factor as f32)
    }
}

/// What one update of a parameter takes. `T` is [`crate::Tensor`] for callers and [`crate::Array`] for kernels.
#[derive(Debug)]
pub struct Update<'a, T> {
    /// The parameter.
    pub param: &'a mut T,
    /// Its gradient, in its shape.
    pub grad: &'a T,
    /// Its first moment, in its shape.
    pub m: &'a mut T,
    /// Its second moment, in its shape.
    pub v: &'a mut T,
    /// Whether weight decay applies to it.
    pub decays: bool,
}
