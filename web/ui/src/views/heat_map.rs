//! A sweep over two axes as a heat map: the places of cells and their texts, in CSS pixels, for the page's template.

use serde::Serialize;

use super::plot::{describe_cell, fit_text, number_text};
use super::sweep::{Sweep, SweepCell};

/// How many colours the style sheet has for cells, from the worse to the better end.
pub(crate) const SHADES: usize = 9;

/// A heat map.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HeatMap {
    pub width: f64,
    pub height: f64,
    /// The size of a cell.
    pub cell_width: f64,
    pub cell_height: f64,
    /// Where the grid begins.
    pub left: f64,
    pub top: f64,
    /// The axis across and the values on it.
    pub across: String,
    pub columns: Vec<Label>,
    /// The axis upwards and the values on it, the first at the bottom.
    pub upwards: String,
    pub rows: Vec<Label>,
    pub cells: Vec<HeatCell>,
    /// The ends of the colours; `None` if all cells have one colour.
    pub scale: Option<Scale>,
    /// Whether some cell has no value.
    pub has_missing: bool,
    /// Whether some cell may be the best.
    pub has_marked: bool,
}

/// A value of an axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Label {
    /// The middle of its row or column.
    pub at: f64,
    /// What fits.
    pub short: String,
    /// All of it.
    pub text: String,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HeatCell {
    pub x: f64,
    pub y: f64,
    /// Its colour, from 0 to [`SHADES`] - 1; `None` without a value, or while it is provisional.
    pub shade: Option<usize>,
    /// Lines of text that fit into it, the value first.
    pub lines: Vec<String>,
    /// All that is known of it.
    pub title: String,
    /// The first of its tasks.
    pub task: Option<u32>,
    /// The cell of the run that this one is.
    pub cell: Option<String>,
    pub best: bool,
    pub may_be_best: bool,
    pub provisional: bool,
    /// Whether it has no value at all.
    pub missing: bool,
    /// Whether some of its replicates have none.
    pub partial: bool,
}

/// The values at the ends of the colours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Scale {
    /// The value at the first shade, and whether that end is the better or the worse one; empty where neither is.
    pub first: String,
    pub first_is: &'static str,
    /// The same of the last shade.
    pub last: String,
    pub last_is: &'static str,
}

/// The width and height of cells, by the number of columns. Text that does not fit is left out.
fn cell_size(columns: usize, rows: usize) -> (f64, f64) {
    let width = match columns {
        0..=8 => 96.0,
        9..=14 => 64.0,
        _ => 34.0,
    };
    let height = if rows <= 12 && width > 60.0 { 56.0 } else { 26.0 };
    (width, height)
}

/// Lays out the cells over two axes; `None` of a sweep over fewer, or without cells.
pub(crate) fn draw_heat_map(sweep: &Sweep) -> Option<HeatMap> {
    let (x, y) = (sweep.x.as_deref()?, sweep.y.as_deref()?);
    (!sweep.cells.is_empty()).then(|| lay_out_cells(sweep, x, y))
}

fn lay_out_cells(sweep: &Sweep, x: &str, y: &str) -> HeatMap {
    let (columns, rows) = (sweep.values(&sweep.x), sweep.values(&sweep.y));
    let (cell_width, cell_height) = cell_size(columns.len(), rows.len());
    let longest = rows.iter().map(|row| row.chars().count()).max().unwrap_or(0).min(18);
    let (left, top) = (32.0 + 7.5 * longest as f64, 6.0);
    let grid_height = cell_height * rows.len() as f64;
    let ends = colour_ends(sweep);
    let lower_is_better = sweep.direction == "lower is better";
    let mut cells = Vec::new();
    for (row, row_value) in rows.iter().enumerate() {
        for (column, column_value) in columns.iter().enumerate() {
            let Some(cell) = sweep.cell(column_value, row_value) else { continue };
            let place = (left + cell_width * column as f64, top + grid_height - cell_height * (row + 1) as f64);
            cells.push(heat_cell(sweep, cell, (x, y), place, (cell_width, cell_height), ends, lower_is_better));
        }
    }
    let label = |at: f64, text: &String, most: usize| Label { at, short: fit_text(text, most), text: text.clone() };
    let column_letters = (cell_width / 8.0) as usize;
    HeatMap {
        width: left + cell_width * columns.len() as f64 + 4.0,
        height: top + grid_height + 44.0,
        cell_width,
        cell_height,
        left,
        top,
        across: x.to_owned(),
        columns: columns
            .iter()
            .enumerate()
            .map(|(at, text)| label(left + cell_width * (at as f64 + 0.5), text, column_letters))
            .collect(),
        upwards: y.to_owned(),
        rows: rows
            .iter()
            .enumerate()
            .map(|(at, text)| label(top + grid_height - cell_height * (at as f64 + 0.5), text, 18))
            .collect(),
        has_missing: cells.iter().any(|cell| cell.missing || cell.partial),
        has_marked: cells.iter().any(|cell| cell.best || cell.may_be_best),
        cells,
        scale: ends.map(|ends| scale(ends, lower_is_better, sweep)),
    }
}

fn scale((low, high): (f64, f64), lower_is_better: bool, sweep: &Sweep) -> Scale {
    let (first, last) = if lower_is_better { (high, low) } else { (low, high) };
    let directed = !sweep.direction.is_empty();
    let text = |value: f64| assay_statistics::format::quantity(value, sweep.unit);
    Scale {
        first: text(first),
        first_is: if directed { "worse" } else { "" },
        last: text(last),
        last_is: if directed { "better" } else { "" },
    }
}

fn heat_cell(
    sweep: &Sweep,
    cell: &SweepCell,
    axes: (&str, &str),
    (x, y): (f64, f64),
    (width, height): (f64, f64),
    ends: Option<(f64, f64)>,
    lower_is_better: bool,
) -> HeatCell {
    let mean = cell.measured.mean.filter(|_| !cell.provisional);
    let shade = mean.map(|mean| {
        let share = ends.map_or(0.5, |(low, high)| (mean - low) / (high - low));
        let share = if lower_is_better { 1.0 - share } else { share };
        ((share * SHADES as f64) as usize).min(SHADES - 1)
    });
    let mut lines = Vec::new();
    if width > 60.0 {
        match cell.measured.mean {
            Some(_) => {
                let (value, spread) = split_spread(&cell.measured.text);
                lines.push(value.to_owned());
                lines.extend(spread.map(|spread| format!("± {spread}")));
            }
            None => lines.extend(cell.measured.text.split(", ").map(str::to_owned)),
        }
        lines.push(if cell.missing_text.is_empty() {
            format!("n = {}", cell.measured.n)
        } else {
            cell.missing_text.clone()
        });
        lines.dedup();
    } else if let (Some(mean), true) = (cell.measured.mean, width > 36.0) {
        lines.push(number_text(mean));
    }
    let most = (width / 6.4) as usize;
    lines.truncate((height / 17.0) as usize);
    HeatCell {
        x,
        y,
        shade,
        lines: lines.iter().map(|line| fit_text(line, most)).collect(),
        title: describe_cell(sweep, cell, &[axes.0, axes.1]),
        task: cell.tasks.first().copied(),
        cell: cell.cell.clone(),
        best: cell.best,
        may_be_best: cell.may_be_best,
        provisional: cell.provisional,
        missing: cell.measured.mean.is_none() && !cell.provisional,
        partial: cell.measured.mean.is_some() && !cell.missing_text.is_empty(),
    }
}

/// A value and its uncertainty apart.
fn split_spread(text: &str) -> (&str, Option<&str>) {
    text.split_once(" ± ").map_or((text, None), |(value, spread)| (value, Some(spread)))
}

/// The values at the ends of the colour scale: those of all intervals and observations. A scale over the means alone would
/// paint their scatter in full contrast. None where nothing scatters, or no cell has a mean.
pub(crate) fn colour_ends(sweep: &Sweep) -> Option<(f64, f64)> {
    let cells = sweep.cells.iter().filter_map(|cell| Some((cell.measured.mean?, &cell.measured)));
    let ends = cells.flat_map(|(mean, measured)| {
        let half = measured.half_width.unwrap_or(0.0);
        measured.values.iter().copied().chain([mean - half, mean + half])
    });
    let (low, high) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), end| (low.min(end), high.max(end)));
    (low < high && low.is_finite() && high.is_finite()).then_some((low, high))
}
