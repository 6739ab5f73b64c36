//! The values of a run that belong to a length: metrics with the length in their names, such as `latency/f32/256/median`, and metrics of
//! jobs with an axis of lengths.

use std::collections::BTreeMap;

use assay_server::metric_kind;
use assay_spec::{StepKind, value_name};
use assay_store::TaskView;

/// Axes of a matrix that are lengths of sequences.
const AXES: [&str; 8] =
    ["length", "lengths", "max_length", "sequence_length", "seq_length", "seq_len", "context", "context_length"];

/// What a family measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Family {
    /// The cell, and the model where one was measured among several.
    pub name: String,
    /// The observations by length.
    pub values: BTreeMap<u64, Vec<f64>>,
}

/// A metric with its families.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LengthMetric {
    /// The metric with `*` for the length: `latency/*/*/median`; plain for an axis.
    pub name: String,
    /// A full name of it, to look up what is declared.
    pub example: String,
    /// In the order of the tasks.
    pub families: Vec<Family>,
}

/// The family and length that a value belongs to.
struct Placed {
    metric: String,
    length: u64,
    /// The segments of the metric's name that are neither the length nor declared.
    model: String,
}

/// The metrics of a run that were measured at two lengths or more.
pub(crate) fn length_metrics(tasks: &[TaskView], kinds: &[StepKind]) -> Vec<LengthMetric> {
    let mut found: Vec<LengthMetric> = Vec::new();
    for task in tasks {
        for (name, &value) in &task.metrics {
            let Some(placed) = place(task, name, kinds).filter(|_| value.is_finite()) else { continue };
            let at = found.iter().position(|metric| metric.name == placed.metric).unwrap_or_else(|| {
                found.push(LengthMetric { name: placed.metric.clone(), example: name.clone(), families: Vec::new() });
                found.len() - 1
            });
            let families = &mut found[at].families;
            let family = family_name(task, tasks, &placed.model);
            let at = families.iter().position(|known| known.name == family).unwrap_or_else(|| {
                families.push(Family { name: family, values: BTreeMap::new() });
                families.len() - 1
            });
            families[at].values.entry(placed.length).or_default().push(value);
        }
    }
    for metric in &mut found {
        shorten_names(&mut metric.families);
    }
    let several = |metric: &LengthMetric| {
        let mut lengths: Vec<u64> = metric.families.iter().flat_map(|family| family.values.keys().copied()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths.len() > 1
    };
    found.retain(several);
    found
}

fn place(task: &TaskView, name: &str, kinds: &[StepKind]) -> Option<Placed> {
    // Ends of intervals and p-values describe another metric.
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.ends_with("_low") || last.ends_with("_high") || ["low", "high", "p"].contains(&last) {
        return None;
    }
    let segments: Vec<&str> = name.split('/').collect();
    // Other numbers in names, such as those of tasks, are not lengths.
    let measured = measured_lengths(task);
    let is_length = |at: &usize| parse_length(segments[*at]).is_some_and(|length| measured.contains(&length));
    let numbers: Vec<usize> = (0..segments.len()).filter(is_length).collect();
    if let [at] = numbers.as_slice() {
        let length = parse_length(segments[*at])?;
        let declared = metric_kind(kinds, name).map(|kind| kind.name).filter(|pattern| pattern.contains('*'));
        let mut open: Vec<&str> = Vec::new();
        let mut parts: Vec<&str> = segments.clone();
        parts[*at] = "*";
        if let Some(pattern) = declared {
            for (place, part) in pattern.split('/').enumerate() {
                if part == "*" && place != *at {
                    open.push(segments[place]);
                    parts[place] = "*";
                }
            }
        }
        return Some(Placed { metric: parts.join("/"), length, model: open.join(" ") });
    }
    let length = AXES.iter().find_map(|axis| task.matrix.get(*axis)?.as_u64()).filter(|length| *length > 0)?;
    Some(Placed { metric: name.to_owned(), length, model: String::new() })
}

/// The `lengths` of a task's config.
fn measured_lengths(task: &TaskView) -> Vec<u64> {
    let lengths = task.config.as_ref().and_then(|config| config.get("lengths")?.as_array());
    lengths.into_iter().flatten().filter_map(serde_json::Value::as_u64).collect()
}

/// A length is written in digits alone: `16`, not `f32` or `007`.
fn parse_length(segment: &str) -> Option<u64> {
    let digits = !segment.starts_with('0') && segment.chars().all(|c| c.is_ascii_digit());
    segment.parse().ok().filter(|length| digits && *length > 0)
}

/// The cell without its length; for a task that is derived from another one, that one's cell: it names the family.
fn family_name(task: &TaskView, tasks: &[TaskView], model: &str) -> String {
    let root = task.each.and_then(|each| tasks.get(each.0 as usize)).unwrap_or(task);
    let parts: Vec<String> = root
        .matrix
        .iter()
        .filter(|(axis, _)| !AXES.contains(&axis.as_str()))
        .map(|(axis, value)| format!("{axis}={}", value_name(value)))
        .collect();
    let cell = if parts.is_empty() { root.job.clone() } else { format!("{}[{}]", root.job, parts.join(",")) };
    format!("{cell}\u{1f}{model}")
}

/// Names the model only if the families differ in it.
fn shorten_names(families: &mut [Family]) {
    let model = |family: &Family| family.name.split_once('\u{1f}').map(|(_, model)| model.to_owned());
    let first = families.first().and_then(model);
    let same = families.iter().all(|family| model(family) == first);
    for family in families {
        let Some((cell, model)) = family.name.split_once('\u{1f}') else { continue };
        family.name = if same || model.is_empty() { cell.to_owned() } else { format!("{cell} {model}") };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_plain_numbers() {
        let read = ["16", "4096", "f32", "0", "016", "-1", "1e3", ""].map(parse_length);
        assert_eq!(read, [Some(16), Some(4096), None, None, None, None, None, None]);
    }

    #[test]
    fn models_are_named_only_where_they_differ() {
        let family = |name: &str| Family { name: name.into(), values: BTreeMap::new() };
        let mut same = [family("a\u{1f}f32"), family("b\u{1f}f32")];
        shorten_names(&mut same);
        assert_eq!(same.map(|family| family.name), ["a", "b"]);
        let mut different = [family("a\u{1f}f32"), family("a\u{1f}int8"), family("a\u{1f}")];
        shorten_names(&mut different);
        assert_eq!(different.map(|family| family.name), ["a f32", "a int8", "a"]);
    }
}
