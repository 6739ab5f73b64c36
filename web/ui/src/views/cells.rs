//! Tasks as cells: replicates drawn together, their values and uncertainty in words.

use assay_core::TaskIx;
use assay_statistics::{format, replicates};
use assay_store::TaskView;
use serde::{Serialize, Serializer};

/// What the replicates of one cell say of one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// Such as `0.52 ± 0.03`; the plain value of one observation; a word where a value is not finite.
    pub text: String,
    /// The mean; `None` where a value is not finite.
    pub mean: Option<f64>,
    /// Half of the 95 % interval (Student's t); `None` of one observation.
    pub half_width: Option<f64>,
    /// How many observations.
    pub n: usize,
    /// The observations, in the order of the replicates.
    #[serde(serialize_with = "floats")]
    pub values: Vec<f64>,
    /// The observations with their unit, for people.
    pub listed: Vec<String>,
}

/// Draws observations together; `None` where there are none.
pub(crate) fn measured(values: &[f64], unit: &str) -> Option<Measured> {
    if values.is_empty() {
        return None;
    }
    let listed: Vec<String> = values.iter().map(|&value| format::quantity(value, unit)).collect();
    // Statistics refuse what is not finite, and nothing is dropped in silence: such a cell has no mean.
    let estimate = replicates(values).ok();
    let text = match (&estimate, values.iter().filter(|value| !value.is_finite()).count()) {
        (Some(estimate), _) => format::plus_minus(estimate, unit),
        (None, _) if values.len() == 1 => listed.concat(),
        (None, spoiled) => format!("{spoiled} of {} not finite", values.len()),
    };
    Some(Measured {
        text,
        mean: estimate.map(|estimate| estimate.value),
        half_width: estimate.and_then(|estimate| estimate.interval).map(|interval| interval.half_width()),
        n: values.len(),
        values: values.to_vec(),
        listed,
    })
}

/// Floats in JSON; what JSON cannot hold is a string, as everywhere in the API.
pub(crate) fn floats<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|value| number(*value)))
}

/// One float in JSON.
pub(crate) fn number(value: f64) -> serde_json::Value {
    if value.is_finite() { value.into() } else { value.to_string().into() }
}

/// The cell of a task: its address without the replicate.
pub(crate) fn cell_name(task: &TaskView) -> &str {
    match task.replicate {
        Some(_) => task.address.rsplit_once('#').map_or(task.address.as_str(), |(cell, _)| cell),
        None => &task.address,
    }
}

/// The task at the start of this task's line along `strategy: {each: ..}`.
pub(crate) fn line_root(tasks: &[TaskView], ix: usize) -> usize {
    let mut at = ix;
    while let Some(TaskIx(up)) = tasks.get(at).and_then(|task| task.each) {
        // Needs point to smaller places; whatever does not is no line.
        if up as usize >= at {
            break;
        }
        at = up as usize;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_observation_has_no_interval() {
        let one = measured(&[0.5], "s").unwrap();
        assert_eq!((one.text.as_str(), one.half_width, one.n), ("500 ms", None, 1));
        let two = measured(&[0.5, 0.7], "").unwrap();
        assert_eq!((two.text.as_str(), two.n), ("0.6 ± 1.3", 2));
        assert!((two.half_width.unwrap() - 1.270_620_473_617_471).abs() < 1e-9);
        assert_eq!(measured(&[], ""), None);
    }

    #[test]
    fn a_value_that_is_not_finite_is_said_and_not_dropped() {
        let spoiled = measured(&[0.5, f64::NAN, 0.7], "").unwrap();
        assert_eq!((spoiled.text.as_str(), spoiled.mean, spoiled.n), ("1 of 3 not finite", None, 3));
        assert_eq!(serde_json::to_value(&spoiled).unwrap()["values"], serde_json::json!([0.5, "NaN", 0.7]));
        assert_eq!(measured(&[f64::INFINITY], "").unwrap().text, "∞");
    }
}
