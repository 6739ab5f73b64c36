//! Telemetry of a TEN: the length of its memory.

use super::network::Ten;
use crate::config::Resonance;
use crate::error::ModelError;
use crate::telemetry::distribution;

impl Ten {
    /// The distribution of |a| and of half-lives ln(1/2) / ln |a| in tokens, over all eigenstates. For a selective
    /// model these are the eigenvalues before the changes by tokens; at scale s a step is s tokens.
    ///
    /// # Errors
    /// If the device fails.
    pub fn telemetry(&self) -> Result<Vec<(String, f64)>, ModelError> {
        let (mut magnitudes, mut half_lives) = (Vec::new(), Vec::new());
        for level in &self.blocks {
            for (scale, block) in level.scaled() {
                for cell in &block.cells {
                    for ln in cell.magnitude.logarithms()? {
                        magnitudes.push(ln.exp());
                        half_lives.push(scale as f64 * 0.5_f64.ln() / ln);
                    }
                }
            }
        }
        let mut all = distribution("ten/magnitude", magnitudes);
        all.extend(distribution("ten/half_life", half_lives));
        if let Some(radius) = self.recurrent_radius()? {
            all.push(("ten/spectral_radius".into(), radius));
        }
        Ok(all)
    }

    /// The largest spectral radius of a cell's transition R diag(a), only for `resonance: recurrent`; NaN if a parameter is
    /// not finite. Above 1, states grow with every step: the recurrence is then unstable, whatever |a| is.
    ///
    /// # Errors
    /// If the device fails.
    pub fn recurrent_radius(&self) -> Result<Option<f64>, ModelError> {
        let mut largest: Option<f64> = None;
        for (_, block) in self.blocks.iter().flat_map(|level| level.scaled()) {
            for cell in &block.cells {
                let Some(r) = cell.resonance(Resonance::Recurrent)? else { continue };
                let (re, im) = cell.decay()?;
                let radius = spectral_radius(&r.to_f64_vec()?, &re.to_f64_vec()?, &im.to_f64_vec()?);
                let earlier = largest.unwrap_or(0.0);
                largest = Some(if radius.is_nan() || earlier.is_nan() { f64::NAN } else { radius.max(earlier) });
            }
        }
        Ok(largest)
    }
}

/// The maximum and minimum number of matrix-vector products of [`spectral_radius`].
const MOST_STEPS: usize = 2200;
const FEWEST_STEPS: usize = 60;
/// The maximum number of multiplications, unless [`FEWEST_STEPS`] needs more.
const LARGEST_EFFORT: usize = 200_000_000;

/// The spectral radius of R diag(a), with R real `[K, K]` and a complex `[K]`: the mean growth of the norm of a vector that is
/// repeatedly multiplied with it (power iteration). Several eigenvalues of equal magnitude make the norm oscillate, which the mean
/// over many steps averages out: the relative error is about one over the number of steps. The first tenth of the steps is
/// discarded.
fn spectral_radius(r: &[f64], re: &[f64], im: &[f64]) -> f64 {
    let states = re.len();
    // Without a symmetry that an eigenvector could have.
    let mut state: Vec<(f64, f64)> =
        (0..states).map(|k| (1.0 + (k as f64).sin(), (2.0 * k as f64 + 1.0).cos())).collect();
    let mut growth = 0.0;
    // Fewer steps for large matrices, so that an evaluation is not delayed by seconds.
    let steps = (LARGEST_EFFORT / (states * states).max(1)).clamp(FEWEST_STEPS, MOST_STEPS);
    let discarded = steps / 10;
    for step in 0..steps {
        let turned: Vec<(f64, f64)> =
            state.iter().zip(re.iter().zip(im)).map(|((x, y), (a, b))| (a * x - b * y, a * y + b * x)).collect();
        let row = |row: &[f64]| {
            let add =
                |(x, y): (f64, f64), (weight, part): (&f64, &(f64, f64))| (x + weight * part.0, y + weight * part.1);
            row.iter().zip(&turned).fold((0.0, 0.0), add)
        };
        state = r.chunks_exact(states.max(1)).map(row).collect();
        let norm = state.iter().map(|(x, y)| x * x + y * y).sum::<f64>().sqrt();
        if norm == 0.0 || !norm.is_finite() {
            return if norm == 0.0 { 0.0 } else { f64::NAN };
        }
        state.iter_mut().for_each(|(x, y)| (*x, *y) = (*x / norm, *y / norm));
        if step >= discarded {
            growth += norm.ln();
        }
    }
    (growth / (steps - discarded) as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spectral_radius_is_that_of_known_matrices() {
        let check = |r: &[f64], re: &[f64], im: &[f64], expected: f64| {
            let found = spectral_radius(r, re, im);
            assert!((found - expected).abs() < 2e-3 * expected.max(0.1), "{found} is not {expected}");
        };
        // The identity leaves the largest |a|.
        check(&[1.0, 0.0, 0.0, 1.0], &[0.5, 0.0], &[0.0, 0.9], 0.9);
        // Eigenvalues 3 and 1.
        check(&[2.0, 1.0, 1.0, 2.0], &[1.0, 1.0], &[0.0, 0.0], 3.0);
        // A rotation, with two eigenvalues of magnitude 1.
        check(&[0.6, -0.8, 0.8, 0.6], &[1.0, 1.0], &[0.0, 0.0], 1.0);
        // Far from normal: a norm of 10, and a radius of 0.5.
        check(&[1.0, 20.0, 0.0, 1.0], &[0.5, 0.5], &[0.0, 0.0], 0.5);
        assert_eq!(spectral_radius(&[0.0], &[1.0], &[0.0]), 0.0);
        assert!(spectral_radius(&[f64::NAN], &[1.0], &[0.0]).is_nan());
    }
}
