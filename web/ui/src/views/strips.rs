//! Intervals drawn as strips: several below one another on one scale, so that overlap is seen without reading.

use serde::Serialize;

/// The width of a strip, in CSS pixels.
pub(crate) const WIDTH: f64 = 150.0;
/// What is left at each end for the mark of the value.
const MARGIN: f64 = 5.0;

/// One interval; places are in CSS pixels from the left.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Strip {
    /// Where the value is.
    pub at: f64,
    /// Where the interval begins; the value's place without one.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
    /// The place of no effect: zero, or one for ratios. `None` if the strip does not show an effect.
    pub rule: Option<f64>,
}

/// The scale of several strips.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StripScale {
    low: f64,
    high: f64,
}

impl StripScale {
    /// From the smallest to the largest of values and ends; `None` where none is finite.
    pub fn spanning(ends: impl Iterator<Item = f64>) -> Option<Self> {
        let (low, high) = ends
            .filter(|end| end.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), end| (low.min(end), high.max(end)));
        (low <= high).then_some(StripScale { low, high })
    }

    /// The strip of a value with its interval; `None` where it is not finite.
    pub fn strip(&self, value: f64, interval: Option<(f64, f64)>, rule: Option<f64>) -> Option<Strip> {
        let (low, high) = interval.filter(|(low, high)| low.is_finite() && high.is_finite()).unwrap_or((value, value));
        let strip = Strip {
            at: self.place(value),
            low: self.place(low),
            high: self.place(high),
            rule: rule.map(|rule| self.place(rule)),
        };
        value.is_finite().then_some(strip)
    }

    /// To a tenth of a pixel; the middle where all values are the same.
    fn place(&self, value: f64) -> f64 {
        let share = if self.high > self.low { (value - self.low) / (self.high - self.low) } else { 0.5 };
        ((MARGIN + share * (WIDTH - 2.0 * MARGIN)) * 10.0).round() / 10.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_share_their_scale() {
        let scale = StripScale::spanning([1.0, 3.0, f64::NAN, 2.0].into_iter()).unwrap();
        let strip = scale.strip(2.0, Some((1.0, 3.0)), Some(1.5)).unwrap();
        assert_eq!((strip.low, strip.at, strip.high, strip.rule), (5.0, 75.0, 145.0, Some(40.0)));
        assert_eq!(scale.strip(3.0, None, None).unwrap(), Strip { at: 145.0, low: 145.0, high: 145.0, rule: None });
        assert_eq!(scale.strip(f64::NAN, None, None), None);
        assert_eq!(StripScale::spanning(std::iter::empty()), None);
        let flat = StripScale::spanning([2.0, 2.0].into_iter()).unwrap();
        assert_eq!(flat.strip(2.0, None, None).unwrap().at, 75.0);
    }
}
