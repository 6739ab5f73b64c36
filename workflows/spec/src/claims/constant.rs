//! Evaluates formulas that contain only numbers.

use super::model::{Formula, Function, Operator};

impl Operator {
    /// The value of the operation; NaN or infinite if it is undefined.
    #[must_use]
    pub fn apply_to(self, left: f64, right: f64) -> f64 {
        match self {
            Operator::Add => left + right,
            Operator::Subtract => left - right,
            Operator::Multiply => left * right,
            Operator::Divide => left / right,
            Operator::Power => left.powf(right),
        }
    }
}

impl Function {
    /// The value of the function; NaN or infinite if it is undefined.
    #[must_use]
    pub fn apply_to(self, arguments: &[f64]) -> f64 {
        let first = arguments.first().copied().unwrap_or(f64::NAN);
        match self {
            Function::Sum => arguments.iter().sum(),
            Function::Mean => arguments.iter().sum::<f64>() / arguments.len() as f64,
            Function::Min => arguments.iter().copied().fold(f64::NAN, f64::min),
            Function::Max => arguments.iter().copied().fold(f64::NAN, f64::max),
            Function::Abs => first.abs(),
            Function::Log => first.ln(),
            Function::Round => {
                let digits = arguments.get(1).copied().unwrap_or(0.0).clamp(-12.0, 12.0);
                // A decimal such as 72.45 may be slightly below a half in binary; it is still rounded as a half.
                let scaled = first * 10f64.powf(digits);
                (scaled + scaled.signum() * scaled.abs() * 1e-12).round() / 10f64.powf(digits)
            }
        }
    }
}

impl Formula {
    /// The value of a formula that contains only numbers. NaN if the formula uses results; NaN or infinite if it is undefined.
    #[must_use]
    pub fn constant_value(&self) -> f64 {
        match self {
            Formula::Number(number) => *number,
            Formula::Operation(operator, left, right) => {
                operator.apply_to(left.constant_value(), right.constant_value())
            }
            Formula::Ratio(left, right) => left.constant_value() / right.constant_value(),
            Formula::Call(function, arguments) => {
                function.apply_to(&arguments.iter().map(Formula::constant_value).collect::<Vec<_>>())
            }
            Formula::Cells(_) | Formula::Exponent(..) | Formula::Crossover(..) => f64::NAN,
        }
    }

    /// Whether a part without results has no finite value, such as `1 / 0` and `log(-1)`.
    pub(super) fn has_undefined_part(&self) -> bool {
        if self.cells().is_empty() && !self.constant_value().is_finite() {
            return true;
        }
        match self {
            Formula::Operation(_, left, right) | Formula::Ratio(left, right) => {
                left.has_undefined_part() || right.has_undefined_part()
            }
            Formula::Call(_, arguments) => arguments.iter().any(Formula::has_undefined_part),
            Formula::Number(_) | Formula::Cells(_) | Formula::Exponent(..) | Formula::Crossover(..) => false,
        }
    }
}
