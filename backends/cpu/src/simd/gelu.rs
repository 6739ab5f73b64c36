//! GELU in its tanh form and its derivative, of numbers and of rows of them.
//!
//! ```text
//! gelu x = x p(x)                    p(x) = (1 + tanh u) / 2 = sigmoid(2 u),  u = sqrt(2/pi) (x + 0.044715 x^3)
//! gelu' x = p + x p (1 - p) 2 u'     p(-x) = 1 - p(x)
//! ```
//!
//! So all follows from h(a) = p(-a) for a = |x|, which falls from 1/2 to 1e-10 at 5.8 and is taken as 0 beyond. It is a polynomial of
//! degree 6 in each interval of 0.4: the coefficients of 16 intervals are a vector of AVX-512, and finding those of 16
//! numbers is one instruction for each degree. An exponential and a division, from which h could be computed too, take about
//! twice the time. Near 0 the gate is right to 1 ulp, at -4 to 3; below -5.8, where GELU is less than 6e-10, it is 0.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m512};

use crate::simd::instructions::{LINE, Level, level, prefetch};
use crate::simd::lanes::Lanes;
use crate::simd::math::ROUND;
use crate::simd::rows::{RowPointers, strip_offset};

/// Intervals for each unit of a. The i-th reaches from (i - 1/2) / 2.5 to (i + 1/2) / 2.5.
const SCALE: f32 = 2.5;
/// The last interval, in which h is 0.
const LAST: f32 = 15.0;

const C: f32 = assay_tensor::GELU_FACTOR as f32;
const D: f32 = assay_tensor::GELU_CUBIC as f32;

/// h(a) in interval i is the sum over n of `TABLE[n][i]` t^n, with t = 2.5 a - i: it interpolates at Chebyshev's points.
const TABLE: [[f32; 16]; 7] = [
    [
        5.0e-1,
        3.4459707e-1,
        2.1196039e-1,
        1.1524769e-1,
        5.49144e-2,
        2.2701154e-2,
        8.032019e-3,
        2.3888906e-3,
        5.8423914e-4,
        1.1460562e-4,
        1.7561488e-5,
        2.0458958e-6,
        1.7632027e-7,
        1.09376215e-8,
        4.7516713e-10,
        0.0,
    ],
    [
        -1.5957691e-1,
        -1.4725591e-1,
        -1.1577206e-1,
        -7.7657945e-2,
        -4.450373e-2,
        -2.1760082e-2,
        -9.015329e-3,
        -3.1210498e-3,
        -8.8467257e-4,
        -2.0030975e-4,
        -3.5268546e-5,
        -4.6974546e-6,
        -4.604072e-7,
        -3.2308183e-8,
        -1.579541e-9,
        0.0,
    ],
    [
        0.0,
        1.1826373e-2,
        1.8536285e-2,
        1.8565336e-2,
        1.4141444e-2,
        8.66702e-3,
        4.363608e-3,
        1.8053715e-3,
        6.0541177e-4,
        1.6090293e-4,
        3.3008044e-5,
        5.0843482e-6,
        5.7208837e-7,
        4.5762057e-8,
        2.5332674e-9,
        0.0,
    ],
    [
        4.2763357e-3,
        3.3004868e-3,
        1.0850686e-3,
        -9.239653e-4,
        -1.8217365e-3,
        -1.7028397e-3,
        -1.1390296e-3,
        -5.9240387e-4,
        -2.431086e-4,
        -7.776871e-5,
        -1.8951972e-5,
        -3.427314e-6,
        -4.4786202e-7,
        -4.118806e-8,
        -2.5967748e-9,
        0.0,
    ],
    [
        0.0,
        -4.5481956e-4,
        -5.8623863e-4,
        -3.7861484e-4,
        -7.7158766e-5,
        1.1008174e-4,
        1.5202601e-4,
        1.1428685e-4,
        6.1501974e-5,
        2.4721261e-5,
        7.374921e-6,
        1.6008519e-6,
        2.4710357e-7,
        2.6489644e-8,
        1.9254074e-9,
        0.0,
    ],
    [
        -1.0357715e-4,
        -6.500279e-5,
        1.2816467e-5,
        5.9780177e-5,
        5.2535735e-5,
        2.1593405e-5,
        -2.0059144e-6,
        -1.0579754e-5,
        -9.401442e-6,
        -5.2427495e-6,
        -2.0324383e-6,
        -5.5294066e-7,
        -1.0446545e-7,
        -1.34838585e-8,
        -1.1668077e-9,
        0.0,
    ],
    [
        0.0,
        1.170089e-5,
        1.20676405e-5,
        2.9494333e-6,
        -4.340681e-6,
        -5.0794906e-6,
        -2.6268121e-6,
        -4.055013e-7,
        6.058322e-7,
        6.743056e-7,
        3.8044965e-7,
        1.3614711e-7,
        3.208472e-8,
        4.992806e-9,
        5.0842086e-10,
        0.0,
    ],
];

/// a = |x|, limited to where h is not 0, and h(a).
#[inline(always)]
fn gate_and_slope<L: Lanes>(x: L) -> (L, L) {
    let a = x.abs().at_most(L::splat(LAST / SCALE));
    let shifted = a.mul_add(L::splat(SCALE), L::splat(ROUND));
    let t = a.mul_add(L::splat(SCALE), L::splat(ROUND).sub(shifted));
    let mut h = shifted.look_up(&TABLE[TABLE.len() - 1]);
    for n in (0..TABLE.len() - 1).rev() {
        h = h.mul_add(t, shifted.look_up(&TABLE[n]));
    }
    (a, h)
}

#[inline(always)]
fn gelu_lanes<L: Lanes>(x: L) -> L {
    x.mul(gate_and_slope(x).1.mirror_if_positive(x))
}

/// The value and the derivative. The latter's part below 1/2 is h - a h (1 - h) 2 u'.
#[inline(always)]
fn value_and_slope<L: Lanes>(x: L) -> (L, L) {
    let (a, h) = gate_and_slope(x);
    let doubled = a.mul(a).mul_add(L::splat(6.0 * C * D), L::splat(2.0 * C));
    let low = a.mul(doubled).mul_sub_from(h.mul_sub_from(h, h), h);
    (x.mul(h.mirror_if_positive(x)), low.mirror_if_positive(x))
}

/// GELU.
#[cfg(test)]
pub(crate) fn gelu(x: f32) -> f32 {
    gelu_lanes(x)
}

/// The derivative of [`gelu`].
#[inline(always)]
pub(crate) fn gelu_slope(x: f32) -> f32 {
    value_and_slope(x).1
}

/// GELU of the `count` numbers at a place.
///
/// # Safety
///
/// The places must be valid for reads and writes of so many.
#[inline(always)]
unsafe fn value_at<L: Lanes>(x: *const f32, y: *mut f32, count: usize) {
    // SAFETY: as the caller says.
    unsafe { gelu_lanes(L::load_first(x, count)).store_first(y, count) };
}

/// As [`value_at`], and the gradient of the value becomes that of the argument.
#[inline(always)]
unsafe fn gradient_at<L: Lanes>(x: *const f32, grad: *mut f32, y: *mut f32, count: usize) {
    // SAFETY: as the caller says.
    unsafe {
        let (value, slope) = value_and_slope(L::load_first(x, count));
        L::load_first(grad, count).mul(slope).store_first(grad, count);
        value.store_first(y, count);
    }
}

#[inline(always)]
unsafe fn values_of<L: Lanes>(x: RowPointers<*const f32>, y: RowPointers<*mut f32>, [rows, width]: [usize; 2]) {
    let rest = width % L::COUNT;
    for row in 0..rows {
        let (x, y) = (x.from(row, 0).at, y.from(row, 0).at);
        // SAFETY: the caller vouches for the rows.
        unsafe {
            for column in (0..width - rest).step_by(L::COUNT) {
                value_at::<L>(x.add(column), y.add(column), L::COUNT);
            }
            if rest > 0 {
                value_at::<L>(x.add(width - rest), y.add(width - rest), rest);
            }
        }
    }
}

#[inline(always)]
unsafe fn gradients_of<L: Lanes>(
    x: RowPointers<*const f32>,
    grad: RowPointers<*mut f32>,
    y: RowPointers<*mut f32>,
    strips: usize,
    [rows, width]: [usize; 2],
) {
    let rest = width % L::COUNT;
    for row in 0..rows {
        // What x is was kept on the way forward, and is far away. The next row may be that of a later call.
        for column in (0..width).step_by(LINE) {
            prefetch(x.from(row + 1, column).at);
        }
        let (x, grad, y) = (x.from(row, 0).at, grad.from(row, 0).at, y.from(row, 0).at);
        // SAFETY: the caller vouches for the rows.
        unsafe {
            for column in (0..width - rest).step_by(L::COUNT) {
                gradient_at::<L>(x.add(column), grad.add(column), y.add(strip_offset(column, strips)), L::COUNT);
            }
            if rest > 0 {
                let column = width - rest;
                gradient_at::<L>(x.add(column), grad.add(column), y.add(strip_offset(column, strips)), rest);
            }
        }
    }
}

/// The two functions for rows, on vectors of a type.
macro_rules! functions_of_rows {
    ($($(#[$attribute:meta])* $lanes:ty: $values:ident, $gradients:ident;)*) => {$(
        $(#[$attribute])*
        unsafe fn $values(x: RowPointers<*const f32>, y: RowPointers<*mut f32>, extent: [usize; 2]) {
            // SAFETY: as the caller says.
            unsafe { values_of::<$lanes>(x, y, extent) };
        }

        $(#[$attribute])*
        unsafe fn $gradients(
            x: RowPointers<*const f32>,
            grad: RowPointers<*mut f32>,
            y: RowPointers<*mut f32>,
            strips: usize,
            extent: [usize; 2],
        ) {
            // SAFETY: as the caller says.
            unsafe { gradients_of::<$lanes>(x, grad, y, strips, extent) };
        }
    )*};
}

functions_of_rows! {
    f32: values_portable, gradients_portable;
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    __m256: values_256, gradients_256;
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    __m512: values_512, gradients_512;
}

/// y = GELU(x): rows of so many numbers. They may be the same.
///
/// # Safety
///
/// The rows of x must be valid for reads, those of y for writes.
pub(crate) unsafe fn gelu_rows(x: RowPointers<*const f32>, y: RowPointers<*mut f32>, extent: [usize; 2]) {
    // SAFETY: the machine has the level's instructions; the caller vouches for the rows.
    unsafe {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => values_512(x, y, extent),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => values_256(x, y, extent),
            Level::Baseline => values_portable(x, y, extent),
        }
    }
}

/// The gradient of GELU's value becomes that of its argument x, and y = GELU(x), in strips that begin `strips` apart.
///
/// # Safety
///
/// The rows of x must be valid for reads, those of the gradient for both, those of y for writes.
pub(crate) unsafe fn gelu_gradient_rows(
    x: RowPointers<*const f32>,
    grad: RowPointers<*mut f32>,
    y: RowPointers<*mut f32>,
    strips: usize,
    extent: [usize; 2],
) {
    // SAFETY: as above.
    unsafe {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => gradients_512(x, grad, y, strips, extent),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => gradients_256(x, grad, y, strips, extent),
            Level::Baseline => gradients_portable(x, grad, y, strips, extent),
        }
    }
}

/// y = GELU(x).
pub(crate) fn apply_gelu(x: &[f32], y: &mut [f32]) {
    let width = x.len().min(y.len());
    // SAFETY: both slices have so many numbers.
    unsafe {
        gelu_rows(
            RowPointers { at: x.as_ptr(), stride: width },
            RowPointers { at: y.as_mut_ptr(), stride: width },
            [1, width],
        )
    };
}

/// x = GELU(x).
pub(crate) fn apply_gelu_in_place(x: &mut [f32]) {
    let (at, width) = (x.as_mut_ptr(), x.len());
    // SAFETY: the slice has so many numbers, and each is read before it is written.
    unsafe {
        gelu_rows(RowPointers { at: at.cast_const(), stride: width }, RowPointers { at, stride: width }, [1, width])
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::rows::STRIP;

    /// The gate in f64.
    fn gate(x: f64) -> f64 {
        let u = assay_tensor::GELU_FACTOR * (x + assay_tensor::GELU_CUBIC * x * x * x);
        1.0 / (1.0 + (-2.0 * u).exp())
    }

    /// The derivative in f64.
    fn slope(x: f64) -> f64 {
        let doubled = 2.0 * assay_tensor::GELU_FACTOR * (1.0 + 3.0 * assay_tensor::GELU_CUBIC * x * x);
        gate(x) + x * gate(x) * (1.0 - gate(x)) * doubled
    }

    #[test]
    fn the_table_interpolates_at_the_points_of_chebyshev() {
        let points = TABLE.len();
        let angle = |point: usize| std::f64::consts::PI * (2 * point + 1) as f64 / (2 * points) as f64;
        for interval in 0..LAST as usize {
            for t in (0..points).map(|point| angle(point).cos() / 2.0) {
                let found = TABLE.iter().rev().fold(0.0, |sum, row| sum * t + f64::from(row[interval]));
                let expected = gate(-(interval as f64 + t) / f64::from(SCALE));
                assert!((found / expected - 1.0).abs() < 2e-6, "interval {interval} at {t}: {found}, not {expected}");
            }
        }
        assert!(TABLE.iter().all(|row| row[LAST as usize] == 0.0));
    }

    #[test]
    fn values_and_slopes_are_accurate() {
        for i in -80_000..=80_000 {
            let x = i as f32 * 1e-4;
            let (value, d, exact) = (gelu(x), gelu_slope(x), f64::from(x));
            // In units of f32's epsilon: what rounding alone makes, and what the polynomials do far from 0.
            let ulps = if x > -3.0 { 2.5 } else { 6.0 };
            let bound = |size: f64| ulps * f64::from(f32::EPSILON) * size.abs() + if x < -4.0 { 5e-9 } else { 0.0 };
            let truth = exact * gate(exact);
            assert!((f64::from(value) - truth).abs() <= bound(truth), "gelu {x}: {value}, not {truth}");
            let size = gate(exact) + exact.abs() * 4.0 * gate(exact) * (1.0 - gate(exact));
            assert!((f64::from(d) - slope(exact)).abs() <= bound(size), "slope {x}: {d}, not {}", slope(exact));
        }
    }

    #[test]
    fn the_ends_of_the_range_are_right() {
        assert_eq!((gelu(-1e19), gelu(1e19), gelu_slope(-1e30), gelu_slope(1e30)), (0.0, 1e19, 0.0, 1.0));
        assert_eq!((gelu(0.0), gelu_slope(0.0), gelu(f32::INFINITY)), (0.0, 0.5, f32::INFINITY));
        assert!(gelu(f32::NAN).is_nan() && gelu_slope(f32::NAN).is_nan());
    }

    #[test]
    fn rows_are_as_their_numbers() {
        let ends = [0.0, -0.0, 1e-39, -1e30, 1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        for width in [1, 15, 16, 40, 77] {
            let x: Vec<f32> =
                (0..3 * width).map(|i| *ends.get(i * 7 % 50).unwrap_or(&(i as f32 * 0.13 - 9.0))).collect();
            let mut y = vec![f32::NAN; x.len()];
            apply_gelu(&x, &mut y);
            let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
            assert!(x.iter().zip(&y).all(|(x, y)| same(gelu(*x), *y)));
            let mut in_place = x.clone();
            apply_gelu_in_place(&mut in_place);
            assert!(in_place.iter().zip(&y).all(|(a, b)| same(*a, *b)));

            // Three rows, whose values go to strips of them.
            let (strips, mut grad) = (3 * STRIP, x.iter().map(|x| x * 0.5 + 1.0).collect::<Vec<_>>());
            let (upstream, mut values) = (grad.clone(), vec![0.0; strips * width.div_ceil(STRIP)]);
            let from = RowPointers { at: x.as_ptr(), stride: width };
            let to = RowPointers { at: grad.as_mut_ptr(), stride: width };
            let into = RowPointers { at: values.as_mut_ptr(), stride: STRIP };
            // SAFETY: all have three rows of so many numbers.
            unsafe { gelu_gradient_rows(from, to, into, strips, [3, width]) };
            for (i, (x, upstream)) in x.iter().zip(upstream).enumerate() {
                let (row, column) = (i / width, i % width);
                assert!(same(grad[i], upstream * gelu_slope(*x)), "the gradient at {x}");
                assert!(same(values[row * STRIP + strip_offset(column, strips)], y[i]), "the value at {x}");
            }
        }
    }
}
