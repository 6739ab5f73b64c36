//! The backends that the tasks of a workflow list, including those of jobs whose tasks are not known before the run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::configs::has_unknown;
use crate::draft::Reader;
use crate::matrix::Cell;
use crate::node::{Data, Node};
use crate::problem::Log;
use crate::template::{Moment, Template};
use crate::workflow::{Resource, Workflow};

/// How many combinations of matrix values are tried per job.
const MOST_COMBINATIONS: usize = 256;

impl Workflow {
    /// The backends that tasks list, including those of jobs whose tasks are not known yet, unless their names depend on
    /// matrix values that are results.
    #[must_use]
    pub fn backends(&self) -> BTreeSet<String> {
        let known = self.tasks.iter().flat_map(|task| &task.resources);
        let mut backends: BTreeSet<String> = known.map(|resource| resource.backend.clone()).collect();
        for place in (0..self.jobs.len()).filter(|&place| self.jobs[place].awaits.is_some()) {
            let Some(template) = &self.shared.draft.jobs[place].resources else {
                backends.insert(Resource::default().backend);
                continue;
            };
            for cell in self.possible_cells(place, template) {
                backends.extend(self.resources_in(template, &cell).into_iter().map(|resource| resource.backend));
            }
        }
        backends
    }

    /// The resources in one cell, as far as they are known.
    fn resources_in(&self, template: &Template, cell: &Cell) -> Vec<Resource> {
        let matrix = minijinja::Value::from(minijinja::value::Serde(cell));
        let names = minijinja::Value::from_pairs([
            ("params", self.shared.globals.params.clone()),
            ("matrix", matrix.clone()),
            ("each", minijinja::Value::from_pairs([("matrix", matrix)])),
            ("replicate", minijinja::Value::from(1)),
        ]);
        let node = template.fill(&names, Moment::Check, &mut Vec::new());
        let mut log = Log::default();
        Reader { source: &self.shared.source, log: &mut log }.resources(&node)
    }

    /// Combinations of the known values of those axes that a template of a job names.
    fn possible_cells(&self, place: usize, template: &Template) -> Vec<Cell> {
        let computed = template.computed();
        let paths = computed.iter().flat_map(|computed| &computed.paths);
        let named: BTreeSet<&str> = paths
            .flat_map(|path| path.steps.iter())
            .map(|step| step.name.as_str())
            .filter(|name| *name != "matrix")
            .collect();
        let mut axes = BTreeMap::new();
        self.known_values(place, &mut axes, &mut BTreeSet::new());
        let mut cells = vec![Cell::new()];
        for (axis, values) in axes.into_iter().filter(|(axis, _)| named.contains(axis.as_str())) {
            let with = |cell: &Cell, value: &Value| {
                let mut cell = cell.clone();
                cell.insert(axis.clone(), value.clone());
                cell
            };
            cells = cells
                .iter()
                .flat_map(|cell| values.iter().map(|value| with(cell, value)))
                .take(MOST_COMBINATIONS)
                .collect();
        }
        cells
    }

    /// Adds the known values of each axis of a job, including the jobs that it is derived from. `seen` are the jobs that were
    /// visited.
    fn known_values(&self, place: usize, axes: &mut BTreeMap<String, Vec<Value>>, seen: &mut BTreeSet<usize>) {
        if !seen.insert(place) {
            return;
        }
        let mut add = |axis: &str, value: Value| {
            let values = axes.entry(axis.to_owned()).or_default();
            if values.len() < MOST_COMBINATIONS && !values.contains(&value) {
                values.push(value);
            }
        };
        if self.jobs[place].awaits.is_none() {
            for &task in &self.jobs[place].tasks {
                self.tasks[task].matrix.iter().for_each(|(axis, value)| add(axis, value.clone()));
            }
            return;
        }
        let draft = &self.shared.draft.jobs[place];
        let constants = self.shared.globals.constants();
        let fill = |template: &Template| template.fill(&constants, Moment::Check, &mut Vec::new());
        if let Some(matrix) = &draft.matrix {
            for (axis, template) in &matrix.axes {
                known_items(&fill(template)).into_iter().for_each(|value| add(&axis.name, value));
            }
            for entry in matrix.include.iter().flat_map(|template| known_items(&fill(template))) {
                entry.as_object().into_iter().flatten().for_each(|(axis, value)| add(axis, value.clone()));
            }
        }
        for parent in draft.each.iter().filter(|_| draft.each.len() > 1) {
            add("job", Value::from(parent.name.as_str()));
        }
        for parent in &draft.each {
            if let Some(parent) = self.jobs.iter().position(|job| job.name == parent.name) {
                self.known_values(parent, axes, seen);
            }
        }
    }
}

/// The elements of a list that do not depend on results.
fn known_items(node: &Node) -> Vec<Value> {
    let Data::List(items) = &node.data else { return Vec::new() };
    items.iter().filter(|item| !has_unknown(item)).map(|item| item.to_value(&Value::Null)).collect()
}
