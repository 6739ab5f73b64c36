//! The comparison of results with expected values.

use assay_tensor::Tensor;

/// Every element within `tolerance` of the expected one, relative to the largest magnitude expected (1 at least, so
/// that sums that cancel are judged by their terms). NaN agrees with NaN only, an infinity with itself.
pub(crate) fn check_close(what: &str, found: &Tensor, expected: &Tensor, tolerance: f64) -> Result<(), String> {
    if found.shape() != expected.shape() {
        return Err(format!("{what} has shape {}, not {}", found.shape(), expected.shape()));
    }
    let (found, expected) = (host_values(found)?, host_values(expected)?);
    let finite = expected.iter().filter(|x| x.is_finite());
    let limit = tolerance * finite.fold(1.0f64, |largest, x| largest.max(x.abs()));
    for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
        let same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= limit;
        if !same {
            return Err(format!("{what}, element {i}: {a}, not {b} (to {limit:e})"));
        }
    }
    Ok(())
}

/// The same shape and the same bits.
pub(crate) fn check_identical(what: &str, found: &Tensor, expected: &Tensor) -> Result<(), String> {
    if found.shape() != expected.shape() {
        return Err(format!("{what} has shape {}, not {}", found.shape(), expected.shape()));
    }
    let (found, expected) = (host_values(found)?, host_values(expected)?);
    match found.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits()) {
        Some(i) => Err(format!("{what}, element {i}: {:?} and {:?} have other bits", found[i], expected[i])),
        None => Ok(()),
    }
}

/// The elements as f64, which tells the bits of f32 apart as well.
pub(crate) fn host_values(x: &Tensor) -> Result<Vec<f64>, String> {
    x.to_f64_vec().map_err(|error| error.to_string())
}
