//! Compares with what SciPy, statsmodels and rliable compute: `reference/reference.json`, written by `reference/generate.py`.

use std::sync::LazyLock;

use assay_statistics::comparisons::contrasts::{Experiment, games_howell};
use assay_statistics::comparisons::correction::{benjamini_hochberg, holm};
use assay_statistics::comparisons::permutation::permutation_test;
use assay_statistics::comparisons::scale::equal_variances;
use assay_statistics::distributions::{
    Sides, fisher_tail, many_one_cdf, noncentral_student_cdf, student_quantile, studentized_range_cdf,
};
use assay_statistics::factorial::{Axis, FactorialObservation, analyse};
use assay_statistics::rliable::{Aggregate, Scores, aggregate, performance_profile, probability_of_improvement};
use assay_statistics::{Bootstrap, Direction, ErrorTerm, Observation};
use serde::Deserialize;
use serde_json::Value;

static REFERENCE: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("reference/reference.json")).expect("reference.json"));

fn of<T: for<'a> Deserialize<'a>>(key: &str) -> T {
    serde_json::from_value(REFERENCE[key].clone()).unwrap_or_else(|error| panic!("`{key}`: {error}"))
}

#[track_caller]
fn close(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found} is not {expected}");
}

/// Found and expected values side by side. Lists of different lengths would hide what is missing.
#[track_caller]
fn pairs<A, B>(found: impl IntoIterator<Item = A>, expected: impl IntoIterator<Item = B>) -> Vec<(A, B)> {
    let (found, expected): (Vec<A>, Vec<B>) = (found.into_iter().collect(), expected.into_iter().collect());
    assert_eq!(found.len(), expected.len(), "as many values as expected");
    found.into_iter().zip(expected).collect()
}

fn groups() -> Vec<Vec<f64>> {
    of("groups")
}

#[test]
fn distributions() {
    for [f, numerator, denominator, tail] in of::<Vec<[f64; 4]>>("fisher") {
        close(fisher_tail(f, numerator, denominator), tail, 1e-10);
    }
    for [t, df, shift, expected] in of::<Vec<[f64; 4]>>("noncentral") {
        close(noncentral_student_cdf(t, df, shift), expected, 1e-8);
    }
    for [q, groups, df, expected] in of::<Vec<[f64; 4]>>("studentized_range") {
        close(studentized_range_cdf(q, groups as usize, df), expected, 1e-6);
    }
    for (q, loadings, df, one, two) in of::<Vec<(f64, Vec<f64>, f64, f64, f64)>>("many_one") {
        close(many_one_cdf(q, &loadings, df, Sides::One), one, 1e-5);
        close(many_one_cdf(q, &loadings, df, Sides::Two), two, 1e-5);
    }
}

/// SciPy integrates Dunnett's distribution by random points, to about three digits.
#[test]
fn dunnetts_comparisons() {
    let cells: Vec<Vec<Observation>> = groups().iter().map(|values| Observation::unblocked(values)).collect();
    let found = Experiment::of(&cells, 0.95).unwrap().against_baseline(0).unwrap();
    for (contrast, p) in pairs(&found, of::<Vec<f64>>("dunnett")) {
        close(contrast.p.unwrap(), p, 2e-3);
    }
}

#[test]
fn games_and_howells_comparisons() {
    let cells: Vec<Vec<Observation>> = groups().iter().map(|values| Observation::unblocked(values)).collect();
    let found = games_howell(&cells, 0.95).unwrap();
    for (pair, [difference, p, low, high]) in pairs(&found, of::<Vec<[f64; 4]>>("games_howell")) {
        close(pair.contrast.difference.value, difference, 1e-10);
        close(pair.contrast.p.unwrap(), p, 1e-5);
        close(pair.contrast.difference.low().unwrap(), low, 1e-3);
        close(pair.contrast.difference.high().unwrap(), high, 1e-3);
    }
}

/// Brown and Forsythe's test is `scipy.stats.levene(center='median')`. Bartlett's p-value is by Box's F here and by the
/// chi-square in SciPy, which differ by a few percent in such small groups.
#[test]
fn tests_of_equal_variances() {
    let mut groups = groups();
    close(equal_variances(&groups).unwrap(), of("bartlett"), 0.02);
    groups[0].push(6.1);
    groups[2].extend([8.0, 8.5]);
    close(equal_variances(&groups).unwrap(), of("brown_forsythe"), 1e-9);
}

/// `statsmodels.stats.anova.anova_lm(typ=2)` of an unbalanced sweep with blocks.
#[test]
fn a_factorial_analysis() {
    #[derive(Deserialize)]
    struct Row {
        a: usize,
        b: usize,
        r: u32,
        y: f64,
    }
    let expected = &REFERENCE["factorial"];
    let rows: Vec<Row> = serde_json::from_value(expected["rows"].clone()).unwrap();
    let observation = |row: &Row| FactorialObservation { levels: vec![row.a, row.b], value: row.y, block: Some(row.r) };
    let observations: Vec<FactorialObservation> = rows.iter().map(observation).collect();
    let axes = [3, 2].map(|levels| Axis { levels, positions: Vec::new() });
    let found = analyse(&axes, &observations, Direction::LowerIsBetter, 0.95).unwrap();
    let ErrorTerm::Pooled { deviation, freedom, blocked: true, .. } = found.error else { panic!("{:?}", found.error) };
    let residual: [f64; 2] = serde_json::from_value(expected["residual"].clone()).unwrap();
    assert_eq!(freedom, residual[1]);
    close(deviation * deviation * freedom, residual[0], 1e-10);
    for (effect, term) in pairs(&found.effects, ["a", "b", "ab"]) {
        let f = expected["f"][term].as_f64().unwrap();
        close(effect.f.unwrap(), f, 1e-7 * f.max(1.0));
        close(effect.p.unwrap(), expected["p"][term].as_f64().unwrap(), 1e-9);
    }
}

/// The power of Student's test of two samples at a difference of 1.5 standard deviations.
#[test]
fn power() {
    for [n, expected] in of::<Vec<[f64; 2]>>("power") {
        let freedom = 2.0 * n - 2.0;
        let (critical, shift) = (student_quantile(0.975, freedom), 1.5 * (n / 2.0).sqrt());
        let found =
            1.0 - noncentral_student_cdf(critical, freedom, shift) + noncentral_student_cdf(-critical, freedom, shift);
        close(found, expected, 1e-7);
    }
}

#[test]
fn corrections_and_permutations() {
    let p: Vec<f64> = of("p_values");
    for (found, expected) in pairs(holm(&p).unwrap(), of::<Vec<f64>>("holm")) {
        close(found, expected, 1e-14);
    }
    for (found, expected) in pairs(benjamini_hochberg(&p).unwrap(), of::<Vec<f64>>("benjamini_hochberg")) {
        close(found, expected, 1e-14);
    }
    let groups = groups();
    close(permutation_test(&groups[0], &groups[1], 999, 1).unwrap(), of("permutation"), 1e-12);
}

/// The standard deviation of ten values; resamples differ, so that the ends agree to the noise of resampling.
#[test]
fn the_bootstrap_of_any_statistic() {
    let groups = groups();
    let samples = [groups[1].clone(), groups[2].clone()].concat();
    let deviation = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    };
    let found = Bootstrap { resamples: 40_000, ..Bootstrap::default() }.statistic(&samples, deviation).unwrap();
    let [low, high]: [f64; 2] = of("bca_deviation");
    close(found.low().unwrap(), low, 0.05);
    close(found.high().unwrap(), high, 0.05);
}

#[test]
fn aggregates_over_tasks() {
    let expected = &REFERENCE["rliable"];
    // rliable's rows are runs; ours are tasks.
    let by_task = |key: &str| -> Scores {
        let runs: Vec<Vec<f64>> = of(key);
        Scores::of((0..runs[0].len()).map(|task| runs.iter().map(|run| run[task]).collect()).collect()).unwrap()
    };
    let (scores, others) = (by_task("scores"), by_task("others"));
    let bootstrap = Bootstrap { resamples: 200, ..Bootstrap::default() };
    for (which, key) in [
        (Aggregate::InterquartileMean, "iqm"),
        (Aggregate::Mean, "mean"),
        (Aggregate::Median, "median"),
        (Aggregate::OptimalityGap(0.8), "gap"),
    ] {
        let found = aggregate(&scores, which, &bootstrap).unwrap();
        close(found.value, expected[key].as_f64().unwrap(), 1e-12);
        assert!(found.interval.unwrap().contains(found.value));
    }
    let improvement = probability_of_improvement(&scores, &others, &bootstrap).unwrap();
    close(improvement.value, expected["improvement"].as_f64().unwrap(), 1e-12);
    let taus: Vec<f64> = of("taus");
    let profile = performance_profile(&scores, &taus, &bootstrap).unwrap();
    for (point, share) in pairs(&profile, expected["profile"].as_array().unwrap()) {
        close(point.share.value, share.as_f64().unwrap(), 1e-12);
    }
}
