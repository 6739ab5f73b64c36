//! Values as people write them in a filter: numbers with units, durations, dates.

use jiff::civil;
use jiff::tz::TimeZone;

/// A value to compare with: its text, and the number that it may represent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Literal {
    /// As it was written.
    pub text: String,
    /// The number, if it is one.
    pub number: Option<f64>,
}

impl Literal {
    /// Reads a value.
    pub fn of(text: &str) -> Self {
        Literal { text: text.to_owned(), number: parse_number(text) }
    }
}

/// The units of numbers and their factors; those of bytes and times as metrics have them, in bytes and seconds.
const UNITS: [(&str, f64); 15] = [
    ("", 1.0),
    ("%", 0.01),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
];

/// The units of durations, in seconds.
const DURATIONS: [(&str, f64); 7] =
    [("", 1.0), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("min", 60.0), ("h", 3600.0), ("d", 86_400.0)];

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let unit_at = text.find(|c: char| c.is_alphabetic() && !matches!(c, 'e' | 'E') || c == '%').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    // `inf`, `nan` and the like are words.
    let is_number = number.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    let (_, factor) = units.iter().find(|(known, _)| *known == unit)?;
    let value: f64 = number.trim_end().parse().ok().filter(|_| is_number)?;
    Some(value * factor).filter(|value| value.is_finite())
}

/// A number with a unit, such as `0.5`, `50%`, `20k` or `3ms`.
pub(super) fn parse_number(text: &str) -> Option<f64> {
    scaled(text, &UNITS)
}

/// Seconds, such as `90`, `30s`, `5m`, `2h` or `7d`.
pub(super) fn parse_duration(text: &str) -> Option<f64> {
    scaled(text, &DURATIONS)
}

/// A date or a moment in UTC, in milliseconds since 1970; of a date, its first moment.
pub(super) fn parse_moment(text: &str) -> Option<f64> {
    let text = text.trim_end_matches('Z');
    let moment: civil::DateTime = match text.contains(['T', ' ']) {
        true => text.parse().ok()?,
        false => text.parse::<civil::Date>().ok()?.to_datetime(civil::Time::midnight()),
    };
    let moment = moment.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some(moment.as_millisecond() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        let read = ["0.5", "50%", "20k", "3ms", "-1e3", "1e-3", ".5", "2 kB"].map(|text| parse_number(text).unwrap());
        assert_eq!(read, [0.5, 0.5, 20_000.0, 0.003, -1000.0, 0.001, 0.5, 2000.0]);
        for word in ["", "inf", "nan", "ten", "5x", "1e999", "e3", "1.2.3"] {
            assert_eq!(parse_number(word), None, "{word}");
        }
    }

    #[test]
    fn durations_and_dates_are_read() {
        assert_eq!(
            ["90", "5m", "2h", "7d"].map(|text| parse_duration(text).unwrap()),
            [90.0, 300.0, 7200.0, 604_800.0]
        );
        assert_eq!(parse_duration("5k"), None);
        assert_eq!(parse_moment("1970-01-02"), Some(86_400_000.0));
        assert_eq!(parse_moment("1970-01-01T01:00"), Some(3_600_000.0));
        assert_eq!(["2026-02-30", "yesterday", "2026"].map(parse_moment), [None; 3]);
    }
}
