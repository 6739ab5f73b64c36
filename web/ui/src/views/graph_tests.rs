//! Tests of the layout of the graph.

use std::collections::BTreeMap;

use assay_core::{RunId, TaskIx};
use assay_server::TaskStateName;
use assay_store::TaskView;
use proptest::prelude::*;

use super::*;

fn task(ix: u32, job: &str, needs: &[u32]) -> TaskView {
    TaskView {
        run: RunId(1),
        ix: TaskIx(ix),
        address: format!("{job}[{ix}]"),
        cell: format!("{job}[{ix}]"),
        job: job.into(),
        kind: "train".into(),
        matrix: BTreeMap::new(),
        replicate: None,
        needs: needs.iter().copied().map(TaskIx).collect(),
        each: None,
        state: TaskStateName::Waiting,
        detail: String::new(),
        config: None,
        cache_key: None,
        outputs: BTreeMap::new(),
        metrics: BTreeMap::new(),
        source: None,
        attempts: 0,
        started_at: None,
        ended_at: None,
    }
}

fn edges(graph: &Graph) -> Vec<(&str, &str)> {
    graph.edges.iter().map(|edge| (edge.from.as_str(), edge.to.as_str())).collect()
}

#[test]
fn jobs_stand_behind_what_they_need_and_implied_edges_are_left_out() {
    let tasks = [task(0, "data", &[]), task(1, "train", &[0]), task(2, "train", &[0]), task(3, "report", &[0, 1, 2])];
    let graph = graph(&tasks);
    let x: Vec<u32> = graph.jobs.iter().map(|job| job.x).collect();
    assert!(x[0] < x[1] && x[1] < x[2], "{x:?}");
    assert_eq!(edges(&graph), [("data", "train"), ("train", "report")]);
    assert_eq!(graph.jobs[1].text, "train: 2 tasks, 2 waiting");
}

#[test]
fn many_tasks_make_a_compact_box() {
    let tasks: Vec<TaskView> = (0..64).map(|ix| task(ix, "train", &[])).collect();
    let graph = graph(&tasks);
    assert!(graph.width < 400 && graph.height < 260, "{} x {}", graph.width, graph.height);
}

#[test]
fn no_tasks_make_an_empty_drawing() {
    let graph = graph(&[]);
    assert_eq!((graph.jobs.len(), graph.edges.len()), (0, 0));
}

#[test]
fn needs_that_point_nowhere_or_in_circles_do_no_harm() {
    let tasks = [task(0, "a", &[1, 7]), task(1, "b", &[0]), task(2, "b", &[2])];
    assert_eq!(graph(&tasks).jobs.len(), 2);
}

proptest! {
    #[test]
    fn boxes_do_not_overlap_and_stay_inside(jobs in prop::collection::vec((0..6_u32, prop::collection::vec(0..40_u32, 0..3)), 1..40)) {
        let tasks: Vec<TaskView> = jobs
            .iter()
            .enumerate()
            .map(|(ix, (job, needs))| {
                let needs: Vec<u32> = needs.iter().copied().filter(|need| (*need as usize) < ix).collect();
                task(ix as u32, &format!("job-{job}"), &needs)
            })
            .collect();
        let graph = graph(&tasks);
        for (at, a) in graph.jobs.iter().enumerate() {
            prop_assert!(a.x + a.width <= graph.width && a.y + a.height <= graph.height);
            for cell in &a.cells {
                prop_assert!(cell.x + CELL <= a.width && cell.y + CELL <= a.height);
            }
            for b in &graph.jobs[at + 1..] {
                let apart = a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
                prop_assert!(apart, "{} and {}", a.name, b.name);
            }
        }
    }
}
