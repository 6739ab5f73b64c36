//! Scales, ticks and texts that the charts drawn by the server share.

use serde::Serialize;

use super::sweep::{Sweep, SweepCell};

/// A tick of an axis, in CSS pixels, with its label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PlotTick {
    pub at: f64,
    pub text: String,
}

/// A scale from values to CSS pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PlotScale {
    from: (f64, f64),
    to: (f64, f64),
    log: bool,
}

impl PlotScale {
    /// From `low` to `high` onto `to`; by ratios if `log`, which needs positive values.
    pub fn new(low: f64, high: f64, to: (f64, f64), log: bool) -> Self {
        let place = |value: f64| if log { value.ln() } else { value };
        PlotScale { from: (place(low), place(high)), to, log }
    }

    /// The place of a value, to a tenth of a pixel; the middle where the scale has no width.
    pub fn place(&self, value: f64) -> f64 {
        let value = if self.log { value.ln() } else { value };
        let span = self.from.1 - self.from.0;
        let share = if span > 0.0 { (value - self.from.0) / span } else { 0.5 };
        ((self.to.0 + share * (self.to.1 - self.to.0)) * 10.0).round() / 10.0
    }
}

/// Some five round values between `low` and `high`, whose distance is 1, 2 or 5 times a power of ten.
pub(crate) fn round_ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    if !(rough.is_finite() && rough > 0.0) {
        return vec![low];
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step).ceil();
    let count = ((high / step).floor() - first).clamp(0.0, 20.0) as u32;
    (0..=count).map(|at| (first + f64::from(at)) * step).filter(|tick| tick.is_finite()).collect()
}

/// A number for an axis, with three digits: `0.5`, `18.9k`, `2M`.
pub(crate) fn number_text(value: f64) -> String {
    let size = value.abs();
    let (scaled, suffix) = match size {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    if size != 0.0 && size < 1e-3 {
        return format!("{value:.1e}");
    }
    let digits = if scaled.abs() >= 100.0 {
        0
    } else if scaled.abs() >= 10.0 {
        1
    } else if scaled.abs() >= 1.0 {
        2
    } else {
        3
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{}{suffix}", if text == "-0" { "0" } else { text })
}

/// At most this number of characters; an ellipsis replaces the rest.
pub(crate) fn fit_text(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// The title of a cell of a sweep, line by line: its values on the axes, its mean, and every observation.
pub(crate) fn describe_cell(sweep: &Sweep, cell: &SweepCell, axes: &[&str]) -> String {
    let at = |axis: &&str| {
        let value = if sweep.x.as_deref() == Some(*axis) { &cell.x } else { &cell.y };
        format!("{axis} = {value}")
    };
    let place: Vec<String> = axes.iter().map(at).collect();
    let kind = match (cell.provisional, cell.best, cell.may_be_best) {
        (true, ..) => ", still running",
        (false, true, _) => ", the best",
        (false, false, true) => ", may be the best",
        (false, false, false) => "",
    };
    let missing = if cell.missing_text.is_empty() { String::new() } else { format!(", {}", cell.missing_text) };
    let mut lines = vec![
        place.join(", "),
        format!("{}: {}", sweep.metric, cell.measured.text),
        format!("n = {}{missing}{kind}", cell.measured.n),
    ];
    lines.extend(cell.measured.listed.iter().enumerate().map(|(i, text)| format!("#{} {text}", i + 1)));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(round_ticks(0.0, 1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(round_ticks(18_900.0, 61_000.0), [20_000.0, 30_000.0, 40_000.0, 50_000.0, 60_000.0]);
        assert_eq!(round_ticks(3.0, 3.0), [3.0]);
        assert_eq!(round_ticks(0.0, f64::INFINITY), [0.0]);
        for (low, high) in [(-1e-9, 3e-9), (0.17, 0.93), (-5e12, 7e12), (1.0, 1.0 + 1e-15)] {
            let ticks = round_ticks(low, high);
            let rounding = 1e-12 * (high - low);
            assert!(
                ticks.len() <= 21 && ticks.iter().all(|tick| *tick >= low && *tick <= high + rounding),
                "{ticks:?}"
            );
        }
    }

    #[test]
    fn numbers_are_for_people() {
        let texts = [0.0, -0.0, 0.5, 0.492, 1.41, 20_000.0, 18_900.0, 2e6, 123.0, -0.25, 1e-5, 9999.0].map(number_text);
        assert_eq!(texts, ["0", "0", "0.5", "0.492", "1.41", "20k", "18.9k", "2M", "123", "-0.25", "1.0e-5", "9999"]);
    }

    #[test]
    fn texts_fit() {
        assert_eq!([fit_text("abc", 3), fit_text("äbcd", 3), fit_text("abc", 0)], ["abc", "äb…", "…"]);
    }

    #[test]
    fn places_lie_on_the_scale() {
        let linear = PlotScale::new(0.0, 10.0, (100.0, 0.0), false);
        assert_eq!([0.0, 5.0, 10.0].map(|value| linear.place(value)), [100.0, 50.0, 0.0]);
        let log = PlotScale::new(1.0, 100.0, (0.0, 10.0), true);
        assert_eq!(log.place(10.0), 5.0);
        assert_eq!(PlotScale::new(2.0, 2.0, (0.0, 10.0), false).place(2.0), 5.0);
    }
}
