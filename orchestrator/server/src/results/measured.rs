//! The observations of one cell together: their mean, their interval, and how both are written.

use assay_statistics::{Estimate, Method, format, replicates};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// What the replicates of one cell say of one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Such as `0.52 ± 0.03`; the plain value of one observation; a word where a value is not finite.
    pub text: String,
    /// The mean; `None` where a value is not finite.
    pub mean: Option<f64>,
    /// Half of the 95 % interval over the replicates (Student's t); `None` of one observation.
    pub half_width: Option<f64>,
    /// The lower end of the 95 % interval.
    pub low: Option<f64>,
    /// Its upper end.
    pub high: Option<f64>,
    /// What the interval covers; `None` without an interval.
    pub covers: Option<Covers>,
    /// How many observations.
    pub n: usize,
    /// The observations, in the order of the replicates.
    #[serde(serialize_with = "serialize_floats")]
    pub values: Vec<f64>,
    /// The observations with their unit, for people.
    pub listed: Vec<String>,
}

/// What an interval covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Covers {
    /// What differs between the replicates of a cell.
    Replicates,
    /// What differed within the measurement of the one replicate there is, as its step reported it.
    Measurement,
}

impl Measured {
    /// No observation at all, with a word that says why.
    #[must_use]
    pub fn missing(word: &str) -> Self {
        let text = word.to_owned();
        let (values, listed) = (Vec::new(), Vec::new());
        Measured { text, mean: None, half_width: None, low: None, high: None, covers: None, n: 0, values, listed }
    }

    /// One observation with the interval of its own measurement.
    #[must_use]
    pub fn with_interval(self, low: f64, high: f64, unit: &str) -> Self {
        let value = self.values.first().copied().unwrap_or(f64::NAN);
        if self.n != 1 || ![value, low, high].iter().all(|value| value.is_finite()) {
            return self;
        }
        let estimate = Estimate::with(value, (low, high), 0.95, 1, Method::None);
        let (low, high) = (estimate.low(), estimate.high());
        let text = format::with_interval(&estimate, unit);
        Measured { text, low, high, covers: Some(Covers::Measurement), ..self }
    }
}

/// Aggregates observations; `None` if there are none.
#[must_use]
pub fn summarize_values(values: &[f64], unit: &str) -> Option<Measured> {
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
    let interval = estimate.and_then(|estimate| estimate.interval);
    Some(Measured {
        text,
        mean: estimate.map(|estimate| estimate.value),
        half_width: interval.map(|interval| interval.half_width()),
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        covers: interval.map(|_| Covers::Replicates),
        n: values.len(),
        values: values.to_vec(),
        listed,
    })
}

/// A float in JSON; what JSON cannot hold is a string: `"NaN"`, `"inf"`, `"-inf"`.
#[must_use]
pub fn number_to_json(value: f64) -> Value {
    if value.is_finite() { value.into() } else { value.to_string().into() }
}

fn serialize_floats<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(|value| number_to_json(*value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_observation_has_no_interval() {
        let one = summarize_values(&[0.5], "s").unwrap();
        assert_eq!((one.text.as_str(), one.half_width, one.low, one.n), ("500 ms", None, None, 1));
        let two = summarize_values(&[0.5, 0.7], "").unwrap();
        assert_eq!((two.text.as_str(), two.n), ("0.6 ± 1.3", 2));
        assert!((two.half_width.unwrap() - 1.270_620_473_617_471).abs() < 1e-9);
        assert_eq!(summarize_values(&[], ""), None);
    }

    #[test]
    fn one_observation_may_bring_the_interval_of_its_own_measurement() {
        let one = summarize_values(&[0.5], "").unwrap().with_interval(0.4, 0.6, "");
        assert_eq!(
            (one.text.as_str(), one.covers, one.half_width),
            ("0.5 [0.4, 0.6]", Some(Covers::Measurement), None)
        );
        let two = summarize_values(&[0.5, 0.7], "").unwrap();
        assert_eq!(two.clone().with_interval(0.4, 0.6, ""), two, "that of replicates is the wider one, and stays");
        let spoiled = summarize_values(&[f64::NAN], "").unwrap().with_interval(0.0, 1.0, "");
        assert_eq!((spoiled.text.as_str(), spoiled.covers), ("NaN", None));
    }

    #[test]
    fn a_value_that_is_not_finite_is_said_and_not_dropped() {
        let spoiled = summarize_values(&[0.5, f64::NAN, 0.7], "").unwrap();
        assert_eq!((spoiled.text.as_str(), spoiled.mean, spoiled.n), ("1 of 3 not finite", None, 3));
        assert_eq!(serde_json::to_value(&spoiled).unwrap()["values"], serde_json::json!([0.5, "NaN", 0.7]));
        assert_eq!(summarize_values(&[f64::INFINITY], "").unwrap().text, "∞");
        assert_eq!(number_to_json(f64::NEG_INFINITY), Value::from("-inf"));
    }
}
