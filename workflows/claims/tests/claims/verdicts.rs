//! Verdicts in known cases.

use assay_claims::{JudgedClaim, Outcome, Verdict, judge_claims};
use assay_spec::{Claim, Claimed, Tolerance, parse_formula};
use serde_json::json;

use crate::run::{Run, claim};

fn judge_claim(claim: Claim, run: &Run) -> JudgedClaim {
    let mut found = judge_claims(&[claim], &run.observations(), &|_| None);
    found.remove(0)
}

fn claimed_near(value: f64, tolerance: f64) -> Option<Claimed> {
    Some(Claimed::Value { value, tolerance: Tolerance::Relative(tolerance) })
}

#[test]
fn a_comparison_is_decided_by_its_pairs() {
    let mut run = Run::default();
    // The seeds move both cells together: an unpaired comparison could not distinguish them.
    run.add_cell("ten", json!({"states": 64}), &[0.61, 0.72, 0.50, 0.83]);
    run.add_cell("ten", json!({"states": 16}), &[0.60, 0.70, 0.49, 0.81]);
    let found = judge_claim(claim("a", "mean(ten[states=64].x) > mean(ten[states=16].x)", None), &run);
    assert_eq!(found.verdict, Verdict::Supported, "{}", found.reason);
    let measured = found.measured.unwrap();
    assert!((measured.value - 0.015).abs() < 1e-9 && measured.paired && measured.n == 4);
    assert_eq!((found.claimed.as_deref(), found.band), (Some("> 0"), Some((Some(0.0), None))));
    assert_eq!(found.tasks, [0, 1, 2, 3, 4, 5, 6, 7]);
    let turned = judge_claim(claim("a", "ten[states=64].x < ten[states=16].x", None), &run);
    assert_eq!(turned.verdict, Verdict::Refuted, "{}", turned.reason);
}

#[test]
fn a_claimed_value_is_held_against_its_band() {
    let mut run = Run::default();
    run.add_job("fused", &[10.1, 9.9, 10.0, 10.2, 9.8]).add_job("loop", &[1.0, 1.0, 1.01, 0.99, 1.0]);
    let verdict = |claimed| judge_claim(claim("a", "ratio(fused.x, loop.x)", claimed), &run);
    assert_eq!(verdict(claimed_near(10.0, 0.1)).verdict, Verdict::Supported);
    let refuted = verdict(claimed_near(53.9, 0.1));
    assert_eq!(refuted.verdict, Verdict::Refuted);
    assert!(
        refuted.reason.starts_with("10.0× [9.8") && refuted.reason.contains("lies outside the claimed 53.9 ± 10 %"),
        "{}",
        refuted.reason
    );
    assert_eq!(verdict(claimed_near(10.0, 0.001)).verdict, Verdict::Undecided);
    assert_eq!(verdict(Some(Claimed::AtLeast(5.0))).verdict, Verdict::Supported);
    assert_eq!(verdict(Some(Claimed::AtMost(5.0))).verdict, Verdict::Refuted);
    assert_eq!(verdict(Some(Claimed::Between(9.0, 11.0))).verdict, Verdict::Supported);
    let number_first = judge_claim(claim("a", "5 < ratio(fused.x, loop.x)", None), &run);
    assert_eq!((number_first.verdict, number_first.claimed.as_deref()), (Verdict::Supported, Some("> 5")));
}

#[test]
fn undecided_says_how_many_replicates_would_decide() {
    let mut run = Run::default();
    run.add_job("a", &[1.0, 2.0, 4.0]);
    let found = judge_claim(claim("a", "a.x > 1", None), &run);
    assert_eq!(found.verdict, Verdict::Undecided);
    // scipy: the effect is 1.333 / 1.528 = 0.873; statsmodels' TTestPower needs 12.4 replicates.
    assert_eq!(found.replicates_to_decide, Some(13));
    assert!(found.reason.contains("13 replicates would decide it with a chance of 80 %"), "{}", found.reason);
    let edge = judge_claim(claim("a", "a.x > 2.3333333", None), &run);
    assert_eq!((edge.verdict, edge.replicates_to_decide), (Verdict::Undecided, None));
}

#[test]
fn one_observation_decides_nothing_unless_it_is_exact() {
    let mut run = Run::default();
    run.add_task("a", json!({}), None, &[("x", 5.0)]);
    let found = judge_claim(claim("a", "a.x > 1", None), &run);
    assert_eq!(found.verdict, Verdict::Undecided);
    assert!(found.reason.contains("single observation"), "{}", found.reason);
    assert_eq!(found.measured.unwrap().value, 5.0);
    let exact = judge_claim(Claim { exact: true, ..claim("a", "a.x >= 5", None) }, &run);
    assert_eq!(exact.verdict, Verdict::Supported, "{}", exact.reason);
    assert_eq!(judge_claim(Claim { exact: true, ..claim("a", "a.x > 5", None) }, &run).verdict, Verdict::Refuted);
    let mut scattered = Run::default();
    scattered.add_job("a", &[1.0, 2.0, 3.0]);
    let contradicted = judge_claim(Claim { exact: true, ..claim("a", "a.x > 1", None) }, &scattered);
    assert_eq!(contradicted.verdict, Verdict::Undecided);
    assert!(contradicted.reason.contains("differ between replicates"), "{}", contradicted.reason);
}

#[test]
fn values_without_scatter_are_compared_as_they_are() {
    let mut run = Run::default();
    run.add_job("a", &[5.0, 5.0, 5.0])
        .add_job("b", &[4.0, 4.0, 4.0])
        .add_job("c", &[1.0, 2.0, 3.0])
        .add_job("d", &[0.0, 1.0, 2.0]);
    assert_eq!(judge_claim(claim("a", "a.x > b.x", None), &run).verdict, Verdict::Supported);
    assert_eq!(judge_claim(claim("a", "a.x - 1 > b.x", None), &run).verdict, Verdict::Refuted);
    // The differences are equal by chance although the values scatter, so the difference is not exact.
    let chance = judge_claim(claim("a", "c.x > d.x", None), &run);
    assert_eq!(chance.verdict, Verdict::Undecided, "{}", chance.reason);
}

#[test]
fn failures_and_missing_results_leave_a_claim_undecided() {
    let mut run = Run::default();
    run.add_job("a", &[1.0, 1.1, 1.2])
        .set_outcome(Outcome::Failed)
        .add_job("b", &[1.0, 1.1])
        .set_outcome(Outcome::Pending);
    run.add_task("c", json!({}), Some(1), &[("y", 1.0)]).add_job("d", &[f64::NAN, 1.0]);
    for (check, words) in [
        ("a.x > 0", "1 of 3 tasks behind a.x failed"),
        ("b.x > 0", "1 of 2 tasks behind b.x have not ended"),
        ("c.x > 0", "reported no `x`"),
        ("d.x > 0", "is NaN"),
        ("e.x > 0", "it was not run"),
        ("ratio(c.y, c.y - 2) > 1", "above zero"),
        ("exponent(a.x, over: n) > 1", "failed"),
    ] {
        let found = judge_claim(claim("a", check, None), &run);
        assert_eq!(found.verdict, Verdict::Undecided);
        assert!(found.reason.contains(words), "{check}: {}", found.reason);
    }
}

#[test]
fn sides_with_other_replicates_are_compared_without_pairs() {
    let mut run = Run::default();
    run.add_job("a", &[10.0, 10.5, 9.5, 10.2, 9.9, 10.1]).add_job("b", &[1.0, 1.1]);
    let found = judge_claim(claim("a", "a.x > b.x", None), &run);
    assert_eq!(found.verdict, Verdict::Supported, "{}", found.reason);
    assert!(!found.measured.unwrap().paired);
    // Replicates that one side lacks also count. In the first three alone, `d` is always below `e`.
    run.add_job("d", &[9.0, 9.1, 9.2, 90.0, 90.1]).add_job("e", &[10.0, 10.1, 10.2]);
    let found = judge_claim(claim("a", "e.x > d.x", None), &run);
    assert_eq!(found.verdict, Verdict::Undecided, "{}", found.reason);
    run.add_task("c", json!({}), None, &[("x", 1.0)]);
    assert!(judge_claim(claim("a", "a.x > c.x", None), &run).reason.contains("single observation"));
    assert!(judge_claim(claim("a", "a.x * b.x > 1", None), &run).reason.contains("different replicates"));
}

#[test]
fn the_same_work_is_one_observation() {
    let mut run = Run::default();
    for replicate in 1..=3 {
        run.add_task("a", json!({}), Some(replicate), &[("x", 2.0)]).set_work("same");
    }
    let found = judge_claim(claim("a", "a.x > 1", None), &run);
    assert!(found.verdict == Verdict::Undecided && found.reason.contains("single observation"), "{}", found.reason);
}

#[test]
fn exponents_and_crossovers_are_fitted_in_every_replicate() {
    let mut run = Run::default();
    for n in [64.0, 128.0, 256.0, 512.0f64] {
        let scaled =
            |law: f64| [1.0, 1.02, 0.99, 1.01].map(|noise: f64| law * noise * (1.0 + 0.01 * (law * noise).sin()));
        run.add_cell("linear", json!({"n": n}), &scaled(200.0 * n)).add_cell("square", json!({"n": n}), &scaled(n * n));
    }
    let verdict = |check: &str, claimed| judge_claim(claim("a", check, claimed), &run);
    assert_eq!(verdict("exponent(linear.x, over: n)", claimed_near(1.0, 0.1)).verdict, Verdict::Supported);
    assert_eq!(verdict("exponent(square.x, over: n)", claimed_near(1.0, 0.1)).verdict, Verdict::Refuted);
    assert_eq!(verdict("exponent(linear.x, over: n) < exponent(square.x, over: n)", None).verdict, Verdict::Supported);
    let crossover = verdict("crossover(linear.x, square.x, over: n)", Some(Claimed::Between(150.0, 250.0)));
    assert_eq!(crossover.verdict, Verdict::Supported, "{}", crossover.reason);
    assert!((crossover.measured.unwrap().value / 200.0 - 1.0).abs() < 0.05);
    let other = verdict("crossover(linear.x, square.x, over: n)", Some(Claimed::Between(300.0, 500.0)));
    assert_eq!(other.verdict, Verdict::Refuted, "{}", other.reason);
    // The power laws cross at 1, far below the measured range.
    run.add_cell("flat", json!({"n": 64.0}), &[64.0, 64.1, 63.9, 64.0]).add_cell(
        "flat",
        json!({"n": 128.0}),
        &[128.0; 4],
    );
    let inside = judge_claim(claim("a", "2 * crossover(flat.x, square.x, over: n) < 10", None), &run);
    assert!(
        inside.verdict == Verdict::Undecided && inside.reason.contains("outside the measured"),
        "{}",
        inside.reason
    );
    run.add_cell("words", json!({"n": "big"}), &[1.0, 2.0]).add_cell("words", json!({"n": 2}), &[1.0, 2.0]);
    let words = judge_claim(claim("a", "exponent(words.x, over: n) < 1", None), &run);
    assert!(words.reason.contains("no number above zero"), "{}", words.reason);
    let verdict = |check: &str, claimed| judge_claim(claim("a", check, claimed), &run);
    let beyond = verdict("crossover(linear.x, square.x, over: n)", Some(Claimed::Between(4_000.0, 5_000.0)));
    assert!(
        beyond.verdict == Verdict::Undecided && beyond.reason.contains("outside the measured"),
        "{}",
        beyond.reason
    );
}

#[test]
fn a_power_law_may_lie_in_the_names_of_metrics() {
    let mut run = Run::default();
    for (replicate, noise) in (1..).zip([1.0, 1.01, 0.99]) {
        let metrics: Vec<(String, f64)> = [16.0, 64.0, 256.0]
            .iter()
            .map(|n| (format!("latency/f32/{n}/median"), noise * n * (1.0 + n / 1e5 * noise)))
            .collect();
        let metrics: Vec<(&str, f64)> = metrics.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        run.add_task("bench", json!({}), Some(replicate), &metrics);
    }
    let found = judge_claim(claim("a", "exponent(bench.latency/f32/*/median, over: *)", claimed_near(1.0, 0.05)), &run);
    assert_eq!(found.verdict, Verdict::Supported, "{}", found.reason);
}

#[test]
fn contradictions_and_what_is_missing_come_before_results() {
    let run = Run::default();
    let arithmetic = |text: &str| vec![parse_formula(text).unwrap()];
    let bare = || Claim { check: None, ..claim("a", "a.x > 1", None) };
    let impossible = judge_claim(Claim { arithmetic: arithmetic("round(17000 / 370, 1) == 53.9"), ..bare() }, &run);
    assert_eq!(impossible.verdict, Verdict::Impossible);
    assert!(
        impossible.reason.contains("round(17000 / 370, 1) == 53.9 is false: 45.9 == 53.9"),
        "{}",
        impossible.reason
    );
    assert_eq!(judge_claim(Claim { arithmetic: arithmetic("1 < 2"), ..bare() }, &run).verdict, Verdict::Consistent);
    let needs = Claim { needs: vec!["cuda".into()], ..claim("a", "a.x > 1", None) };
    let found = judge_claims(&[needs], &run.observations(), &|name| (name == "cuda").then(|| "no driver".into()));
    assert_eq!((found[0].verdict, found[0].reason.as_str()), (Verdict::NotTested, "it needs cuda (no driver)"));
    let reason = judge_claim(Claim { not_tested: Some("Assay has no FP8".into()), ..bare() }, &run);
    assert_eq!((reason.verdict, reason.reason.as_str()), (Verdict::NotTested, "Assay has no FP8"));
    let unchecked = judge_claim(Claim { needs: vec!["cpu".into()], ..bare() }, &run);
    assert_eq!(unchecked.verdict, Verdict::NotTested);
}

#[test]
fn several_claims_are_corrected_together() {
    let mut run = Run::default();
    run.add_job("a", &[1.0, 1.4, 1.1, 1.3]);
    let alone = judge_claim(claim("a", "a.x > 0.9", None), &run);
    let p = alone.measured.unwrap().p.unwrap();
    assert!(alone.verdict == Verdict::Supported && p > 0.01, "{p}");
    let claims: Vec<Claim> = (0..10).map(|n| claim(&format!("c{n}"), "a.x > 0.9", None)).collect();
    let found = judge_claims(&claims, &run.observations(), &|_| None);
    assert!(found.iter().all(|judged| judged.verdict == Verdict::Undecided));
    let measured = found[0].measured.as_ref().unwrap();
    assert!((measured.p_corrected.unwrap() - (10.0 * p).min(1.0)).abs() < 1e-12);
    assert!(found[0].reason.contains("after correction"), "{}", found[0].reason);
}

#[test]
fn disturbed_measurements_are_counted() {
    let mut run = Run::default();
    run.add_job("a", &[5.0, 5.1]).add_task("a", json!({}), Some(3), &[("x", 5.2), ("load/others", 1.5)]);
    let found = judge_claim(claim("a", "a.x > 1", None), &run);
    assert!(found.reason.ends_with("(1 of 3 measurements were disturbed by other programs)"), "{}", found.reason);
}

/// The reader of workflow files refuses such claims. Without a test, they must not be supported.
#[test]
fn a_band_without_an_end_to_test_is_undecided() {
    let mut run = Run::default();
    run.add_job("a", &[1.0, 1.1, 1.2]).add_job("b", &[1.0, 1.0, 1.1]);
    for check in ["ratio(a.x, b.x) < 0", "0 > ratio(a.x, b.x)", "ratio(a.x, b.x) > 0", "-1 * ratio(a.x, b.x) > -2"] {
        let found = judge_claim(claim("a", check, None), &run);
        assert_eq!(found.verdict, Verdict::Undecided, "{check}: {}", found.reason);
    }
}
