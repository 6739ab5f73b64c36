//! Formulas that contain only numbers.

use assay_spec::Check;

use crate::verdict::Arithmetic;

/// Formats a number: six significant digits, without trailing zeros.
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

/// Evaluates a comparison of claimed numbers.
pub(crate) fn evaluate_arithmetic(check: &Check) -> Arithmetic {
    let left = check.left.constant_value();
    let text = check.text.split_whitespace().collect::<Vec<_>>().join(" ");
    match &check.comparison {
        Some((comparison, right)) => {
            let right = right.constant_value();
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
