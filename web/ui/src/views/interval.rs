//! A measured interval beside a claimed band, on one scale.

use assay_statistics::format::quantity;
use serde::Serialize;

/// How wide the drawing is, in its own units.
const WIDTH: f64 = 300.0;
/// The width that stays empty on both sides.
const MARGIN: f64 = 16.0;
/// From this quotient of the largest and the smallest value, the scale is logarithmic.
const WIDE: f64 = 20.0;

/// Where everything is drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IntervalStrip {
    pub band_x: f64,
    pub band_width: f64,
    pub interval_x: f64,
    /// 0 where there is no interval.
    pub interval_width: f64,
    pub value_x: f64,
    pub ticks: Vec<StripTick>,
    /// `Claimed band and measured interval`, and whether the scale is logarithmic.
    pub scale: &'static str,
    /// The same in words.
    pub text: String,
}

/// A number below the drawing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct StripTick {
    pub x: f64,
    pub anchor: &'static str,
    pub text: String,
}

/// Draws a value with its interval, and a band of which an end may be open.
pub(crate) fn interval_strip(
    value: f64,
    interval: Option<(f64, f64)>,
    band: (Option<f64>, Option<f64>),
) -> IntervalStrip {
    let mut points: Vec<f64> = [Some(value), interval.map(|i| i.0), interval.map(|i| i.1), band.0, band.1]
        .into_iter()
        .flatten()
        .filter(|x| x.is_finite())
        .collect();
    points.sort_by(f64::total_cmp);
    let (low, high) = (points.first().copied().unwrap_or(0.0), points.last().copied().unwrap_or(1.0));
    let logarithmic = low > 0.0 && high / low > WIDE;
    let scaled = |x: f64| if logarithmic { x.ln() } else { x };
    let (from, to) = (scaled(low), scaled(high));
    // The distance between two finite numbers can overflow.
    let reach = if to > from { (to - from).min(f64::MAX) } else { 1.0 };
    let rounded = |x: f64| (x * 10.0).round() / 10.0;
    let at = |x: f64| match x.is_finite() {
        true if to > from => rounded((MARGIN + (scaled(x) - from) / reach * (WIDTH - 2.0 * MARGIN)).clamp(0.0, WIDTH)),
        true => WIDTH / 2.0,
        false => WIDTH,
    };
    let (band_x, band_end) = (band.0.map_or(0.0, at), band.1.map_or(WIDTH, at));
    let (interval_x, interval_end) = interval.map_or((0.0, 0.0), |(low, high)| (at(low), at(high)));
    let tick = |x: f64| {
        let place = at(x);
        let anchor = match place {
            x if x < 60.0 => "start",
            x if x > WIDTH - 60.0 => "end",
            _ => "middle",
        };
        StripTick {
            x: if anchor == "middle" { place } else { place.clamp(2.0, WIDTH - 2.0) },
            anchor,
            text: quantity(x, ""),
        }
    };
    // The ends of the scale; between them one number of the band where there is room.
    let mut ticks = vec![tick(low)];
    let middle = band.0.into_iter().chain(band.1).find(|x| (90.0..WIDTH - 90.0).contains(&at(*x)));
    ticks.extend(middle.map(tick));
    if to > from {
        ticks.push(tick(high));
    }
    let end = |end: Option<f64>| end.map_or_else(|| "open".to_owned(), |end| quantity(end, ""));
    let measured = match interval {
        Some((low, high)) => format!("{} [{}, {}]", quantity(value, ""), quantity(low, ""), quantity(high, "")),
        None => quantity(value, ""),
    };
    IntervalStrip {
        band_x,
        band_width: rounded((band_end - band_x).max(1.5)),
        interval_x,
        interval_width: rounded(interval_end - interval_x),
        value_x: at(value),
        ticks,
        scale: if logarithmic {
            "Claimed band and measured interval, logarithmic"
        } else {
            "Claimed band and measured interval"
        },
        text: format!("measured {measured}; claimed from {} to {}", end(band.0), end(band.1)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_stand_in_their_order() {
        let strip = interval_strip(10.0, Some((9.0, 11.0)), (Some(40.0), Some(60.0)));
        assert!(strip.interval_x < strip.value_x && strip.value_x < strip.band_x, "{strip:?}");
        assert_eq!((strip.interval_x, strip.band_x + strip.band_width), (MARGIN, WIDTH - MARGIN));
        assert_eq!(strip.scale, "Claimed band and measured interval");
        assert!(interval_strip(1.0, None, (Some(100.0), None)).scale.ends_with("logarithmic"));
    }

    #[test]
    fn an_open_band_reaches_the_edge() {
        let above = interval_strip(1.0, Some((0.5, 1.5)), (Some(0.0), None));
        assert_eq!(above.band_x + above.band_width, WIDTH);
        let below = interval_strip(1.0, Some((0.5, 1.5)), (None, Some(0.0)));
        assert_eq!(below.band_x, 0.0);
        assert_eq!(interval_strip(1.0, None, (None, None)).value_x, WIDTH / 2.0);
    }

    proptest! {
        #[test]
        fn everything_is_inside(value in any::<f64>(), low in any::<f64>(), high in any::<f64>(), from in any::<f64>(), to in any::<f64>()) {
            for band in [(Some(from), Some(to)), (None, Some(to)), (Some(from), None)] {
                let strip = interval_strip(value, Some((low, high)), band);
                for x in [strip.band_x, strip.interval_x, strip.value_x].into_iter().chain(strip.ticks.iter().map(|tick| tick.x)) {
                    prop_assert!((0.0..=WIDTH).contains(&x), "{:?}", strip);
                }
            }
        }
    }
}
