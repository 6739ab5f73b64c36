//! Where the power laws of two families cross, such as the length from which one model is faster than another.

use serde::{Deserialize, Serialize};

use super::power_law::Line;
use crate::distributions::student_quantile;
use crate::error::{StatisticsError, check_open_unit};
use crate::estimate::{Estimate, Method};

/// Where two fitted power laws are equal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Crossover {
    /// Within the range that both were measured over. The interval is absent where the data do not bound it within that
    /// range, or where the fits have no residual degrees of freedom.
    Measured {
        /// In the unit of x.
        at: Estimate,
        /// Whether the first family is the lower one above the crossover.
        first_is_lower_above: bool,
    },
    /// Outside the measured range, where nothing is known: no number is given.
    NotMeasured {
        /// Whether the fits would cross above the range rather than below it.
        above: bool,
    },
    /// The exponents are the same, so that the fits cross nowhere, or are the same everywhere.
    Parallel,
}

/// The crossover of two power laws fitted by least squares on logarithms, `(x, y)` points of each. Its interval is
/// E. C. Fieller's (1954) for the ratio of the differences of intercepts and slopes, with one residual variance for both
/// fits; an end outside the measured range is moved to the range's end.
///
/// # Errors
/// With fewer than two points of a family, a number that is not finite or not above zero, one x alone, no common range, or a
/// level outside 0 to 1.
pub fn crossover(first: (&[f64], &[f64]), second: (&[f64], &[f64]), level: f64) -> Result<Crossover, StatisticsError> {
    check_open_unit("the confidence level", level)?;
    let (a, b) = (Line::fit(first.0, first.1)?, Line::fit(second.0, second.1)?);
    let (low, high) = (a.low.max(b.low), a.high.min(b.high));
    if low >= high {
        return Err(StatisticsError::OutOfRange {
            name: "the common range of two power laws",
            value: (high - low).exp(),
            range: "above one point",
        });
    }
    let (gap, slope) = (a.intercept - b.intercept, a.slope - b.slope);
    if slope == 0.0 {
        return Ok(Crossover::Parallel);
    }
    let x = -gap / slope;
    if x < low || x > high {
        return Ok(Crossover::NotMeasured { above: x > high });
    }
    let n = a.points + b.points;
    let bare = Estimate::bare(x.exp(), n);
    let freedom = n as f64 - 4.0;
    let at = match freedom > 0.0 {
        true => {
            let variance = (a.residuals + b.residuals) / freedom;
            let t = student_quantile(0.5 + level / 2.0, freedom);
            match fieller((gap, slope), &[a, b], variance * t * t) {
                Some((left, right)) => {
                    let ends = (left.clamp(low, high).exp(), right.clamp(low, high).exp());
                    Estimate::with(x.exp(), ends, level, n, Method::LeastSquares)
                }
                None => bare,
            }
        }
        false => bare,
    };
    Ok(Crossover::Measured { at, first_is_lower_above: slope < 0.0 })
}

/// Where `(gap + slope x)^2 <= scale * variance of the difference at x`, if that is a bounded interval.
fn fieller((gap, slope): (f64, f64), lines: &[Line], scale: f64) -> Option<(f64, f64)> {
    let sum = |part: &dyn Fn(&Line) -> f64| lines.iter().map(part).sum::<f64>();
    // The variance of a line at x is 1/n + (x - mean)^2 / spread, in units of the residual variance.
    let square = slope * slope - scale * sum(&|line| 1.0 / line.spread);
    let linear = 2.0 * gap * slope + scale * sum(&|line| 2.0 * line.mean_x / line.spread);
    let constant = gap * gap - scale * sum(&|line| 1.0 / line.points as f64 + line.mean_x * line.mean_x / line.spread);
    let inside = linear * linear - 4.0 * square * constant;
    if square <= 0.0 || inside < 0.0 {
        return None;
    }
    Some(((-linear - inside.sqrt()) / (2.0 * square), (-linear + inside.sqrt()) / (2.0 * square)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const X: [f64; 6] = [16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

    fn law(c: f64, k: f64) -> Vec<f64> {
        X.iter().map(|x| c * x.powf(k)).collect()
    }

    #[test]
    fn exact_laws_cross_where_algebra_says() {
        let found = crossover((&X, &law(1.0, 2.0)), (&X, &law(100.0, 1.0)), 0.95).unwrap();
        let Crossover::Measured { at, first_is_lower_above } = found else { panic!("{found:?}") };
        assert!((at.value - 100.0).abs() < 1e-8 && !first_is_lower_above);
        let swapped = crossover((&X, &law(100.0, 1.0)), (&X, &law(1.0, 2.0)), 0.95).unwrap();
        assert!(matches!(swapped, Crossover::Measured { first_is_lower_above: true, .. }));
    }

    #[test]
    fn outside_the_measured_range_no_number_is_given() {
        let at = |c: f64| crossover((&X, &law(1.0, 2.0)), (&X, &law(c, 1.0)), 0.95).unwrap();
        assert_eq!(at(600.0), Crossover::NotMeasured { above: true });
        assert_eq!(at(10.0), Crossover::NotMeasured { above: false });
        assert_eq!(crossover((&X, &X), (&X, &X), 0.95).unwrap(), Crossover::Parallel);
    }

    #[test]
    fn two_points_of_each_have_no_interval() {
        let (x, y, z) = ([16.0, 512.0], [256.0, 262_144.0], [1600.0, 51_200.0]);
        let found = crossover((&x, &y), (&x, &z), 0.95).unwrap();
        assert!(matches!(found, Crossover::Measured { at, .. } if at.interval.is_none()), "{found:?}");
        assert!(crossover((&x, &y), (&[1024.0, 2048.0], &z), 0.95).is_err(), "no common range");
        assert!(crossover((&x, &y), (&x, &[0.0, 1.0]), 0.95).is_err());
        assert!(crossover((&x, &y), (&x, &z), 1.0).is_err());
    }

    /// 2,000 pairs of noisy laws that cross at 100: the share of intervals that hold 100 agrees with 0.95 to four standard
    /// errors, 0.0195.
    #[test]
    fn fiellers_interval_covers_as_often_as_it_says() {
        let mut random = Random::new(8);
        let mut noisy =
            |c: f64, k: f64| -> Vec<f64> { law(c, k).iter().map(|y| y * (0.1 * random.normal()).exp()).collect() };
        let covered = (0..2000).filter(|_| {
            let (a, b) = (noisy(1.0, 2.0), noisy(100.0, 1.0));
            let found = crossover((&X, &a), (&X, &b), 0.95).unwrap();
            matches!(found, Crossover::Measured { at, .. } if at.interval.is_some_and(|interval| interval.contains(100.0)))
        });
        let share = covered.count() as f64 / 2000.0;
        assert!((share - 0.95).abs() < 0.0195, "{share}");
    }
}
