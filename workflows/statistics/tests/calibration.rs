//! How often the statistics err, in 2,000 simulated experiments for each setting: five cells, three replicates each.
//!
//! A rate of 5 % in 2,000 experiments has a standard error of 0.5 %. Where a setting keeps a method from its nominal rate, the
//! test names the range that was measured.

use std::sync::Mutex;

use assay_statistics::comparisons::contrasts::Experiment;
use assay_statistics::comparisons::power::Design;
use assay_statistics::factorial::{Axis, FactorialObservation, analyse};
use assay_statistics::{BestRule, Direction, Observation, Random, compare_with_best};

const EXPERIMENTS: u64 = 2_000;
const CELLS: usize = 5;
const REPLICATES: usize = 3;

/// How observations scatter.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Setting {
    Normal,
    /// exp(normal / 2): a skewness of 1.75.
    LogNormal,
    /// Two peaks three apart, each of width one half.
    Bimodal,
    /// What replicates share, such as a seed or the time of day, is twice as large as what they do not.
    Drift,
    /// One cell scatters three times as much as the others.
    UnequalVariances,
    /// One cell, the second, which is the best where means differ, scatters three times as much as the others.
    BestScattersMost,
    /// Normal, and the first cell lost a replicate.
    FailedReplicate,
    /// Accuracies: the share of 20 sequences that are answered correctly with a probability of 0.9. One of six cells has the
    /// same value three times.
    Binomial,
}

use Setting::{BestScattersMost, Bimodal, Binomial, Drift, FailedReplicate, LogNormal, Normal, UnequalVariances};

const SETTINGS: [Setting; 8] =
    [Normal, LogNormal, Bimodal, Drift, UnequalVariances, BestScattersMost, FailedReplicate, Binomial];

/// An experiment whose cells have the given means.
fn experiment(setting: Setting, random: &mut Random, means: &[f64]) -> Vec<Vec<Observation>> {
    let shared: Vec<f64> = (0..REPLICATES).map(|_| 2.0 * random.normal()).collect();
    let cell = |(cell, mean): (usize, &f64)| -> Vec<Observation> {
        let values: Vec<f64> = (0..REPLICATES)
            .map(|replicate| {
                let z = random.normal();
                mean + match setting {
                    Normal | FailedReplicate => z,
                    LogNormal => (0.5 * z).exp() - 0.125_f64.exp(),
                    Bimodal => 0.5 * z + if random.unit() < 0.5 { 1.5 } else { -1.5 },
                    Drift => z + shared[replicate],
                    UnequalVariances => z * if cell + 1 == means.len() { 3.0 } else { 1.0 },
                    BestScattersMost => z * if cell == 1 { 3.0 } else { 1.0 },
                    Binomial => {
                        let hits = (0..20).filter(|_| random.unit() < 0.9).count() as f64;
                        (hits - 18.0) / 1.8_f64.sqrt()
                    }
                }
            })
            .collect();
        let mut observations = Observation::blocked(&values);
        if setting == FailedReplicate && cell == 0 {
            observations.remove(0);
        }
        observations
    };
    means.iter().enumerate().map(cell).collect()
}

/// In which share of the experiments something holds. Each has a seed of its own.
fn rate(setting: Setting, means: &[f64], holds: impl Fn(&[Vec<Observation>]) -> bool) -> f64 {
    let count = (0..EXPERIMENTS).filter(|&seed| holds(&experiment(setting, &mut Random::new(seed), means)));
    count.count() as f64 / EXPERIMENTS as f64
}

/// The rates at a nominal 5 %. Three replicates often do not show that one cell scatters three times as much as the others: then
/// 7 to 8 % were measured.
fn tolerated(setting: Setting) -> std::ops::RangeInclusive<f64> {
    if matches!(setting, UnequalVariances | BestScattersMost) { 0.05..=0.09 } else { 0.03..=0.07 }
}

/// Prints all rates of a test, then fails if some are outside their range.
fn check(what: &str, rates: &[(Setting, f64, std::ops::RangeInclusive<f64>)]) {
    static LINES: Mutex<()> = Mutex::new(());
    let _lines = LINES.lock();
    for (setting, rate, range) in rates {
        println!(
            "{what}: {setting:?} {:.2} % (within {:.1} to {:.1} %)",
            100.0 * rate,
            100.0 * range.start(),
            100.0 * range.end()
        );
    }
    assert!(rates.iter().all(|(_, rate, range)| range.contains(rate)), "{what}: {rates:?}");
}

fn over_settings(
    what: &str,
    settings: &[Setting],
    range: impl Fn(Setting) -> std::ops::RangeInclusive<f64>,
    of: impl Fn(Setting) -> f64,
) {
    let rates: Vec<_> = settings.iter().map(|&setting| (setting, of(setting), range(setting))).collect();
    check(what, &rates);
}

fn set(cells: &[Vec<Observation>]) -> (Vec<usize>, Option<usize>) {
    let found = compare_with_best(cells, Direction::HigherIsBetter, &BestRule::default()).expect("a comparison");
    let best = found.best();
    (found.set, best)
}

/// The set of cells that may be the best lacks a cell that is as good as all others, and one cell is named as the best of
/// equals. `place` is the cell that is looked for in the set: the last one of unequal variances scatters most.
fn false_alarms(setting: Setting, cells: usize, place: usize) -> (f64, f64) {
    let (mut lacking, mut named) = (0.0, 0.0);
    for seed in 0..EXPERIMENTS {
        let (set, best) = set(&experiment(setting, &mut Random::new(seed), &vec![0.0; cells]));
        lacking += f64::from(u8::from(!set.contains(&place)));
        named += f64::from(u8::from(best.is_some()));
    }
    (lacking / EXPERIMENTS as f64, named / EXPERIMENTS as f64)
}

#[test]
fn the_set_rarely_lacks_the_best() {
    let found: Vec<_> = SETTINGS.iter().map(|&setting| (setting, false_alarms(setting, CELLS, 0))).collect();
    let lacking: Vec<_> = found.iter().map(|&(setting, (rate, _))| (setting, rate, tolerated(setting))).collect();
    let named: Vec<_> = found.iter().map(|&(setting, (_, rate))| (setting, rate, 0.0..=0.04)).collect();
    check("lacks a best cell", &lacking);
    check("names a best of equals", &named);
    let most = [(UnequalVariances, CELLS - 1), (BestScattersMost, 1)];
    let most = most.map(|(setting, place)| (setting, false_alarms(setting, CELLS, place).0, tolerated(setting)));
    check("lacks the cell that scatters most", &most);
}

/// Two equal cells are distinguished in 5 % of the experiments. That the data decide whether blocks matter raises the rate
/// by up to two points.
#[test]
fn two_equal_cells_are_distinguished_as_often_as_a_test_errs() {
    over_settings("distinguishes two equal cells", &SETTINGS, tolerated, |setting| false_alarms(setting, 2, 0).1);
}

/// The winner that is four standard deviations ahead of four equal cells is named.
#[test]
fn a_clear_winner_is_named() {
    let mut means = [0.0; CELLS];
    means[1] = 4.0;
    let found = rate(Normal, &means, |cells| set(cells).1 == Some(1));
    // With the shared part left in the error, it would hardly ever be.
    let drift = rate(Drift, &means, |cells| set(cells).1 == Some(1));
    let failed = rate(FailedReplicate, &means, |cells| set(cells).1 == Some(1));
    check(
        "names the winner",
        &[(Normal, found, 0.9..=1.0), (Drift, drift, 0.85..=1.0), (FailedReplicate, failed, 0.85..=1.0)],
    );
}

/// A winner that scatters three times as much as the others is as far ahead as four of its own standard deviations. It is
/// named less often, and its own set never lacks it.
#[test]
fn a_winner_that_scatters_most_is_named() {
    let mut means = [0.0; CELLS];
    means[1] = 12.0;
    let named = rate(BestScattersMost, &means, |cells| set(cells).1 == Some(1));
    let lacking = rate(BestScattersMost, &means, |cells| !set(cells).0.contains(&1));
    check("names the winner", &[(BestScattersMost, named, 0.85..=1.0)]);
    check("lacks the winner", &[(BestScattersMost, lacking, 0.0..=0.01)]);
}

/// The detectable difference is found with about the power that it is stated for, 80 %. It is somewhat less, since a cell that
/// happens to scatter more keeps its own variance.
#[test]
fn the_detectable_difference_is_found_as_often_as_promised() {
    let design = Design { cells: CELLS, blocked: false, alpha: 0.05, power: 0.8 };
    let mut means = [-100.0; CELLS];
    means[0] = 0.0;
    means[1] = design.detectable(REPLICATES, 1.0).expect("three replicates");
    let found = rate(Normal, &means, |cells| !set(cells).0.contains(&0));
    check("finds the detectable difference", &[(Normal, found, 0.74..=0.83)]);
}

/// Every cell against the first one.
#[test]
fn dunnetts_false_alarms() {
    over_settings("Dunnett", &SETTINGS, tolerated, |setting| {
        rate(setting, &[0.0; CELLS], |cells| {
            let found = Experiment::of(cells, 0.95).and_then(|experiment| experiment.against_baseline(0));
            found.expect("a comparison").iter().any(|contrast| contrast.p.is_some_and(|p| p < 0.05))
        })
    });
}

/// The interval of a difference of two families of cells covers the true difference.
#[test]
fn intervals_of_contrasts_cover() {
    let range = |setting| match setting {
        Normal | Bimodal | Drift | FailedReplicate | Binomial => 0.93..=0.97,
        LogNormal | UnequalVariances | BestScattersMost => 0.90..=0.98,
    };
    over_settings("contrast covers", &SETTINGS, range, |setting| {
        rate(setting, &[1.0, 1.0, 0.0, 0.0, 0.0], |cells| {
            let found = Experiment::of(cells, 0.95).and_then(|experiment| experiment.families(&[0, 1], &[2, 3, 4]));
            found.expect("a contrast").difference.interval.expect("an interval").contains(1.0)
        })
    });
}

/// A 3 x 2 sweep without any effect: each F test errs in 5 % of the experiments.
#[test]
fn factorial_false_alarms() {
    let axes = [3, 2].map(|levels| Axis { levels, positions: Vec::new() });
    let mut alarms = [0.0; 3];
    for seed in 0..EXPERIMENTS {
        let mut random = Random::new(seed);
        let mut observations = Vec::new();
        for cell in 0..6 {
            for block in 0..3 {
                let levels = vec![cell / 2, cell % 2];
                observations.push(FactorialObservation { levels, value: random.normal(), block: Some(block) });
            }
        }
        observations.pop();
        let found = analyse(&axes, &observations, Direction::LowerIsBetter, 0.95).expect("an analysis");
        for (alarm, effect) in alarms.iter_mut().zip(&found.effects) {
            *alarm += f64::from(u8::from(effect.p.is_some_and(|p| p < 0.05))) / EXPERIMENTS as f64;
        }
    }
    check("F tests", &alarms.map(|alarm| (FailedReplicate, alarm, 0.03..=0.07)));
}
