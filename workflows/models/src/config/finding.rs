//! Problems of a config that its schema cannot express: [`Finding`], and the checks that families share.

/// A problem of a model config beyond its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The invalid key.
    pub key: &'static str,
    /// What is wrong, in a lower-case fragment that quotes the offending value.
    pub message: String,
    /// How to fix it.
    pub hint: String,
}

impl Finding {
    pub(super) fn new(key: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Finding { key, message: message.into(), hint: hint.into() }
    }
}

pub(super) fn in_range(found: &mut Vec<Finding>, key: &'static str, value: usize, max: usize) {
    if !(1..=max).contains(&value) {
        let message = format!("{key} {value} is outside 1..={max}");
        found.push(Finding::new(key, message, format!("give a whole number from 1 to {max}")));
    }
}

/// Reports a fraction outside [0, 1).
pub(super) fn fraction(found: &mut Vec<Finding>, key: &'static str, value: f64) {
    if !(0.0..1.0).contains(&value) {
        let message = format!("{key} {value} is outside [0, 1)");
        found.push(Finding::new(key, message, "give a share such as 0.1, or 0 for none"));
    }
}

pub(super) fn even(key: &'static str, message: &str, value: usize) -> Finding {
    Finding::new(key, format!("{message}, not {value}"), "make it even, or choose other positions")
}

/// The largest divisor of `dim` that is at most `heads`.
pub(super) fn divisor_near(dim: usize, heads: usize) -> usize {
    (1..=heads.min(dim)).rev().find(|h| dim.is_multiple_of(*h)).unwrap_or(1)
}
