//! Tests of effects whose size is known. Reference values of other programs are in `tests/reference.rs`.

use super::*;

const NOISE: [f64; 12] = [0.011, -0.02, 0.006, 0.013, -0.008, 0.001, -0.012, 0.017, -0.005, 0.009, -0.014, 0.004];

/// Three state counts by two chunks, three replicates each: every doubling of the states takes 0.1 away, and chunks add
/// nothing but `interaction` at the last state count.
fn sweep(interaction: f64) -> Vec<FactorialObservation> {
    let mut found = Vec::new();
    for states in 0..3 {
        for chunk in 0..2 {
            for block in 0..3_u32 {
                let noise = NOISE[(states * 6 + chunk * 3 + block as usize) % 12];
                let extra = if (states, chunk) == (2, 1) { interaction } else { 0.0 };
                let value = 1.0 - 0.1 * states as f64 + extra + noise;
                found.push(FactorialObservation { levels: vec![states, chunk], value, block: Some(block) });
            }
        }
    }
    found
}

fn axes() -> Vec<Axis> {
    vec![Axis { levels: 3, positions: vec![16.0, 32.0, 64.0] }, Axis { levels: 2, positions: Vec::new() }]
}

fn analysed(observations: &[FactorialObservation]) -> Analysis {
    analyse(&axes(), observations, Direction::LowerIsBetter, 0.95).unwrap()
}

#[test]
fn the_axis_that_matters_is_found_with_its_trend_and_best_level() {
    let found = analysed(&sweep(0.0));
    let [states, chunk, both] = &found.effects[..] else { panic!("two axes and their interaction") };
    assert!(states.p_corrected.unwrap() < 1e-6 && chunk.p.unwrap() > 0.05 && both.p.unwrap() > 0.05);
    assert_eq!((states.freedom, chunk.freedom, both.freedom), (2, 1, 2));
    assert_eq!(states.levels.iter().map(|level| level.may_be_best).collect::<Vec<_>>(), [false, false, true]);
    assert!(chunk.levels.iter().all(|level| level.may_be_best));
    let trend = states.trend.unwrap();
    assert!(trend.per_doubling && trend.slope.interval.unwrap().contains(-0.1) && trend.p.unwrap() < 1e-6);
    assert_eq!((chunk.trend, both.trend, both.levels.len()), (None, None, 0));
    assert!((states.levels.iter().map(|level| level.effect.value).sum::<f64>()).abs() < 1e-12);
    assert!(states.share.unwrap() > 0.9 && chunk.share.unwrap() < 0.5);
}

#[test]
fn an_interaction_is_told_from_main_effects() {
    let found = analysed(&sweep(0.2));
    assert!(found.effects[2].p_corrected.unwrap() < 1e-4);
    assert_eq!(found.effects[2].axes, [0, 1]);
}

#[test]
fn failed_replicates_and_missing_cells_do_not_disturb_the_rest() {
    let mut observations = sweep(0.0);
    observations.remove(0);
    observations.retain(|observation| observation.levels != [1, 1]);
    let found = analysed(&observations);
    let states = &found.effects[0];
    assert!(states.p.unwrap() < 1e-6 && found.effects[2].freedom == 1);
    assert!((states.levels[0].mean - 1.0).abs() < 0.03 && (states.levels[1].mean - 0.9).abs() < 0.03);
    assert_eq!(states.levels[2].effect.n, 2 + 3 + 3, "over the chunk that every state count has");
}

#[test]
fn scatter_in_proportion_is_analysed_by_logarithms() {
    let mut observations = sweep(0.0);
    for observation in &mut observations {
        observation.value = (observation.value * 60.0).exp();
    }
    let found = analysed(&observations);
    assert_eq!(found.scale, Scale::Log);
    assert!(found.effects[0].p.unwrap() < 1e-6);
}

#[test]
fn separate_variances_have_intervals_and_no_f_test() {
    let mut observations = sweep(0.0);
    for observation in observations.iter_mut().filter(|observation| observation.levels == [0, 0]) {
        observation.value +=
            50.0 * f64::from(observation.block.unwrap()) * if observation.block == Some(1) { -1.0 } else { 1.0 };
    }
    let found = analysed(&observations);
    assert!(matches!(found.error, ErrorTerm::Separate { .. }));
    assert!(found.effects.iter().all(|effect| effect.f.is_none() && effect.p_corrected.is_none()));
    assert!(found.effects[0].levels[0].effect.interval.is_some());
    observations.remove(17);
    observations.remove(16);
    assert!(analyse(&axes(), &observations, Direction::LowerIsBetter, 0.95).is_err(), "one replicate has no variance");
}

#[test]
fn what_does_not_fit_is_refused() {
    let one = |levels: Vec<usize>, value| FactorialObservation { levels, value, block: None };
    let refused = |axes: &[Axis], observations: &[FactorialObservation]| {
        analyse(axes, observations, Direction::LowerIsBetter, 0.95).is_err()
    };
    assert!(refused(&[], &sweep(0.0)));
    assert!(refused(&axes(), &[one(vec![0], 1.0), one(vec![0], 2.0)]));
    assert!(refused(&axes(), &[one(vec![3, 0], 1.0), one(vec![3, 0], 2.0)]));
    assert!(refused(&axes(), &[one(vec![0, 0], f64::NAN), one(vec![0, 0], 2.0)]));
    assert!(refused(&axes(), &[one(vec![0, 0], 1.0), one(vec![1, 0], 2.0)]), "no cell has two replicates");
    assert!(refused(&[Axis { levels: 2, positions: vec![1.0] }], &[one(vec![0], 1.0), one(vec![0], 2.0)]));
    assert!(analyse(&axes(), &sweep(0.0), Direction::LowerIsBetter, 1.0).is_err());
    let message = |axis: Axis| {
        let observations = [one(vec![0], 1.0), one(vec![0], 2.0)];
        analyse(&[axis], &observations, Direction::LowerIsBetter, 0.95).unwrap_err().to_string()
    };
    let found = message(Axis { levels: 3, positions: vec![1.0, 2.0] });
    assert_eq!(found, "the levels and positions of an axis must be equal in number, and 3 and 2 were given");
    assert_eq!(
        message(Axis { levels: 1, positions: Vec::new() }),
        "the number of an axis's levels is 1, and must lie at 2 or above"
    );
    assert!(message(Axis { levels: 2, positions: vec![1.0, f64::NAN] }).starts_with("the position of a level is NaN"));
}
