//! Tests of shares that are known: of designed sweeps, and of simulated ones.

use super::*;
use crate::random::Random;

fn axes(levels: &[usize]) -> Vec<Axis> {
    levels.iter().map(|&levels| Axis { levels, positions: Vec::new() }).collect()
}

/// Every combination of levels, `replicates` times.
fn sweep(levels: &[usize], replicates: u32, mut value: impl FnMut(&[usize], u32) -> f64) -> Vec<FactorialObservation> {
    let mut places: Vec<Vec<usize>> = vec![Vec::new()];
    for &count in levels {
        places = places.iter().flat_map(|place| (0..count).map(move |at| [&place[..], &[at]].concat())).collect();
    }
    let observe = |(place, replicate): (Vec<usize>, u32)| {
        let value = value(&place, replicate);
        FactorialObservation { levels: place, value, block: None }
    };
    places.into_iter().flat_map(|place| (0..replicates).map(move |n| (place.clone(), n))).map(observe).collect()
}

fn total(found: &Importance) -> f64 {
    found.shares.iter().filter_map(|term| term.share).sum::<f64>() + found.higher + found.error
}

#[test]
fn exact_values_have_the_shares_of_their_sums_of_squares() {
    // Main effects of 3 and 1 either way: sums of squares 9 and 1 for each observation.
    let sign = |level: usize| if level == 0 { -1.0 } else { 1.0 };
    let found =
        variance_shares(&axes(&[2, 2]), &sweep(&[2, 2], 2, |at, _| 3.0 * sign(at[0]) + sign(at[1])), 0.95).unwrap();
    let shares: Vec<f64> = found.shares.iter().filter_map(|term| term.share).collect();
    for (found, expected) in std::iter::zip(shares, [0.9, 0.1, 0.0]) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }
    assert!(found.shares.iter().all(|term| term.interval.is_none()) && found.error == 0.0);
    // An interaction of three axes is neither a main effect nor one of two.
    let three = sweep(&[2, 2, 2], 2, |at, _| sign(at[0]) * sign(at[1]) * sign(at[2]) + sign(at[0]));
    let found = variance_shares(&axes(&[2, 2, 2]), &three, 0.95).unwrap();
    assert!((found.higher - 0.5).abs() < 1e-9 && (found.shares[0].share.unwrap() - 0.5).abs() < 1e-9, "{found:?}");
}

/// By hand for the values below: sums of squares 50, 2, 0.5 and 1 (error, four degrees of freedom), so that MSE is 0.25 and omega
/// squared of the first axis (50 - 0.25) / (53.5 + 0.25).
#[test]
fn shares_are_omega_squared() {
    let sign = |level: usize| if level == 0 { -1.0 } else { 1.0 };
    let value = |at: &[usize], n: u32| {
        let (a, b) = (sign(at[0]), sign(at[1]));
        2.5 * a + 0.5 * b + 0.25 * a * b + if n == 0 { 1.0 } else { -1.0 } * 0.125_f64.sqrt()
    };
    let found = variance_shares(&axes(&[2, 2]), &sweep(&[2, 2], 2, value), 0.95).unwrap();
    let (states, error) = (&found.shares[0], found.error);
    assert!((states.share.unwrap() - 49.75 / 53.75).abs() < 1e-9, "{found:?}");
    assert!((error - 2.0 / 53.75).abs() < 1e-9 && (total(&found) - 1.0).abs() < 1e-9, "{found:?}");
    let interval = states.interval.unwrap();
    assert!(interval.low > 0.5 && interval.low < states.share.unwrap() && interval.high < 1.0, "{found:?}");
    assert_eq!(found.shares[2].axes, [0, 1]);
}

#[test]
fn what_has_no_shares_is_refused_with_the_reason() {
    let message = |observations: &[FactorialObservation]| {
        variance_shares(&axes(&[2, 2]), observations, 0.95).unwrap_err().to_string()
    };
    let single = message(&sweep(&[2, 2], 1, |at, _| at[0] as f64));
    assert_eq!(single, "the error between replicates needs at least 2 samples, and 1 were given");
    let equal = message(&sweep(&[2, 2], 2, |_, _| 1.0));
    assert_eq!(equal, "a share of the variance needs values that differ, and all are equal");
    // The scatter falls with the mean, which no scale removes.
    let shape = [-0.12, 0.02, 0.10, -0.04, 0.05, -0.01];
    let unlike = message(&sweep(&[2, 2], 6, |at, n| {
        let mean = 10.0_f64.powi((2 * at[0] + at[1]) as i32);
        mean + shape[n as usize] / mean
    }));
    assert!(unlike.starts_with("a share of the variance needs cells that scatter alike"), "{unlike}");
    assert!(variance_shares(&axes(&[2, 2]), &sweep(&[2, 2], 2, |at, _| at[0] as f64), 1.0).is_err());
}

/// Effects with shares of 0.6, 0.1 and 0 of the variance, over 3 x 2 cells of three replicates: 95 % intervals cover them, and an axis
/// without effect has an interval from zero in most experiments.
#[test]
fn intervals_cover_the_true_shares() {
    let mut random = Random::new(11);
    // Sums of squares of level effects, over an error variance of 1: 2 for the first axis, 1/3 for the second.
    let first = [-1.0, 0.0, 1.0].map(|x: f64| x * 3.0_f64.sqrt());
    let second = [-1.0, 1.0].map(|x: f64| x / 3.0_f64.sqrt());
    let (part, rest) = (2.0, 1.0 / 3.0);
    let truth = [part / (part + rest + 1.0), rest / (part + rest + 1.0), 0.0];
    let experiments = 2_000;
    let mut covered = [0; 3];
    for _ in 0..experiments {
        let found = variance_shares(
            &axes(&[3, 2]),
            &sweep(&[3, 2], 3, |at, _| first[at[0]] + second[at[1]] + random.normal()),
            0.95,
        );
        // Now and then the test of equal variances rejects a sound experiment.
        let Ok(found) = found else { continue };
        for (at, term) in found.shares.iter().enumerate() {
            let interval = term.interval.unwrap();
            covered[at] += usize::from(interval.low <= truth[at] && truth[at] <= interval.high);
        }
    }
    for (at, covered) in covered.into_iter().enumerate() {
        let share = f64::from(covered as u32) / f64::from(experiments);
        assert!((0.93..=0.99).contains(&share), "term {at}: {share}");
    }
}
