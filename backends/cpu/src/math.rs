//! Elementary functions as branch-free arithmetic that vectorises.

/// Adding and subtracting it rounds to an integer, which then stands in the low bits.
const ROUND: f32 = 12_582_912.0;

/// e^x to about 1 ulp. Below -87.3 the result would be denormal and is 0; above 88.7 it is infinite; NaN stays.
///
/// As in Cephes' `expf`: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r, and n added to the exponent.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-2.121_944_4e-4 * -1.0, n.mul_add(-0.693_359_4, x));
    let mut p = 1.987_569_1e-4f32;
    p = p.mul_add(r, 1.398_2e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 5.0e-1);
    let y = p.mul_add(r * r, r) + 1.0;
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

/// tanh x to about 3 ulp: the rational approximation of Eigen, odd over even; beyond 7.905 it is 1 to rounding.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    const LIMIT: f32 = 7.905_311;
    let clamped = if x > LIMIT { LIMIT } else if x < -LIMIT { -LIMIT } else { x };
    let s = clamped * clamped;
    let mut p = -2.760_768_5e-16f32;
    p = p.mul_add(s, 2.000_188e-13);
    p = p.mul_add(s, -8.604_672e-11);
    p = p.mul_add(s, 5.122_297e-8);
    p = p.mul_add(s, 1.485_722_4e-5);
    p = p.mul_add(s, 6.372_619e-4);
    p = p.mul_add(s, 4.893_524_6e-3);
    let mut q = 1.198_258_4e-6f32;
    q = q.mul_add(s, 1.185_347_1e-4);
    q = q.mul_add(s, 2.268_434_6e-3);
    q = q.mul_add(s, 4.893_525_2e-3);
    clamped * p / q
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

/// tanh of sqrt(2/pi) (x + 0.044715 x^3), the inner part of GELU.
#[inline(always)]
fn gelu_inner(x: f32) -> f32 {
    tanh(x * (x * x).mul_add(C * D, C))
}

const C: f32 = assay_tensor::GELU_FACTOR as f32;
const D: f32 = assay_tensor::GELU_CUBIC as f32;

/// GELU in its tanh form.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    let half = 0.5 * x;
    gelu_inner(x).mul_add(half, half)
}

/// The derivative of [`gelu`].
#[inline(always)]
pub(crate) fn gelu_slope(x: f32) -> f32 {
    // Beyond 20 it is 0 or 1 to rounding; without the limit, the square of a large x would overflow.
    let x = if x > 20.0 { 20.0 } else if x < -20.0 { -20.0 } else { x };
    let t = gelu_inner(x);
    let slope = 0.5 * x * t.mul_add(-t, 1.0) * (x * x).mul_add(3.0 * C * D, C);
    t.mul_add(0.5, 0.5) + slope
}

/// The nearest integer, ties to even, for |x| < 2^22; others are integers or nearly so and stay.
#[inline(always)]
pub(crate) fn round(x: f32) -> f32 {
    if x.abs() < 4_194_304.0 { ((x + ROUND) - ROUND).copysign(x) } else { x.round_ties_even() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest relative error of `f` against `exact` over a grid, in units of f32's epsilon.
    fn error(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, from: f32, to: f32) -> f64 {
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
        assert!(error(exp, f64::exp, -87.0, 88.7) < 1.5, "{}", error(exp, f64::exp, -87.0, 88.7));
        assert!(error(tanh, f64::tanh, -10.0, 10.0) < 4.0, "{}", error(tanh, f64::tanh, -10.0, 10.0));
        let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
        assert!(error(sigmoid, logistic, -80.0, 20.0) < 3.0, "{}", error(sigmoid, logistic, -80.0, 20.0));
    }

    #[test]
    fn the_ends_of_the_range_are_right() {
        assert_eq!((exp(0.0), exp(f32::NEG_INFINITY), exp(-1e30), exp(f32::INFINITY)), (1.0, 0.0, 0.0, f32::INFINITY));
        assert_eq!((exp(89.0), tanh(0.0), tanh(1e9), tanh(f32::NEG_INFINITY)), (f32::INFINITY, 0.0, 1.0, -1.0));
        assert!(exp(88.72).is_finite() && exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
        assert_eq!((sigmoid(-1e9), sigmoid(1e9)), (0.0, 1.0));
        let rounded = [0.5, 1.5, -0.5, -2.5, 3.49, 8_388_607.0, 1e20].map(round);
        assert_eq!(rounded, [0.0, 2.0, 0.0, -2.0, 3.0, 8_388_607.0, 1e20]);
    }
}
