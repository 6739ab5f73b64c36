//! What is worth watching inside a TEN: how long it remembers.

use super::network::Ten;
use crate::error::ModelError;
use crate::telemetry::distribution;

impl Ten {
    /// The distribution of |a| and of half-lives ln(1/2) / ln |a| in tokens, over all eigenstates. Of a selective model
    /// it is that of the eigenvalues from which the tokens move them; at scale s a step is s tokens.
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
        Ok(all)
    }
}
