//! Formulas of numbers alone.

use assay_spec::{Check, Formula, Function, Operator};

use crate::verdict::Arithmetic;

/// The value of an operation.
pub(crate) fn apply_operator(operator: Operator, left: f64, right: f64) -> f64 {
    match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Power => left.powf(right),
    }
}

/// The value of a function; NaN where it has none.
pub(crate) fn call_function(function: Function, arguments: &[f64]) -> f64 {
    let first = arguments.first().copied().unwrap_or(f64::NAN);
    match function {
        Function::Sum => arguments.iter().sum(),
        Function::Mean => arguments.iter().sum::<f64>() / arguments.len() as f64,
        Function::Min => arguments.iter().copied().fold(f64::NAN, f64::min),
        Function::Max => arguments.iter().copied().fold(f64::NAN, f64::max),
        Function::Abs => first.abs(),
        Function::Log => first.ln(),
        Function::Round => {
            let digits = arguments.get(1).copied().unwrap_or(0.0).clamp(-12.0, 12.0);
            // Written decimals such as 72.45 are a little below a half in binary: they are halves all the same.
            let scaled = first * 10f64.powf(digits);
            (scaled + scaled.signum() * scaled.abs() * 1e-12).round() / 10f64.powf(digits)
        }
    }
}

/// The value of a formula without results; NaN where it has some, or no value.
fn constant_value(formula: &Formula) -> f64 {
    match formula {
        Formula::Number(number) => *number,
        Formula::Operation(operator, left, right) => {
            apply_operator(*operator, constant_value(left), constant_value(right))
        }
        Formula::Ratio(left, right) => constant_value(left) / constant_value(right),
        Formula::Call(function, arguments) => {
            call_function(*function, &arguments.iter().map(constant_value).collect::<Vec<_>>())
        }
        Formula::Cells(_) | Formula::Exponent(..) | Formula::Crossover(..) => f64::NAN,
    }
}

/// A number as arithmetic is shown: six significant digits, without trailing zeros.
pub(crate) fn format_number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = 5 - value.abs().log10().floor() as i32;
    if digits < 0 {
        return format!("{value:.0}");
    }
    let text = format!("{value:.*}", usize::try_from(digits.min(12)).unwrap_or(0));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Works out a comparison of claimed numbers.
pub(crate) fn evaluate_arithmetic(check: &Check) -> Arithmetic {
    let left = constant_value(&check.left);
    let text = check.text.split_whitespace().collect::<Vec<_>>().join(" ");
    match &check.comparison {
        Some((comparison, right)) => {
            let right = constant_value(right);
            let shown = format!("{} {} {}", format_number(left), comparison.symbol(), format_number(right));
            Arithmetic { text, shown, holds: comparison.holds(left, right) }
        }
        None => Arithmetic { text, shown: format_number(left), holds: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> bool {
        evaluate_arithmetic(&assay_spec::parse_formula(text).unwrap()).holds
    }

    #[test]
    fn arithmetic_is_that_of_paper() {
        for text in [
            "0.1 + 0.2 == 0.3",
            "round(mean(58.2, 89.3, 87.6, 45.8, 92.4, 78.3), 1) == 75.3",
            "17000 / 370 > 45.9",
            "round(72.45, 1) == 72.5",
            "round(-72.45, 1) == -72.5",
            "min(3, 1, 2) + max(3, 1, 2) == sum(1, 1, 2)",
            "2 ^ 10 == 1024",
            "abs(-2) >= 2",
            "5 != 6",
            "50 * 2 <= 100",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in ["1 < 1", "1 > 1 + 1e-12", "1 / 0 == 2", "log(-1) != 2", "0 / 0 == 0 / 0"] {
            assert!(!holds(text), "{text}");
        }
    }

    #[test]
    fn both_sides_are_shown() {
        let shown = |text: &str| evaluate_arithmetic(&assay_spec::parse_formula(text).unwrap()).shown;
        assert_eq!(shown("mean(1, 2,\n 2) == 1.7"), "1.66667 == 1.7");
        assert_eq!(shown("22_089 * 2 > 0.0000125"), "44178 > 0.0000125");
        assert_eq!(shown("1234567.9 < 0"), "1234568 < 0");
    }
}
