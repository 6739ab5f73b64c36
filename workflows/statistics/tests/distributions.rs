//! The error of the integrated distributions against closed forms, for the few degrees of freedom where it is largest.

use assay_statistics::distributions::{
    Sides, many_one_cdf, noncentral_student_cdf, student_cdf, studentized_range_cdf,
};

const SQRT_2: f64 = std::f64::consts::SQRT_2;

/// The largest error over arguments up to `reach`.
fn error(reach: f64, of: impl Fn(f64) -> f64) -> f64 {
    (1..=400).map(|step| of(f64::from(step) * reach / 400.0).abs()).fold(0.0, f64::max)
}

/// With one statistic, two groups or no shift, each distribution is Student's.
#[test]
fn errors_are_within_what_is_documented() {
    for df in [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 10.0] {
        for reach in [20.0, 1_000.0] {
            let one = error(reach, |q| many_one_cdf(q, &[0.5_f64.sqrt()], df, Sides::One) - student_cdf(q, df));
            let range = error(reach, |q| studentized_range_cdf(q * SQRT_2, 2, df) - (2.0 * student_cdf(q, df) - 1.0));
            let shift = error(reach, |q| noncentral_student_cdf(q, df, 0.0) - student_cdf(q, df));
            let bound = match (df < 4.0, reach > 20.0) {
                (false, _) => 1e-8,
                (true, false) => 2e-5,
                (true, true) => 2e-3,
            };
            assert!(
                [one, range, shift].iter().all(|error| *error < bound),
                "df {df} to {reach}: {one:e} {range:e} {shift:e}"
            );
        }
    }
}
