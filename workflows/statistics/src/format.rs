//! Numbers for people: SI prefixes, and no more digits than the uncertainty leaves meaning to.
//!
//! The unit is the one that a metric declares: `s`, `B`, `tokens/s`, or empty for a pure number. A prefix (`ms`, `kB`,
//! `Mtokens/s`; powers of 1000) is chosen by the value; a pure number takes an exponent where it is very large or small.
//! Uncertainties after `±` are given to one digit, or to two where the first is a 1; intervals to the first digit of their
//! half width; the value to the same place: `1.93 ± 0.04`, `3.2 ms [3.1, 3.4]`.

use crate::comparisons::compare::{Comparison, Verdict};
use crate::estimate::{Estimate, Interval};

/// How many digits a number without a known uncertainty is given.
const DIGITS: i32 = 4;

/// A value without an uncertainty, to four significant digits: `3.217 ms`, `12.4 kB`, `0.8125`. Zeros at the end are
/// left out, and the whole part of a number is given in full.
#[must_use]
pub fn quantity(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return not_finite(value);
    }
    let scale = Scale::of(value, unit);
    let scaled = scale.apply(value);
    scale.name(trim(&fixed(scaled, (place_of(scaled) - (DIGITS - 1)).min(0))))
}

/// An estimate as `value ± half width`: `1.93 ± 0.04 ms`. The plain value where it has no interval; value and interval
/// where the value does not stand near the middle, so that ± would mislead.
#[must_use]
pub fn plus_minus(estimate: &Estimate, unit: &str) -> String {
    let Some(interval) = finite_interval(estimate) else { return quantity(estimate.value, unit) };
    let half = interval.half_width();
    if half == 0.0 {
        let plain = quantity(estimate.value, unit);
        return match plain.split_once(' ') {
            Some((number, unit)) => format!("{number} ± 0 {unit}"),
            None => format!("{plain} ± 0"),
        };
    }
    if (estimate.value - (interval.low + half)).abs() > 0.1 * half {
        return with_interval(estimate, unit);
    }
    let scale = Scale::of(rounded(estimate.value, half).abs().max(half), unit);
    let (value, half) = (scale.apply(estimate.value), scale.apply(half));
    // Two digits where the first is a 1: 0.14 rounded to 0.1 would change it by a third.
    let place = place_of_rounded(half);
    let place = if half / 10_f64.powi(place) < 1.95 { place - 1 } else { place };
    scale.name(&format!("{} ± {}", fixed(value, place), fixed(half, place)))
}

/// Pads texts of [`plus_minus`] and [`quantity`] so that their decimal points line up in a right-aligned column with digits of
/// one width. `blank` is as wide as a digit, `point` as a decimal point. Other texts stay unchanged.
#[must_use]
pub fn align_decimals(texts: &[String], blank: char, point: char) -> Vec<String> {
    let parts: Vec<Option<NumberParts<'_>>> = texts.iter().map(|text| NumberParts::parse(text)).collect();
    let most = |of: &dyn Fn(&NumberParts<'_>) -> usize| parts.iter().flatten().map(of).max().unwrap_or(0);
    let value_places = most(&|part| decimal_places(part.value));
    let spread_places = most(&|part| part.spread.map_or(0, decimal_places));
    let spread_digits = most(&|part| part.spread.map_or(0, integer_width));
    let unit_width = most(&|part| part.unit.chars().count());
    let blanks = |count: usize| std::iter::repeat_n(blank, count).collect::<String>();
    // The padding of a number up to so many decimal places.
    let lacking = |number: &str, wanted: usize| match decimal_places(number) {
        0 if wanted > 0 => format!("{point}{}", blanks(wanted)),
        known => blanks(wanted - known),
    };
    let align = |(text, part): (&String, &Option<NumberParts<'_>>)| {
        let Some(NumberParts { value, spread, unit }) = part else { return text.clone() };
        let mut out = format!("{value}{}", lacking(value, value_places));
        match spread {
            Some(spread) => {
                let before = blanks(spread_digits - integer_width(spread));
                out += &format!(" ± {before}{spread}{}", lacking(spread, spread_places));
            }
            None if spread_digits > 0 => out += &format!("{}{}", blanks(3 + spread_digits), lacking("", spread_places)),
            None => {}
        }
        if unit_width > 0 {
            out += &format!(" {unit:<unit_width$}");
        }
        out
    };
    std::iter::zip(texts, &parts).map(align).collect()
}

/// How many digits a number has after its decimal point.
fn decimal_places(number: &str) -> usize {
    number.split_once('.').map_or(0, |(_, places)| places.len())
}

/// How many characters a number has before its decimal point.
fn integer_width(number: &str) -> usize {
    number.split('.').next().map_or(0, str::len)
}

/// The parts of a number with its uncertainty and unit.
struct NumberParts<'a> {
    value: &'a str,
    spread: Option<&'a str>,
    unit: &'a str,
}

impl<'a> NumberParts<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let is_number =
            |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-'));
        let (value, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (spread, unit) = match rest.strip_prefix("± ") {
            Some(rest) => {
                let (spread, unit) = rest.split_once(' ').unwrap_or((rest, ""));
                (Some(spread), unit)
            }
            None => (None, rest),
        };
        let plain = is_number(&value) && spread.as_ref().is_none_or(is_number);
        (plain && !unit.contains([' ', '['])).then_some(NumberParts { value, spread, unit })
    }
}

/// An estimate with its interval: `3.2 ms [3.1, 3.4]`. The plain value where it has none.
#[must_use]
pub fn with_interval(estimate: &Estimate, unit: &str) -> String {
    let Some(interval) = finite_interval(estimate) else { return quantity(estimate.value, unit) };
    // The prefix is that of the value as it will be shown: 0.95 ms that rounds to 1.0 is not 1000 µs.
    let scale = match rounded(estimate.value, interval.half_width()) {
        0.0 => Scale::of(interval.low.abs().max(interval.high.abs()), unit),
        shown => Scale::of(shown, unit),
    };
    let [value, low, high] = [estimate.value, interval.low, interval.high].map(|value| scale.apply(value));
    let half = (high - low) / 2.0;
    let place = if half > 0.0 { place_of_rounded(half) } else { place_of(value) - (DIGITS - 1) };
    let [value, low, high] = [value, low, high].map(|value| fixed(value, place));
    format!("{} [{}, {}]", scale.name(&value), scale.bare(&low), scale.bare(&high))
}

/// A ratio: `1.4× [1.3, 1.6]`.
#[must_use]
pub fn ratio(estimate: &Estimate) -> String {
    let text = with_interval(estimate, "");
    match text.split_once(' ') {
        Some((value, interval)) => format!("{value}× {interval}"),
        None => format!("{text}×"),
    }
}

/// A relative change, 0.05 being `+5.0 %`.
#[must_use]
pub fn change(value: f64) -> String {
    if !value.is_finite() {
        return format!("{} %", not_finite(value));
    }
    let percent = value * 100.0;
    let text = fixed(percent, if percent.abs() < 9.95 { -1 } else { 0 });
    let sign = if text.starts_with('-') || text == "0.0" { "" } else { "+" };
    format!("{sign}{text} %")
}

/// A p-value: `p = 0.03`, `p < 0.001`.
#[must_use]
pub fn p_value(p: f64) -> String {
    if p < 0.001 { "p < 0.001".into() } else { format!("p = {}", trim(&fixed(p, (place_of(p) - 1).min(-2)))) }
}

/// A time span for people, in two units at most: `250 ms`, `1.2 s`, `12 s`, `3 min 20 s`, `2 h 5 min`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return not_finite(seconds);
    }
    if seconds < 0.9995 {
        return format!("{:.0} ms", seconds.max(0.0) * 1000.0);
    }
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A comparison in one line: the ratio (or the change, if there is no ratio), the p-value, and the verdict.
#[must_use]
pub fn comparison(comparison: &Comparison) -> String {
    let size = match &comparison.ratio {
        Some(estimate) => ratio(estimate),
        None => change(comparison.change()),
    };
    let p = comparison.p_corrected.map(|p| format!(", {}", p_value(p))).unwrap_or_default();
    format!("{size}{p}: {}", verdict(comparison.verdict))
}

/// What may be said, in words.
#[must_use]
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Improvement => "better",
        Verdict::Regression => "worse",
        Verdict::Small => "different, but by little",
        Verdict::CannotTell => "cannot be distinguished",
    }
}

/// The power of ten that a number is shown in, as a prefix of its unit or as an exponent.
struct Scale<'a> {
    power: i32,
    prefix: &'static str,
    unit: &'a str,
}

const PREFIXES: [(i32, &str); 9] =
    [(-12, "p"), (-9, "n"), (-6, "µ"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T")];

impl<'a> Scale<'a> {
    fn of(value: f64, unit: &'a str) -> Self {
        let plain = Scale { power: 0, prefix: "", unit };
        if value == 0.0 || !value.is_finite() {
            return plain;
        }
        // Rounded as it will be shown, so that 999.96 µs reads 1 ms and not 1000 µs.
        let place = place_of(value * (1.0 + 0.5 * 10_f64.powi(1 - DIGITS)));
        if unit.is_empty() {
            return if (-4..=6).contains(&place) { plain } else { Scale { power: place, ..plain } };
        }
        // What is counted in whole pieces, as bytes and tokens are, has no thousandths.
        let smallest = if unit == "s" { -12 } else { 0 };
        let power = (place.div_euclid(3) * 3).clamp(smallest, 12);
        let prefix = PREFIXES.iter().find(|entry| entry.0 == power).map_or("", |entry| entry.1);
        Scale { power, prefix, unit }
    }

    fn apply(&self, value: f64) -> f64 {
        // Powers of ten above one are exact, and the quotient or product is rounded once.
        if self.power < 0 { value * 10_f64.powi(-self.power) } else { value / 10_f64.powi(self.power) }
    }

    /// A number with all that belongs to it.
    fn name(&self, text: &str) -> String {
        match (self.unit, self.power) {
            ("", 0) => text.to_owned(),
            ("", power) if text.contains(' ') => format!("({text})e{power}"),
            ("", power) => format!("{text}e{power}"),
            (unit, _) => format!("{text} {}{unit}", self.prefix),
        }
    }

    /// A number that stands behind one with the unit, and needs none of its own.
    fn bare(&self, text: &str) -> String {
        if self.unit.is_empty() { self.name(text) } else { text.to_owned() }
    }
}

fn finite_interval(estimate: &Estimate) -> Option<Interval> {
    let finite = |interval: &Interval| interval.low.is_finite() && interval.high.is_finite();
    estimate.interval.filter(finite).filter(|_| estimate.value.is_finite())
}

/// The power of ten of the first significant digit: 0 of 3.2, -2 of 0.05. 0 of zero.
fn place_of(value: f64) -> i32 {
    let power = value.abs().log10().floor();
    if !power.is_finite() {
        return 0;
    }
    // The logarithm is rounded; correct it where that crossed a power of ten.
    let power = power as i32;
    if value.abs() >= 10_f64.powi(power + 1) {
        power + 1
    } else if value.abs() < 10_f64.powi(power) {
        power - 1
    } else {
        power
    }
}

/// [`place_of`] after rounding to one digit: 0 of 0.97.
fn place_of_rounded(value: f64) -> i32 {
    let place = place_of(value);
    if value.abs() / 10_f64.powi(place) >= 9.5 { place + 1 } else { place }
}

/// A value rounded to the first digit of its uncertainty.
fn rounded(value: f64, uncertainty: f64) -> f64 {
    let unit = 10_f64.powi(place_of_rounded(uncertainty));
    let shown = (value / unit).round() * unit;
    if uncertainty > 0.0 && shown.is_finite() { shown } else { value }
}

/// A number rounded to the digit of 10^place. Never `-0`.
fn fixed(value: f64, place: i32) -> String {
    if place > 0 {
        let unit = 10_f64.powi(place);
        return fixed((value / unit).round() * unit, 0);
    }
    let text = format!("{value:.*}", place.unsigned_abs().min(17) as usize);
    let zero = text.bytes().all(|byte| matches!(byte, b'-' | b'0' | b'.'));
    if zero { text.trim_start_matches('-').to_owned() } else { text }
}

/// Without the zeros behind the point that say nothing.
fn trim(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn not_finite(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value > 0.0 {
        "∞".into()
    } else {
        "-∞".into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::comparisons::compare::{Direction, Rule, compare_replicates};
    use crate::estimate::Method;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate::with(value, (low, high), 0.95, 20, Method::BootstrapPercentile)
    }

    #[test]
    fn plain_quantities() {
        for (value, unit, expected) in [
            (0.003_217_4, "s", "3.217 ms"),
            (0.000_999_96, "s", "1 ms"),
            (2.5e-10, "s", "250 ps"),
            (12.0, "s", "12 s"),
            (0.0, "s", "0 s"),
            (12_400.0, "B", "12.4 kB"),
            (512.0, "B", "512 B"),
            (0.5, "B", "0.5 B"),
            (7_654_321.0, "B", "7.654 MB"),
            (65_432.1, "tokens/s", "65.43 ktokens/s"),
            (0.8125, "", "0.8125"),
            (0.812_54, "", "0.8125"),
            (123_456.7, "", "123457"),
            (-0.000_02, "", "-2e-5"),
            (1.234_56e12, "", "1.235e12"),
            (0.0, "", "0"),
            (-1e-320, "s", "0 ps"),
            (f64::NAN, "s", "NaN"),
            (f64::NEG_INFINITY, "", "-∞"),
            (5e30, "B", "5000000000000000000 TB"),
        ] {
            assert_eq!(quantity(value, unit), expected, "{value} {unit}");
        }
    }

    #[test]
    fn an_uncertainty_decides_the_digits() {
        for (value, low, high, unit, expected) in [
            (1.932, 1.894, 1.970, "", "1.93 ± 0.04"),
            (1.932, 1.794, 2.070, "", "1.93 ± 0.14"),
            (0.001_932, 0.001_894, 0.001_970, "s", "1.93 ± 0.04 ms"),
            (0.87, 0.77, 0.97, "", "0.87 ± 0.10"),
            (0.87, 0.773, 0.967, "", "0.87 ± 0.10"),
            (12_345.0, 12_045.0, 12_645.0, "", "12300 ± 300"),
            (0.0, -0.02, 0.02, "", "0.00 ± 0.02"),
            (2e-6, 1.5e-6, 2.5e-6, "", "(2.0 ± 0.5)e-6"),
            (5.0, 5.0, 5.0, "B", "5 ± 0 B"),
            (0.175, 0.175, 0.175, "", "0.175 ± 0"),
            (1.0, 0.9, 1.5, "s", "1.0 s [0.9, 1.5]"),
        ] {
            assert_eq!(plus_minus(&estimate(value, low, high), unit), expected);
        }
        assert_eq!(plus_minus(&Estimate::bare(1.5, 1), "s"), "1.5 s");
    }

    #[test]
    fn intervals_keep_the_unit_of_their_value() {
        for (value, low, high, unit, expected) in [
            (0.003_23, 0.003_12, 0.003_39, "s", "3.2 ms [3.1, 3.4]"),
            (0.000_96, 0.000_9, 0.001_2, "s", "1.0 ms [0.9, 1.2]"),
            (0.95, 0.95, 0.95, "", "0.9500 [0.9500, 0.9500]"),
            (3e-7, 2e-7, 4e-7, "", "3e-7 [2e-7, 4e-7]"),
            (0.0, -0.001, 0.002, "s", "0 ms [-1, 2]"),
        ] {
            assert_eq!(with_interval(&estimate(value, low, high), unit), expected);
        }
        assert_eq!(ratio(&estimate(1.42, 1.31, 1.55)), "1.4× [1.3, 1.6]");
        assert_eq!(ratio(&Estimate::bare(1.42, 1)), "1.42×");
    }

    #[test]
    fn decimal_points_stand_below_each_other() {
        let align = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            align_decimals(&texts, '_', ',')
        };
        let found = align(&["0.4 ± 0.3", "0.775 ± 0.010", "0.5", "1 of 3 not finite", "12 ± 13"]);
        let expected = ["0.4__ ± _0.3__", "0.775 ± _0.010", "0.5_______,___", "1 of 3 not finite", "12,___ ± 13,___"];
        assert_eq!(found, expected);
        assert_eq!(align(&["75.38 kB", "9.5 MB", "3 B"]), ["75.38 kB", "9.5_ MB", "3,__ B "]);
        assert_eq!(align(&["0.25 [0.20, 0.30]", "(1 ± 2)e-6", "-"]), ["0.25 [0.20, 0.30]", "(1 ± 2)e-6", "-"]);
    }

    #[test]
    fn small_things_in_words() {
        assert_eq!([change(0.05), change(-0.123), change(0.0)], ["+5.0 %", "-12 %", "0.0 %"]);
        assert_eq!([p_value(0.031), p_value(0.5), p_value(1e-9)], ["p = 0.031", "p = 0.5", "p < 0.001"]);
        let spans = [0.25, 1.24, 12.4, 59.7, 200.0, 7500.0].map(duration);
        assert_eq!(spans, ["250 ms", "1.2 s", "12 s", "1 min 0 s", "3 min 20 s", "2 h 5 min"]);
    }

    #[test]
    fn a_comparison_without_evidence_names_no_winner() {
        let found = compare_replicates(&[2.0], &[1.0], Direction::LowerIsBetter, &Rule::default()).unwrap();
        assert_eq!(comparison(&found), "2×: cannot be distinguished");
    }

    proptest! {
        #[test]
        fn what_is_printed_is_the_value(value in prop::num::f64::NORMAL, low in 0.0..1.0_f64, unit in "(s|B|)") {
            let text = quantity(value, &unit);
            prop_assert!(!text.is_empty());
            let around = estimate(value, value - low * value.abs(), value + low * value.abs());
            prop_assert!(!with_interval(&around, &unit).is_empty() && !plus_minus(&around, &unit).is_empty());
            if unit.is_empty() {
                let read: f64 = text.parse().unwrap();
                prop_assert!((read / value - 1.0).abs() < 6e-4, "{} as {}", value, text);
            }
        }
    }
}
