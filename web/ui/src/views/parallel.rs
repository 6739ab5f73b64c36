//! The cells of a sweep as lines over parallel axes: the axes of the matrix, then metrics with their better end at the top.

use assay_server::{Column, Measured, Results, Row, direction_text};
use assay_spec::{Better, value_name};
use serde::Serialize;
use serde_json::Value;

use super::brush::Brush;
use super::plot::{PlotScale, PlotTick, axis_ticks, fit_text, number_text, widen};

/// How many lines have colours.
pub(crate) const COLOURS: usize = 7;
/// How many lines are drawn.
const MOST_LINES: usize = 300;
/// How far axes are apart, at least.
const STEP: f64 = 130.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 40.0;
const HEIGHT: f64 = 380.0;
const BOTTOM: f64 = 18.0;
/// The width of the axes together, if there are few.
const WIDTH: f64 = 760.0;

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// The job; the one with the most axes otherwise.
    pub job: Option<String>,
    /// The columns shown, by place.
    pub columns: Vec<usize>,
    /// The column whose best cells are coloured.
    pub colour: Option<usize>,
    /// What cells are kept, by dimension.
    pub brushes: Vec<(String, Brush)>,
}

/// Cells over several dimensions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ParallelView {
    /// The jobs that can be shown.
    pub jobs: Vec<String>,
    /// The job shown.
    pub job: String,
    /// The dimensions.
    pub dimensions: Vec<Dimension>,
    /// The cells that are kept, coloured ones first.
    pub cells: Vec<ParallelCell>,
    /// How many cells the brushes leave out.
    pub hidden: usize,
    /// The metric whose best cells are coloured; empty without one.
    pub colour: String,
    /// What the colours mean.
    pub meaning: String,
}

/// A dimension.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Dimension {
    /// The axis of the matrix, or the title of the metric's column.
    pub name: String,
    /// Whether it is a metric.
    pub is_metric: bool,
    /// The unit of a metric.
    pub unit: String,
    /// `lower is better`, `higher is better`, or empty.
    pub direction: &'static str,
    /// Of an axis, its values.
    pub values: Vec<String>,
    /// What the reader keeps of it, as written; empty if all.
    pub brush: String,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ParallelCell {
    /// Its name.
    pub cell: String,
    /// Its colour from 1; 0 without one.
    pub slot: usize,
    /// Its value in each dimension.
    pub values: Vec<Option<ParallelValue>>,
}

/// A value of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ParallelValue {
    /// As text, a metric's with its uncertainty.
    pub text: String,
    /// As a number, where it is one.
    pub number: Option<f64>,
}

/// Shows the cells of a job; `None` if no job has a cell.
pub(crate) fn view_cells(results: &Results, wanted: &Wanted) -> Option<ParallelView> {
    let mut jobs: Vec<String> = Vec::new();
    for row in &results.rows {
        if !jobs.contains(&row.job) {
            jobs.push(row.job.clone());
        }
    }
    let axes_of = |job: &String| results.rows.iter().filter(|row| row.job == *job).map(|row| row.matrix.len()).max();
    let asked = wanted.job.clone().filter(|job| jobs.contains(job));
    let job = asked.or_else(|| jobs.iter().rev().max_by_key(|job| axes_of(job)).cloned())?;
    let rows: Vec<&Row> = results.rows.iter().filter(|row| row.job == job && row.same_as.is_none()).collect();
    let brush_of = |name: &str| wanted.brushes.iter().find(|(known, _)| known == name).map(|(_, brush)| brush);
    let mut dimensions: Vec<Dimension> = axes(&rows);
    dimensions.extend(wanted.columns.iter().map(|&at| metric_dimension(&results.columns[at])));
    for dimension in &mut dimensions {
        dimension.brush = brush_of(&dimension.name).map_or_else(String::new, Brush::text);
    }
    let value = |row: &Row, dimension: &Dimension| match dimension.is_metric {
        false => row.matrix.get(&dimension.name).map(axis_value),
        true => {
            let at = results.columns.iter().position(|column| column.title == dimension.name)?;
            row.values[at].as_ref().map(|value| metric_value(&value.measured))
        }
    };
    let mut cells: Vec<(usize, ParallelCell)> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let values: Vec<Option<ParallelValue>> = dimensions.iter().map(|dimension| value(row, dimension)).collect();
        let keeps = |(dimension, value): (&Dimension, &Option<ParallelValue>)| {
            brush_of(&dimension.name)
                .is_none_or(|brush| value.as_ref().is_some_and(|value| brush.keeps(&value.text, value.number)))
        };
        // A cell without any metric has no line.
        let measured =
            std::iter::zip(&dimensions, &values).any(|(dimension, value)| dimension.is_metric && value.is_some());
        if measured && std::iter::zip(&dimensions, &values).all(keeps) {
            cells.push((at, ParallelCell { cell: row.cell.clone(), slot: 0, values }));
        }
    }
    let hidden = rows.len() - cells.len();
    let meaning = wanted.colour.map_or_else(String::new, |column| colour_best(results, column, &rows, &mut cells));
    // A stable sort: within the others, the order of the plan.
    cells.sort_by_key(|(_, cell)| if cell.slot == 0 { usize::MAX } else { cell.slot });
    let colour = wanted.colour.map_or_else(String::new, |at| results.columns[at].title.clone());
    let cells = cells.into_iter().map(|(_, cell)| cell).collect();
    Some(ParallelView { jobs, job, dimensions, cells, hidden, colour, meaning })
}

fn axes(rows: &[&Row]) -> Vec<Dimension> {
    let mut names: Vec<&String> = rows.iter().flat_map(|row| row.matrix.keys()).collect();
    names.sort();
    names.dedup();
    let dimension = |name: &String| {
        let mut values: Vec<String> = Vec::new();
        for value in rows.iter().filter_map(|row| row.matrix.get(name)).map(value_name) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let number = |text: &String| text.parse::<f64>().unwrap_or(f64::INFINITY);
        values.sort_by(|a, b| number(a).total_cmp(&number(b)));
        let (unit, brush) = (String::new(), String::new());
        Dimension { name: name.clone(), is_metric: false, unit, direction: "", values, brush }
    };
    names.into_iter().map(dimension).collect()
}

fn metric_dimension(column: &Column) -> Dimension {
    Dimension {
        name: column.title.clone(),
        is_metric: true,
        unit: column.unit.clone(),
        direction: direction_text(column.better),
        values: Vec::new(),
        brush: String::new(),
    }
}

fn axis_value(value: &Value) -> ParallelValue {
    ParallelValue { text: value_name(value), number: value.as_f64() }
}

fn metric_value(measured: &Measured) -> ParallelValue {
    ParallelValue { text: measured.text.clone(), number: measured.mean }
}

/// Gives colours to the best of the cells by a metric, and says what they mean.
fn colour_best(results: &Results, at: usize, rows: &[&Row], cells: &mut [(usize, ParallelCell)]) -> String {
    let column = &results.columns[at];
    let sign = match column.better {
        Better::Lower => 1.0,
        Better::Higher => -1.0,
        Better::Neither => return format!("no line has a colour: no direction of {} is better", column.title),
    };
    let mean = |row: usize| rows[row].values[at].as_ref().and_then(|value| value.measured.mean);
    let mut order: Vec<(usize, f64)> =
        cells.iter().enumerate().filter_map(|(place, (row, _))| Some((place, sign * mean(*row)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let ranked = column.best.as_ref().filter(|best| best.power.is_some() || best.distinguishable);
    let meaning = match ranked {
        None => format!("colours: the {} best means of {} (not ranked)", order.len().min(COLOURS), column.title),
        Some(best) => {
            let may_be_best = |cell: &String| *cell == best.cell || best.indistinguishable.contains(cell);
            order.retain(|(place, _)| may_be_best(&cells[*place].1.cell));
            match (best.distinguishable, order.len()) {
                (_, 0) => format!("no line has a colour: the best cells by {} are not kept", column.title),
                (true, _) => format!("colour: the best cell by {}", column.title),
                (false, few) if few <= COLOURS => {
                    format!("colours: the cells that may be the best by {}", column.title)
                }
                (false, many) => {
                    format!(
                        "colours: {COLOURS} of the {many} cells that may be the best by {}, those with the best means",
                        column.title
                    )
                }
            }
        }
    };
    for (slot, (place, _)) in order.into_iter().take(COLOURS).enumerate() {
        cells[place].1.slot = slot + 1;
    }
    meaning
}

/// The chart, in CSS pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ParallelPlot {
    pub width: f64,
    pub height: f64,
    pub top: f64,
    pub bottom: f64,
    pub axes: Vec<PlottedAxis>,
    /// The grey lines first, so that coloured ones are above them.
    pub lines: Vec<PlottedLine>,
    /// How many lines are not drawn.
    pub undrawn: usize,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PlottedAxis {
    pub x: f64,
    pub name: String,
    pub short: String,
    /// What is at the top: `lower`, `higher`, or empty.
    pub better: &'static str,
    pub ticks: Vec<PlotTick>,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PlottedLine {
    pub cell: String,
    pub slot: usize,
    pub path: String,
    pub title: String,
}

/// Lays out the chart; `None` with fewer than two dimensions, or without a cell.
pub(crate) fn plot_cells(view: &ParallelView) -> Option<ParallelPlot> {
    let count = view.dimensions.len();
    if count < 2 || view.cells.is_empty() {
        return None;
    }
    let step = (WIDTH / (count - 1) as f64).max(STEP);
    let placed: Vec<(f64, AxisScale)> =
        (0..count).map(|at| (((LEFT + step * at as f64) * 10.0).round() / 10.0, AxisScale::of(view, at))).collect();
    let axis = |(dimension, (x, scale)): (&Dimension, &(f64, AxisScale))| PlottedAxis {
        x: *x,
        short: fit_text(&dimension.name, (step / 8.0) as usize),
        name: dimension.name.clone(),
        better: dimension.direction.split(' ').next().unwrap_or_default(),
        ticks: scale.ticks.clone(),
    };
    let drawn = &view.cells[..view.cells.len().min(MOST_LINES)];
    let line = |cell: &ParallelCell| {
        let texts = std::iter::zip(&view.dimensions, &cell.values).map(|(dimension, value)| {
            format!("{}: {}", dimension.name, value.as_ref().map_or("no value", |value| &value.text))
        });
        let title = std::iter::once(cell.cell.clone()).chain(texts).collect::<Vec<_>>().join("\n");
        PlottedLine { cell: cell.cell.clone(), slot: cell.slot, path: path(cell, &placed), title }
    };
    Some(ParallelPlot {
        width: LEFT + step * (count - 1) as f64 + RIGHT,
        height: HEIGHT,
        top: TOP,
        bottom: HEIGHT - BOTTOM,
        axes: std::iter::zip(&view.dimensions, &placed).map(axis).collect(),
        lines: drawn.iter().rev().map(line).collect(),
        undrawn: view.cells.len() - drawn.len(),
    })
}

/// The line of a cell, with a gap where it has no value.
fn path(cell: &ParallelCell, placed: &[(f64, AxisScale)]) -> String {
    let (mut path, mut pen_is_up) = (String::new(), true);
    for (value, (x, scale)) in std::iter::zip(&cell.values, placed) {
        match value.as_ref().and_then(|value| scale.place(value)) {
            Some(y) => {
                path.push_str(&format!("{}{x} {y}", if pen_is_up { "M" } else { "L" }));
                pen_is_up = false;
            }
            None => pen_is_up = true,
        }
    }
    path
}

/// Where the values of a dimension are on its axis.
struct AxisScale {
    /// Of values that are not numbers, in order.
    words: Option<Vec<String>>,
    scale: PlotScale,
    ticks: Vec<PlotTick>,
}

impl AxisScale {
    fn of(view: &ParallelView, at: usize) -> Self {
        let dimension = &view.dimensions[at];
        let ends = (HEIGHT - BOTTOM, TOP);
        let numbers: Vec<f64> = match dimension.is_metric {
            true => view.cells.iter().filter_map(|cell| cell.values[at].as_ref()?.number).collect(),
            false => dimension.values.iter().filter_map(|value| value.parse().ok()).collect(),
        };
        if !dimension.is_metric && numbers.len() < dimension.values.len() {
            let last = dimension.values.len().saturating_sub(1) as f64;
            let scale = PlotScale::new(0.0, last, ends, false);
            let tick = |(at, text): (usize, &String)| PlotTick { at: scale.place(at as f64), text: fit_text(text, 12) };
            let ticks = dimension.values.iter().enumerate().map(tick).collect();
            return AxisScale { words: Some(dimension.values.clone()), scale, ticks };
        }
        if !dimension.is_metric {
            // The values of an axis were chosen: each of them is a tick.
            let (low, high) = (numbers[0], numbers[numbers.len() - 1]);
            let scale = PlotScale::new(low, high, ends, low > 0.0 && high / low >= 4.0 && numbers.len() > 2);
            let stride = numbers.len().div_ceil(12);
            let shown = numbers.iter().step_by(stride);
            let ticks = shown.map(|&value| PlotTick { at: scale.place(value), text: number_text(value) }).collect();
            return AxisScale { words: None, scale, ticks };
        }
        let Some(range) = widen(&numbers) else {
            return AxisScale { words: None, scale: PlotScale::new(0.0, 1.0, ends, false), ticks: Vec::new() };
        };
        let ends = if dimension.direction == "lower is better" { (ends.1, ends.0) } else { ends };
        let scale = PlotScale::new(range.low, range.high, ends, range.log);
        AxisScale { words: None, ticks: axis_ticks(&range, &scale, &dimension.unit), scale }
    }

    fn place(&self, value: &ParallelValue) -> Option<f64> {
        match &self.words {
            Some(words) => words.iter().position(|word| *word == value.text).map(|at| self.scale.place(at as f64)),
            None => value.number.filter(|number| number.is_finite()).map(|number| self.scale.place(number)),
        }
    }
}

#[cfg(test)]
#[path = "parallel_tests.rs"]
mod tests;
