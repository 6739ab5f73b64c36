//! Elementary functions as branch-free arithmetic that vectorises.

/// Adding and subtracting it rounds to an integer, which then stands in the low bits.
pub(crate) const ROUND: f32 = 12_582_912.0;

/// e^x to about 1 ulp. Below -87.3 the result would be denormal and is 0; above 88.7 it is infinite; NaN stays.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let (y, shifted) = exp_parts(x);
    // n is -126..=128; at 128 the exponent field would overflow, so the factor is split in two.
    let bits = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = bits >> 1;
    let factor = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    let scaled = y * factor(half) * factor(bits.wrapping_sub(half));
    if x > 88.722_84 {
        f32::INFINITY
    } else if x < -87.336_54 {
        0.0
    } else {
        scaled
    }
}

/// e^x as y 2^n with y in [0.7, 1.5], and n in the low bits of [`ROUND`] + n.
///
/// As in Cephes' `expf`: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r, and n added to the exponent.
#[inline(always)]
fn exp_parts(x: f32) -> (f32, f32) {
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, x));
    let mut p = 1.987_569_1e-4f32;
    p = p.mul_add(r, 1.398_2e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 5.0e-1);
    (p.mul_add(r * r, r) + 1.0, shifted)
}

/// e^x for x between -[`NEAR`] and [`NEAR`]; NaN stays.
#[inline(always)]
fn exp_between(x: f32) -> f32 {
    let (y, shifted) = exp_parts(x);
    // n goes to y's exponent, where there is room for it.
    f32::from_bits(y.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// e^x for weights of at most about 1: below -[`NEAR`] it is 0, and it does not grow beyond e^[`NEAR`]; NaN stays.
#[inline(always)]
pub(crate) fn exp_near(x: f32) -> f32 {
    let near = exp_between(x.clamp(-NEAR, NEAR));
    if x < -NEAR { 0.0 } else { near }
}

/// tanh x to about 2 ulp, as in Cephes' `tanhf`: an odd polynomial below 0.625, 1 - 2 / (e^(2|x|) + 1) above.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    let s = x * x;
    let mut p = -5.704_988_7e-3f32;
    p = p.mul_add(s, 2.063_908_8e-2);
    p = p.mul_add(s, -5.373_971_6e-2);
    p = p.mul_add(s, 1.333_144_2e-1);
    p = p.mul_add(s, -3.333_328e-1);
    let small = (p * s).mul_add(x, x);
    let large = (1.0 - 2.0 / (exp(2.0 * magnitude) + 1.0)).copysign(x);
    if magnitude < 0.625 { small } else { large }
}

/// 1 / (1 + e^-x)
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The derivative of x sigmoid(x).
#[inline(always)]
pub(crate) fn silu_slope(x: f32) -> f32 {
    let p = sigmoid(x);
    p + x * (p * (1.0 - p))
}

/// The largest |x| for which e^x is taken without a look at its ends.
const NEAR: f32 = 87.0;

/// The nearest integer, ties to even, for |x| < 2^22; others are integers or nearly so and stay.
#[inline(always)]
pub(crate) fn round(x: f32) -> f32 {
    if x.abs() < 4_194_304.0 { ((x + ROUND) - ROUND).copysign(x) } else { x.round_ties_even() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest relative error of `f` against `exact` over a grid, in units of f32's epsilon.
    fn largest_error(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, from: f32, to: f32) -> f64 {
        let points = 200_001;
        let at = |i: i32| from + (to - from) * (i as f32 / points as f32);
        let of = |x: f32| {
            let truth = exact(f64::from(x));
            (f64::from(f(x)) - truth).abs() / truth.abs().max(1e-30) / f64::from(f32::EPSILON)
        };
        (0..points).map(at).map(of).fold(0.0, f64::max)
    }

    #[test]
    fn elementary_functions_are_accurate() {
        assert!(largest_error(exp, f64::exp, -87.0, 88.7) < 1.5, "{}", largest_error(exp, f64::exp, -87.0, 88.7));
        assert!(largest_error(tanh, f64::tanh, -10.0, 10.0) < 2.0, "{}", largest_error(tanh, f64::tanh, -10.0, 10.0));
        let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
        assert!(
            largest_error(sigmoid, logistic, -80.0, 20.0) < 3.0,
            "{}",
            largest_error(sigmoid, logistic, -80.0, 20.0)
        );
    }

    #[test]
    fn the_ends_of_the_range_are_right() {
        assert_eq!((exp(0.0), exp(f32::NEG_INFINITY), exp(-1e30), exp(f32::INFINITY)), (1.0, 0.0, 0.0, f32::INFINITY));
        assert_eq!((exp(89.0), tanh(0.0), tanh(1e9), tanh(f32::NEG_INFINITY)), (f32::INFINITY, 0.0, 1.0, -1.0));
        assert!(exp(88.72).is_finite() && exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
        assert_eq!((sigmoid(-1e9), sigmoid(1e9)), (0.0, 1.0));
        assert_eq!((exp_near(0.0), exp_near(f32::NEG_INFINITY), exp_near(-87.1)), (1.0, 0.0, 0.0));
        assert!(exp_near(f32::NAN).is_nan() && (-8700..8700).map(|i| i as f32 * 0.01).all(|x| exp_near(x) == exp(x)));
        let rounded = [0.5, 1.5, -0.5, -2.5, 3.49, 8_388_607.0, 1e20].map(round);
        assert_eq!(rounded, [0.0, 2.0, 0.0, -2.0, 3.0, 8_388_607.0, 1e20]);
    }
}
