//! The verdicts on the claims of a file.

use std::collections::BTreeSet;

use assay_spec::{Axis, CellRef, Claim, Formula, Operator};
use assay_statistics::format::{p_value, quantity, ratio, with_interval};
use assay_statistics::{Estimate, Method, holm};

use crate::arithmetic::evaluate_arithmetic;
use crate::evaluate::{Replicate, Sample};
use crate::hypothesis::Hypothesis;
use crate::observation::Observation;
use crate::test::MeanEstimate;
use crate::verdict::{Arithmetic, JudgedClaim, Measurement, Verdict};

/// The chance of a false verdict among all claims of a file.
const ALPHA: f64 = 0.05;
/// The confidence level of the displayed intervals.
pub const CLAIMS_LEVEL: f64 = 0.95;
/// The metric that marks a measurement as disturbed by other programs.
const DISTURBED: &str = "load/others";

/// An end of a band: the claim is true there if the mean is above the limit. For an upper end both are negated.
#[derive(Debug, Clone, Copy)]
struct Edge {
    estimate: MeanEstimate,
    limit: f64,
}

/// The evidence of the observations on a hypothesis.
enum Evidence {
    /// Nothing can be decided, for this reason.
    None { reason: String, value: Option<f64> },
    /// Values without scatter.
    Exact { value: f64, n: usize },
    /// A test.
    Tested { value: f64, ends: (f64, f64), edges: Vec<Edge>, n: usize, paired: bool },
}

/// A claim with its evidence so far.
struct Draft {
    judged: JudgedClaim,
    hypothesis: Option<Hypothesis>,
    evidence: Option<Evidence>,
}

/// Judges the claims of a file by the tasks of one run. `missing` returns why a backend is not available, and `None` if it is.
#[must_use]
pub fn judge_claims(
    claims: &[Claim],
    observations: &[Observation<'_>],
    missing: &dyn Fn(&str) -> Option<String>,
) -> Vec<JudgedClaim> {
    let sample = Sample { observations };
    let mut drafts: Vec<Draft> = claims.iter().map(|claim| draft_verdict(claim, &sample, missing)).collect();
    let tested: Vec<usize> = (0..drafts.len()).filter(|&at| p_value_of(&drafts[at]).is_some()).collect();
    let p: Vec<f64> = tested.iter().filter_map(|&at| p_value_of(&drafts[at])).collect();
    // `holm` refuses only values outside 0 to 1. A value that is not a number decides nothing.
    let corrected = holm(&p).unwrap_or_else(|_| vec![1.0; p.len()]);
    for ((&at, p), corrected) in tested.iter().zip(&p).zip(corrected) {
        let smaller = count_smaller_p_values(&tested, &drafts, *p);
        decide_verdict(&mut drafts[at], corrected, tested.len() - smaller);
    }
    drafts.into_iter().map(|draft| draft.judged).collect()
}

/// How many tested claims have a smaller p-value.
fn count_smaller_p_values(tested: &[usize], drafts: &[Draft], p: f64) -> usize {
    tested.iter().filter(|&&other| p_value_of(&drafts[other]).is_some_and(|other| other < p)).count()
}

/// The p-value of the verdict that the data point to.
fn p_value_of(draft: &Draft) -> Option<f64> {
    match &draft.evidence {
        Some(Evidence::Tested { edges, .. }) => Some(p_inside(edges).min(p_outside(edges))),
        _ => None,
    }
}

/// The p-value against "the value lies outside": the mean must pass every end.
fn p_inside(edges: &[Edge]) -> f64 {
    edges.iter().map(|edge| edge.estimate.p_above(edge.limit)).fold(0.0, f64::max)
}

/// The p-value against "the value lies inside": the mean must miss one end. Each end has 2.5 %, both together 5 %.
fn p_outside(edges: &[Edge]) -> f64 {
    edges.iter().map(|edge| edge.estimate.p_below(edge.limit)).fold(1.0, f64::min)
}

/// Judges a claim as far as that is possible without the other claims.
fn draft_verdict(claim: &Claim, sample: &Sample<'_>, missing: &dyn Fn(&str) -> Option<String>) -> Draft {
    let arithmetic: Vec<Arithmetic> = claim.arithmetic.iter().map(evaluate_arithmetic).collect();
    let hypothesis = Hypothesis::from_claim(claim);
    let end = |end: f64| end.is_finite().then_some(end);
    let mut judged = JudgedClaim {
        id: claim.id.clone(),
        says: claim.says.clone(),
        source: claim.source.clone(),
        verdict: Verdict::Undecided,
        reason: String::new(),
        check: claim.check.as_ref().map(|check| check.text.split_whitespace().collect::<Vec<_>>().join(" ")),
        claimed: hypothesis.as_ref().map(|hypothesis| hypothesis.claimed.clone()),
        band: hypothesis.as_ref().map(|hypothesis| (end(hypothesis.band.0), end(hypothesis.band.1))),
        measured: None,
        replicates_to_decide: None,
        scaled: claim.scaled.clone(),
        arithmetic,
        tasks: Vec::new(),
        place: claim.place.clone(),
    };
    let done = |judged: JudgedClaim| Draft { judged, hypothesis: None, evidence: None };
    let wrong: Vec<String> = judged
        .arithmetic
        .iter()
        .filter(|one| !one.holds)
        .map(|one| format!("{} is false: {}", one.text, one.shown))
        .collect();
    if !wrong.is_empty() {
        judged.verdict = Verdict::Impossible;
        judged.reason = format!("the claimed numbers contradict each other: {}", wrong.join("; "));
        return done(judged);
    }
    let lacking: Vec<String> =
        claim.needs.iter().filter_map(|name| Some(format!("{name} ({})", missing(name)?))).collect();
    if let Some(reason) = reason_not_tested(claim, &lacking) {
        judged.verdict = Verdict::NotTested;
        judged.reason = reason;
        return done(judged);
    }
    let Some(hypothesis) = hypothesis else {
        judged.verdict = Verdict::Consistent;
        judged.reason = "the claimed numbers agree with each other; nothing was measured".to_owned();
        return done(judged);
    };
    let cells = hypothesis.formula.cells();
    judged.tasks = tasks_behind(&cells, sample);
    let evidence = gather_evidence(&hypothesis, sample, claim.exact)
        .unwrap_or_else(|reason| Evidence::None { reason, value: None });
    apply_evidence(&mut judged, &hypothesis, &evidence, &claim.unit);
    let disturbed = sample
        .observations
        .iter()
        .filter(|task| task.metrics.contains_key(DISTURBED) && judged.tasks.binary_search(&task.task).is_ok());
    let disturbed = disturbed.count();
    if disturbed > 0 {
        judged.reason +=
            &format!(" ({disturbed} of {} measurements were disturbed by other programs)", judged.tasks.len());
    }
    Draft { judged, hypothesis: Some(hypothesis), evidence: Some(evidence) }
}

/// Why a claim is not tested; `None` if it is.
fn reason_not_tested(claim: &Claim, lacking: &[String]) -> Option<String> {
    match (&claim.not_tested, lacking) {
        (Some(reason), _) => Some(reason.clone()),
        (None, [_, ..]) => Some(format!("it needs {}", lacking.join(" and "))),
        (None, []) if claim.check.is_none() && !claim.needs.is_empty() => {
            Some("the backends are available, but the claim has no check".to_owned())
        }
        _ => None,
    }
}

fn tasks_behind(cells: &[&CellRef], sample: &Sample<'_>) -> Vec<usize> {
    let tasks: BTreeSet<usize> =
        cells.iter().flat_map(|cells| sample.selected_tasks(cells)).map(|task| task.task).collect();
    tasks.into_iter().collect()
}

/// Fills in the measurement, and the verdict where no test is needed.
fn apply_evidence(judged: &mut JudgedClaim, hypothesis: &Hypothesis, evidence: &Evidence, unit: &str) {
    let shown = |estimate: &Estimate| match hypothesis.formula {
        Formula::Ratio(..) => ratio(estimate),
        _ => with_interval(estimate, unit),
    };
    let measurement = |value: f64, ends: Option<(f64, f64)>, n: usize, paired: bool, exact: bool| {
        let estimate = match ends {
            Some(ends) => Estimate::with(value, ends, CLAIMS_LEVEL, n, Method::StudentT),
            None => Estimate::bare(value, n),
        };
        Measurement {
            value,
            low: ends.map(|ends| ends.0),
            high: ends.map(|ends| ends.1),
            unit: unit.to_owned(),
            text: shown(&estimate),
            n,
            paired,
            exact,
            p: None,
            p_corrected: None,
        }
    };
    match evidence {
        Evidence::None { reason, value } => {
            judged.reason = reason.clone();
            judged.measured = value.map(|value| measurement(value, None, 1, false, false));
        }
        Evidence::Exact { value, n } => {
            let holds = hypothesis.holds(*value);
            judged.verdict = if holds { Verdict::Supported } else { Verdict::Refuted };
            let relation = if holds { "lies inside" } else { "lies outside" };
            judged.reason = format!(
                "{}, which does not scatter, {relation} the claimed {}",
                quantity(*value, unit),
                hypothesis.claimed
            );
            judged.measured = Some(measurement(*value, None, *n, false, true));
        }
        Evidence::Tested { value, ends, n, paired, .. } => {
            judged.measured = Some(measurement(*value, Some(*ends), *n, *paired, false));
        }
    }
}

/// The verdict of a test, once all claims are known. `open` is the number of claims whose p-value is not smaller.
fn decide_verdict(draft: &mut Draft, corrected: f64, open: usize) {
    let (Some(Evidence::Tested { edges, .. }), Some(hypothesis)) = (&draft.evidence, &draft.hypothesis) else { return };
    let judged = &mut draft.judged;
    let (inside, outside) = (p_inside(edges), p_outside(edges));
    let p = inside.min(outside);
    let suffix = std::mem::take(&mut judged.reason);
    let text = judged.measured.as_mut().map(|measured| {
        (measured.p, measured.p_corrected) = (Some(p), Some(corrected));
        measured.text.clone()
    });
    let text = text.unwrap_or_default();
    let claimed = &hypothesis.claimed;
    let corrected_text = if corrected > p { format!("{} after correction", p_value(corrected)) } else { p_value(p) };
    let reason = if corrected <= ALPHA && inside <= outside {
        judged.verdict = Verdict::Supported;
        format!("{text} lies inside the claimed {claimed} ({corrected_text})")
    } else if corrected <= ALPHA {
        judged.verdict = Verdict::Refuted;
        format!("{text} lies outside the claimed {claimed} ({corrected_text})")
    } else {
        let alpha = ALPHA / open.max(1) as f64;
        judged.replicates_to_decide = replicates_to_decide(edges, alpha);
        let advice = match judged.replicates_to_decide {
            Some(n) => format!("{n} replicates would decide it with a chance of 80 % if the values stay as they are"),
            None => {
                "more than 1,000 replicates would be needed: the value lies at the edge of what is claimed".to_owned()
            }
        };
        format!("{text} does not decide about the claimed {claimed} ({corrected_text}); {advice}")
    };
    judged.reason = reason + &suffix;
}

fn replicates_to_decide(edges: &[Edge], alpha: f64) -> Option<usize> {
    let distance = |edge: &Edge| edge.estimate.mean - edge.limit;
    let missed = edges.iter().filter(|edge| distance(edge) < 0.0).min_by(|a, b| distance(a).total_cmp(&distance(b)));
    match missed {
        Some(edge) => edge.estimate.replicates_for(distance(edge), alpha),
        None => edges
            .iter()
            .map(|edge| edge.estimate.replicates_for(distance(edge), alpha))
            .try_fold(2, |most, n| Some(most.max(n?))),
    }
}

/// The evidence for a hypothesis; `Err` states why none exists.
fn gather_evidence(hypothesis: &Hypothesis, sample: &Sample<'_>, exact: bool) -> Result<Evidence, String> {
    let cells = hypothesis.formula.cells();
    let mut sets: Vec<BTreeSet<Replicate>> = Vec::new();
    for cells in &cells {
        sets.push(sample.replicates(cells)?);
    }
    let Some(first) = sets.first().cloned() else { return Err("the check uses no result".to_owned()) };
    let common = sets.iter().fold(first.clone(), |common, set| &common & set);
    let all = sets.iter().fold(first, |all, set| &all | set);
    // Using only the common replicates would silently drop the others.
    if common.len() < all.len() {
        return gather_unpaired(hypothesis, sample, &sets, &cells);
    }
    let common: Vec<Replicate> = common.into_iter().collect();
    if let Formula::Crossover(first, second, axis) = &hypothesis.formula
        && common.len() > 1
    {
        return gather_crossover(hypothesis, sample, (first, second, axis), &common);
    }
    let values: Result<Vec<f64>, String> =
        common.iter().map(|&replicate| sample.evaluate(&hypothesis.formula, replicate)).collect();
    let values = values?;
    let constant = cells.iter().all(|cells| sample.is_constant(cells, &common));
    match (values.as_slice(), constant) {
        ([value], _) if exact => Ok(Evidence::Exact { value: *value, n: 1 }),
        ([value], _) => Ok(Evidence::None {
            reason: "a single observation has no uncertainty: give the jobs `strategy: {replicates: 3}` or more"
                .to_owned(),
            value: Some(*value),
        }),
        (values, true) => Ok(Evidence::Exact { value: values[0], n: values.len() }),
        (_, false) if exact => {
            Err("the claim states `exact: true`, but its values differ between replicates".to_owned())
        }
        (values, false) => test_values(hypothesis, values, values.len(), cells.len() > 1),
    }
}

/// The test of values on their scale.
fn test_values(hypothesis: &Hypothesis, values: &[f64], n: usize, paired: bool) -> Result<Evidence, String> {
    let values: Vec<f64> = values.iter().map(|&value| hypothesis.to_test_scale(value)).collect();
    if values.iter().any(|value| !value.is_finite()) {
        return Err("a ratio needs values above zero".to_owned());
    }
    let Some(estimate) = MeanEstimate::from_values(&values) else {
        let reason = "the metrics scatter, but the value of the formula does not: more replicates are needed";
        return Err(reason.to_owned());
    };
    Ok(evidence_from_estimate(hypothesis, estimate, n, paired))
}

fn evidence_from_estimate(hypothesis: &Hypothesis, estimate: MeanEstimate, n: usize, paired: bool) -> Evidence {
    let half = estimate.half_width(CLAIMS_LEVEL);
    let ends = (hypothesis.invert_test_scale(estimate.mean - half), hypothesis.invert_test_scale(estimate.mean + half));
    let (low, high) = (hypothesis.to_test_scale(hypothesis.band.0), hypothesis.to_test_scale(hypothesis.band.1));
    let mut edges = Vec::new();
    if low.is_finite() {
        edges.push(Edge { estimate, limit: low });
    }
    if high.is_finite() {
        edges.push(Edge { estimate: MeanEstimate { mean: -estimate.mean, ..estimate }, limit: -high });
    }
    let value = hypothesis.invert_test_scale(estimate.mean);
    if edges.is_empty() {
        let reason = "the claimed band has no end that a test could miss".to_owned();
        return Evidence::None { reason, value: Some(value) };
    }
    Evidence::Tested { value, ends, edges, n, paired }
}

/// The evidence from two sides whose replicates have different numbers.
fn gather_unpaired(
    hypothesis: &Hypothesis,
    sample: &Sample<'_>,
    sets: &[BTreeSet<Replicate>],
    cells: &[&CellRef],
) -> Result<Evidence, String> {
    if let Some(at) = sets.iter().position(|set| set.len() < 2) {
        return Err(format!(
            "{} has a single observation, which has no uncertainty: give its job `replicates`",
            cells[at]
        ));
    }
    let sides = match &hypothesis.formula {
        Formula::Ratio(left, right) | Formula::Operation(Operator::Subtract, left, right) => Some((left, right)),
        _ => None,
    };
    let values = |side: &Formula| -> Option<Result<Vec<f64>, String>> {
        let count = side.cells().len();
        let at = cells.iter().position(|cells| side.cells().first() == Some(cells))?;
        let same = sets[at..].iter().take(count).all(|set| *set == sets[at]);
        same.then(|| sets[at].iter().map(|&replicate| sample.evaluate(side, replicate)).collect())
    };
    let Some((left, right)) = sides.and_then(|(left, right)| Some((values(left)?, values(right)?))) else {
        return Err("the jobs have different replicates: give them the same number".to_owned());
    };
    let scaled = |side: Vec<f64>| side.into_iter().map(|value| hypothesis.to_test_scale(value)).collect::<Vec<f64>>();
    let (left, right) = (scaled(left?), scaled(right?));
    if left.iter().chain(&right).any(|value| !value.is_finite()) {
        return Err("a ratio needs values above zero".to_owned());
    }
    let n = left.len().min(right.len());
    match MeanEstimate::welch(&left, &right) {
        Some(estimate) => Ok(evidence_from_estimate(hypothesis, estimate, n, false)),
        None => Ok(Evidence::Exact { value: hypothesis.invert_test_scale(left[0] - right[0]), n }),
    }
}

/// The evidence for a crossover. The crossover is above a limit exactly if the fitted power laws have not crossed at that limit.
/// The test therefore uses the gap between them at the limit, whose distribution is closer to normal than that of the crossover, a
/// quotient of two fits.
fn gather_crossover(
    hypothesis: &Hypothesis,
    sample: &Sample<'_>,
    (first, second, axis): (&CellRef, &CellRef, &Axis),
    replicates: &[Replicate],
) -> Result<Evidence, String> {
    let lines: Result<Vec<_>, String> =
        replicates.iter().map(|&replicate| sample.fit_power_laws(first, second, axis, replicate)).collect();
    let lines = lines?;
    let slopes: Vec<f64> = lines.iter().map(|(a, b)| a.slope - b.slope).collect();
    let sign = if slopes[0] < 0.0 { -1.0 } else { 1.0 };
    if slopes.iter().any(|slope| slope * sign <= 0.0) {
        return Err("the replicates disagree about which of the two metrics grows faster".to_owned());
    }
    let low = lines.iter().map(|(a, b)| a.range.0.max(b.range.0)).fold(0.0, f64::max);
    let high = lines.iter().map(|(a, b)| a.range.1.min(b.range.1)).fold(f64::INFINITY, f64::min);
    let (mut edges, mut outside) = (Vec::new(), Vec::new());
    for (limit, direction) in [(hypothesis.band.0, -1.0), (hypothesis.band.1, 1.0)] {
        if !limit.is_finite() {
            continue;
        }
        if limit < low || limit > high {
            outside.push(quantity(limit, ""));
            continue;
        }
        let gap = |(a, b): &(crate::evaluate::Line, crate::evaluate::Line)| {
            direction * sign * (a.intercept - b.intercept + (a.slope - b.slope) * limit.ln())
        };
        let gaps: Vec<f64> = lines.iter().map(gap).collect();
        let Some(estimate) = MeanEstimate::from_values(&gaps) else {
            return Err("the curves do not scatter, so that the crossover has no uncertainty to judge it by".to_owned());
        };
        edges.push(Edge { estimate, limit: 0.0 });
    }
    if !outside.is_empty() {
        let range = format!("{} to {}", quantity(low, ""), quantity(high, ""));
        return Err(format!("the claimed {} lies outside the measured range, {range}", outside.join(" and ")));
    }
    let crossings: Vec<f64> = lines.iter().map(|(a, b)| -(a.intercept - b.intercept) / (a.slope - b.slope)).collect();
    let Some(crossing) = MeanEstimate::from_values(&crossings) else {
        return Err("the curves do not scatter, so that the crossover has no uncertainty to judge it by".to_owned());
    };
    let half = crossing.half_width(CLAIMS_LEVEL);
    let ends = ((crossing.mean - half).exp(), (crossing.mean + half).exp());
    Ok(Evidence::Tested { value: crossing.mean.exp(), ends, edges, n: lines.len(), paired: true })
}
