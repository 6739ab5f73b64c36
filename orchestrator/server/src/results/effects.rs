//! The effects of the axes of a sweep: main effects and interactions of each metric, over all cells of a job.

use std::collections::BTreeMap;

use assay_spec::{Better, value_name};
use assay_statistics::factorial::{Analysis, Axis, Effect, FactorialObservation, analyse};
use assay_statistics::{Direction, Estimate, Scale, format};
use serde::Serialize;
use serde_json::Value;

use super::table::{Column, Row};

/// The level of confidence of intervals.
const LEVEL: f64 = 0.95;
/// Below this corrected p-value an axis is said to have an effect.
const ALPHA: f64 = 0.05;

/// The effects of the axes of a job on a metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effects {
    /// The job.
    pub job: String,
    /// The column's place in the table.
    pub column: usize,
    /// Its title.
    pub title: String,
    /// The scale: where it is logarithmic, effects are ratios to the geometric mean of all levels.
    pub scale: Scale,
    /// The axes.
    pub axes: Vec<AxisEffect>,
    /// Each pair of axes: whether the effect of one depends on the other.
    pub interactions: Vec<Interaction>,
    /// The cells that were left out, with the reason.
    pub left_out: Vec<String>,
}

/// The main effect of an axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AxisEffect {
    /// The axis.
    pub axis: String,
    /// The p-value that the axis has no effect, after Holm's correction for all effects of the metric; `None` where cells have
    /// separate variances.
    pub p: Option<f64>,
    /// The share of the axis in the sum of its variation and the error's (partial eta squared).
    pub share: Option<f64>,
    /// Its levels, in order.
    pub levels: Vec<AxisLevel>,
    /// The conclusion in words.
    pub finding: String,
}

/// A level of an axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AxisLevel {
    /// Its value.
    pub value: String,
    /// The mean over the combinations of the other axes, each counting alike; geometric on the logarithmic scale.
    pub mean: f64,
    /// The mean as text.
    pub mean_text: String,
    /// The mean less that of all levels, or its ratio to it, with its 95 % interval.
    pub effect: Estimate,
    /// The effect as text.
    pub effect_text: String,
    /// Whether this level may be the best one as far as the data can tell.
    pub may_be_best: bool,
}

/// The interaction of two axes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Interaction {
    /// The axes.
    pub axes: [String; 2],
    /// As [`AxisEffect::p`].
    pub p: Option<f64>,
    /// The conclusion in words.
    pub finding: String,
}

/// The effects on a column in each job that sweeps two or more axes; none if its metric has no direction or the data do not allow
/// an analysis.
pub(super) fn find_effects(rows: &[Row], columns: &[Column], at: usize) -> Vec<Effects> {
    let mut jobs: Vec<&str> = Vec::new();
    for row in rows {
        if !jobs.contains(&row.job.as_str()) {
            jobs.push(&row.job);
        }
    }
    jobs.into_iter().filter_map(|job| effects_in_job(rows, &columns[at], at, job)).collect()
}

fn effects_in_job(rows: &[Row], column: &Column, at: usize, job: &str) -> Option<Effects> {
    let direction = match column.better {
        Better::Lower => Direction::LowerIsBetter,
        Better::Higher => Direction::HigherIsBetter,
        Better::Neither => return None,
    };
    // The same work as another row's does not count again.
    let own = |row: &&Row| row.job == job && row.values[at].as_ref().is_none_or(|value| value.same_as.is_none());
    let rows: Vec<&Row> = rows.iter().filter(own).collect();
    let axes = varied_axes(&rows);
    if axes.len() < 2 {
        return None;
    }
    let (mut observations, mut left_out) = (Vec::new(), Vec::new());
    for row in &rows {
        let values = row.values[at].as_ref().map_or(&[][..], |value| &value.measured.values[..]);
        let spoiled = values.iter().filter(|value| !value.is_finite()).count();
        if row.missing[at].is_selective() {
            left_out.push(format!("{} ({})", row.cell, row.missing[at].describe(values.len())));
        } else if spoiled > 0 {
            left_out.push(format!("{} ({spoiled} of {} not finite)", row.cell, values.len()));
        } else if let Some(value) = &row.values[at] {
            let levels: Vec<usize> = axes.iter().map(|axis| axis.level_of(row)).collect::<Option<_>>()?;
            let observed = std::iter::zip(values, value.replicates.iter().copied().chain(std::iter::repeat(None)));
            observations.extend(observed.map(|(&value, block)| FactorialObservation {
                levels: levels.clone(),
                value,
                block,
            }));
        }
    }
    let design: Vec<Axis> = axes.iter().map(VariedAxis::to_axis).collect();
    let analysis = analyse(&design, &observations, direction, LEVEL).ok()?;
    // Exact values (a size in bytes) need no analysis.
    if analysis
        .effects
        .iter()
        .all(|effect| effect.p.is_none() && effect.levels.iter().all(|l| l.effect.interval.is_none()))
    {
        return None;
    }
    Some(describe_effects(&analysis, &axes, column, at, job, left_out))
}

/// An axis with several levels among the rows of a job.
struct VariedAxis {
    name: String,
    values: Vec<Value>,
}

impl VariedAxis {
    fn level_of(&self, row: &Row) -> Option<usize> {
        let own = row.matrix.get(&self.name)?;
        self.values.iter().position(|value| value == own)
    }

    /// The axis for the analysis; with positions if all values are numbers.
    fn to_axis(&self) -> Axis {
        let positions: Option<Vec<f64>> = self.values.iter().map(Value::as_f64).collect();
        Axis { levels: self.values.len(), positions: positions.unwrap_or_default() }
    }
}

/// The axes of which every row has a value and that have several values. Numbers are sorted by size, other values keep the order
/// of the rows.
fn varied_axes(rows: &[&Row]) -> Vec<VariedAxis> {
    let mut values: BTreeMap<&String, Vec<Value>> = BTreeMap::new();
    for row in rows {
        for (axis, value) in &row.matrix {
            let known = values.entry(axis).or_default();
            if !known.contains(value) {
                known.push(value.clone());
            }
        }
    }
    let number = |value: &Value| value.as_f64().unwrap_or(f64::INFINITY);
    let varied = values
        .into_iter()
        .filter(|(axis, values)| values.len() > 1 && rows.iter().all(|row| row.matrix.contains_key(*axis)));
    varied
        .map(|(name, mut values)| {
            values.sort_by(|a, b| number(a).total_cmp(&number(b)));
            VariedAxis { name: name.clone(), values }
        })
        .collect()
}

fn describe_effects(
    analysis: &Analysis,
    axes: &[VariedAxis],
    column: &Column,
    at: usize,
    job: &str,
    left_out: Vec<String>,
) -> Effects {
    let (mut main, mut interactions) = (Vec::new(), Vec::new());
    for effect in &analysis.effects {
        match effect.axes[..] {
            [axis] => main.push(describe_axis(effect, &axes[axis], analysis.scale, &column.unit)),
            [first, second] => interactions.push(Interaction {
                axes: [axes[first].name.clone(), axes[second].name.clone()],
                p: effect.p_corrected,
                finding: describe_interaction(effect, &axes[first].name, &axes[second].name),
            }),
            _ => {}
        }
    }
    let (job, title) = (job.to_owned(), column.title.clone());
    Effects { job, column: at, title, scale: analysis.scale, axes: main, interactions, left_out }
}

fn describe_axis(effect: &Effect, axis: &VariedAxis, scale: Scale, unit: &str) -> AxisEffect {
    let level = |(value, level): (&Value, &assay_statistics::factorial::LevelEffect)| {
        let (mean, effect) = match scale {
            Scale::Linear => (level.mean, level.effect),
            Scale::Log => (level.mean.exp(), level.effect.exponentiate()),
        };
        AxisLevel {
            value: value_name(value),
            mean,
            mean_text: format::quantity(mean, unit),
            effect_text: format_effect(&effect, scale, unit),
            effect,
            may_be_best: level.may_be_best,
        }
    };
    AxisEffect {
        axis: axis.name.clone(),
        p: effect.p_corrected,
        share: effect.share,
        levels: std::iter::zip(&axis.values, &effect.levels).map(level).collect(),
        finding: describe_main_effect(effect, axis, scale, unit),
    }
}

fn format_effect(effect: &Estimate, scale: Scale, unit: &str) -> String {
    match scale {
        Scale::Linear => format::with_interval(effect, unit),
        Scale::Log => format::ratio(effect),
    }
}

fn describe_main_effect(effect: &Effect, axis: &VariedAxis, scale: Scale, unit: &str) -> String {
    let mut parts = vec![match effect.p_corrected {
        Some(p) if p < ALPHA => format!("has an effect ({})", format::p_value(p)),
        Some(p) => format!("no significant effect ({})", format::p_value(p)),
        None => "is not tested, since the variances of cells differ".to_owned(),
    }];
    let best: Vec<String> = std::iter::zip(&axis.values, &effect.levels)
        .filter(|(_, level)| level.may_be_best)
        .map(|(value, _)| value_name(value))
        .collect();
    match &best[..] {
        [] => {}
        [alone] => parts.push(format!("{alone} is best on average")),
        all if all.len() == effect.levels.len() => {}
        several => parts.push(format!("the best on average is one of {}", several.join(", "))),
    }
    if let Some(trend) = effect.trend.filter(|trend| trend.p.is_some_and(|p| p < ALPHA)) {
        let slope = if scale == Scale::Log { trend.slope.exponentiate() } else { trend.slope };
        let each = if trend.per_doubling { "doubling" } else { "unit" };
        parts.push(format!("{} for each {each}", format_effect(&slope, scale, unit)));
    }
    parts.join("; ")
}

fn describe_interaction(effect: &Effect, first: &str, second: &str) -> String {
    match effect.p_corrected {
        Some(p) if p < ALPHA => {
            format!(
                "the effect of {first} depends on {second} ({}): look at cells, not at averages",
                format::p_value(p)
            )
        }
        Some(p) => format!("no significant interaction ({})", format::p_value(p)),
        None => "is not tested, since the variances of cells differ or cells are missing".to_owned(),
    }
}
