//! Curves of one metric: one a task, or one a cell with the range of its replicates.

use serde::Serialize;

/// What one task measured, as two columns of the same length.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Track {
    /// The task's place in its run.
    pub task: u32,
    /// The task's address.
    pub address: String,
    /// The cell that it is a replicate of.
    pub cell: String,
    /// The training steps, rising.
    pub steps: Vec<u64>,
    /// The values.
    pub values: Vec<f64>,
}

/// A line to draw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Curve {
    /// The task's address, or the cell's.
    pub label: String,
    /// The tasks behind it.
    pub tasks: Vec<u32>,
    /// Which colour and dash: the place of the cell in the run, so that a cell keeps its colour.
    pub slot: usize,
    /// The training steps.
    pub steps: Vec<u64>,
    /// The values, or the means over the replicates.
    #[serde(serialize_with = "super::numbers::floats")]
    pub values: Vec<f64>,
    /// The smallest and the largest of the replicates; `None` of a single one.
    pub range: Option<Range>,
}

/// The range of the replicates, step by step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Range {
    /// The smallest.
    #[serde(serialize_with = "super::numbers::floats")]
    pub low: Vec<f64>,
    /// The largest.
    #[serde(serialize_with = "super::numbers::floats")]
    pub high: Vec<f64>,
}

/// How the tasks of a run are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum By {
    /// One line a cell: the mean, with the range of the replicates.
    Cell,
    /// One line a task.
    Task,
}

impl By {
    /// As in a query; a cell by default.
    pub fn of(text: Option<&str>) -> Self {
        if text == Some("task") { By::Task } else { By::Cell }
    }
}

/// Draws tracks as curves.
pub(crate) fn curves(tracks: &[Track], by: By) -> Vec<Curve> {
    let mut cells: Vec<(&str, Vec<&Track>)> = Vec::new();
    for track in tracks.iter().filter(|track| !track.steps.is_empty()) {
        match cells.iter_mut().find(|(cell, _)| *cell == track.cell) {
            Some((_, members)) => members.push(track),
            None => cells.push((&track.cell, vec![track])),
        }
    }
    let numbered = cells.into_iter().enumerate();
    match by {
        By::Cell => numbered.map(|(slot, (cell, members))| together(cell, slot, &members)).collect(),
        By::Task => {
            numbered.flat_map(|(slot, (_, members))| members.into_iter().map(move |m| alone(slot, m))).collect()
        }
    }
}

fn alone(slot: usize, track: &Track) -> Curve {
    Curve {
        label: track.address.clone(),
        tasks: vec![track.task],
        slot,
        steps: track.steps.clone(),
        values: track.values.clone(),
        range: None,
    }
}

/// The replicates of a cell as one line. At each step that some replicate has, every replicate that has come so far
/// takes part: with its own value, or interpolated between its neighbouring steps.
fn together(cell: &str, slot: usize, tracks: &[&Track]) -> Curve {
    let mut steps: Vec<u64> = tracks.iter().flat_map(|track| track.steps.iter().copied()).collect();
    steps.sort_unstable();
    steps.dedup();
    let (mut values, mut low, mut high) = (Vec::new(), Vec::new(), Vec::new());
    for &step in &steps {
        let here: Vec<f64> = tracks.iter().filter_map(|track| at(track, step)).collect();
        values.push(here.iter().sum::<f64>() / here.len() as f64);
        // `f64::min` passes over NaN; a range that hides a diverged replicate would be a lie.
        let spoiled = here.iter().any(|value| value.is_nan());
        let fold =
            |pick: fn(f64, f64) -> f64, start| if spoiled { f64::NAN } else { here.iter().copied().fold(start, pick) };
        low.push(fold(f64::min, f64::INFINITY));
        high.push(fold(f64::max, f64::NEG_INFINITY));
    }
    let range = (tracks.len() > 1).then_some(Range { low, high });
    Curve { label: cell.to_owned(), tasks: tracks.iter().map(|track| track.task).collect(), slot, steps, values, range }
}

/// The value of a track at a step; `None` outside its steps.
fn at(track: &Track, step: u64) -> Option<f64> {
    match track.steps.binary_search(&step) {
        Ok(place) => track.values.get(place).copied(),
        Err(0) => None,
        Err(place) => {
            let (x0, x1) = (*track.steps.get(place - 1)?, *track.steps.get(place)?);
            let (y0, y1) = (*track.values.get(place - 1)?, *track.values.get(place)?);
            // In floats, which cannot overflow where steps do not rise as they should.
            Some(y0 + (y1 - y0) * ((step as f64 - x0 as f64) / (x1 as f64 - x0 as f64)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(task: u32, cell: &str, points: &[(u64, f64)]) -> Track {
        let (steps, values) = points.iter().copied().unzip();
        Track { task, address: format!("{cell}#{task}"), cell: cell.into(), steps, values }
    }

    #[test]
    fn replicates_are_drawn_together_as_far_as_each_has_come() {
        let tracks = [
            track(1, "a", &[(0, 4.0), (10, 2.0), (20, 1.0)]),
            track(2, "a", &[(0, 2.0), (10, 1.0)]),
            track(3, "b", &[(0, 9.0)]),
            track(4, "c", &[]),
        ];
        let drawn = curves(&tracks, By::Cell);
        assert_eq!(drawn.len(), 2);
        assert_eq!((drawn[0].values.clone(), drawn[0].slot), (vec![3.0, 1.5, 1.0], 0));
        let range = drawn[0].range.clone().unwrap();
        assert_eq!((range.low, range.high), (vec![2.0, 1.0, 1.0], vec![4.0, 2.0, 1.0]));
        assert_eq!((drawn[1].label.as_str(), drawn[1].slot, &drawn[1].range), ("b", 1, &None));
    }

    #[test]
    fn thinned_replicates_meet_between_their_points() {
        let drawn = curves(&[track(1, "a", &[(0, 0.0), (10, 10.0)]), track(2, "a", &[(0, 2.0), (5, 7.0)])], By::Cell);
        assert_eq!(drawn[0].steps, [0, 5, 10]);
        assert_eq!(drawn[0].values, [1.0, 6.0, 10.0]);
    }

    #[test]
    fn steps_that_do_not_rise_do_no_harm() {
        let drawn =
            curves(&[track(1, "a", &[(9, 1.0), (3, 2.0), (3, 0.5), (7, 0.5)]), track(2, "a", &[(5, 1.0)])], By::Cell);
        assert_eq!(drawn[0].steps, [3, 5, 7, 9]);
    }

    #[test]
    fn tasks_of_one_cell_share_its_colour() {
        let drawn =
            curves(&[track(1, "a", &[(0, 1.0)]), track(2, "b", &[(0, 1.0)]), track(3, "a", &[(0, 1.0)])], By::Task);
        let slots: Vec<(&str, usize)> = drawn.iter().map(|curve| (curve.label.as_str(), curve.slot)).collect();
        assert_eq!(slots, [("a#1", 0), ("a#3", 0), ("b#2", 1)]);
    }

    #[test]
    fn a_diverged_replicate_leaves_a_gap() {
        let drawn = curves(&[track(1, "a", &[(0, 1.0)]), track(2, "a", &[(0, f64::NAN)])], By::Cell);
        assert!(drawn[0].values[0].is_nan() && drawn[0].range.as_ref().unwrap().low[0].is_nan());
    }
}
