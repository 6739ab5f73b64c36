//! The hypothesis of a claim: a formula, the claimed band of its value, and the scale of the test.

use assay_spec::{Claim, Claimed, Comparison, Formula, Operator, Tolerance};
use assay_statistics::format::quantity;

/// A hypothesis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hypothesis {
    pub formula: Formula,
    /// The claimed values: from the first to the second, which may be infinite.
    pub band: (f64, f64),
    /// Whether the ends belong to the band.
    pub closed: bool,
    /// Whether the logarithm of the value is tested.
    pub logarithmic: bool,
    /// The band, for people.
    pub claimed: String,
}

impl Hypothesis {
    /// What a claim tests; `None` if it has no check.
    pub fn from_claim(claim: &Claim) -> Option<Hypothesis> {
        let check = claim.check.as_ref()?;
        if let Some(claimed) = claim.claimed {
            return Some(Hypothesis {
                logarithmic: is_ratio(&check.left),
                formula: check.left.clone(),
                band: claimed.band(),
                closed: true,
                claimed: format_claimed(claimed, &claim.unit),
            });
        }
        let (comparison, right) = check.comparison.as_ref()?;
        let closed = matches!(comparison, Comparison::GreaterOrEqual | Comparison::LessOrEqual);
        let band = |limit: f64| match comparison {
            Comparison::Greater | Comparison::GreaterOrEqual => (limit, f64::INFINITY),
            _ => (f64::NEG_INFINITY, limit),
        };
        let left = check.left.clone();
        // With a number on one side, the other side is the value.
        let (formula, limit, turned) = match (&left, right) {
            (_, Formula::Number(limit)) => (left, *limit, false),
            (Formula::Number(limit), right) => (right.clone(), *limit, true),
            (_, right) if is_ratio(&left) || is_ratio(right) => {
                (Formula::Ratio(Box::new(left), Box::new(right.clone())), 1.0, false)
            }
            (_, right) => (Formula::Operation(Operator::Subtract, Box::new(left), Box::new(right.clone())), 0.0, false),
        };
        let (low, high) = band(limit);
        let band = match turned {
            true if low.is_finite() => (f64::NEG_INFINITY, low),
            true => (high, f64::INFINITY),
            false => (low, high),
        };
        let symbol = match (band.0.is_finite(), closed) {
            (true, true) => "≥",
            (true, false) => ">",
            (false, true) => "≤",
            (false, false) => "<",
        };
        let claimed = format!("{symbol} {}", quantity(limit, &claim.unit));
        Some(Hypothesis { logarithmic: is_ratio(&formula), formula, band, closed, claimed })
    }

    /// Whether a value without scatter lies in the band.
    pub fn holds(&self, value: f64) -> bool {
        let (low, high) = self.band;
        match self.closed {
            true => Comparison::GreaterOrEqual.holds(value, low) && Comparison::LessOrEqual.holds(value, high),
            false => {
                (low.is_infinite() || Comparison::Greater.holds(value, low))
                    && (high.is_infinite() || Comparison::Less.holds(value, high))
            }
        }
    }

    /// A value or an end of the band on the scale of the test.
    pub fn to_test_scale(&self, value: f64) -> f64 {
        match self.logarithmic {
            true if value <= 0.0 => f64::NEG_INFINITY,
            true => value.ln(),
            false => value,
        }
    }

    /// The value at this point on the scale of the test.
    pub fn invert_test_scale(&self, value: f64) -> f64 {
        if self.logarithmic { value.exp() } else { value }
    }
}

fn is_ratio(formula: &Formula) -> bool {
    match formula {
        Formula::Ratio(..) => true,
        // A multiple of a ratio scatters like the ratio.
        Formula::Operation(Operator::Multiply | Operator::Divide, left, right) => {
            (is_ratio(left) && right.cells().is_empty()) || (is_ratio(right) && left.cells().is_empty())
        }
        _ => false,
    }
}

/// A claimed value, for people.
fn format_claimed(claimed: Claimed, unit: &str) -> String {
    match claimed {
        Claimed::Value { value, tolerance: Tolerance::Relative(share) } => {
            format!("{} ± {} %", quantity(value, unit), crate::arithmetic::format_number(100.0 * share))
        }
        Claimed::Value { value, tolerance: Tolerance::Absolute(off) } => {
            format!("{} ± {}", quantity(value, unit), quantity(off, unit))
        }
        Claimed::AtLeast(low) => format!("≥ {}", quantity(low, unit)),
        Claimed::AtMost(high) => format!("≤ {}", quantity(high, unit)),
        Claimed::Between(low, high) => format!("{} to {}", quantity(low, unit), quantity(high, unit)),
    }
}
