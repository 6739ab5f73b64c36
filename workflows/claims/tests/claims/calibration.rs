//! How often verdicts are wrong, by simulation: 2,000 experiments for each rate, from fixed seeds.

use assay_claims::{Verdict, judge_claims};
use assay_spec::{Claim, Claimed};
use assay_statistics::Random;

use crate::run::{Run, claim};

const EXPERIMENTS: usize = 2_000;

/// The shares of `supported` and `refuted` when `simulate` makes each experiment.
fn verdict_rates(seed: u64, claim: &Claim, simulate: impl Fn(&mut Random) -> Run) -> (f64, f64) {
    let mut random = Random::new(seed);
    let (mut supported, mut refuted) = (0, 0);
    for _ in 0..EXPERIMENTS {
        let run = simulate(&mut random);
        match judge_claims(std::slice::from_ref(claim), &run.observations(), &|_| None)[0].verdict {
            Verdict::Supported => supported += 1,
            Verdict::Refuted => refuted += 1,
            _ => {}
        }
    }
    (supported as f64 / EXPERIMENTS as f64, refuted as f64 / EXPERIMENTS as f64)
}

/// Two jobs whose replicates share the effect of their seed; the first is better by `effect` standard deviations.
fn simulate_pair(random: &mut Random, replicates: usize, effect: f64) -> Run {
    let seeds: Vec<f64> = (0..replicates).map(|_| 3.0 * random.normal()).collect();
    let mut values =
        |shift: f64| -> Vec<f64> { seeds.iter().map(|seed| 20.0 + seed + shift + random.normal()).collect() };
    let (a, b) = (values(effect), values(0.0));
    let mut run = Run::default();
    run.add_job("a", &a).add_job("b", &b);
    run
}

/// Two jobs whose times scatter by 5 %, the first `ratio` times the second.
fn simulate_times(random: &mut Random, replicates: usize, ratio: f64) -> Run {
    let mut values =
        |scale: f64| -> Vec<f64> { (0..replicates).map(|_| scale * (0.05 * random.normal()).exp()).collect() };
    let (a, b) = (values(ratio), values(1.0));
    let mut run = Run::default();
    run.add_job("a", &a).add_job("b", &b);
    run
}

/// Four standard errors of a rate of 2.5 %: 4 sqrt(0.025 0.975 / 2000).
const OFF: f64 = 0.014;

#[test]
fn without_an_effect_a_direction_is_found_as_often_as_is_said() {
    let greater = claim("a", "a.x > b.x", None);
    for (seed, replicates) in [(1, 3), (2, 5)] {
        let (supported, refuted) = verdict_rates(seed, &greater, |random| simulate_pair(random, replicates, 0.0));
        assert!(
            (supported - 0.025).abs() < OFF && (refuted - 0.025).abs() < OFF,
            "{replicates}: {supported} {refuted}"
        );
    }
}

#[test]
fn with_an_effect_the_wrong_direction_is_not_found() {
    let greater = claim("a", "a.x > b.x", None);
    let (supported, refuted) = verdict_rates(3, &greater, |random| simulate_pair(random, 5, 4.0));
    // The power of a t-test: n = 5, effect 4 / sqrt(2), alpha 0.05: 0.994 (statsmodels' TTestPower).
    assert!((supported - 0.994).abs() < 0.01 && refuted == 0.0, "{supported} {refuted}");
    let (supported, refuted) = verdict_rates(4, &greater, |random| simulate_pair(random, 5, -4.0));
    assert!(supported == 0.0 && (refuted - 0.994).abs() < 0.01, "{supported} {refuted}");
}

#[test]
fn a_band_is_left_and_entered_as_seldom_as_is_said() {
    let band = claim("a", "ratio(a.x, b.x)", Some(Claimed::Between(1.8, 2.2)));
    let at = |seed, ratio| verdict_rates(seed, &band, |random| simulate_times(random, 5, ratio));
    // The truth is the end of the band: either statement is at its most frequent, 2.5 % each.
    let (supported, refuted) = at(5, 2.2);
    assert!(supported < 0.025 + OFF && (refuted - 0.025).abs() < OFF, "{supported} {refuted}");
    let (supported, refuted) = at(6, 1.8);
    assert!(supported < 0.025 + OFF && (refuted - 0.025).abs() < OFF, "{supported} {refuted}");
    let (supported, refuted) = at(7, 2.0);
    assert!(supported > 0.3 && refuted < 0.002, "{supported} {refuted}");
    let (supported, refuted) = at(8, 3.0);
    assert!(supported == 0.0 && refuted > 0.99, "{supported} {refuted}");
}

/// A band without width is never supported, and falsely refuted in 5 % of the experiments.
#[test]
fn a_value_without_tolerance_is_refuted_as_often_as_is_said() {
    let value = claim("a", "ratio(a.x, b.x)", Some(Claimed::Between(2.0, 2.0)));
    let (supported, refuted) = verdict_rates(9, &value, |random| simulate_times(random, 4, 2.0));
    // Four standard errors of 5 %.
    assert!(supported == 0.0 && (refuted - 0.05).abs() < 0.0195, "{supported} {refuted}");
}

#[test]
fn of_several_claims_any_false_verdict_is_as_rare_as_is_said() {
    let names = ["a", "b", "c", "d", "e"];
    let claims: Vec<Claim> = names.iter().map(|job| claim(job, &format!("{job}.x > 0"), None)).collect();
    let mut random = Random::new(10);
    let mut any = 0;
    for _ in 0..EXPERIMENTS {
        let mut run = Run::default();
        for name in names {
            let values: Vec<f64> = (0..4).map(|_| random.normal()).collect();
            run.add_job(name, &values);
        }
        let found = judge_claims(&claims, &run.observations(), &|_| None);
        any += usize::from(found.iter().any(|judged| judged.verdict != Verdict::Undecided));
    }
    let share = any as f64 / EXPERIMENTS as f64;
    assert!((share - 0.05).abs() < 0.0195, "{share}");
}

/// The proposed replicates decide with the stated chance, if the estimate is the truth.
#[test]
fn the_proposed_replicates_decide() {
    let greater = claim("a", "a.x > 0", None);
    let mut first = Run::default();
    // Mean 1 and standard deviation 1.
    first.add_job("a", &[0.0, 1.0, 2.0]);
    let found = judge_claims(std::slice::from_ref(&greater), &first.observations(), &|_| None);
    let replicates = found[0].replicates_to_decide.unwrap();
    let (supported, refuted) = verdict_rates(11, &greater, |random| {
        let values: Vec<f64> = (0..replicates).map(|_| 1.0 + random.normal()).collect();
        let mut run = Run::default();
        run.add_job("a", &values);
        run
    });
    // Four standard errors of 80 %, and up to one replicate more than needed.
    assert!((0.764..0.87).contains(&supported) && refuted < 0.001, "{replicates}: {supported} {refuted}");
}
