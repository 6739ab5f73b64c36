//! What a reader keeps of a dimension: `16..64` for numbers, either end open, or values with commas between them.

use std::str::FromStr;

/// What is kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Brush {
    /// Numbers from one to another, both included.
    Range(Option<f64>, Option<f64>),
    /// These values.
    Values(Vec<String>),
}

/// Why a text is not a brush.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BrushError {
    /// An end of a range.
    #[error("`{0}` is not a number")]
    NotANumber(String),
    /// The ends of a range are in the wrong order.
    #[error("the range ends before it begins")]
    Reversed,
    /// Nothing is kept.
    #[error("it names no value")]
    Empty,
}

impl FromStr for Brush {
    type Err = BrushError;

    fn from_str(text: &str) -> Result<Self, BrushError> {
        let text = text.trim();
        let Some((low, high)) = text.split_once("..") else {
            let values: Vec<String> =
                text.split(',').map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()).collect();
            return if values.is_empty() { Err(BrushError::Empty) } else { Ok(Brush::Values(values)) };
        };
        let end = |text: &str| match text.trim() {
            "" => Ok(None),
            text => match text.parse::<f64>() {
                Ok(number) if !number.is_nan() => Ok(Some(number)),
                _ => Err(BrushError::NotANumber(text.chars().take(40).collect())),
            },
        };
        match (end(low)?, end(high)?) {
            (None, None) => Err(BrushError::Empty),
            (Some(low), Some(high)) if low > high => Err(BrushError::Reversed),
            (low, high) => Ok(Brush::Range(low, high)),
        }
    }
}

impl Brush {
    /// Whether a value is kept; only numbers can be within a range.
    pub fn keeps(&self, text: &str, number: Option<f64>) -> bool {
        match self {
            Brush::Range(low, high) => number
                .is_some_and(|number| low.is_none_or(|low| number >= low) && high.is_none_or(|high| number <= high)),
            Brush::Values(values) => values.iter().any(|value| {
                value == text || number.is_some_and(|number| value.parse::<f64>().is_ok_and(|value| value == number))
            }),
        }
    }

    /// As a reader writes it.
    pub fn text(&self) -> String {
        let end = |end: &Option<f64>| end.map_or_else(String::new, |end| end.to_string());
        match self {
            Brush::Range(low, high) => format!("{}..{}", end(low), end(high)),
            Brush::Values(values) => values.join(","),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_values_are_kept() {
        let keeps = |brush: &str, text: &str| brush.parse::<Brush>().unwrap().keeps(text, text.parse().ok());
        for (brush, kept, not) in [
            ("16..64", "32", "65"),
            ("..0.5", "0.5", "0.51"),
            ("0.5 ..", "0.5", "adam"),
            ("adam, sgd", "sgd", "lion"),
            ("16,64", "16.0", "32"),
            ("-1e3..-2", "-5", "-1"),
        ] {
            assert!(keeps(brush, kept) && !keeps(brush, not), "{brush}");
            let parsed: Brush = brush.parse().unwrap();
            assert_eq!(parsed.text().parse::<Brush>().unwrap(), parsed);
        }
        let error = |text: &str| text.parse::<Brush>().unwrap_err().to_string();
        assert_eq!(error("a..5"), "`a` is not a number");
        assert_eq!(error("NaN.."), "`NaN` is not a number");
        assert_eq!(error("5..4"), "the range ends before it begins");
        assert_eq!([error(".."), error(" , ")], ["it names no value", "it names no value"]);
    }
}
