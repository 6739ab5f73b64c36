//! Corrections for several comparisons at once: Holm's against any false finding, Benjamini and Hochberg's against too large
//! a share of them.

use crate::error::StatisticsError;

/// Holm's step-down correction (S. Holm, 1979): the p-values, in their order, corrected for comparison with alpha
/// when all of them are considered. The chance of any false finding among them then stays below alpha.
///
/// # Errors
/// With a p-value outside 0 to 1.
pub fn holm(p_values: &[f64]) -> Result<Vec<f64>, StatisticsError> {
    let order = rising(p_values)?;
    let mut corrected = vec![0.0; p_values.len()];
    let mut largest: f64 = 0.0;
    for (rank, &index) in order.iter().enumerate() {
        largest = largest.max((p_values.len() - rank) as f64 * p_values[index]).min(1.0);
        corrected[index] = largest;
    }
    Ok(corrected)
}

/// [`holm`] of a list with gaps: comparisons without a test stay `None` and do not count.
///
/// # Errors
/// As [`holm`].
pub fn holm_of_tested(p_values: &[Option<f64>]) -> Result<Vec<Option<f64>>, StatisticsError> {
    let tested: Vec<f64> = p_values.iter().copied().flatten().collect();
    let mut corrected = holm(&tested)?.into_iter();
    Ok(p_values.iter().map(|p| p.and_then(|_| corrected.next())).collect())
}

/// Benjamini and Hochberg's step-up correction (1995): the p-values, in their order, corrected for comparison with
/// alpha when the share of false ones among all findings is to stay below alpha on average. It is for screening many metrics; a
/// claim takes [`holm`].
///
/// # Errors
/// With a p-value outside 0 to 1.
pub fn benjamini_hochberg(p_values: &[f64]) -> Result<Vec<f64>, StatisticsError> {
    let mut order = rising(p_values)?;
    order.reverse();
    let mut corrected = vec![0.0; p_values.len()];
    let mut smallest: f64 = 1.0;
    for (place, &index) in order.iter().enumerate() {
        let rank = (p_values.len() - place) as f64;
        smallest = smallest.min(p_values.len() as f64 / rank * p_values[index]);
        corrected[index] = smallest;
    }
    Ok(corrected)
}

/// The places of p-values, the smallest first.
fn rising(p_values: &[f64]) -> Result<Vec<usize>, StatisticsError> {
    if let Some(&value) = p_values.iter().find(|p| !(0.0..=1.0).contains(*p)) {
        return Err(StatisticsError::OutOfRange { name: "a p-value", value, range: "from 0 to 1" });
    }
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&i, &j| p_values[i].total_cmp(&p_values[j]));
    Ok(order)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// R 4: `p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")` is 0.03 0.06 0.06 0.02; it follows by hand from Holm's paper.
    #[test]
    fn the_example_of_four_comes_out() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]).unwrap();
        for (found, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((found - expected).abs() < 1e-15, "{corrected:?}");
        }
        assert_eq!(holm(&[0.2]).unwrap(), [0.2]);
        assert!(holm(&[]).unwrap().is_empty());
        assert!(holm(&[0.5, f64::NAN]).is_err() && holm(&[-0.1]).is_err());
    }

    #[test]
    fn what_has_no_test_keeps_its_place() {
        let found = holm_of_tested(&[Some(0.04), None, Some(0.01)]).unwrap();
        assert_eq!(found, [Some(0.04), None, Some(0.02)]);
    }

    /// R 4: `p.adjust(c(0.01, 0.04, 0.03, 0.005), "BH")`.
    #[test]
    fn the_step_up_correction_is_milder() {
        let corrected = benjamini_hochberg(&[0.01, 0.04, 0.03, 0.005]).unwrap();
        for (found, expected) in corrected.iter().zip([0.02, 0.04, 0.04, 0.02]) {
            assert!((found - expected).abs() < 1e-15, "{corrected:?}");
        }
        assert!(benjamini_hochberg(&[0.5, 1.1]).is_err() && benjamini_hochberg(&[]).unwrap().is_empty());
    }

    proptest! {
        /// Holm's definition, computed for each p-value by itself: the largest of `min(1, (number of p-values at or above q) q)`
        /// over all q up to it.
        #[test]
        fn the_correction_is_that_of_the_definition(p_values in prop::collection::vec(0.0..=1.0_f64, 0..12)) {
            let step = |q: f64| (p_values.iter().filter(|p| **p >= q).count() as f64 * q).min(1.0);
            for (p, found) in p_values.iter().zip(holm(&p_values).unwrap()) {
                let expected = p_values.iter().filter(|q| *q <= p).map(|q| step(*q)).fold(0.0, f64::max);
                prop_assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
            }
        }
    }
}
