//! The columns of the list of runs: the choice of the reader, and the content of each cell.

use std::collections::BTreeSet;

use assay_server::{Results, Selection, TaskResult, tabulate_results};
use assay_spec::{StepKind, value_name};
use assay_statistics::format;
use assay_store::TaskView;
use serde::Serialize;
use serde_json::Value;

/// The most columns of a list.
const MOST: usize = 20;
/// The longest name of a value, in characters.
const LONGEST: usize = 200;
/// The most values of an axis that a cell lists.
const VALUES: usize = 6;

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RunColumn {
    /// The name in a URL.
    pub name: String,
    /// The source of its cells.
    pub kind: ColumnKind,
    /// Its title.
    pub title: String,
}

/// The source of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ColumnKind {
    /// The state.
    State,
    /// When the run was started.
    Started,
    /// How long it took.
    Duration,
    /// The states of its tasks.
    Tasks,
    /// Its headline results.
    Results,
    /// The commit of its workflow file.
    Commit,
    /// A parameter, the values of an axis, or a metric.
    Value,
}

/// The columns that show what a run itself is.
const FIELDS: [(&str, ColumnKind, &str); 6] = [
    ("state", ColumnKind::State, "State"),
    ("started", ColumnKind::Started, "Started"),
    ("duration", ColumnKind::Duration, "Duration"),
    ("tasks", ColumnKind::Tasks, "Tasks"),
    ("results", ColumnKind::Results, "Headline results"),
    ("commit", ColumnKind::Commit, "Commit"),
];
/// How many of [`FIELDS`] are shown where nothing is chosen.
const DEFAULT: usize = 5;

/// The columns that `text` names with commas between them; the default ones if it is empty.
///
/// # Errors
/// What is wrong with the text, and what to do.
pub(crate) fn read_columns(text: &str) -> Result<Vec<RunColumn>, (String, String)> {
    let mut columns: Vec<RunColumn> = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if columns.iter().any(|column| column.name == name) {
            continue;
        }
        if name.chars().count() > LONGEST {
            let error = format!("a name in `columns` is longer than {LONGEST} characters");
            return Err((error, "give names of parameters, axes or metrics".to_owned()));
        }
        let field = FIELDS.iter().find(|(field, ..)| *field == name);
        let (kind, title) = field.map_or((ColumnKind::Value, name), |(_, kind, title)| (*kind, *title));
        columns.push(RunColumn { name: name.to_owned(), kind, title: title.to_owned() });
        if columns.len() > MOST {
            return Err((format!("`columns` names more than {MOST} columns"), "leave some of them out".to_owned()));
        }
    }
    if columns.is_empty() {
        let default = FIELDS[..DEFAULT].iter();
        columns = default
            .map(|(name, kind, title)| RunColumn { name: (*name).to_owned(), kind: *kind, title: (*title).to_owned() })
            .collect();
    }
    Ok(columns)
}

/// Columns in the form of a URL; empty for the default columns.
pub(crate) fn write_columns(columns: &[String]) -> String {
    match columns.iter().eq(FIELDS[..DEFAULT].iter().map(|(name, ..)| name)) {
        true => String::new(),
        false => columns.join(","),
    }
}

/// The names that could be columns of a list with these runs: fields first, then parameters, axes and headlines.
pub(crate) fn known_columns<'a>(
    params: impl Iterator<Item = &'a Value>,
    tasks: impl Iterator<Item = &'a TaskView>,
    titles: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let mut names: Vec<String> = FIELDS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let params = params.filter_map(Value::as_object).flat_map(|params| params.keys().cloned());
    // The axis `job` only says what a task is derived from.
    let axes = tasks.flat_map(|task| task.matrix.keys()).filter(|axis| *axis != "job").cloned();
    for found in [params.collect::<BTreeSet<_>>(), axes.collect(), titles.map(str::to_owned).collect()] {
        let found: Vec<String> =
            found.into_iter().filter(|name| !names.contains(name) && !name.contains(',')).collect();
        names.extend(found);
    }
    names
}

/// One headline metric over the cells of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Headline {
    pub title: String,
    pub text: String,
}

/// The columns of a table of results: the value of one cell, or the range of the means of several.
pub(crate) fn headlines(results: &Results, most: usize) -> Vec<Headline> {
    let columns = results.columns.iter().enumerate().map(|(at, column)| {
        let cells: Vec<_> = results.rows.iter().filter_map(|row| row.values.get(at)?.as_ref()).collect();
        let means: Vec<f64> = cells.iter().filter_map(|cell| cell.measured.mean).collect();
        let low = means.iter().copied().fold(f64::INFINITY, f64::min);
        let high = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let text = match (cells.as_slice(), means.is_empty()) {
            ([cell], _) => cell.measured.text.clone(),
            (_, true) => "not finite".to_owned(),
            _ if low == high => format::quantity(low, &column.unit),
            _ => format!("{} – {}", format::quantity(low, &column.unit), format::quantity(high, &column.unit)),
        };
        Headline { title: column.title.clone(), text }
    });
    columns.take(most).collect()
}

/// What a run has under a name: a parameter, the values of an axis, or a metric (its name, or the title of a headline); empty if it has none.
/// `params.X`, `matrix.X` and `metrics.X` say which is meant, as in a filter.
pub(crate) fn value_text(name: &str, params: Option<&Value>, tasks: &[TaskView], kinds: &[StepKind]) -> String {
    let parts = [("params.", 0), ("matrix.", 1), ("metrics.", 2)];
    let explicit = parts.into_iter().find_map(|(prefix, place)| Some((place, name.strip_prefix(prefix)?)));
    let wanted = |place: usize| match explicit {
        Some((only, rest)) => (only == place).then_some(rest),
        None => Some(name),
    };
    let param = wanted(0).and_then(|name| params?.get(name)).map(value_name);
    let axis = || wanted(1).and_then(|name| axis_text(name, tasks));
    let metric = || wanted(2).and_then(|name| metric_text(name, tasks, kinds));
    param.or_else(axis).or_else(metric).unwrap_or_default()
}

fn axis_text(axis: &str, tasks: &[TaskView]) -> Option<String> {
    let mut values: Vec<String> = Vec::new();
    for value in tasks.iter().filter_map(|task| task.matrix.get(axis)).map(value_name) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let more = values.len().saturating_sub(VALUES);
    values.truncate(VALUES);
    let text = values.join(", ");
    (!text.is_empty()).then(|| if more > 0 { format!("{text} and {more} more") } else { text })
}

fn metric_text(name: &str, tasks: &[TaskView], kinds: &[StepKind]) -> Option<String> {
    let declared = kinds.iter().flat_map(|kind| kind.metrics);
    let titled = declared.filter(|metric| metric.headline == Some(name)).map(|metric| metric.name.to_owned());
    let names: Vec<String> = std::iter::once(name.replace('*', "")).chain(titled).collect();
    if !tasks.iter().any(|task| names.iter().any(|name| task.metrics.contains_key(name))) {
        return None;
    }
    let tasks: Vec<TaskResult<'_>> = tasks.iter().map(TaskView::result).collect();
    let found = headlines(&tabulate_results(&tasks, kinds, &Selection::Named(names)), 1);
    found.into_iter().next().map(|headline| headline.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        read_columns(text).unwrap().into_iter().map(|column| column.name).collect()
    }

    #[test]
    fn columns_are_chosen_by_name() {
        assert_eq!(names(" accuracy, state,accuracy,"), ["accuracy", "state"]);
        let default = names("");
        assert_eq!(default, ["state", "started", "duration", "tasks", "results"]);
        assert_eq!(write_columns(&default), "");
        assert_eq!(write_columns(&names("state,seed")), "state,seed");
        assert_eq!(read_columns("seed").unwrap()[0].kind, ColumnKind::Value);
        let many: Vec<String> = (0..30).map(|at| at.to_string()).collect();
        assert!(read_columns(&many.join(",")).unwrap_err().0.contains("more than 20"));
        assert!(read_columns(&"x".repeat(300)).is_err());
    }

    #[test]
    fn the_known_names_are_listed_once() {
        let params = [serde_json::json!({"seed": 17, "a,b": 1, "state": 2})];
        let known = known_columns(params.iter(), std::iter::empty(), ["accuracy", "seed"].into_iter());
        assert_eq!(known[FIELDS.len()..], ["seed", "accuracy"]);
    }

    #[test]
    fn a_parameter_is_shown_as_it_was_given() {
        let params = serde_json::json!({"seed": 17, "name": "x"});
        let text = |name| value_text(name, Some(&params), &[], &[]);
        assert_eq!(["seed", "params.name", "metrics.seed", "other"].map(text), ["17", "x", "", ""]);
    }
}
