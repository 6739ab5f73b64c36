//! Two metrics of the cells of a run against each other, with the cells that no other cell beats in both.

use assay_server::{CellValue, Column, Measured, Results, Row, direction_text};
use assay_spec::Better;
use assay_statistics::comparisons::pareto::{FrontMetric, FrontStanding, find_front};
use assay_statistics::{Direction, Observation, format};
use serde::Serialize;

use super::plot::{PlotScale, PlotTick, axis_ticks, widen};

/// The level of the test that excludes cells.
const ALPHA: f64 = 0.05;
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Room for the ticks and titles of the axes.
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 50.0;

/// Two metrics of the cells of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ParetoView {
    /// The metric across.
    pub x: ParetoMetric,
    /// The metric upwards.
    pub y: ParetoMetric,
    /// The cells with both metrics, the best of the metric across first.
    pub cells: Vec<ParetoCell>,
    /// The cells that are not in the chart.
    pub left_out: Vec<LeftOut>,
    /// The conclusion in words.
    pub verdict: String,
}

/// A metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ParetoMetric {
    /// The title of its column.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// `lower is better` or `higher is better`.
    pub direction: &'static str,
}

/// How a cell stands to the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    /// No cell has better means in both metrics.
    Front,
    /// A cell has better means, but not beyond uncertainty.
    NotExcluded,
    /// A cell is better in both beyond uncertainty.
    Excluded,
    /// It was not tested, because it has a single replicate.
    NotTested,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ParetoCell {
    /// Its name.
    pub cell: String,
    /// Its value of the metric across.
    pub x: Measured,
    /// Its value of the metric upwards.
    pub y: Measured,
    /// How it stands.
    pub standing: Standing,
    /// The same in words.
    pub text: String,
    /// Its number in the chart, if no cell has better means.
    pub number: Option<usize>,
    /// The cell that excludes it, or comes closest to that.
    pub by: Option<String>,
    /// The corrected p-value of its exclusion.
    pub p: Option<f64>,
}

/// A cell that is not in the chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LeftOut {
    pub cell: String,
    pub reason: String,
}

/// Compares two columns of a table, by their places; `None` if one of them has no direction.
pub(crate) fn compare_metrics(results: &Results, x: usize, y: usize) -> Option<ParetoView> {
    let directions = [direction_of(&results.columns[x])?, direction_of(&results.columns[y])?];
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for row in results.rows.iter().filter(|row| row.same_as.is_none()) {
        match (obstacle(row, x), obstacle(row, y)) {
            (None, None) => rows.push(row),
            // What says nothing of both metrics is another kind of cell, such as that of the data.
            (Some(None), Some(None)) => {}
            (first, second) => {
                let reason = |at: usize, found: Option<Option<String>>| {
                    let text = found?.unwrap_or_else(|| "no value".to_owned());
                    Some(format!("{}: {text}", results.columns[at].title))
                };
                let reasons: Vec<String> = [reason(x, first), reason(y, second)].into_iter().flatten().collect();
                left_out.push(LeftOut { cell: row.cell.clone(), reason: reasons.join("; ") });
            }
        }
    }
    let sign = |direction: Direction| if direction == Direction::HigherIsBetter { -1.0 } else { 1.0 };
    let merit = |row: &Row, at: usize, place: usize| sign(directions[place]) * mean_of(row, at);
    rows.sort_by(|a, b| merit(a, x, 0).total_cmp(&merit(b, x, 0)).then(merit(a, y, 1).total_cmp(&merit(b, y, 1))));
    let means: Vec<[f64; 2]> = rows.iter().map(|row| [merit(row, x, 0), merit(row, y, 1)]).collect();
    let standings = find_standings(&rows, (x, y), directions);
    let mut number = 0;
    let cells = rows.iter().enumerate().map(|(at, row)| {
        let beats = |other: &[f64; 2]| other[0] <= means[at][0] && other[1] <= means[at][1] && *other != means[at];
        let is_first = !means.iter().any(beats);
        number += usize::from(is_first);
        build_cell(row, (x, y), &standings[at], &rows, is_first.then_some(number))
    });
    let cells: Vec<ParetoCell> = cells.collect();
    let metric = |at: usize| ParetoMetric {
        metric: results.columns[at].title.clone(),
        unit: results.columns[at].unit.clone(),
        direction: direction_text(results.columns[at].better),
    };
    Some(ParetoView { x: metric(x), y: metric(y), verdict: describe_front(&cells), cells, left_out })
}

fn direction_of(column: &Column) -> Option<Direction> {
    match column.better {
        Better::Lower => Some(Direction::LowerIsBetter),
        Better::Higher => Some(Direction::HigherIsBetter),
        Better::Neither => None,
    }
}

/// Why a row has no usable value of a column: `Some(None)` if it just has none.
fn obstacle(row: &Row, at: usize) -> Option<Option<String>> {
    let observed = row.values[at].as_ref().map_or(0, |value| value.measured.n);
    if row.missing[at].is_selective() {
        return Some(Some(row.missing[at].describe(observed)));
    }
    match &row.values[at] {
        None => Some(None),
        Some(value) if value.measured.mean.is_none() => Some(Some(value.measured.text.clone())),
        Some(_) => None,
    }
}

fn mean_of(row: &Row, at: usize) -> f64 {
    row.values[at].as_ref().and_then(|value| value.measured.mean).unwrap_or(f64::NAN)
}

fn observations(value: &CellValue) -> Vec<Observation> {
    let blocks = value.replicates.iter().copied().chain(std::iter::repeat(None));
    std::iter::zip(&value.measured.values, blocks).map(|(&value, block)| Observation { value, block }).collect()
}

/// How each row stands, and by which other row; `None` of rows that were not tested.
fn find_standings(rows: &[&Row], at: (usize, usize), directions: [Direction; 2]) -> Vec<Option<FrontStanding>> {
    let count = |row: &Row, at: usize| row.values[at].as_ref().map_or(0, |value| value.measured.n);
    let tested: Vec<usize> =
        (0..rows.len()).filter(|&row| count(rows[row], at.0) > 1 && count(rows[row], at.1) > 1).collect();
    let metric = |place: usize, direction: Direction| FrontMetric {
        direction,
        cells: tested.iter().filter_map(|&row| Some(observations(rows[row].values[place].as_ref()?))).collect(),
    };
    let metrics = [metric(at.0, directions[0]), metric(at.1, directions[1])];
    let mut standings = vec![None; rows.len()];
    // Fewer than two cells with replicates cannot be compared.
    for (&row, standing) in std::iter::zip(&tested, find_front(&metrics, ALPHA).unwrap_or_default()) {
        standings[row] = Some(match standing {
            FrontStanding::Front => FrontStanding::Front,
            FrontStanding::NotExcluded { by, p } => FrontStanding::NotExcluded { by: tested[by], p },
            FrontStanding::Excluded { by, p } => FrontStanding::Excluded { by: tested[by], p },
        });
    }
    standings
}

fn build_cell(
    row: &Row,
    (x, y): (usize, usize),
    standing: &Option<FrontStanding>,
    rows: &[&Row],
    number: Option<usize>,
) -> ParetoCell {
    let measured = |at: usize| {
        row.values[at].as_ref().map_or_else(|| Measured::missing("no value"), |value| value.measured.clone())
    };
    let name = |by: usize| rows[by].cell.clone();
    let (standing, text, by, p) = match *standing {
        None => (Standing::NotTested, "not tested: a single replicate".to_owned(), None, None),
        Some(FrontStanding::Front) => (Standing::Front, "on the front".to_owned(), None, None),
        Some(FrontStanding::NotExcluded { by, p }) => {
            let text = format!("may be on the front: {} is better, but not beyond uncertainty", name(by));
            (Standing::NotExcluded, text, Some(name(by)), Some(p))
        }
        Some(FrontStanding::Excluded { by, p }) => {
            let text = format!("not on the front: {} is better in both ({})", name(by), format::p_value(p));
            (Standing::Excluded, text, Some(name(by)), Some(p))
        }
    };
    ParetoCell { cell: row.cell.clone(), x: measured(x), y: measured(y), standing, text, number, by, p }
}

fn describe_front(cells: &[ParetoCell]) -> String {
    let count = |standing: Standing| cells.iter().filter(|cell| cell.standing == standing).count();
    let (untested, total) = (count(Standing::NotTested), cells.len());
    if total == 0 {
        return "no cell has a value of both metrics".to_owned();
    }
    if untested == total {
        let front = cells.iter().filter(|cell| cell.number.is_some()).count();
        return format!(
            "{front} of {total} cells have the best means; a single observation has no uncertainty, so no cell is excluded"
        );
    }
    let verb = |n: usize| if n == 1 { "is" } else { "are" };
    let (front, open, out) = (count(Standing::Front), count(Standing::NotExcluded), count(Standing::Excluded));
    let mut parts = vec![format!("{front} of {total} cells {} on the front", verb(front))];
    if open > 0 {
        parts.push(format!("{open} more may be, as far as the data can tell"));
    }
    if out > 0 {
        parts.push(format!("{out} {} excluded", verb(out)));
    }
    if untested > 0 {
        let have = if untested == 1 { "has" } else { "have" };
        parts.push(format!("{untested} {have} a single replicate and cannot be tested"));
    }
    parts.join("; ")
}

/// The chart, in CSS pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ParetoPlot {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    /// The titles of the axes.
    pub across: String,
    pub upwards: String,
    pub x_ticks: Vec<PlotTick>,
    pub y_ticks: Vec<PlotTick>,
    /// The edge of what the best means reach.
    pub front: String,
    pub points: Vec<ParetoPoint>,
}

/// A cell in the chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ParetoPoint {
    pub cell: String,
    pub x: f64,
    pub y: f64,
    /// The ends of the intervals: left and right, top and bottom.
    pub x_interval: Option<(f64, f64)>,
    pub y_interval: Option<(f64, f64)>,
    /// The class of its mark.
    pub class: &'static str,
    pub number: Option<usize>,
    pub title: String,
}

/// Lays out the chart; `None` without a cell.
pub(crate) fn plot_front(view: &ParetoView) -> Option<ParetoPlot> {
    let ends = |value: &Measured| [value.mean, value.low, value.high].into_iter().flatten().collect::<Vec<f64>>();
    let across = widen(&view.cells.iter().flat_map(|cell| ends(&cell.x)).collect::<Vec<_>>())?;
    let upwards = widen(&view.cells.iter().flat_map(|cell| ends(&cell.y)).collect::<Vec<_>>())?;
    let x = PlotScale::new(across.low, across.high, (LEFT, WIDTH - RIGHT), across.log);
    let y = PlotScale::new(upwards.low, upwards.high, (HEIGHT - BOTTOM, TOP), upwards.log);
    let points: Vec<ParetoPoint> = view.cells.iter().filter_map(|cell| plot_cell(view, cell, &x, &y)).collect();
    let mut front = String::new();
    for point in points.iter().filter(|point| point.number.is_some()) {
        let (x, y) = (point.x, point.y);
        front.push_str(&if front.is_empty() { format!("M{x} {y}") } else { format!("H{x}V{y}") });
    }
    let title = |metric: &ParetoMetric, log: bool| {
        let unit = if metric.unit.is_empty() { String::new() } else { format!(" [{}]", metric.unit) };
        format!("{}{unit}, {}{}", metric.metric, metric.direction, if log { ", logarithmic" } else { "" })
    };
    Some(ParetoPlot {
        width: WIDTH,
        height: HEIGHT,
        left: LEFT,
        right: WIDTH - RIGHT,
        top: TOP,
        bottom: HEIGHT - BOTTOM,
        across: title(&view.x, across.log),
        upwards: title(&view.y, upwards.log),
        x_ticks: axis_ticks(&across, &x, &view.x.unit),
        y_ticks: axis_ticks(&upwards, &y, &view.y.unit),
        front,
        points,
    })
}

fn plot_cell(view: &ParetoView, cell: &ParetoCell, x: &PlotScale, y: &PlotScale) -> Option<ParetoPoint> {
    let interval = |value: &Measured, scale: &PlotScale| {
        let (low, high) = value.low.zip(value.high)?;
        Some((scale.place(low), scale.place(high)))
    };
    let class = match cell.standing {
        Standing::Front => "front",
        Standing::NotExcluded => "open",
        Standing::Excluded => "excluded",
        Standing::NotTested => "untested",
    };
    let value = |metric: &ParetoMetric, value: &Measured| format!("{}: {}, n = {}", metric.metric, value.text, value.n);
    let lines = [cell.cell.clone(), value(&view.x, &cell.x), value(&view.y, &cell.y), cell.text.clone()];
    Some(ParetoPoint {
        cell: cell.cell.clone(),
        x: x.place(cell.x.mean?),
        y: y.place(cell.y.mean?),
        x_interval: interval(&cell.x, x),
        y_interval: interval(&cell.y, y),
        class,
        number: cell.number,
        title: lines.join("\n"),
    })
}

#[cfg(test)]
#[path = "pareto_tests.rs"]
mod tests;
