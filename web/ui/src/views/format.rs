//! Times, sizes and matrix values as people read them. Numbers with units are `assay_statistics::format`'s.

use assay_statistics::format;
use serde::Serialize;

/// A moment: for people, and for the `datetime` attribute (from which a script makes local time).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Moment {
    /// Such as `2026-11-21 04:24:49 UTC`.
    pub text: String,
    /// Such as `2026-11-21T04:24:49.120Z`.
    pub iso: String,
}

/// A moment, given in milliseconds since 1970.
pub(crate) fn moment(at: u64) -> Moment {
    let (days, rest) = (at / 86_400_000, at % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute, second, milli) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    Moment {
        text: format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"),
        iso: format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z"),
    }
}

/// The Gregorian date of a day counted from 1970-01-01. (H. Hinnant, chrono-compatible low-level date algorithms,
/// `civil_from_days`; years begin in March there, so that the leap day is the last.)
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The time between two moments in words; up to `now` where the second is not known.
pub(crate) fn span(from: u64, to: Option<u64>, now: u64) -> String {
    format::duration(to.unwrap_or(now).saturating_sub(from) as f64 / 1000.0)
}

/// A size in bytes: `12.4 kB`.
pub(crate) fn bytes(bytes: u64) -> String {
    format::quantity(bytes as f64, "B")
}

/// One thing or several: `1 task`, `3 tasks`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments_are_those_of_date() {
        for (at, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_235_089_120, "2026-11-21T04:24:49.120Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(moment(at).iso, expected);
        }
        assert_eq!(moment(1_795_235_089_120).text, "2026-11-21 04:24:49 UTC");
    }

    #[test]
    fn a_span_without_an_end_reaches_to_now() {
        assert_eq!(span(1_000, Some(13_400), 99_000), "12 s");
        assert_eq!(span(1_000, None, 2_240), "1.2 s");
        assert_eq!(span(5_000, Some(1_000), 0), "0 ms");
    }

    proptest! {
        #[test]
        fn every_moment_has_a_date(at in any::<u64>()) {
            prop_assert!(moment(at).iso.ends_with('Z'));
        }
    }
}
