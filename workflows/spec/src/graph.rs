//! The graph of jobs and their needs, and a topological order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::draft::{DraftJob, Reader};
use crate::expression::Name;
use crate::suggest;

/// The jobs' needs, as indices of the file's list of jobs.
#[derive(Debug)]
pub(crate) struct Graph {
    /// What `needs` lists.
    pub needs: Vec<Vec<usize>>,
    /// What `strategy.each` lists.
    pub each: Vec<Vec<usize>>,
    /// The jobs whose needs are all known and acyclic, in topological order, otherwise in the order of the file.
    pub order: Vec<usize>,
}

/// Looks up names, and reports unknown names and cycles.
pub(crate) fn build(reader: &mut Reader<'_>, jobs: &[DraftJob]) -> Graph {
    let mut sound = vec![true; jobs.len()];
    let places: BTreeMap<&str, usize> =
        jobs.iter().enumerate().map(|(place, job)| (job.name.name.as_str(), place)).collect();
    let mut graph = Graph { needs: Vec::new(), each: Vec::new(), order: Vec::new() };
    for (place, job) in jobs.iter().enumerate() {
        let mut look_up = |names: &[Name], key: &str| {
            let mut found = Vec::new();
            for name in names {
                match places.get(name.name.as_str()) {
                    Some(&other) if other == place => {
                        let hint = "a job runs after what it needs: name another job, or leave it out".to_owned();
                        reader.report(name.span, format!("`{}` needs itself", name.name), hint);
                    }
                    Some(&other) => {
                        found.push(other);
                        continue;
                    }
                    None => {
                        let known = places.keys().copied().filter(|known| *known != job.name.name);
                        let hint = suggest::hint(&name.name, known, "jobs");
                        reader.report(name.span, format!("unknown job `{}` in `{key}`", name.name), hint);
                    }
                }
                sound[place] = false;
            }
            found
        };
        let needs = look_up(&job.needs, "needs");
        let each = look_up(&job.each, "each");
        graph.needs.push(needs);
        graph.each.push(each);
    }
    let reached = order(&graph, jobs.len());
    report_circles(reader, jobs, &graph, &reached);
    for &place in &reached {
        sound[place] &= graph.all(place).all(|other| sound[other]);
    }
    graph.order = reached.into_iter().filter(|&place| sound[place]).collect();
    graph
}

impl Graph {
    /// The jobs that a job needs through either key, possibly with duplicates.
    pub fn all(&self, job: usize) -> impl Iterator<Item = usize> {
        self.needs[job].iter().chain(&self.each[job]).copied()
    }
}

/// Kahn's algorithm, in the order of the file; jobs in or after a cycle are not reached.
fn order(graph: &Graph, count: usize) -> Vec<usize> {
    let mut missing: Vec<usize> = (0..count).map(|job| graph.all(job).count()).collect();
    let mut waiting = vec![Vec::new(); count];
    for job in 0..count {
        graph.all(job).for_each(|other| waiting[other].push(job));
    }
    let mut ready: BinaryHeap<_> = (0..count).filter(|&job| missing[job] == 0).map(Reverse).collect();
    let mut order = Vec::new();
    while let Some(Reverse(job)) = ready.pop() {
        order.push(job);
        for &other in &waiting[job] {
            missing[other] -= 1;
            if missing[other] == 0 {
                ready.push(Reverse(other));
            }
        }
    }
    order
}

/// Reports each cycle once. Every job that was not reached has a need that was not reached, so the walk must return to
/// a visited job.
fn report_circles(reader: &mut Reader<'_>, jobs: &[DraftJob], graph: &Graph, reached: &[usize]) {
    let mut done = vec![false; jobs.len()];
    reached.iter().for_each(|&job| done[job] = true);
    for start in 0..jobs.len() {
        let mut walk: Vec<usize> = Vec::new();
        let mut on_walk: BTreeMap<usize, usize> = BTreeMap::new();
        let mut next = Some(start);
        while let Some(job) = next.filter(|&job| !done[job]) {
            if let Some(&from) = on_walk.get(&job) {
                report_circle(reader, jobs, &walk[from..]);
                break;
            }
            on_walk.insert(job, walk.len());
            walk.push(job);
            // A neighbour that is done was either reached or is in a cycle that was already reported.
            next = graph.all(job).find(|&other| !done[other]);
        }
        walk.iter().for_each(|&job| done[job] = true);
    }
}

fn report_circle(reader: &mut Reader<'_>, jobs: &[DraftJob], circle: &[usize]) {
    // The report starts with the first job in the file, wherever the walk entered the cycle.
    let first = circle.iter().enumerate().min_by_key(|(_, job)| **job).map_or(0, |(at, _)| at);
    let circle: Vec<&DraftJob> = circle.iter().cycle().skip(first).take(circle.len()).map(|&job| &jobs[job]).collect();
    let (Some(&job), Some(&next)) = (circle.first(), circle.get(1).or(circle.first())) else { return };
    let span =
        job.needs.iter().chain(&job.each).find(|name| name.name == next.name.name).map_or(job.name.span, |n| n.span);
    let mut names: Vec<&str> = circle.iter().map(|job| job.name.name.as_str()).collect();
    names.push(&job.name.name);
    let shown = if names.len() > 12 {
        format!(
            "{} -> ... ({} jobs) ... -> {}",
            names[..6].join(" -> "),
            names.len() - 1,
            names[names.len() - 3..].join(" -> ")
        )
    } else {
        names.join(" -> ")
    };
    let hint = "a job runs after everything that it needs: remove one of these needs".to_owned();
    reader.report(span, format!("jobs need each other in a cycle: {shown}"), hint);
}
