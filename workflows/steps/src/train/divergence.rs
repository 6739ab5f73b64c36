//! Training divergence: what was not finite, and likely remedies.

use assay_models::{Model, ModelConfig, Resonance};

use super::config::{Config, OptimizerConfig};
use crate::context::{Context, StepError};

/// Observes the spectral radius of a model whose recurrence can be unstable: such a divergence does not depend on the
/// learning rate.
#[derive(Debug, Default)]
pub struct Stability {
    /// The last finite radius, and its step.
    radius: Option<(u64, f64)>,
    has_warned: bool,
}

impl Stability {
    /// Records the model after `step`. Warns once if its recurrence is unstable.
    ///
    /// # Errors
    /// If the device fails.
    pub fn observe(&mut self, step: u64, model: &Model, context: &mut dyn Context) -> Result<(), StepError> {
        let Some(radius) = model.recurrent_radius()?.filter(|radius| radius.is_finite()) else { return Ok(()) };
        self.radius = Some((step, radius));
        if radius > 1.0 && !self.has_warned {
            self.has_warned = true;
            context.warn(&format!(
                "after step {step} the recurrence has a spectral radius of {radius:.3}: above 1, states grow with every step of \
                 a sequence. Lower model.resonance_strength, or use `resonance: readout`"
            ));
        }
        Ok(())
    }

    /// The failure of a diverged training; `seen` states what was not finite, and where.
    #[must_use]
    pub fn diverged(&self, config: &Config, seen: &str) -> StepError {
        let OptimizerConfig::AdamW(adamw) = &config.optimizer;
        let optimizer = match adamw.clip_norm {
            None => "lower optimizer.lr, or give optimizer.clip_norm and optimizer.warmup_steps",
            Some(_) => "lower optimizer.lr or optimizer.clip_norm, or raise optimizer.warmup_steps",
        };
        let stable = "lower model.resonance_strength, or use `resonance: readout`, which cannot make states grow";
        let recurrent = matches!(config.model.config(), ModelConfig::Ten(ten) if ten.resonance == Resonance::Recurrent);
        let hint = match self.radius {
            Some((step, radius)) if recurrent && radius > 1.0 => format!(
                "`resonance: recurrent` makes the recurrence unstable: after step {step} its spectral radius was {radius:.3}, and \
                 above 1 states grow with every step of a sequence; {stable}"
            ),
            Some((step, radius)) if recurrent => format!(
                "{optimizer}; or the recurrence became unstable, as `resonance: recurrent` can: after step {step} its spectral \
                 radius was {radius:.3} (`ten/spectral_radius`), and above 1 states grow with every step of a sequence: {stable}"
            ),
            _ => optimizer.to_owned(),
        };
        StepError::Check { message: format!("training diverged: {seen}"), hint: Some(hint) }
    }
}
