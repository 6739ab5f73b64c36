//! Curves as a chart that needs no script: lines, bands of ranges, and a legend.

use serde::Serialize;

use super::curves::Curve;
use super::plot::{PlotScale, PlotTick, axis_ticks, number_text, round_ticks, widen};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
/// How many lines have colours.
const COLOURS: usize = 7;

/// The chart, in CSS pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CurvePlot {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    /// The metric with its unit.
    pub value: String,
    pub x_ticks: Vec<PlotTick>,
    pub y_ticks: Vec<PlotTick>,
    pub lines: Vec<PlottedCurve>,
}

/// A curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PlottedCurve {
    /// Its colour from 1; 0 without one.
    pub slot: usize,
    pub label: String,
    /// The path through its values.
    pub line: String,
    /// The area of the replicates; empty without a range.
    pub band: String,
    /// The last value.
    pub last: String,
}

/// Lays out curves; `None` without a finite value. On a logarithmic scale, values that are not positive are gaps.
pub(crate) fn plot_curves(curves: &[Curve], metric: &str, unit: &str, is_log: bool) -> Option<CurvePlot> {
    let shown = |value: &f64| value.is_finite() && (!is_log || *value > 0.0);
    let values = |curve: &Curve| -> Vec<f64> {
        let range = curve.range.iter().flat_map(|range| range.low.iter().chain(&range.high));
        curve.values.iter().chain(range).copied().filter(shown).collect()
    };
    let mut range = widen(&curves.iter().flat_map(values).collect::<Vec<f64>>())?;
    if range.log && !is_log {
        range.low = 0.0;
    } else if is_log && !range.log {
        let all = curves.iter().flat_map(values);
        range.low = all.fold(range.high, f64::min) / 1.1;
    }
    range.log = is_log;
    let last = curves.iter().filter_map(|curve| curve.steps.last()).max().copied()? as f64;
    let x = PlotScale::new(0.0, last.max(1.0), (LEFT, WIDTH - RIGHT), false);
    let y = PlotScale::new(range.low, range.high, (HEIGHT - BOTTOM, TOP), is_log);
    let many = curves.len() > COLOURS;
    let line = |(at, curve): (usize, &Curve)| PlottedCurve {
        slot: if many { 0 } else { at + 1 },
        label: curve.label.clone(),
        line: path(&curve.steps, &curve.values, &x, &y, &shown),
        band: curve
            .range
            .as_ref()
            .map_or_else(String::new, |range| band(&curve.steps, (&range.low, &range.high), &x, &y, &shown)),
        last: curve.values.last().map_or_else(String::new, |value| number_text(*value)),
    };
    let tick = |value: f64| PlotTick { at: x.place(value), text: number_text(value) };
    Some(CurvePlot {
        width: WIDTH,
        height: HEIGHT,
        left: LEFT,
        right: WIDTH - RIGHT,
        top: TOP,
        bottom: HEIGHT - BOTTOM,
        value: if unit.is_empty() { metric.to_owned() } else { format!("{metric} [{unit}]") },
        x_ticks: round_ticks(0.0, last.max(1.0)).into_iter().map(tick).collect(),
        y_ticks: axis_ticks(&range, &y, unit),
        lines: curves.iter().enumerate().map(line).collect(),
    })
}

fn path(steps: &[u64], values: &[f64], x: &PlotScale, y: &PlotScale, shown: &dyn Fn(&f64) -> bool) -> String {
    let (mut path, mut pen_is_up) = (String::new(), true);
    for (step, value) in std::iter::zip(steps, values) {
        if shown(value) {
            path.push_str(&format!(
                "{}{} {}",
                if pen_is_up { "M" } else { "L" },
                x.place(*step as f64),
                y.place(*value)
            ));
            pen_is_up = false;
        } else {
            pen_is_up = true;
        }
    }
    path
}

/// The area between two lines, over the steps that both have.
fn band(
    steps: &[u64],
    (low, high): (&[f64], &[f64]),
    x: &PlotScale,
    y: &PlotScale,
    shown: &dyn Fn(&f64) -> bool,
) -> String {
    let ends: Vec<(f64, f64, f64)> = std::iter::zip(steps, std::iter::zip(low, high))
        .filter(|(_, (low, high))| shown(low) && shown(high))
        .map(|(step, (low, high))| (x.place(*step as f64), y.place(*low), y.place(*high)))
        .collect();
    let there = ends.iter().map(|(x, _, high)| format!("{x} {high}"));
    let back = ends.iter().rev().map(|(x, low, _)| format!("{x} {low}"));
    let points: Vec<String> = there.chain(back).collect();
    if points.is_empty() { String::new() } else { format!("M{}Z", points.join("L")) }
}

#[cfg(test)]
mod tests {
    use super::super::curves::Range;
    use super::*;

    fn curve(values: &[f64]) -> Curve {
        Curve {
            label: "a".into(),
            tasks: vec![1],
            slot: 0,
            steps: (0..values.len() as u64).collect(),
            values: values.to_vec(),
            range: Some(Range {
                low: values.iter().map(|value| value - 0.1).collect(),
                high: values.iter().map(|value| value + 0.1).collect(),
            }),
        }
    }

    #[test]
    fn lines_have_gaps_where_there_is_no_number() {
        let plot = plot_curves(&[curve(&[3.0, f64::NAN, 2.0, 1.0])], "train/loss", "", false).unwrap();
        let line = &plot.lines[0];
        assert_eq!((line.line.matches('M').count(), line.line.matches('L').count()), (2, 1));
        assert_eq!(line.band.matches('L').count(), 5, "three steps there and back");
        assert_eq!((line.slot, line.last.as_str()), (1, "1"));
        assert!(
            plot_curves(&[curve(&[f64::NAN])], "x", "", false).is_none() && plot_curves(&[], "x", "", false).is_none()
        );
    }

    #[test]
    fn many_lines_have_no_colours_and_logarithms_no_zero() {
        let many: Vec<Curve> = (0..8).map(|_| curve(&[1.0, 2.0])).collect();
        assert!(plot_curves(&many, "x", "s", false).unwrap().lines.iter().all(|line| line.slot == 0));
        let log = plot_curves(&[curve(&[100.0, 0.0, 0.5])], "x", "", true).unwrap();
        assert_eq!(log.lines[0].line.matches('M').count(), 2);
        assert!(!log.lines[0].line.contains("NaN") && !log.lines[0].band.contains("inf"), "{log:?}");
        let linear = plot_curves(&[curve(&[100.0, 0.5])], "x", "", false).unwrap();
        assert!(linear.y_ticks.len() > 2, "{linear:?}");
    }
}
