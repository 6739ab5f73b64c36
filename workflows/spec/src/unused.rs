//! Matrix axes that no config uses: their cells have identical configs.

use std::collections::{BTreeMap, BTreeSet};

use crate::draft::{DraftJob, Reader};
use crate::graph::Graph;
use crate::scalar;
use crate::source::Span;
use crate::template::Template;
use crate::workflow::Task;

/// Warns about each axis of a job's own matrix that has several values and that no expression of the job uses. `tasks_of`
/// returns the tasks of the job at an index; `tasks` are those of the whole file.
pub(crate) fn warn<'t>(
    reader: &mut Reader<'_>,
    jobs: &[DraftJob],
    place: usize,
    graph: &Graph,
    tasks: &'t [Task],
    tasks_of: &dyn Fn(usize) -> Vec<&'t Task>,
) {
    let job = &jobs[place];
    let Some(matrix) = &job.matrix else { return };
    let mine = tasks_of(place);
    for (axis, values) in own_axes(job, &mine, tasks) {
        // The axes that both jobs have select the tasks of a needed job.
        let selects =
            || graph.needs[place].iter().any(|&other| tasks_of(other).iter().any(|t| t.matrix.contains_key(axis)));
        if values.len() < 2 || job.caller_axes.contains(axis) || names(job, axis) || selects() {
            continue;
        }
        let written = matrix.axes.iter().find(|(name, _)| name.name == axis).map(|(name, _)| name.span);
        let span: Span = written.unwrap_or(matrix.span);
        let (job, count) = (&job.name.name, values.len());
        let message = format!(
            "the axis `{axis}` changes nothing: `{job}` does not use `matrix.{axis}`, so its {count} values make cells with the same config"
        );
        let hint = format!(
            "write `${{{{ matrix.{axis} }}}}` where it belongs, or remove the axis; `replicates: {count}` runs cells \
             again from other seeds. Cells with the same config run once and count once"
        );
        reader.report(span, message, hint);
    }
}

/// The axes that a job does not inherit through `each`, with the names of their values.
fn own_axes<'t>(job: &DraftJob, mine: &[&'t Task], tasks: &[Task]) -> BTreeMap<&'t str, BTreeSet<String>> {
    let mut axes: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for task in mine {
        let parent = task.each.and_then(|place| tasks.get(place));
        for (axis, value) in &task.matrix {
            let inherited = parent.is_some_and(|parent| parent.matrix.contains_key(axis));
            let names_parent = job.each.len() > 1 && axis == "job";
            if !inherited && !names_parent {
                axes.entry(axis).or_default().insert(scalar::in_address(value));
            }
        }
    }
    axes
}

/// Whether an expression of a job names an axis, or the matrix as a whole.
fn names(job: &DraftJob, axis: &str) -> bool {
    let templates = [&job.with, &job.resources, &job.retry, &job.timeout];
    let condition = job.condition.iter().flat_map(|condition| condition.template.computed());
    let settings = templates.into_iter().chain([&job.continue_on_error]).flatten().flat_map(Template::computed);
    let computed = settings.chain(condition);
    let mut paths = computed.flat_map(|computed| &computed.paths).filter(|path| path.root.name == "matrix");
    paths.any(|path| path.steps.first().is_none_or(|step| step.name == axis))
}
