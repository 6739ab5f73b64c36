//! The types of a valid claim.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::scalar;

/// A statement about the results of a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Unique in the file.
    pub id: String,
    /// The statement in words.
    pub says: Option<String>,
    /// Where the statement was made.
    pub source: Option<String>,
    /// The file of the claim and its line, counted from 1.
    pub place: (String, usize),
    /// What is computed from the results.
    pub check: Option<Check>,
    /// The value that `check` is compared with; `None` if the check is a comparison.
    pub claimed: Option<Claimed>,
    /// Comparisons of the claimed numbers with each other, which need no results.
    pub arithmetic: Vec<Check>,
    /// The backends that the claim's test needs.
    pub needs: Vec<String>,
    /// Why the claim is not tested at all.
    pub not_tested: Option<String>,
    /// How the check is reduced from the published experiment.
    pub scaled: Option<String>,
    /// Whether the values are computed, not sampled, so that one observation decides the claim.
    pub exact: bool,
    /// The unit of the checked value; empty for a pure number or an unknown unit.
    pub unit: String,
}

/// A formula, or a comparison of two formulas.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// The text as written.
    pub text: String,
    /// The formula, or the left side of the comparison.
    pub left: Formula,
    /// The operator and the right side of a comparison.
    pub comparison: Option<(Comparison, Formula)>,
}

/// A comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `==`, in `arithmetic` only
    Equal,
    /// `!=`, in `arithmetic` only
    Different,
}

/// A value that is computed once for each replicate.
#[derive(Debug, Clone, PartialEq)]
pub enum Formula {
    /// A number.
    Number(f64),
    /// The mean of a metric over cells.
    Cells(CellRef),
    /// Two values and an operator.
    Operation(Operator, Box<Formula>, Box<Formula>),
    /// A quotient whose scatter is tested on a logarithmic scale.
    Ratio(Box<Formula>, Box<Formula>),
    /// The exponent `k` of the power law `metric = c axis^k`.
    Exponent(CellRef, Axis),
    /// The value of the axis at which the power laws of two metrics are equal.
    Crossover(CellRef, CellRef, Axis),
    /// A function of numbers.
    Call(Function, Vec<Formula>),
}

/// An operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `^`
    Power,
}

/// A function of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// The mean of its arguments.
    Mean,
    /// Their sum.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The absolute value.
    Abs,
    /// `round(x, digits)`: to `digits` decimals, halves away from zero.
    Round,
    /// The natural logarithm.
    Log,
}

/// The axis of an exponent or a crossover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Axis {
    /// An axis of the matrix.
    Matrix(String),
    /// The part of the metric's name at the `*`.
    MetricPart,
}

/// A metric of some cells of a job.
#[derive(Debug, Clone)]
pub struct CellRef {
    /// The job.
    pub job: String,
    /// The values of axes that select cells; all cells if it is empty.
    pub selected: Vec<Selection>,
    /// The metric; `*` is the part of its name for [`Axis::MetricPart`].
    pub metric: String,
    /// The positions of the job and the metric in the text, in characters: `(first, length)`.
    pub(crate) job_at: (usize, usize),
    pub(crate) metric_at: (usize, usize),
}

/// A value of an axis that selects cells.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The axis.
    pub axis: String,
    /// The value as written.
    pub value: String,
    pub(crate) axis_at: (usize, usize),
    pub(crate) value_at: (usize, usize),
}

/// The value that a check is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimed {
    /// A value with a tolerance.
    Value {
        /// The claimed value.
        value: f64,
        /// The tolerance.
        tolerance: Tolerance,
    },
    /// At least this value.
    AtLeast(f64),
    /// At most this value.
    AtMost(f64),
    /// From the first to the second.
    Between(f64, f64),
}

/// The tolerance of a claimed value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tolerance {
    /// A fraction of the claimed value.
    Relative(f64),
    /// In the unit of the value.
    Absolute(f64),
}

/// What is wrong with a formula, and its position in characters from the start of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormulaError {
    /// The first character.
    pub at: usize,
    /// How many characters.
    pub length: usize,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
}

impl Claimed {
    /// The values that agree with the claim: from the first to the second, which may be infinite.
    #[must_use]
    pub fn band(&self) -> (f64, f64) {
        match *self {
            Claimed::Value { value, tolerance } => {
                let off = match tolerance {
                    Tolerance::Relative(share) => share * value.abs(),
                    Tolerance::Absolute(off) => off,
                };
                (value - off, value + off)
            }
            Claimed::AtLeast(low) => (low, f64::INFINITY),
            Claimed::AtMost(high) => (f64::NEG_INFINITY, high),
            Claimed::Between(low, high) => (low, high),
        }
    }
}

impl Comparison {
    /// Its symbol.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
            Comparison::Equal => "==",
            Comparison::Different => "!=",
        }
    }

    /// Whether it is true for two numbers. Numbers that differ only by rounding errors, by up to one part in 10^9, are equal.
    #[must_use]
    pub fn holds(self, left: f64, right: f64) -> bool {
        let near = || (left - right).abs() <= 1e-9 * left.abs().max(right.abs());
        let equal = left == right || left.is_finite() && right.is_finite() && near();
        match self {
            Comparison::Less => left < right && !equal,
            Comparison::LessOrEqual => left < right || equal,
            Comparison::Greater => left > right && !equal,
            Comparison::GreaterOrEqual => left > right || equal,
            Comparison::Equal => equal,
            Comparison::Different => !equal && !left.is_nan() && !right.is_nan(),
        }
    }
}

impl Selection {
    /// Whether a matrix value matches the written value.
    #[must_use]
    pub fn matches(&self, value: &Value) -> bool {
        let same_number = || Some(value.as_f64()? == self.value.parse::<f64>().ok()?);
        scalar::in_address(value) == self.value
            || value.as_str() == Some(self.value.as_str())
            || same_number() == Some(true)
    }
}

impl Formula {
    /// The metrics that it uses, in order.
    #[must_use]
    pub fn cells(&self) -> Vec<&CellRef> {
        match self {
            Formula::Number(_) => Vec::new(),
            Formula::Cells(cells) | Formula::Exponent(cells, _) => vec![cells],
            Formula::Crossover(first, second, _) => vec![first, second],
            Formula::Operation(_, left, right) | Formula::Ratio(left, right) => {
                left.cells().into_iter().chain(right.cells()).collect()
            }
            Formula::Call(_, arguments) => arguments.iter().flat_map(Formula::cells).collect(),
        }
    }
}

impl Check {
    /// The metrics that it uses, in order.
    #[must_use]
    pub fn cells(&self) -> Vec<&CellRef> {
        let right = self.comparison.iter().flat_map(|(_, right)| right.cells());
        self.left.cells().into_iter().chain(right).collect()
    }
}

impl PartialEq for CellRef {
    fn eq(&self, other: &Self) -> bool {
        let key = |cells: &CellRef| {
            let mut selected = cells.selected.clone();
            selected.sort_by(|a, b| a.axis.cmp(&b.axis));
            selected
        };
        self.job == other.job && self.metric == other.metric && key(self) == key(other)
    }
}

impl PartialEq for Selection {
    fn eq(&self, other: &Self) -> bool {
        self.axis == other.axis && self.value == other.value
    }
}

impl fmt::Display for CellRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.job)?;
        if !self.selected.is_empty() {
            let selected: Vec<String> = self.selected.iter().map(|one| format!("{}={}", one.axis, one.value)).collect();
            write!(f, "[{}]", selected.join(", "))?;
        }
        write!(f, ".{}", self.metric)
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Axis::Matrix(name) => f.write_str(name),
            Axis::MetricPart => f.write_str("*"),
        }
    }
}
