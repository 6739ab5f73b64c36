//! Looks up the jobs, axes, values, metrics and units that a claim names, and reports checks that cannot fail.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::model::{Axis, CellRef, Check, Claim, Claimed, Comparison, Formula, Operator, Selection, Tolerance};
use super::quantity;
use super::read::{DraftClaim, Ids, Place, Quantity};
use crate::draft::Reader;
use crate::kind::MetricKind;
use crate::node::{Data, Node};
use crate::results::metric_kind;
use crate::scalar::in_address;
use crate::suggest;

/// The names that claims can use.
pub(crate) struct ClaimScope<'a> {
    /// Every job of the file, by name.
    pub jobs: BTreeMap<&'a str, JobView<'a>>,
}

/// The data of a job that claims use.
pub(crate) struct JobView<'a> {
    pub kind: &'a str,
    /// `None` if configs declare metrics, or if the kind is unknown.
    pub metrics: Option<&'static [MetricKind]>,
    /// The matrix values of its tasks; `None` if they depend on results.
    pub cells: Option<Vec<&'a BTreeMap<String, Value>>>,
}

/// The unit of a formula; `None` if it is unknown.
type Unit = Option<String>;

impl Reader<'_> {
    /// Reads the claims of a file after their expressions were evaluated.
    pub fn resolve_claims(&mut self, nodes: &[Node], scope: &ClaimScope<'_>) -> Vec<Claim> {
        let mut ids = Ids::new();
        let mut claims = Vec::new();
        for node in nodes.iter().filter(|node| node.data != Data::Unknown) {
            let Some(draft) = self.read_claim(node) else { continue };
            if let Some(first) = ids.get(&draft.claim.id) {
                let (file, line) = self.source.place_of(first.line);
                let hint = format!("it is in {file}:{line}:{}, too: rename or remove one of them", first.column);
                self.report(draft.id_span, format!("the claim `{}` is defined twice", draft.claim.id), hint);
                continue;
            }
            ids.insert(draft.claim.id.clone(), draft.id_span);
            claims.extend(self.resolve_claim(draft, scope));
        }
        claims
    }

    fn resolve_claim(&mut self, draft: DraftClaim, scope: &ClaimScope<'_>) -> Option<Claim> {
        let before = self.log.count();
        for (check, place) in std::iter::zip(&draft.claim.arithmetic, &draft.arithmetic) {
            self.check_arithmetic(check, *place);
        }
        let DraftClaim { mut claim, check: place, claimed, .. } = draft;
        let (Some(check), Some(place)) = (claim.check.as_mut(), place) else {
            return (self.log.count() == before).then_some(claim);
        };
        if let Some(axis) = claimed.as_ref().and_then(|claimed| claimed.exponent_axis()) {
            match &check.left {
                Formula::Cells(cells) => check.left = Formula::Exponent(cells.clone(), axis.clone()),
                _ => {
                    let hint =
                        "write `check: \"JOB.METRIC\"`, or the exponent into the check and the number into `claimed`";
                    self.report(place.span, "an exponent is claimed, but the check is not a metric", hint.to_owned());
                }
            }
        }
        self.check_values(check, place);
        let unit = self.unit_of(&check.left, place, scope);
        if let Some((comparison, right)) = &check.comparison {
            let other = self.unit_of(right, place, scope);
            if matches!(comparison, Comparison::Equal | Comparison::Different) {
                let hint = "claim a value with a `tolerance`: measured values are never exactly equal".to_owned();
                self.report(place.span, format!("`{}` can only be used in `arithmetic`", comparison.symbol()), hint);
            }
            let is_number = |side: &Formula| side.cells().is_empty();
            if let (Some(unit), Some(other)) = (&unit, &other)
                && unit != other
                && !is_number(&check.left)
                && !is_number(right)
            {
                let message = format!("the check compares {} with {}", describe_unit(unit), describe_unit(other));
                self.report(place.span, message, "compare values of one unit".to_owned());
            }
        }
        if let Some(claimed) = &claimed {
            let mut convert = |quantity: &Quantity| self.convert_quantity(quantity, unit.as_deref());
            claim.claimed = Some(claimed.to_claimed(&mut convert));
        }
        claim.unit = unit.unwrap_or_default();
        if self.log.count() == before {
            self.check_can_fail(&claim, place);
        }
        (self.log.count() == before).then_some(claim)
    }

    /// A claimed number in the unit of the check.
    fn convert_quantity(&mut self, quantity: &Quantity, unit: Option<&str>) -> f64 {
        let Some(wanted) = unit else {
            if !matches!(quantity.unit.as_str(), "" | "x" | "×") {
                let message =
                    format!("the unit of the check is not known, so that `{}` cannot be converted", quantity.unit);
                self.report(quantity.span, message, "write the plain number, in the unit of the metric".to_owned());
            }
            return quantity.number;
        };
        quantity::convert_unit(quantity.number, &quantity.unit, wanted).unwrap_or_else(|fitting| {
            let message = format!("the unit `{}` is not that of the check, {}", quantity.unit, describe_unit(wanted));
            let hint = match fitting.is_empty() {
                true => "write the plain number".to_owned(),
                false => format!("known units are {}", suggest::list(&fitting)),
            };
            self.report(quantity.span, message, hint);
            quantity.number
        })
    }

    /// The unit of a formula. Reports names that do not exist.
    fn unit_of(&mut self, formula: &Formula, place: Place, scope: &ClaimScope<'_>) -> Unit {
        match formula {
            Formula::Number(_) => None,
            Formula::Cells(cells) => self.resolve_cells(cells, None, place, scope),
            Formula::Exponent(cells, axis) => {
                self.resolve_cells(cells, Some(axis), place, scope);
                Some(String::new())
            }
            Formula::Crossover(first, second, axis) => {
                self.resolve_cells(first, Some(axis), place, scope);
                self.resolve_cells(second, Some(axis), place, scope);
                Some(String::new())
            }
            Formula::Ratio(left, right) => {
                let units = (self.unit_of(left, place, scope), self.unit_of(right, place, scope));
                match units {
                    (Some(a), Some(b)) if a != b => {
                        let message = format!(
                            "the sides of the ratio have different units, {} and {}",
                            describe_unit(&a),
                            describe_unit(&b)
                        );
                        self.report(place.span, message, "divide values of one unit, or write `/`".to_owned());
                        None
                    }
                    _ => Some(String::new()),
                }
            }
            Formula::Operation(operator, left, right) => {
                let (a, b) = (self.unit_of(left, place, scope), self.unit_of(right, place, scope));
                let same = a == b && a.is_some();
                match operator {
                    Operator::Add | Operator::Subtract => match (&a, &b) {
                        (Some(x), Some(y)) if x != y => {
                            let message = format!("{} and {} cannot be added", describe_unit(x), describe_unit(y));
                            self.report(place.span, message, "add values of one unit".to_owned());
                            None
                        }
                        _ => a.or(b),
                    },
                    Operator::Divide if same => Some(String::new()),
                    Operator::Divide if right.cells().is_empty() => a,
                    Operator::Multiply if right.cells().is_empty() => a,
                    Operator::Multiply if left.cells().is_empty() => b,
                    _ => None,
                }
            }
            Formula::Call(_, arguments) => {
                let units: Vec<Unit> = arguments.iter().map(|one| self.unit_of(one, place, scope)).collect();
                units.into_iter().flatten().next()
            }
        }
    }

    /// Looks up a reference and returns the unit of its metric.
    fn resolve_cells(&mut self, cells: &CellRef, over: Option<&Axis>, place: Place, scope: &ClaimScope<'_>) -> Unit {
        let Some(job) = scope.jobs.get(cells.job.as_str()) else {
            let hint = suggest::hint(&cells.job, scope.jobs.keys().copied(), "jobs");
            self.report(self.span_of(place, cells.job_at), format!("unknown job `{}`", cells.job), hint);
            return None;
        };
        if let Some(known) = &job.cells {
            self.check_selections(cells, known, place);
            if let Some(Axis::Matrix(axis)) = over {
                self.check_fit_axis(cells, axis, known, place);
            }
        }
        if (over == Some(&Axis::MetricPart)) != cells.metric.split('/').any(|part| part == "*") {
            let message = "`*` in a metric and `over: *` belong together".to_owned();
            let hint = "for example `exponent(bench.latency/f32/*/median, over: *)`".to_owned();
            self.report(self.span_of(place, cells.metric_at), message, hint);
        }
        let known = job.metrics?;
        match metric_kind(known, &cells.metric) {
            Some(kind) => Some(kind.unit.to_owned()),
            None => {
                let names = known.iter().map(|kind| kind.name);
                let ending = names.clone().find(|name| name.ends_with(&format!("/{}", cells.metric)));
                let hint = match ending {
                    Some(name) => Some(format!("did you mean `{name}`?")),
                    None if known.is_empty() => Some(format!("a `{}` step reports no metrics", job.kind)),
                    None => suggest::hint(&cells.metric, names.clone(), "metrics").or_else(|| {
                        let some: Vec<&str> = names.take(12).collect();
                        Some(format!("among its metrics are {}", suggest::list(&some)))
                    }),
                };
                let message = format!("the job `{}` has no metric `{}`", cells.job, cells.metric);
                self.report(self.span_of(place, cells.metric_at), message, hint);
                None
            }
        }
    }

    /// Reports axes and values that do not occur in any cell of the job.
    fn check_selections(&mut self, cells: &CellRef, known: &[&BTreeMap<String, Value>], place: Place) {
        let mut sound = true;
        for Selection { axis, axis_at, .. } in &cells.selected {
            if !known.iter().any(|cell| cell.contains_key(axis)) {
                let axes: BTreeSet<&str> = known.iter().flat_map(|cell| cell.keys().map(String::as_str)).collect();
                let hint = suggest::hint(axis, axes, "axes");
                let message = format!("the job `{}` has no axis `{axis}`", cells.job);
                self.report(self.span_of(place, *axis_at), message, hint);
                sound = false;
            }
        }
        let selected = if sound { cells.selected.as_slice() } else { &[] };
        for one in selected {
            if !known.iter().any(|cell| cell.get(&one.axis).is_some_and(|value| one.matches(value))) {
                let mut values: Vec<String> = Vec::new();
                for value in known.iter().filter_map(|cell| cell.get(&one.axis)).map(in_address) {
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
                let hint = suggest::hint(&one.value, values.iter().map(String::as_str), "values");
                let message = format!("no cell of `{}` has {}={}", cells.job, one.axis, one.value);
                self.report(self.span_of(place, one.value_at), message, hint);
                sound = false;
            }
        }
        let selects = |cell: &&&BTreeMap<String, Value>| selects(cells, cell);
        if sound && !known.iter().any(|cell| selects(&cell)) {
            let message = format!("no cell of `{}` has all of these values", cells.job);
            self.report(self.span_of(place, cells.job_at), message, "`assay plan FILE` lists the cells".to_owned());
        }
    }

    /// Reports an axis that no power law can be fitted over.
    fn check_fit_axis(&mut self, cells: &CellRef, axis: &str, known: &[&BTreeMap<String, Value>], place: Place) {
        let mut values: Vec<f64> = known
            .iter()
            .filter(|cell| selects(cells, cell))
            .filter_map(|cell| cell.get(axis)?.as_f64())
            .filter(|value| *value > 0.0)
            .collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        if values.len() < 2 {
            let message = format!("`{}` has fewer than two numbers above zero along `{axis}`", cells.job);
            let hint = "a power law needs cells that differ in this axis".to_owned();
            self.report(self.span_of(place, cells.job_at), message, hint);
        }
    }

    fn check_arithmetic(&mut self, check: &Check, place: Place) {
        if check.comparison.is_none() {
            let hint = "for example `17000 / 370 >= 46`".to_owned();
            self.report(place.span, "`arithmetic` takes a comparison", hint);
        }
        if let Some(cells) = check.cells().first() {
            let hint = "write measured values into `check`".to_owned();
            self.report(self.span_of(place, cells.job_at), "`arithmetic` can only compare claimed numbers", hint);
            return;
        }
        self.check_values(check, place);
    }

    /// Reports numbers with which a comparison would have an arbitrary outcome.
    fn check_values(&mut self, check: &Check, place: Place) {
        let mut sides = std::iter::once(&check.left).chain(check.comparison.iter().map(|(_, right)| right));
        if sides.any(Formula::has_undefined_part) {
            let hint = "a division by zero and the logarithm of a number below zero have no value".to_owned();
            self.report(place.span, "a part of the formula has no finite value", hint);
        }
    }

    /// Reports a check whose outcome is known before any measurement.
    fn check_can_fail(&mut self, claim: &Claim, place: Place) {
        let Some(check) = &claim.check else { return };
        let ratio_of_one = |formula: &Formula| matches!(formula, Formula::Ratio(a, b) if a == b);
        let difference_of_one = |formula: &Formula| matches!(formula, Formula::Operation(Operator::Subtract | Operator::Divide, a, b) if a == b);
        let is_positive = |formula: &Formula| matches!(formula, Formula::Ratio(..));
        let report = |reader: &mut Self, message: &str, hint: &str| reader.report(place.span, message, hint.to_owned());
        let report_positive = |reader: &mut Self, holds: bool| {
            let outcome = if holds { "always" } else { "never" };
            let message = format!("the check {outcome} holds: a ratio is above zero");
            report(reader, &message, "compare the ratio with 1");
        };
        if check.cells().is_empty() {
            return report(
                self,
                "the check uses no result, so that its outcome is known",
                "write it into `arithmetic`",
            );
        }
        let sides = std::iter::once(&check.left).chain(check.comparison.iter().map(|(_, right)| right));
        if sides.clone().any(|side| ratio_of_one(side) || difference_of_one(side)) {
            return report(self, "the check compares a value with itself", "name two cells or metrics");
        }
        match &check.comparison {
            Some((_, right)) if *right == check.left => {
                report(self, "the check compares a value with itself", "name two cells or metrics");
            }
            Some((comparison, Formula::Number(limit))) if is_positive(&check.left) && *limit <= 0.0 => {
                report_positive(self, is_greater(*comparison));
            }
            Some((comparison, right))
                if is_positive(right) && matches!(check.left, Formula::Number(limit) if limit <= 0.0) =>
            {
                report_positive(self, !is_greater(*comparison));
            }
            _ => {}
        }
        match claim.claimed {
            Some(Claimed::AtLeast(low)) if low <= 0.0 && is_positive(&check.left) => report_positive(self, true),
            Some(Claimed::Value { value: 0.0, tolerance: Tolerance::Relative(_) }) => {
                report(
                    self,
                    "a share of zero is zero, so that the claim never holds",
                    "give the tolerance as a number",
                );
            }
            Some(Claimed::Between(low, high)) if low > high => {
                report(self, "`between` has its larger end first, so that it never holds", "swap the ends");
            }
            Some(Claimed::Value { value: high, .. } | Claimed::AtMost(high) | Claimed::Between(_, high))
                if high <= 0.0 && is_positive(&check.left) =>
            {
                report(self, "the check never holds: a ratio is above zero", "claim a ratio above zero");
            }
            _ => {}
        }
    }
}

fn is_greater(comparison: Comparison) -> bool {
    matches!(comparison, Comparison::Greater | Comparison::GreaterOrEqual)
}

/// Whether a reference selects a cell.
fn selects(cells: &CellRef, cell: &BTreeMap<String, Value>) -> bool {
    cells.selected.iter().all(|one| cell.get(&one.axis).is_some_and(|value| one.matches(value)))
}

fn describe_unit(unit: &str) -> String {
    if unit.is_empty() { "a pure number".to_owned() } else { format!("`{unit}`") }
}
