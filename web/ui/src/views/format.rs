//! Times, sizes and matrix values as people read them. Numbers with units are `assay_statistics::format`'s.

use assay_statistics::format;
use jiff::Timestamp;
use serde::Serialize;

/// A moment: for people, and for the `datetime` attribute (from which a script makes local time).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Moment {
    /// Such as `2026-11-21 04:24:49 UTC`.
    pub text: String,
    /// Such as `2026-11-21T04:24:49.120Z`.
    pub iso: String,
}

/// A moment, given in milliseconds since 1970; the last one of the year 9999 if it is later.
pub(crate) fn moment(at: u64) -> Moment {
    let time = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok()).unwrap_or(Timestamp::MAX);
    Moment {
        text: time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        iso: time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string(),
    }
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
