//! The tasks of a needed job that a task selects: those that agree with it.
//!
//! A task of `J` agrees with a task that needs `J` if they have the same values on all axes that both have, and the
//! same replicate if both have one. If the task is derived from a task of `J` through `each`, it selects that task.

use std::collections::{BTreeMap, BTreeSet};

use crate::draft::{DraftJob, Reader};
use crate::expand::lineage;
use crate::expression::Computed;
use crate::suggest;
use crate::workflow::Task;

/// The maximum number of pairs of a task and a task that it needs.
const MAX_EDGES: usize = 2_000_000;

/// The tasks of one job, indexed by the values that they share with others.
struct Index<'a> {
    tasks: &'a [Task],
    /// Grouped by their axes and whether they have a replicate; most jobs have one group.
    groups: BTreeMap<(Vec<&'a str>, bool), Vec<usize>>,
    /// Per group and shared axes: the tasks by their values on these axes.
    by_values: BTreeMap<(usize, Vec<&'a str>, bool), Places>,
}

/// Indices of tasks by their values on some axes.
type Places = BTreeMap<String, Vec<usize>>;

impl<'a> Index<'a> {
    fn new(tasks: &'a [Task], places: &[usize]) -> Self {
        let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for &place in places {
            let Some(task) = tasks.get(place) else { continue };
            let axes: Vec<&str> = task.matrix.keys().map(String::as_str).collect();
            groups.entry((axes, task.replicate.is_some())).or_default().push(place);
        }
        Index { tasks, groups, by_values: BTreeMap::new() }
    }

    /// The tasks that agree with a task, in order.
    fn agreeing(&mut self, task: &Task) -> Vec<usize> {
        let mut found = Vec::new();
        for (number, ((axes, replicated), places)) in self.groups.iter().enumerate() {
            let shared: Vec<&str> = axes.iter().copied().filter(|axis| task.matrix.contains_key(*axis)).collect();
            let replicated = *replicated && task.replicate.is_some();
            let wanted = values(task, &shared, replicated);
            let tasks = self.tasks;
            let by_values = self.by_values.entry((number, shared.clone(), replicated)).or_insert_with(|| {
                let mut by_values = Places::new();
                for &place in places {
                    by_values.entry(values(&tasks[place], &shared, replicated)).or_default().push(place);
                }
                by_values
            });
            found.extend(by_values.get(&wanted).into_iter().flatten());
        }
        found.sort_unstable();
        found
    }
}

/// A task's values on some axes, as a key.
fn values(task: &Task, axes: &[&str], replicated: bool) -> String {
    let mut key = String::new();
    for axis in axes {
        crate::key::write_canonical(task.matrix.get(*axis).unwrap_or(&serde_json::Value::Null), &mut key);
        key.push(',');
    }
    if replicated {
        key.push_str(&format!("#{}", task.replicate.unwrap_or(1)));
    }
    key
}

/// Sets the needs of a job's `tasks`, which come after those in `before`. `needed` are the jobs in `needs`, each with
/// its name and its tasks; of the jobs in `whole`, every task is needed.
///
/// Returns `false`, with a problem, if no task agrees with a task, or if there are too many pairs in total.
pub(crate) fn needs(
    reader: &mut Reader<'_>,
    draft: &DraftJob,
    tasks: &mut [Task],
    before: &[Task],
    needed: &[(&str, &[usize])],
    whole: &BTreeSet<&str>,
    edges: &mut usize,
) -> bool {
    let mut indexes: Vec<_> = needed.iter().map(|(name, places)| (*name, Index::new(before, places))).collect();
    for task in tasks {
        let mut found: BTreeSet<usize> = task.each.into_iter().collect();
        let line: Vec<usize> = lineage(task.each, before).collect();
        for (name, index) in &mut indexes {
            if let Some(place) = line.iter().find(|&&place| before[place].job == *name) {
                found.insert(*place);
                continue;
            }
            let agreeing = match whole.contains(*name) {
                true => index.groups.values().flatten().copied().collect(),
                false => index.agreeing(task),
            };
            if agreeing.is_empty() {
                report_stranger(reader, draft, task, name);
                return false;
            }
            *edges += agreeing.len();
            if *edges > MAX_EDGES {
                let message = format!("the tasks of `{}` have too many needs in all", draft.name.name);
                let hint = "share an axis, or use `strategy.each`, so that each task needs fewer".to_owned();
                reader.report(draft.name.span, message, hint);
                return false;
            }
            found.extend(agreeing);
        }
        task.needs = found.into_iter().collect();
    }
    true
}

fn report_stranger(reader: &mut Reader<'_>, draft: &DraftJob, task: &Task, name: &str) {
    let span = draft.needs.iter().find(|need| need.name == name).map_or(draft.name.span, |need| need.span);
    let message = format!("no task of `{name}` agrees with `{}` on the axes that both have", task.address);
    let hint = "give the axes the same values in both jobs, or exclude the cell here".to_owned();
    reader.report(span, message, hint);
}

/// Reports each `needs.JOB.outputs` that does not select exactly one task in every cell.
pub(crate) fn check_outputs(reader: &mut Reader<'_>, computed: &[&Computed], tasks: &[Task], all: &[Task]) {
    let mut answers: BTreeMap<&str, Option<(String, String)>> = BTreeMap::new();
    for path in computed.iter().flat_map(|computed| &computed.paths).filter(|path| path.root.name == "needs") {
        let [job, outputs, ..] = path.steps.as_slice() else { continue };
        if !matches!(outputs.name.as_str(), "outputs" | "metrics") {
            continue;
        }
        let answer = answers.entry(&job.name).or_insert_with(|| ambiguity(&job.name, tasks, all));
        if let Some((message, hint)) = answer {
            reader.report(job.span, message.clone(), hint.clone());
        }
    }
}

/// The problem if some task selects no task or several tasks of a job.
fn ambiguity(job: &str, tasks: &[Task], all: &[Task]) -> Option<(String, String)> {
    let counts = tasks.iter().map(|task| (task, of_job(task, job, all).count()));
    let (task, count) = counts.into_iter().find(|(_, count)| *count != 1)?;
    if count > 1 {
        let message = format!("`{}` has {count} tasks of `{job}` to choose from", task.address);
        return Some((message, choices(task, job, all)));
    }
    let from = lineage(task.each, all).next().and_then(|place| all.get(place)).map_or("", |task| task.job.as_str());
    let message = format!("`{}` has no task of `{job}`: it is derived from one of `{from}`", task.address);
    Some((message, "`each.outputs.NAME` is the output of the task that it is derived from".to_owned()))
}

fn choices(task: &Task, job: &str, all: &[Task]) -> String {
    let axes = of_job(task, job, all).flat_map(|place| all[place].matrix.keys());
    let axes: BTreeSet<&String> = axes.filter(|axis| !task.matrix.contains_key(*axis)).collect();
    let axes: Vec<&String> = axes.into_iter().collect();
    let share = if axes.is_empty() { "the replicates".to_owned() } else { suggest::list(&axes) };
    // The name of a job of a used workflow has a slash.
    let needed = if job.contains('/') { format!("needs['{job}']") } else { format!("needs.{job}") };
    format!(
        "run once for each: `strategy: {{each: {job}}}`; or share {share}; or take the list `{needed}.cells`, or one by \
         `best({needed}, 'METRIC')`"
    )
}

/// The tasks of a job among a task's needs.
pub(crate) fn of_job<'a>(task: &'a Task, job: &'a str, all: &'a [Task]) -> impl Iterator<Item = usize> + 'a {
    task.needs.iter().copied().filter(move |&place| all.get(place).is_some_and(|other| other.job == job))
}
