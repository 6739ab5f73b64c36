//! The verdicts on the claims of a file.

use std::collections::BTreeSet;

use assay_spec::{Axis, CellRef, Claim, Formula, Operator};
use assay_statistics::format::{p_value, quantity, ratio, with_interval};
use assay_statistics::{Estimate, Method, holm};

use crate::arithmetic::work_out;
use crate::evaluate::{Replicate, Sample};
use crate::hypothesis::Hypothesis;
use crate::observation::Observation;
use crate::test::MeanEstimate;
use crate::verdict::{Arithmetic, JudgedClaim, Measurement, Verdict};

/// The chance of a false verdict among all claims of a file.
const ALPHA: f64 = 0.05;
/// The confidence level of the intervals that are shown.
pub const CLAIMS_LEVEL: f64 = 0.95;
/// The metric that a measurement has which other programs disturbed.
const DISTURBED: &str = "load/others";

/// An end of a band: the claim holds there where the mean is above the limit. For an upper end both are negated.
#[derive(Debug, Clone, Copy)]
struct Edge {
    estimate: MeanEstimate,
    limit: f64,
}

/// What the observations say of a hypothesis.
enum Evidence {
    /// Nothing can be decided, for this reason.
    None { reason: String, value: Option<f64> },
    /// Values without scatter.
    Exact { value: f64, n: usize },
    /// A test.
    Tested { value: f64, ends: (f64, f64), edges: Vec<Edge>, n: usize, paired: bool },
}

/// A claim with what was found so far.
struct Draft {
    finding: JudgedClaim,
    hypothesis: Option<Hypothesis>,
    evidence: Option<Evidence>,
}

/// Judges the claims of a file by the tasks of one run. `missing` says why a backend is not here; `None` where it is.
#[must_use]
pub fn judge_claims(
    claims: &[Claim],
    observations: &[Observation<'_>],
    missing: &dyn Fn(&str) -> Option<String>,
) -> Vec<JudgedClaim> {
    let sample = Sample { observations };
    let mut drafts: Vec<Draft> = claims.iter().map(|claim| draft(claim, &sample, missing)).collect();
    let tested: Vec<usize> = (0..drafts.len()).filter(|&at| p_of(&drafts[at]).is_some()).collect();
    let p: Vec<f64> = tested.iter().filter_map(|&at| p_of(&drafts[at])).collect();
    // Only values outside of 0 to 1 are refused, and these are none.
    let corrected = holm(&p).unwrap_or_else(|_| vec![1.0; p.len()]);
    for ((&at, p), corrected) in tested.iter().zip(&p).zip(corrected) {
        let harder = corrected_beside(&tested, &drafts, *p);
        decide(&mut drafts[at], corrected, tested.len() - harder);
    }
    drafts.into_iter().map(|draft| draft.finding).collect()
}

/// How many tested claims have a smaller p-value.
fn corrected_beside(tested: &[usize], drafts: &[Draft], p: f64) -> usize {
    tested.iter().filter(|&&other| p_of(&drafts[other]).is_some_and(|other| other < p)).count()
}

/// The p-value of the verdict that the data point to.
fn p_of(draft: &Draft) -> Option<f64> {
    match &draft.evidence {
        Some(Evidence::Tested { edges, .. }) => Some(p_inside(edges).min(p_outside(edges))),
        _ => None,
    }
}

/// Against "the value lies outside": every end has to be passed.
fn p_inside(edges: &[Edge]) -> f64 {
    edges.iter().map(|edge| edge.estimate.p_above(edge.limit)).fold(0.0, f64::max)
}

/// Against "the value lies inside": one end has to be missed. Each has 2.5 %, so that both together have 5 %.
fn p_outside(edges: &[Edge]) -> f64 {
    edges.iter().map(|edge| edge.estimate.p_below(edge.limit)).fold(1.0, f64::min)
}

/// A claim as far as it can be judged by itself.
fn draft(claim: &Claim, sample: &Sample<'_>, missing: &dyn Fn(&str) -> Option<String>) -> Draft {
    let arithmetic: Vec<Arithmetic> = claim.arithmetic.iter().map(work_out).collect();
    let hypothesis = Hypothesis::of(claim);
    let end = |end: f64| end.is_finite().then_some(end);
    let mut finding = JudgedClaim {
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
    let done = |finding: JudgedClaim| Draft { finding, hypothesis: None, evidence: None };
    let wrong: Vec<String> = finding
        .arithmetic
        .iter()
        .filter(|one| !one.holds)
        .map(|one| format!("{} is false: {}", one.text, one.shown))
        .collect();
    if !wrong.is_empty() {
        finding.verdict = Verdict::Impossible;
        finding.reason = format!("the claimed numbers contradict each other: {}", wrong.join("; "));
        return done(finding);
    }
    let lacking: Vec<String> =
        claim.needs.iter().filter_map(|name| Some(format!("{name} ({})", missing(name)?))).collect();
    if let Some(reason) = not_tested(claim, &lacking) {
        finding.verdict = Verdict::NotTested;
        finding.reason = reason;
        return done(finding);
    }
    let Some(hypothesis) = hypothesis else {
        finding.verdict = Verdict::Consistent;
        finding.reason = "the claimed numbers agree with each other; nothing was measured".to_owned();
        return done(finding);
    };
    let cells = hypothesis.formula.cells();
    finding.tasks = tasks_of(&cells, sample);
    let evidence =
        gather(&hypothesis, sample, claim.exact).unwrap_or_else(|reason| Evidence::None { reason, value: None });
    judge_alone(&mut finding, &hypothesis, &evidence, &claim.unit);
    let disturbed = sample
        .observations
        .iter()
        .filter(|task| finding.tasks.contains(&task.task) && task.metrics.contains_key(DISTURBED));
    let disturbed = disturbed.count();
    if disturbed > 0 {
        finding.reason +=
            &format!(" ({disturbed} of {} measurements were disturbed by other programs)", finding.tasks.len());
    }
    Draft { finding, hypothesis: Some(hypothesis), evidence: Some(evidence) }
}

/// Why a claim is not tested.
fn not_tested(claim: &Claim, lacking: &[String]) -> Option<String> {
    match (&claim.not_tested, lacking) {
        (Some(reason), _) => Some(reason.clone()),
        (None, [_, ..]) => Some(format!("it needs {}", lacking.join(" and "))),
        (None, []) if claim.check.is_none() && !claim.needs.is_empty() => {
            Some("what it needs is here, but the file has no check for it".to_owned())
        }
        _ => None,
    }
}

fn tasks_of(cells: &[&CellRef], sample: &Sample<'_>) -> Vec<usize> {
    let tasks: BTreeSet<usize> = cells.iter().flat_map(|cells| sample.selected(cells)).map(|task| task.task).collect();
    tasks.into_iter().collect()
}

/// What can be said before the other claims are known.
fn judge_alone(finding: &mut JudgedClaim, hypothesis: &Hypothesis, evidence: &Evidence, unit: &str) {
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
            finding.reason = reason.clone();
            finding.measured = value.map(|value| measurement(value, None, 1, false, false));
        }
        Evidence::Exact { value, n } => {
            let holds = hypothesis.holds(*value);
            finding.verdict = if holds { Verdict::Supported } else { Verdict::Refuted };
            let relation = if holds { "lies inside" } else { "lies outside" };
            finding.reason = format!(
                "{}, which does not scatter, {relation} the claimed {}",
                quantity(*value, unit),
                hypothesis.claimed
            );
            finding.measured = Some(measurement(*value, None, *n, false, true));
        }
        Evidence::Tested { value, ends, n, paired, .. } => {
            finding.measured = Some(measurement(*value, Some(*ends), *n, *paired, false));
        }
    }
}

/// The verdict of a test, once all claims are known. `open` is the number of claims whose p-value is not smaller.
fn decide(draft: &mut Draft, corrected: f64, open: usize) {
    let (Some(Evidence::Tested { edges, .. }), Some(hypothesis)) = (&draft.evidence, &draft.hypothesis) else { return };
    let finding = &mut draft.finding;
    let (inside, outside) = (p_inside(edges), p_outside(edges));
    let p = inside.min(outside);
    let suffix = std::mem::take(&mut finding.reason);
    let text = finding.measured.as_mut().map(|measured| {
        (measured.p, measured.p_corrected) = (Some(p), Some(corrected));
        measured.text.clone()
    });
    let text = text.unwrap_or_default();
    let claimed = &hypothesis.claimed;
    let corrected_text = if corrected > p { format!("{} after correction", p_value(corrected)) } else { p_value(p) };
    let reason = if corrected <= ALPHA && inside <= outside {
        finding.verdict = Verdict::Supported;
        format!("{text} lies inside the claimed {claimed} ({corrected_text})")
    } else if corrected <= ALPHA {
        finding.verdict = Verdict::Refuted;
        format!("{text} lies outside the claimed {claimed} ({corrected_text})")
    } else {
        let alpha = ALPHA / open.max(1) as f64;
        finding.replicates_to_decide = replicates_to_decide(edges, alpha);
        let advice = match finding.replicates_to_decide {
            Some(n) => format!("{n} replicates would decide it with a chance of 80 % if the values stay as they are"),
            None => {
                "more than 1,000 replicates would be needed: the value lies at the edge of what is claimed".to_owned()
            }
        };
        format!("{text} does not decide about the claimed {claimed} ({corrected_text}); {advice}")
    };
    finding.reason = reason + &suffix;
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

/// The evidence for a hypothesis; `Err` says why there is none.
fn gather(hypothesis: &Hypothesis, sample: &Sample<'_>, exact: bool) -> Result<Evidence, String> {
    let cells = hypothesis.formula.cells();
    let mut sets: Vec<BTreeSet<Replicate>> = Vec::new();
    for cells in &cells {
        sets.push(sample.replicates(cells)?);
    }
    let Some(first) = sets.first().cloned() else { return Err("the check uses no result".to_owned()) };
    let common = sets.iter().fold(first.clone(), |common, set| &common & set);
    let all = sets.iter().fold(first, |all, set| &all | set);
    if common.is_empty() || common.len() * 2 <= all.len() && common.len() < all.len() {
        return gather_unpaired(hypothesis, sample, &sets, &cells);
    }
    let common: Vec<Replicate> = common.into_iter().collect();
    if let Formula::Crossover(first, second, axis) = &hypothesis.formula
        && common.len() > 1
    {
        return gather_crossover(hypothesis, sample, (first, second, axis), &common);
    }
    let values: Result<Vec<f64>, String> =
        common.iter().map(|&replicate| sample.value(&hypothesis.formula, replicate)).collect();
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
            Err("the claim says that its values are exact, and they differ between replicates".to_owned())
        }
        (values, false) => tested(hypothesis, values, values.len(), cells.len() > 1),
    }
}

/// The test of values on their scale.
fn tested(hypothesis: &Hypothesis, values: &[f64], n: usize, paired: bool) -> Result<Evidence, String> {
    let values: Vec<f64> = values.iter().map(|&value| hypothesis.on_scale(value)).collect();
    let Some(estimate) = MeanEstimate::of(&values) else {
        return Err("the values scatter, and what is computed of them does not: more replicates are needed".to_owned());
    };
    Ok(evidence_of(hypothesis, estimate, n, paired))
}

fn evidence_of(hypothesis: &Hypothesis, estimate: MeanEstimate, n: usize, paired: bool) -> Evidence {
    let half = estimate.half_width(CLAIMS_LEVEL);
    let ends = (hypothesis.off_scale(estimate.mean - half), hypothesis.off_scale(estimate.mean + half));
    let (low, high) = (hypothesis.on_scale(hypothesis.band.0), hypothesis.on_scale(hypothesis.band.1));
    let mut edges = Vec::new();
    if low.is_finite() {
        edges.push(Edge { estimate, limit: low });
    }
    if high.is_finite() {
        edges.push(Edge { estimate: MeanEstimate { mean: -estimate.mean, ..estimate }, limit: -high });
    }
    Evidence::Tested { value: hypothesis.off_scale(estimate.mean), ends, edges, n, paired }
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
        same.then(|| sets[at].iter().map(|&replicate| sample.value(side, replicate)).collect())
    };
    let Some((left, right)) = sides.and_then(|(left, right)| Some((values(left)?, values(right)?))) else {
        return Err("the jobs have different replicates: give them the same number".to_owned());
    };
    let scaled = |side: Vec<f64>| side.into_iter().map(|value| hypothesis.on_scale(value)).collect::<Vec<f64>>();
    let (left, right) = (scaled(left?), scaled(right?));
    if left.iter().chain(&right).any(|value| !value.is_finite()) {
        return Err("a ratio needs values above zero".to_owned());
    }
    let n = left.len().min(right.len());
    match MeanEstimate::welch(&left, &right) {
        Some(estimate) => Ok(evidence_of(hypothesis, estimate, n, false)),
        None => Ok(Evidence::Exact { value: hypothesis.off_scale(left[0] - right[0]), n }),
    }
}

/// The evidence for a crossover. It lies above a value exactly where the curves are, at that value, still on the side on which
/// they begin: the gap between the fitted power laws there is what is tested, which is sounder than the quotient of two fits.
fn gather_crossover(
    hypothesis: &Hypothesis,
    sample: &Sample<'_>,
    (first, second, axis): (&CellRef, &CellRef, &Axis),
    replicates: &[Replicate],
) -> Result<Evidence, String> {
    let lines: Result<Vec<_>, String> =
        replicates.iter().map(|&replicate| sample.lines(first, second, axis, replicate)).collect();
    let lines = lines?;
    let slopes: Vec<f64> = lines.iter().map(|(a, b)| a.slope - b.slope).collect();
    let sign = if slopes[0] < 0.0 { -1.0 } else { 1.0 };
    if slopes.iter().any(|slope| slope * sign <= 0.0) {
        return Err("the replicates do not agree which of the two grows faster".to_owned());
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
        let Some(estimate) = MeanEstimate::of(&gaps) else {
            return Err("the curves do not scatter: a crossover without uncertainty is not judged".to_owned());
        };
        edges.push(Edge { estimate, limit: 0.0 });
    }
    if !outside.is_empty() {
        let range = format!("{} to {}", quantity(low, ""), quantity(high, ""));
        return Err(format!("the claimed {} lies outside of the measured {range}", outside.join(" and ")));
    }
    let crossings: Vec<f64> = lines.iter().map(|(a, b)| -(a.intercept - b.intercept) / (a.slope - b.slope)).collect();
    let Some(crossing) = MeanEstimate::of(&crossings) else {
        return Err("the curves do not scatter: a crossover without uncertainty is not judged".to_owned());
    };
    let half = crossing.half_width(CLAIMS_LEVEL);
    let ends = ((crossing.mean - half).exp(), (crossing.mean + half).exp());
    Ok(Evidence::Tested { value: crossing.mean.exp(), ends, edges, n: lines.len(), paired: true })
}
