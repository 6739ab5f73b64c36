//! Lays out a sweep over one axis, in CSS pixels for the template: means with their intervals, and every observation.

use serde::Serialize;

use super::plot::{PlotScale, describe_cell, fit_text, number_text, round_ticks};
use super::sweep::{Sweep, SweepCell};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
/// Room for the ticks and titles of the axes.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;

/// The chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IntervalPlot {
    pub width: f64,
    pub height: f64,
    /// The corners of the plotting area.
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    /// The axis of the matrix.
    pub axis: String,
    /// The metric with its unit.
    pub value: String,
    /// Values on the axis across.
    pub columns: Vec<Tick>,
    /// Values of the metric.
    pub ticks: Vec<Tick>,
    pub points: Vec<PlottedCell>,
    /// The path through the means; empty where the axis has no numbers.
    pub line: String,
}

/// A tick with its text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Tick {
    pub at: f64,
    pub short: String,
    pub text: String,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PlottedCell {
    pub x: f64,
    /// The mean; `None` without one.
    pub mean: Option<f64>,
    /// The upper and the lower end of the interval.
    pub interval: Option<(f64, f64)>,
    /// The observations.
    pub observations: Vec<f64>,
    pub title: String,
    /// The first of its tasks.
    pub task: Option<u32>,
    /// The cell of the run that this one is.
    pub cell: Option<String>,
    pub best: bool,
    pub provisional: bool,
}

/// Lays out the cells over their one axis; `None` of a sweep over two axes or none, or without cells.
pub(crate) fn draw_intervals(sweep: &Sweep) -> Option<IntervalPlot> {
    let axis = match (&sweep.x, &sweep.y) {
        (Some(axis), None) | (None, Some(axis)) => axis,
        _ => return None,
    };
    (!sweep.cells.is_empty()).then(|| lay_out_cells(sweep, axis))
}

fn lay_out_cells(sweep: &Sweep, axis: &str) -> IntervalPlot {
    let name = |cell: &SweepCell| if sweep.x.is_some() { cell.x.clone() } else { cell.y.clone() };
    let names: Vec<String> = sweep.cells.iter().map(name).collect();
    let numbers: Option<Vec<f64>> =
        names.iter().map(|name| name.parse().ok().filter(|number: &f64| number.is_finite())).collect();
    let places = places(numbers.as_deref(), names.len());
    let (low, high) = ends(sweep);
    let y = PlotScale::new(low, high, (HEIGHT - BOTTOM, TOP), false);
    let points: Vec<PlottedCell> =
        std::iter::zip(&sweep.cells, &places).map(|(cell, &x)| plotted_cell(sweep, cell, axis, x, &y)).collect();
    let letters = ((WIDTH - LEFT - RIGHT) / names.len().max(1) as f64 / 7.0) as usize;
    let columns = std::iter::zip(&names, &places);
    IntervalPlot {
        width: WIDTH,
        height: HEIGHT,
        left: LEFT,
        right: WIDTH - RIGHT,
        top: TOP,
        bottom: HEIGHT - BOTTOM,
        axis: axis.to_owned(),
        value: if sweep.unit.is_empty() { sweep.metric.clone() } else { format!("{} [{}]", sweep.metric, sweep.unit) },
        columns: columns
            .map(|(name, &at)| Tick { at, short: fit_text(name, letters.max(3)), text: name.clone() })
            .collect(),
        ticks: round_ticks(low, high)
            .into_iter()
            .map(|value| Tick { at: y.place(value), short: number_text(value), text: String::new() })
            .collect(),
        line: if numbers.is_some() { path(&points) } else { String::new() },
        points,
    }
}

fn plotted_cell(sweep: &Sweep, cell: &SweepCell, axis: &str, x: f64, y: &PlotScale) -> PlottedCell {
    let mean = cell.measured.mean;
    let interval = mean.zip(cell.measured.half_width).map(|(mean, half)| (y.place(mean + half), y.place(mean - half)));
    let finite = cell.measured.values.iter().filter(|value| value.is_finite());
    PlottedCell {
        x,
        mean: mean.map(|mean| y.place(mean)),
        interval,
        observations: finite.map(|value| y.place(*value)).collect(),
        title: describe_cell(sweep, cell, &[axis]),
        task: cell.tasks.first().copied(),
        cell: cell.cell.clone(),
        best: cell.best,
        provisional: cell.provisional,
    }
}

/// The smallest and the largest of what is drawn, with some room.
fn ends(sweep: &Sweep) -> (f64, f64) {
    let drawn = sweep.cells.iter().flat_map(|cell| {
        let half = cell.measured.half_width.unwrap_or(0.0);
        let interval = cell.measured.mean.map(|mean| [mean - half, mean + half]);
        cell.measured.values.iter().copied().chain(interval.into_iter().flatten())
    });
    let (low, high) = drawn
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return (0.0, 1.0);
    }
    let room = if high > low { 0.06 * (high - low) } else { low.abs().max(1.0) * 0.1 };
    (low - room, high + room)
}

/// The places of cells along the axis. Numbers that span a factor of 4 or more are placed on a logarithmic scale, as state counts
/// and lengths are chosen. Values that are not numbers are placed at equal distances.
fn places(numbers: Option<&[f64]>, count: usize) -> Vec<f64> {
    let (left, right) = (LEFT + 18.0, WIDTH - RIGHT - 18.0);
    let Some(numbers) = numbers else {
        let scale = PlotScale::new(0.0, count.saturating_sub(1) as f64, (left, right), false);
        return (0..count).map(|at| scale.place(at as f64)).collect();
    };
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let scale = PlotScale::new(low, high, (left, right), is_spread_by_ratios(numbers));
    numbers.iter().map(|number| scale.place(*number)).collect()
}

fn is_spread_by_ratios(numbers: &[f64]) -> bool {
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    numbers.len() > 2 && low > 0.0 && high / low >= 4.0
}

/// A line through the means, with a gap at cells without a mean.
fn path(points: &[PlottedCell]) -> String {
    let mut pen_is_up = true;
    let mut path = String::new();
    for point in points {
        match point.mean {
            Some(mean) => {
                path.push_str(&format!("{}{} {mean}", if pen_is_up { "M" } else { "L" }, point.x));
                pen_is_up = false;
            }
            None => pen_is_up = true,
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_as_they_were_chosen() {
        assert!(is_spread_by_ratios(&[16.0, 32.0, 64.0]));
        assert!(!is_spread_by_ratios(&[1.0, 2.0, 3.0]));
        assert!(!is_spread_by_ratios(&[0.0, 2.0, 30.0]));
        let [a, b, c] = places(Some(&[16.0, 32.0, 64.0]), 3)[..] else { panic!("three places") };
        assert!((b - a - (c - b)).abs() < 0.2, "{a} {b} {c}");
        assert_eq!(places(None, 1), [(LEFT + WIDTH - RIGHT) / 2.0]);
    }

    #[test]
    fn a_cell_without_a_value_is_a_gap_in_the_line() {
        let at = |x: f64, mean| PlottedCell {
            x,
            mean,
            interval: None,
            observations: Vec::new(),
            title: String::new(),
            task: None,
            cell: None,
            best: false,
            provisional: false,
        };
        let line = path(&[at(1.0, Some(2.0)), at(2.0, Some(3.0)), at(3.0, None), at(4.0, Some(5.0))]);
        assert_eq!(line, "M1 2L2 3M4 5");
    }
}
