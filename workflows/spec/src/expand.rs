//! Creates tasks from jobs: the cells of each job, its replicates, and the tasks that it is derived from.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::condition::Condition;
use crate::draft::{DraftJob, DraftMatrix, Reader};
use crate::matrix::{Cell, MAX_CELLS, MAX_COMPARISONS, Matrix};
use crate::node::{Data, Node};
use crate::scalar;
use crate::source::Span;
use crate::suggest;
use crate::template::{Moment, Template};
use crate::workflow::{DEFAULT_TIMEOUT, Resource, Retry, Task, TriggerRule};

/// The maximum number of tasks of a workflow.
pub(crate) const MAX_TASKS: usize = 100_000;
/// The maximum total weight of all tasks' matrix values.
const MAX_WEIGHT: usize = 2_000_000;
/// The maximum number of replicates of a job.
const MAX_REPLICATES: u64 = 10_000;
/// The maximum length of a chain of derived jobs.
const MAX_LINEAGE: usize = 32;

/// A job's `strategy` with its expressions evaluated.
#[derive(Debug, Clone, Default)]
pub(crate) struct Strategy {
    /// `None` if the job has no matrix.
    pub cells: Option<Vec<Cell>>,
    pub replicates: Option<u32>,
    pub max_parallel: Option<u32>,
    pub fail_fast: bool,
}

/// The scope of the expressions of a `strategy`, and the moment of their evaluation.
pub(crate) struct Surroundings<'a> {
    pub names: &'a minijinja::Value,
    pub moment: Moment,
}

/// Evaluates a `strategy`. `None` if its cells have a problem, or if there are more than `most`. Cells that depend on results
/// stay open until these are known.
pub(crate) fn strategy(
    reader: &mut Reader<'_>,
    job: &DraftJob,
    scope: &Surroundings<'_>,
    most: usize,
) -> Option<Strategy> {
    let before = reader.log.count();
    let mut strategy = Strategy::default();
    let fill = |reader: &mut Reader<'_>, template: &Option<Template>| {
        template.as_ref().map(|template| reader.fill(template, scope.names, scope.moment))
    };
    if let Some(node) = fill(reader, &job.replicates) {
        strategy.replicates = reader.whole(&node, "replicates", 1, MAX_REPLICATES).map(|count| count as u32);
    }
    if let Some(node) = fill(reader, &job.max_parallel) {
        let limit = reader.whole(&node, "max-parallel", 1, MAX_TASKS as u64);
        strategy.max_parallel = limit.map(|count| count as u32);
    }
    if let Some(node) = fill(reader, &job.fail_fast) {
        strategy.fail_fast = reader.boolean(&node, "fail-fast").unwrap_or(false);
    }
    if let Some(draft) = &job.matrix {
        let matrix = reader.matrix_values(draft, scope);
        // An empty matrix was reported by the parser.
        if draft.axes.is_empty() && draft.include.is_none() && draft.whole.is_none() {
            return None;
        }
        let open = scope.moment == Moment::Check && crate::check::cells_wait(job);
        if reader.log.count() == before && !open {
            strategy.cells = reader.cells(draft, &matrix, most);
        }
    }
    (reader.log.count() == before).then_some(strategy)
}

impl Reader<'_> {
    /// Fills in a template and reports failures.
    pub fn fill(&mut self, template: &Template, scope: &minijinja::Value, moment: Moment) -> Node {
        let mut errors = Vec::new();
        let node = template.fill(scope, moment, &mut errors);
        for error in errors {
            self.report(error.span, error.message, error.hint);
        }
        node
    }

    /// A matrix that is the value of one expression.
    fn whole_matrix(&mut self, node: &Node) -> Matrix {
        let mut matrix = Matrix::default();
        match &node.data {
            Data::Unknown => {}
            Data::Map(entries) if node.get("$artifact").is_none() => {
                for entry in entries.iter().filter(|entry| !matches!(entry.key.as_str(), "include" | "exclude")) {
                    self.axis_name(&entry.key, node.span);
                    matrix.axes.push((entry.key.clone(), self.axis(&entry.key, &entry.value)));
                }
                let axes = matrix.axes.clone();
                matrix.include =
                    node.get("include").map_or_else(Vec::new, |e| self.cell_list("include", &e.value, None));
                let exclude = node.get("exclude");
                matrix.exclude = exclude.map_or_else(Vec::new, |e| self.cell_list("exclude", &e.value, Some(&axes)));
            }
            _ => {
                let message = format!("`matrix` takes a mapping of lists, not {}", described(node));
                self.report(node.span, message, "for example `{'states': [16, 32]}`".to_owned());
            }
        }
        matrix
    }

    fn matrix_values(&mut self, draft: &DraftMatrix, scope: &Surroundings<'_>) -> Matrix {
        if let Some(whole) = &draft.whole {
            let node = self.fill(whole, scope.names, scope.moment);
            return self.whole_matrix(&node);
        }
        let mut matrix = Matrix::default();
        for (name, template) in &draft.axes {
            let node = self.fill(template, scope.names, scope.moment);
            let values = self.axis(&name.name, &node);
            matrix.axes.push((name.name.clone(), values));
        }
        if let Some(template) = &draft.include {
            let node = self.fill(template, scope.names, scope.moment);
            matrix.include = self.cell_list("include", &node, None);
        }
        if let Some(template) = &draft.exclude {
            let node = self.fill(template, scope.names, scope.moment);
            let axes = matrix.axes.clone();
            matrix.exclude = self.cell_list("exclude", &node, Some(&axes));
        }
        matrix
    }

    fn axis(&mut self, name: &str, node: &Node) -> Vec<Value> {
        let items = match &node.data {
            Data::List(items) => items,
            Data::Unknown => return Vec::new(),
            _ => {
                let hint = match &node.data {
                    Data::Map(_) if node.get("$artifact").is_some() => {
                        "a matrix is made of plain values: metrics, or outputs that are values and no files".to_owned()
                    }
                    _ if node.computed => "give it a list: `[VALUE]`".to_owned(),
                    Data::Scalar(value) if !value.is_null() => {
                        format!("write `{name}: [{}]`", scalar::in_address(value))
                    }
                    _ => format!("for example `{name}: [16, 32]`"),
                };
                let message = format!("the axis `{name}` takes a list of values, not {}", described(node));
                self.report(node.span, message, hint);
                return Vec::new();
            }
        };
        if items.is_empty() {
            let hint = "give it at least one, or leave the axis out".to_owned();
            self.report(node.span, format!("the axis `{name}` has no values"), hint);
        }
        let mut seen = BTreeSet::new();
        for item in items {
            // Values that depend on results are compared when the results are known.
            if !crate::configs::has_unknown(item) && !seen.insert(canonical(&item.to_value(&Value::Null))) {
                let message = format!("the axis `{name}` has {} twice", item.describe());
                self.report(item.span, message, "keep one of them; `replicates` repeats cells".to_owned());
            }
        }
        items.iter().map(|item| item.to_value(&Value::Null)).collect()
    }

    /// `include` or `exclude`.
    fn cell_list(&mut self, key: &str, node: &Node, axes: Option<&[(String, Vec<Value>)]>) -> Vec<Cell> {
        let example = format!("for example `{key}: [{{states: 16, chunk: 64}}]`");
        let Data::List(items) = &node.data else {
            if node.data != Data::Unknown {
                let message = format!("`{key}` takes a list of mappings, not {}", node.describe());
                self.report(node.span, message, example);
            }
            return Vec::new();
        };
        let mut cells = Vec::new();
        for item in items {
            let Data::Map(entries) = &item.data else {
                if item.data != Data::Unknown {
                    let message = format!("`{key}` takes mappings, not {}", item.describe());
                    self.report(item.span, message, example.clone());
                }
                continue;
            };
            if entries.is_empty() {
                self.report(item.span, format!("an empty entry in `{key}`"), example.clone());
            }
            for entry in entries {
                match axes {
                    Some(axes) => self.excluded_value(axes, &entry.key, entry.key_span, &entry.value),
                    None => self.axis_name(&entry.key, entry.key_span),
                }
            }
            let values = entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value(&Value::Null)));
            cells.push(values.collect());
        }
        cells
    }

    /// An `exclude` that can match nothing is a mistake, unless it depends on parameters.
    fn excluded_value(&mut self, axes: &[(String, Vec<Value>)], axis: &str, span: Span, value: &Node) {
        let Some((_, values)) = axes.iter().find(|(name, _)| name == axis) else {
            let hint = suggest::hint(axis, axes.iter().map(|(name, _)| name.as_str()), "axes");
            self.report(span, format!("the matrix has no axis `{axis}` to exclude from"), hint);
            return;
        };
        if !value.computed && value.data != Data::Unknown && !values.contains(&value.to_value(&Value::Null)) {
            let shown: Vec<_> = values.iter().take(12).map(scalar::in_address).collect();
            let hint = format!("its values are {}", shown.join(", "));
            self.report(value.span, format!("the axis `{axis}` does not have {}", value.describe()), hint);
        }
    }

    fn cells(&mut self, draft: &DraftMatrix, matrix: &Matrix, most: usize) -> Option<Vec<Cell>> {
        let combinations = matrix.combinations();
        let Some(count) = combinations.filter(|count| *count <= MAX_CELLS) else {
            let sizes: Vec<_> = matrix.axes.iter().map(|(_, values)| values.len().to_string()).collect();
            let count = match combinations {
                Some(count) if sizes.len() <= 8 => format!("{} = {count} cells", sizes.join(" x ")),
                Some(count) => format!("{count} cells"),
                None => "more cells than can be counted".into(),
            };
            let message = format!("the matrix has {count}, and at most {MAX_CELLS} are run");
            self.report(draft.span, message, "take fewer values, or split the sweep over several files".to_owned());
            return None;
        };
        if count.saturating_add(matrix.include.len()) > most {
            let message = format!("with the {count} cells of this matrix the file has more than {MAX_TASKS}");
            self.report(draft.span, message, "take fewer values".to_owned());
            return None;
        }
        let comparisons = count.saturating_mul(matrix.include.len() + matrix.exclude.len());
        if comparisons > MAX_COMPARISONS {
            let message = format!("{count} cells are too many for so many `include` and `exclude` entries");
            self.report(draft.span, message, "take fewer of either".to_owned());
            return None;
        }
        let Some(cells) = matrix.cells(MAX_WEIGHT) else {
            let message = format!("the cells of the matrix hold more than {MAX_WEIGHT} values in all");
            self.report(
                draft.span,
                message,
                "put large values into `with`, and their names into the matrix".to_owned(),
            );
            return None;
        };
        if cells.is_empty() {
            self.report(draft.span, "no cell is left in the matrix", "exclude fewer cells".to_owned());
            return None;
        }
        // Without `include`, all cells differ, since the values of each axis differ.
        if matrix.include.is_empty() {
            return Some(cells);
        }
        let mut seen = BTreeSet::new();
        for cell in &cells {
            if !seen.insert(cell.iter().map(|(axis, value)| (axis, canonical(value))).collect::<Vec<_>>()) {
                let message = format!("`include` makes the cell `{}` twice", shown_cell(cell));
                self.report(draft.span, message, "keep one of the entries".to_owned());
                return None;
            }
        }
        Some(cells)
    }
}

/// A value in a message; artifacts are described.
fn described(node: &Node) -> String {
    match node.get("$artifact") {
        Some(_) => "an artifact, which is a file".to_owned(),
        None => node.describe(),
    }
}

/// A text that distinguishes values exactly as the cache does.
fn canonical(value: &Value) -> String {
    let mut text = String::new();
    crate::key::write_canonical(value, &mut text);
    text
}

fn shown_cell(cell: &Cell) -> String {
    cell.iter().map(|(axis, value)| format!("{axis}={}", scalar::in_address(value))).collect::<Vec<_>>().join(",")
}

/// `train[chunk=64,states=16]`.
fn cell_name(job: &str, matrix: &Cell) -> String {
    if matrix.is_empty() { job.to_owned() } else { format!("{job}[{}]", shown_cell(matrix)) }
}

/// `train[chunk=64,states=16]#2`.
fn address(cell: &str, replicate: Option<u32>) -> String {
    replicate.map_or_else(|| cell.to_owned(), |number| format!("{cell}#{number}"))
}

/// The tasks of the job at this index, after those of the jobs before it; their matrix values have the weight `weight`. Their `needs`
/// and settings are set later.
pub(crate) fn tasks(
    reader: &mut Reader<'_>,
    (place, draft): (usize, &DraftJob),
    strategy: &Strategy,
    upstream: &[usize],
    before: &[Task],
    weight: &mut usize,
) -> Option<Vec<Task>> {
    let whole = [Cell::new()];
    let own = strategy.cells.as_deref().unwrap_or(&whole);
    let upstream: Vec<Option<usize>> = match draft.each.is_empty() {
        true => vec![None],
        false => upstream.iter().copied().map(Some).collect(),
    };
    let count = own.len().saturating_mul(upstream.len()).saturating_mul(strategy.replicates.unwrap_or(1) as usize);
    if count.saturating_add(before.len()) > MAX_TASKS {
        let message = format!("with the {count} tasks of `{}` the file has more than {MAX_TASKS}", draft.name.name);
        reader.report(draft.name.span, message, "take fewer values or replicates".to_owned());
        return None;
    }
    *weight = weight.saturating_add(weight_of(own, &upstream, strategy, before));
    if *weight > MAX_WEIGHT {
        let message = format!("with the tasks of `{}` the matrix values are more than {MAX_WEIGHT}", draft.name.name);
        reader.report(
            draft.name.span,
            message,
            "put large values into `with`, and their names into the matrix".to_owned(),
        );
        return None;
    }
    let known = reader.log.count();
    let replicates: Vec<Option<u32>> = match strategy.replicates {
        Some(count) => (1..=count).map(Some).collect(),
        None => vec![None],
    };
    let mut tasks = Vec::with_capacity(count);
    for replicate in replicates {
        for each in &upstream {
            let parent = each.and_then(|place| before.get(place));
            let Some((inherited, replicate)) = inherit(reader, draft, strategy, parent, replicate) else { break };
            for cell in own {
                let mut matrix = inherited.clone();
                matrix.extend(cell.clone());
                tasks.push(task((place, draft), matrix, replicate, *each, strategy));
            }
        }
    }
    if tasks.iter().any(|task| lineage(task.each, before).count() > MAX_LINEAGE) {
        let message = format!("more than {MAX_LINEAGE} jobs are derived from one another in a row");
        reader.report(draft.name.span, message, None);
    }
    (reader.log.count() == known).then_some(tasks)
}

/// The weight of the matrix values of the new tasks.
fn weight_of(own: &[Cell], upstream: &[Option<usize>], strategy: &Strategy, before: &[Task]) -> usize {
    let of = |cell: &Cell| 1 + cell.values().map(scalar::weight).sum::<usize>();
    let inherited: usize =
        upstream.iter().flatten().filter_map(|&place| before.get(place)).map(|task| of(&task.matrix)).sum();
    let own_weight: usize = own.iter().map(of).sum();
    let replicates = strategy.replicates.unwrap_or(1) as usize;
    let new = inherited.saturating_mul(own.len()).saturating_add(own_weight.saturating_mul(upstream.len()));
    new.saturating_mul(replicates)
}

/// The matrix values and the replicate of the upstream task. `None` if they conflict with the job's own.
fn inherit(
    reader: &mut Reader<'_>,
    draft: &DraftJob,
    strategy: &Strategy,
    parent: Option<&Task>,
    replicate: Option<u32>,
) -> Option<(Cell, Option<u32>)> {
    let Some(parent) = parent else { return Some((Cell::new(), replicate)) };
    let mut matrix = parent.matrix.clone();
    let span = draft.each.first().map_or(draft.name.span, |name| name.span);
    if draft.each.len() > 1 && matrix.insert("job".into(), Value::from(parent.job.as_str())).is_some() {
        let message = format!("`each` adds the axis `job` here, which `{}` has already", parent.job);
        reader.report(span, message, "list one job, or rename that axis".to_owned());
        return None;
    }
    let own_axes = strategy.cells.iter().flatten().flat_map(Cell::keys);
    if let Some(axis) = own_axes.into_iter().find(|axis| matrix.contains_key(*axis)) {
        let message = format!("the axis `{axis}` is inherited from `{}` through `each`", parent.job);
        let span = draft.matrix.as_ref().map_or(span, |matrix| matrix.span);
        reader.report(span, message, "take it out of this matrix, or rename it".to_owned());
        return None;
    }
    if parent.replicate.is_some() && replicate.is_some() {
        let span = draft.replicates.as_ref().map_or(span, Template::span);
        let message = format!("the replicates are inherited from `{}` through `each`", parent.job);
        reader.report(span, message, "remove `replicates` here".to_owned());
        return None;
    }
    Some((matrix, parent.replicate.or(replicate)))
}

/// One task of the job at this index; its needs and settings are set later.
pub(crate) fn task(
    (place, draft): (usize, &DraftJob),
    matrix: Cell,
    replicate: Option<u32>,
    each: Option<usize>,
    strategy: &Strategy,
) -> Task {
    let cell = cell_name(&draft.name.name, &matrix);
    Task {
        address: address(&cell, replicate),
        cell,
        job: draft.name.name.clone(),
        job_index: place,
        kind: draft.uses.as_ref().map(|uses| uses.name.clone()).unwrap_or_default(),
        matrix,
        replicate,
        needs: Vec::new(),
        each,
        resources: vec![Resource::default()],
        retry: Retry::default(),
        timeout: DEFAULT_TIMEOUT,
        max_parallel: strategy.max_parallel,
        trigger: draft.condition.as_ref().map_or(TriggerRule::AllSuccess, Condition::trigger),
        continue_on_error: false,
    }
}

/// The tasks that a task is derived from, the nearest first.
pub(crate) fn lineage(each: Option<usize>, tasks: &[Task]) -> impl Iterator<Item = usize> {
    std::iter::successors(each, |&place| tasks.get(place).and_then(|task| task.each))
}

/// The value of `each` in an expression, as far as it is known before anything has run.
pub(crate) fn view(task: &Task, above: Option<&minijinja::Value>) -> BTreeMap<&'static str, minijinja::Value> {
    let mut view = BTreeMap::from([
        ("job", minijinja::Value::from(task.job.as_str())),
        ("address", minijinja::Value::from(task.address.as_str())),
        ("matrix", minijinja::Value::from(minijinja::value::Serde(&task.matrix))),
        ("replicate", minijinja::Value::from(task.replicate.unwrap_or(1))),
    ]);
    if let Some(above) = above {
        view.insert("each", above.clone());
    }
    view
}
