//! The graph of a run, laid out for SVG: a column for each layer of jobs, a box for each job, a square for each task.

use std::collections::{BTreeMap, BTreeSet};

use assay_server::TaskStateName;
use assay_store::TaskView;
use serde::Serialize;

use super::format::count;
use super::states::{self, StateView, of_task};

/// The drawing; lengths are in SVG user units, which are CSS pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Graph {
    /// The width of all.
    pub width: u32,
    /// The height of all.
    pub height: u32,
    /// The jobs.
    pub jobs: Vec<JobBox>,
    /// What needs what.
    pub edges: Vec<Edge>,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct JobBox {
    /// Its name.
    pub name: String,
    /// Its name, cut to the box.
    pub short: String,
    /// Its step kind.
    pub kind: String,
    /// How many of its tasks have results, such as `12/16`, and how many failed or were skipped: `12/16 ✕3 –1`.
    pub done: String,
    /// For a reader who does not see the squares.
    pub text: String,
    /// The left edge.
    pub x: u32,
    /// The upper edge.
    pub y: u32,
    /// The width.
    pub width: u32,
    /// The height.
    pub height: u32,
    /// Its tasks.
    pub cells: Vec<TaskCell>,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TaskCell {
    /// Its place in the run.
    pub ix: u32,
    /// Its address.
    pub address: String,
    /// Its state.
    pub state: StateView,
    /// What the state cannot say.
    pub detail: String,
    /// The left edge of its square.
    pub x: u32,
    /// The upper edge of its square.
    pub y: u32,
}

/// That one job needs another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Edge {
    /// The job that is needed.
    pub from: String,
    /// The job that needs it.
    pub to: String,
    /// The line, as the `d` of an SVG path.
    pub path: String,
}

/// The side of a task's square.
pub(crate) const CELL: u32 = 22;
const STEP: u32 = CELL + 4;
const PAD: u32 = 10;
const HEAD: u32 = 44;
const GAP_X: u32 = 48;
const GAP_Y: u32 = 16;
const NARROWEST: u32 = 132;
/// About the width of a character of a job's name.
const CHARACTER: u32 = 8;
const LONGEST_NAME: usize = 26;

/// Lays out the tasks of one run, in their order.
pub(crate) fn graph(tasks: &[TaskView]) -> Graph {
    let (names, members) = jobs_of(tasks);
    let needs = needs_of(tasks, &names);
    let layers = layers_of(&needs);
    let boxes: Vec<JobBox> = members.iter().enumerate().map(|(job, tasks)| job_box(&names[job], tasks)).collect();
    let (boxes, width, height) = place(boxes, &layers, &needs);
    let edges = reduced(&needs)
        .into_iter()
        .map(|(from, to)| Edge {
            from: names[from].clone(),
            to: names[to].clone(),
            path: path(&boxes[from], &boxes[to]),
        })
        .collect();
    Graph { width, height, jobs: boxes, edges }
}

/// The jobs in the order of their first tasks, and their tasks.
fn jobs_of(tasks: &[TaskView]) -> (Vec<String>, Vec<Vec<&TaskView>>) {
    let (mut names, mut members): (Vec<String>, Vec<Vec<&TaskView>>) = (Vec::new(), Vec::new());
    for task in tasks {
        match names.iter().position(|name| *name == task.job) {
            Some(job) => members[job].push(task),
            None => {
                names.push(task.job.clone());
                members.push(vec![task]);
            }
        }
    }
    (names, members)
}

/// For each job the jobs that it needs.
fn needs_of(tasks: &[TaskView], names: &[String]) -> Vec<BTreeSet<usize>> {
    let place: BTreeMap<&str, usize> = names.iter().enumerate().map(|(job, name)| (name.as_str(), job)).collect();
    let job_of = |task: &TaskView| place.get(task.job.as_str()).copied();
    let mut needs = vec![BTreeSet::new(); names.len()];
    for task in tasks {
        let Some(job) = job_of(task) else { continue };
        let upstream = task.needs.iter().filter_map(|need| tasks.get(need.0 as usize)).filter_map(job_of);
        needs[job].extend(upstream.filter(|other| *other != job));
    }
    needs
}

/// The layer of each job: one more than the last that it needs. Jobs of a checked workflow have no cycle; were there one,
/// the rounds would end all the same.
fn layers_of(needs: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut layers = vec![0; needs.len()];
    for _ in 0..needs.len() {
        let next: Vec<usize> =
            needs.iter().map(|needs| needs.iter().map(|&job| layers[job] + 1).max().unwrap_or(0)).collect();
        if next == layers {
            break;
        }
        layers = next;
    }
    layers
}

/// The edges that are not implied by others, so that a drawing of many jobs stays legible.
fn reduced(needs: &[BTreeSet<usize>]) -> Vec<(usize, usize)> {
    let implied = |from: usize, to: usize| {
        let (mut seen, mut open): (BTreeSet<usize>, Vec<usize>) =
            (BTreeSet::new(), needs[to].iter().copied().filter(|job| *job != from).collect());
        while let Some(job) = open.pop() {
            if needs[job].contains(&from) {
                return true;
            }
            open.extend(needs[job].iter().copied().filter(|next| seen.insert(*next)));
        }
        false
    };
    let all = needs.iter().enumerate().flat_map(|(to, needs)| needs.iter().map(move |from| (*from, to)));
    all.filter(|&(from, to)| !implied(from, to)).collect()
}

/// A box of its own size, with its squares, at the origin.
fn job_box(name: &str, tasks: &[&TaskView]) -> JobBox {
    let columns = columns_of(tasks.len());
    let short = shortened(name);
    let title = (short.chars().count() + done_text(tasks).chars().count()) as u32 * CHARACTER + 12;
    let width = (columns * STEP + 2 * PAD - (STEP - CELL)).max(title + 2 * PAD).max(NARROWEST);
    let rows = (tasks.len() as u32).div_ceil(columns);
    let tally = states::tally(&states::count(tasks.iter().map(|task| task.state)));
    let cell = |(place, task): (usize, &&TaskView)| TaskCell {
        ix: task.ix.0,
        address: task.address.clone(),
        state: of_task(task.state),
        detail: task.detail.clone(),
        x: PAD + place as u32 % columns * STEP,
        y: HEAD + place as u32 / columns * STEP,
    };
    JobBox {
        name: name.to_owned(),
        short,
        kind: tasks.first().map(|task| task.kind.clone()).unwrap_or_default(),
        done: done_text(tasks),
        text: format!("{name}: {}, {}", count(tasks.len(), "task"), tally.text),
        x: 0,
        y: 0,
        width,
        height: HEAD + rows * STEP - (STEP - CELL) + PAD,
        cells: tasks.iter().enumerate().map(cell).collect(),
    }
}

/// How many tasks have results, and how many ended without one.
fn done_text(tasks: &[&TaskView]) -> String {
    use TaskStateName::{Cached, Cancelled, Failed, Skipped, Succeeded};
    let count = |states: &[TaskStateName]| tasks.iter().filter(|task| states.contains(&task.state)).count();
    let mut text = format!("{}/{}", count(&[Succeeded, Cached]), tasks.len());
    for state in [Failed, Skipped, Cancelled] {
        if count(&[state]) > 0 {
            text += &format!(" {}{}", of_task(state).glyph, count(&[state]));
        }
    }
    text
}

/// Wide rather than tall, at most sixteen.
fn columns_of(tasks: usize) -> u32 {
    let wide = (tasks as f64 * 1.6).sqrt().ceil() as u32;
    wide.clamp(1, 16).max((tasks as u32).min(4))
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= LONGEST_NAME {
        return name.to_owned();
    }
    name.chars().take(LONGEST_NAME - 1).chain(['…']).collect()
}

/// Puts the boxes into their columns, each column centred, and its boxes in the order of what they need.
fn place(mut boxes: Vec<JobBox>, layers: &[usize], needs: &[BTreeSet<usize>]) -> (Vec<JobBox>, u32, u32) {
    let depth = layers.iter().max().map_or(0, |last| last + 1);
    let mut columns: Vec<Vec<usize>> = vec![Vec::new(); depth];
    for (job, layer) in layers.iter().enumerate() {
        columns[*layer].push(job);
    }
    let height_of = |boxes: &[JobBox], jobs: &[usize]| -> u32 {
        let tall: u32 = jobs.iter().map(|job| boxes[*job].height).sum();
        tall + GAP_Y * (jobs.len() as u32).saturating_sub(1)
    };
    let tallest = columns.iter().map(|jobs| height_of(&boxes, jobs)).max().unwrap_or(0);
    let mut x = 1;
    for jobs in &mut columns {
        let middle = |boxes: &[JobBox], job: usize| {
            let sum: u32 = needs[job].iter().map(|need| boxes[*need].y + boxes[*need].height / 2).sum();
            sum / needs[job].len().max(1) as u32
        };
        jobs.sort_by_key(|job| (middle(&boxes, *job), *job));
        let mut y = 1 + (tallest - height_of(&boxes, jobs)) / 2;
        let width = jobs.iter().map(|job| boxes[*job].width).max().unwrap_or(0);
        for job in jobs.iter() {
            let target = &mut boxes[*job];
            (target.x, target.y, target.width) = (x, y, width);
            y += target.height + GAP_Y;
        }
        x += width + GAP_X;
    }
    (boxes, x.saturating_sub(GAP_X) + 1, tallest + 2)
}

/// From the middle of the right edge to the middle of the left one.
fn path(from: &JobBox, to: &JobBox) -> String {
    let (x0, y0) = (from.x + from.width, from.y + from.height / 2);
    let (x1, y1) = (to.x, to.y + to.height / 2);
    let bend = x1.saturating_sub(x0) / 2;
    format!("M{x0} {y0}C{} {y0} {} {y1} {} {y1}", x0 + bend, x1.saturating_sub(bend), x1.saturating_sub(5))
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
