//! One series of points, and its reduction for a picture.

/// One series, as two columns of the same length, in the order in which the points were recorded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curve {
    /// The metric's name.
    pub name: String,
    /// The x axis.
    pub steps: Vec<u64>,
    /// The values.
    pub values: Vec<f64>,
}

/// Reduces a curve to at most `max_points` points, such that a picture of it hardly changes.
///
/// The first and the last point are kept. The points between them are divided into intervals of equal length, each of
/// which keeps its smallest and its largest value, so that a spike of a single point remains visible; if the curve has
/// NaN, each interval also keeps its first NaN. With `max_points` below 4, only the end points are kept.
pub fn thin_curve(curve: &mut Curve, max_points: usize) {
    let n = curve.values.len().min(curve.steps.len());
    if n <= max_points {
        return;
    }
    let keep = kept_positions(&curve.values[..n], max_points);
    curve.steps = keep.iter().map(|&i| curve.steps[i]).collect();
    curve.values = keep.iter().map(|&i| curve.values[i]).collect();
}

/// The indices that are kept, in ascending order, for `values.len() > max_points`.
fn kept_positions(values: &[f64], max_points: usize) -> Vec<usize> {
    let last = values.len() - 1;
    match max_points {
        0 => return Vec::new(),
        1 => return vec![last],
        _ => {}
    }
    let per_stretch = if values.iter().any(|v| v.is_nan()) { 3 } else { 2 };
    let stretches = (max_points - 2) / per_stretch;
    let inner = last - 1;
    let mut keep = vec![0];
    for stretch in 0..stretches {
        let (from, to) = (1 + inner * stretch / stretches, 1 + inner * (stretch + 1) / stretches);
        let numbers = || (from..to).filter(|&i| !values[i].is_nan());
        let mut picks = [
            numbers().min_by(|&a, &b| values[a].total_cmp(&values[b])),
            numbers().max_by(|&a, &b| values[a].total_cmp(&values[b])),
            (from..to).find(|&i| values[i].is_nan()),
        ];
        picks.sort_unstable();
        for pick in picks.into_iter().flatten() {
            if keep.last() != Some(&pick) {
                keep.push(pick);
            }
        }
    }
    keep.push(last);
    keep
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn curve(values: Vec<f64>) -> Curve {
        Curve { name: "train/loss".into(), steps: (0..values.len() as u64).collect(), values }
    }

    fn thinned(values: Vec<f64>, max_points: usize) -> Curve {
        let mut curve = curve(values);
        thin_curve(&mut curve, max_points);
        curve
    }

    #[test]
    fn a_short_curve_is_left_alone() {
        assert_eq!(thinned(vec![1.0, 2.0, 3.0], 3), curve(vec![1.0, 2.0, 3.0]));
    }

    #[test]
    fn a_spike_of_one_point_is_still_seen() {
        let mut values = vec![1.0; 100_000];
        values[77_777] = 9.0;
        values[33_333] = -9.0;
        let thin = thinned(values, 100);
        let at = |step| thin.steps.iter().position(|&s| s == step).map(|i| thin.values[i]);
        assert_eq!((at(77_777), at(33_333)), (Some(9.0), Some(-9.0)));
    }

    #[test]
    fn nan_neither_hides_nor_is_hidden() {
        let mut values: Vec<f64> = (0..1000).map(f64::from).collect();
        values[500] = f64::NAN;
        values[501] = 1e9;
        let thin = thinned(values, 20);
        assert!(thin.steps.contains(&500) && thin.steps.contains(&501), "{:?}", thin.steps);
    }

    #[test]
    fn next_to_no_points_are_the_ends() {
        let steps = |n| thinned((0..10).map(f64::from).collect(), n).steps;
        assert_eq!((steps(0), steps(1), steps(2), steps(3)), (vec![], vec![9], vec![0, 9], vec![0, 9]));
    }

    proptest! {
        #[test]
        fn thinning_keeps_the_bound_the_order_and_the_extremes(
            values in prop::collection::vec(prop_oneof![9 => -1e3..1e3f64, 1 => Just(f64::NAN)], 1..400),
            max_points in 5usize..64,
        ) {
            let thin = thinned(values.clone(), max_points);
            prop_assert!(thin.values.len() <= max_points.max(1));
            prop_assert!(thin.steps.windows(2).all(|w| w[0] < w[1]));
            for (step, value) in thin.steps.iter().zip(&thin.values) {
                prop_assert_eq!(value.to_bits(), values[*step as usize].to_bits());
            }
            let extremes = |values: &[f64]| {
                let numbers = || values.iter().copied().filter(|v| !v.is_nan());
                (numbers().fold(f64::INFINITY, f64::min), numbers().fold(f64::NEG_INFINITY, f64::max))
            };
            prop_assert_eq!(extremes(&thin.values), extremes(&values));
        }
    }
}
