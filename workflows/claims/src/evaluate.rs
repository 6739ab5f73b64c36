//! The value of a formula in one replicate.

use std::collections::{BTreeMap, BTreeSet};

use assay_spec::{Axis, CellRef, Formula};
use assay_statistics::format::quantity;

use crate::observation::{Observation, Outcome};

/// The observations of a run, as input of formulas.
pub(crate) struct Sample<'a> {
    pub observations: &'a [Observation<'a>],
}

/// The number of a replicate; `None` for a job without replicates.
pub(crate) type Replicate = Option<u32>;

impl<'a> Sample<'a> {
    /// The observations of a reference.
    pub fn selected_tasks(&self, cells: &CellRef) -> impl Iterator<Item = &'a Observation<'a>> {
        self.observations.iter().filter(move |task| {
            let fits = |one: &assay_spec::Selection| task.matrix.get(&one.axis).is_some_and(|value| one.matches(value));
            task.job == cells.job && cells.selected.iter().all(fits)
        })
    }

    /// The replicates of a reference. `Err` states why they cannot be judged.
    pub fn replicates(&self, cells: &CellRef) -> Result<BTreeSet<Replicate>, String> {
        let tasks: Vec<&Observation<'_>> = self.selected_tasks(cells).collect();
        let count = |outcome| tasks.iter().filter(|task| task.outcome == outcome).count();
        if tasks.is_empty() {
            return Err(format!("{cells} has no results: it was not run"));
        }
        match (count(Outcome::Failed), count(Outcome::Pending)) {
            (0, 0) => {}
            (0, pending) => return Err(format!("{pending} of {} tasks behind {cells} have not ended", tasks.len())),
            (failed, _) => {
                return Err(format!(
                    "{failed} of {} tasks behind {cells} failed or were skipped, and the others are not a fair sample",
                    tasks.len()
                ));
            }
        }
        // Repeated work is one observation.
        let mut seen: BTreeMap<(Option<&str>, String), Replicate> = BTreeMap::new();
        let mut replicates = BTreeSet::new();
        for task in tasks {
            let cell = serde_json::to_string(task.matrix).unwrap_or_default();
            let first = match task.work {
                Some(work) => *seen.entry((Some(work), cell)).or_insert(task.replicate),
                None => task.replicate,
            };
            if first == task.replicate {
                replicates.insert(task.replicate);
            }
        }
        Ok(replicates)
    }

    /// Whether a metric has the same values in all of these replicates.
    pub fn is_constant(&self, cells: &CellRef, replicates: &[Replicate]) -> bool {
        let values = |replicate: Replicate| -> BTreeSet<(String, String, u64)> {
            let tasks = self.selected_tasks(cells).filter(|task| task.replicate == replicate);
            let of_task = |task: &'a Observation<'a>| {
                let cell = serde_json::to_string(task.matrix).unwrap_or_default();
                let fits = |name: &str| name == cells.metric || variable_part(&cells.metric, name).is_some();
                let metrics = task.metrics.iter().filter(move |(name, _)| fits(name));
                metrics.map(move |(name, value)| (cell.clone(), name.clone(), value.to_bits()))
            };
            tasks.flat_map(of_task).collect()
        };
        let first = values(replicates[0]);
        replicates.iter().all(|&replicate| values(replicate) == first)
    }

    /// The mean of a metric over the selected cells, in one replicate.
    fn mean_metric(&self, cells: &CellRef, replicate: Replicate) -> Result<f64, String> {
        let mut values = Vec::new();
        for task in self.selected_tasks(cells).filter(|task| task.replicate == replicate) {
            values.push(finite_metric(task, &cells.metric, cells)?);
        }
        if values.is_empty() {
            return Err(format!("{cells} has no value in every replicate"));
        }
        Ok(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The points of a power law in one replicate.
    fn power_law_points(&self, cells: &CellRef, axis: &Axis, replicate: Replicate) -> Result<Vec<(f64, f64)>, String> {
        let mut points: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for task in self.selected_tasks(cells).filter(|task| task.replicate == replicate) {
            match axis {
                Axis::Matrix(axis) => {
                    let x = task.matrix.get(axis).and_then(serde_json::Value::as_f64).filter(|x| *x > 0.0);
                    let Some(x) = x else {
                        return Err(format!(
                            "a cell of {cells} has no number above zero for `{axis}`: select the others"
                        ));
                    };
                    points.entry(x.to_bits()).or_default().push(finite_metric(task, &cells.metric, cells)?);
                }
                Axis::MetricPart => {
                    for (x, name) in
                        task.metrics.keys().filter_map(|name| Some((variable_part(&cells.metric, name)?, name)))
                    {
                        points.entry(x.to_bits()).or_default().push(finite_metric(task, name, cells)?);
                    }
                }
            }
        }
        // The bits of positive numbers are ordered like the numbers.
        let mean = |values: &Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        let points: Vec<(f64, f64)> = points.iter().map(|(x, values)| (f64::from_bits(*x), mean(values))).collect();
        match points.len() {
            0 | 1 => Err(format!("{cells} has {} points along {axis}: a power law needs at least two", points.len())),
            _ if points.iter().any(|(_, y)| *y <= 0.0) => {
                Err(format!("{cells} has a value that is not above zero: a power law cannot be fitted"))
            }
            _ => Ok(points),
        }
    }

    /// The value of a formula in one replicate.
    pub fn evaluate(&self, formula: &Formula, replicate: Replicate) -> Result<f64, String> {
        let value = match formula {
            Formula::Number(number) => *number,
            Formula::Cells(cells) => self.mean_metric(cells, replicate)?,
            Formula::Operation(operator, left, right) => {
                operator.apply_to(self.evaluate(left, replicate)?, self.evaluate(right, replicate)?)
            }
            Formula::Ratio(left, right) => {
                let (left, right) = (self.evaluate(left, replicate)?, self.evaluate(right, replicate)?);
                if left <= 0.0 || right <= 0.0 {
                    return Err(format!("a ratio needs values above zero, and these are {left} and {right}"));
                }
                left / right
            }
            Formula::Exponent(cells, axis) => Line::fit(&self.power_law_points(cells, axis, replicate)?).slope,
            Formula::Crossover(first, second, axis) => {
                let (first, second) = self.fit_power_laws(first, second, axis, replicate)?;
                let x = (-(first.intercept - second.intercept) / (first.slope - second.slope)).exp();
                let (low, high) = (first.range.0.max(second.range.0), first.range.1.min(second.range.1));
                if x < low || x > high {
                    let range = format!("{} to {}", quantity(low, ""), quantity(high, ""));
                    let x = quantity(x, "");
                    return Err(format!("a crossover lies at {x} in a replicate, outside the measured range, {range}"));
                }
                x
            }
            Formula::Call(function, arguments) => {
                let values: Result<Vec<f64>, String> =
                    arguments.iter().map(|argument| self.evaluate(argument, replicate)).collect();
                function.apply_to(&values?)
            }
        };
        if value.is_finite() { Ok(value) } else { Err(format!("a replicate has the value {value}")) }
    }

    /// The power laws of two metrics in one replicate.
    pub fn fit_power_laws(
        &self,
        first: &CellRef,
        second: &CellRef,
        axis: &Axis,
        replicate: Replicate,
    ) -> Result<(Line, Line), String> {
        Ok((
            Line::fit(&self.power_law_points(first, axis, replicate)?),
            Line::fit(&self.power_law_points(second, axis, replicate)?),
        ))
    }
}

/// A finite metric of a task.
fn finite_metric(task: &Observation<'_>, name: &str, cells: &CellRef) -> Result<f64, String> {
    match task.metrics.get(name) {
        Some(value) if value.is_finite() => Ok(*value),
        Some(value) => Err(format!("{cells} is {value} in a replicate")),
        None => Err(format!("a task behind {cells} reported no `{name}`")),
    }
}

/// The number at the `*` of the pattern in a name.
fn variable_part(pattern: &str, name: &str) -> Option<f64> {
    let (mut parts, mut found) = (name.split('/'), None);
    for wanted in pattern.split('/') {
        match (wanted, parts.next()?) {
            ("*", part) => found = Some(part.parse::<f64>().ok().filter(|x| *x > 0.0)?),
            (wanted, part) if wanted == part => {}
            _ => return None,
        }
    }
    if parts.next().is_some() { None } else { found }
}

/// A straight line through the logarithms of points, by least squares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub intercept: f64,
    pub slope: f64,
    /// The smallest and the largest x.
    pub range: (f64, f64),
}

impl Line {
    /// Fits a line to two or more positive points with different x.
    fn fit(points: &[(f64, f64)]) -> Line {
        let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
        let n = logs.len() as f64;
        let (x, y) = (logs.iter().map(|p| p.0).sum::<f64>() / n, logs.iter().map(|p| p.1).sum::<f64>() / n);
        let spread: f64 = logs.iter().map(|p| (p.0 - x).powi(2)).sum();
        let slope = logs.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread;
        let ends = |fold: fn(f64, f64) -> f64| points.iter().map(|p| p.0).reduce(fold).unwrap_or(f64::NAN);
        Line { intercept: y - slope * x, slope, range: (ends(f64::min), ends(f64::max)) }
    }
}
