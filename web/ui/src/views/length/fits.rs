//! The exponents of families over length, and where each family crosses the base.

use assay_server::{Measured, summarize_values};
use assay_spec::Better;
use assay_statistics::trends::crossover::{Crossover, crossover};
use assay_statistics::{Estimate, exponent, format};
use serde::Serialize;

use super::families::{Family, LengthMetric};

/// The confidence level of all intervals.
const LEVEL: f64 = 0.95;

/// A metric over length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LengthView {
    /// The metric with `*` for the length.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// The lengths that were measured, rising.
    pub lengths: Vec<u64>,
    /// The family that the others are compared with.
    pub base: String,
    /// The families, the base first.
    pub families: Vec<FamilyView>,
}

/// A family.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct FamilyView {
    /// Its name.
    pub name: String,
    /// Parallel to the lengths; `None` where it was not measured.
    pub values: Vec<Option<Measured>>,
    /// The exponent k of the power law `c length^k`; `None` where it cannot be fitted.
    pub exponent: Option<Estimate>,
    /// The same in words, or why there is none.
    pub exponent_text: String,
    /// The power law: its value at a length of 1.
    pub factor: Option<f64>,
    /// Where it crosses the base; `None` for the base, and where one of them cannot be fitted.
    pub crossover: Option<Crossover>,
    /// The same in words.
    pub crossover_text: String,
}

/// The families of a metric; `base` names the one that the others are compared with, the first one if it names none.
pub(crate) fn length_view(metric: &LengthMetric, base: Option<&str>, unit: &str, better: Better) -> LengthView {
    let mut lengths: Vec<u64> = metric.families.iter().flat_map(|family| family.values.keys().copied()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let place = metric.families.iter().position(|family| Some(family.name.as_str()) == base).unwrap_or(0);
    let mut families: Vec<&Family> = metric.families.iter().collect();
    let chosen = families.remove(place);
    families.insert(0, chosen);
    let points: Vec<(Vec<f64>, Vec<f64>)> = families.iter().map(|family| points_of(family)).collect();
    let view = |(at, family): (usize, &&Family)| {
        let values = lengths.iter().map(|length| summarize_values(family.values.get(length)?, unit)).collect();
        let (x, y) = &points[at];
        let fitted = exponent(x, y, LEVEL).ok();
        let exponent_text = match &fitted {
            Some(k) => format::with_interval(k, ""),
            None if family.values.len() < 2 => "only one length".to_owned(),
            None => "not a positive value".to_owned(),
        };
        let mean = |values: &[f64]| values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64;
        let crossing = (at > 0).then(|| crossover((x, y), (&points[0].0, &points[0].1), LEVEL).ok()).flatten();
        FamilyView {
            name: family.name.clone(),
            values,
            factor: fitted.as_ref().map(|k| (mean(y) - k.value * mean(x)).exp()).filter(|factor| factor.is_finite()),
            exponent: fitted,
            exponent_text,
            crossover_text: match (&crossing, at) {
                (_, 0) => String::new(),
                (Some(crossing), _) => describe(crossing, better),
                (None, _) => "no common range of lengths".to_owned(),
            },
            crossover: crossing,
        }
    };
    LengthView {
        metric: metric.name.clone(),
        unit: unit.to_owned(),
        base: chosen.name.clone(),
        families: families.iter().enumerate().map(view).collect(),
        lengths,
    }
}

/// Every observation with its length.
fn points_of(family: &Family) -> (Vec<f64>, Vec<f64>) {
    let points = family.values.iter().flat_map(|(length, values)| values.iter().map(|value| (*length as f64, *value)));
    points.unzip()
}

fn describe(crossing: &Crossover, better: Better) -> String {
    match crossing {
        Crossover::Measured { at, first_is_lower_above } => {
            let wins = match better {
                Better::Lower => Some(*first_is_lower_above),
                Better::Higher => Some(!*first_is_lower_above),
                Better::Neither => None,
            };
            let above = match wins {
                Some(true) => "better above it",
                Some(false) => "worse above it",
                None if *first_is_lower_above => "lower above it",
                None => "higher above it",
            };
            let unbounded = if at.interval.is_none() { ", not bounded by the data" } else { "" };
            format!("at {}{unbounded}; {above}", format::with_interval(at, ""))
        }
        Crossover::NotMeasured { above: true } => "not measured: above the lengths".to_owned(),
        Crossover::NotMeasured { above: false } => "not measured: below the lengths".to_owned(),
        Crossover::Parallel => "none: the same exponent".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn family(name: &str, law: impl Fn(f64) -> f64) -> Family {
        let noise = |at: u64| 1.0 + (at * 37 % 11) as f64 / 1000.0;
        let values: BTreeMap<u64, Vec<f64>> = [16, 64, 256, 1024]
            .into_iter()
            .map(|length| (length, (0..3).map(|replicate| law(length as f64) * noise(length + replicate)).collect()))
            .collect();
        Family { name: name.into(), values }
    }

    fn metric() -> LengthMetric {
        let families =
            vec![family("quadratic", |x| x * x), family("linear", |x| 100.0 * x), family("slow", |x| 1e6 * x)];
        LengthMetric { name: "latency/*".into(), example: "latency/16".into(), families }
    }

    #[test]
    fn exponents_and_crossings_have_intervals() {
        let found = length_view(&metric(), None, "s", Better::Lower);
        assert_eq!((found.base.as_str(), found.lengths.as_slice()), ("quadratic", &[16, 64, 256, 1024][..]));
        let k = found.families[0].exponent.as_ref().unwrap();
        assert!((k.value - 2.0).abs() < 0.01 && k.interval.is_some(), "{k:?}");
        assert!(found.families[0].crossover.is_none() && found.families[0].crossover_text.is_empty());
        let Some(Crossover::Measured { at, .. }) = &found.families[1].crossover else { panic!("{found:?}") };
        assert!((at.value - 100.0).abs() < 3.0 && at.interval.is_some(), "{at:?}");
        assert!(found.families[1].crossover_text.ends_with("better above it"), "{}", found.families[1].crossover_text);
        assert_eq!(found.families[2].crossover_text, "not measured: above the lengths");
        let law = found.families[1].factor.unwrap() * 64f64.powf(found.families[1].exponent.as_ref().unwrap().value);
        assert!((law / 6400.0 - 1.0).abs() < 0.02, "{law}");
        let higher = length_view(&metric(), Some("linear"), "", Better::Higher);
        assert_eq!(higher.base, "linear");
        assert!(
            higher.families[1].crossover_text.ends_with("better above it"),
            "{}",
            higher.families[1].crossover_text
        );
    }

    #[test]
    fn what_has_no_power_law_says_why() {
        let one = Family { name: "one".into(), values: BTreeMap::from([(16, vec![1.0, 1.1])]) };
        let zero = Family { name: "zero".into(), values: BTreeMap::from([(16, vec![0.0]), (32, vec![1.0])]) };
        let metric = LengthMetric { name: "m/*".into(), example: "m/16".into(), families: vec![one, zero] };
        let found = length_view(&metric, None, "", Better::Neither);
        let texts: Vec<&str> = found.families.iter().map(|family| family.exponent_text.as_str()).collect();
        assert_eq!(texts, ["only one length", "not a positive value"]);
        assert_eq!(found.families[1].crossover_text, "no common range of lengths");
        assert!(found.families[0].values[1].is_none());
    }
}
