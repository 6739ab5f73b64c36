//! Statistics of a model's internal values during training: [`Model::telemetry`].

use crate::batch::Batch;
use crate::config::{AttentionKind, ModelConfig};
use crate::error::ModelError;
use crate::model::{Model, Network};

impl Model {
    /// Named statistics of the model's internal values, with the same names each time:
    ///
    /// | family | name | meaning |
    /// |---|---|---|
    /// | `ten` | `ten/magnitude/{min, p25, p50, p75, max}` | the distribution of \|a\| over all eigenstates |
    /// | `ten` | `ten/half_life/{min, p25, p50, p75, max}` | that of ln(1/2) / ln \|a\|, in tokens |
    /// | `ten` | `ten/spectral_radius` | with `resonance: recurrent`: the largest one of R diag(a); states grow if above 1 |
    /// | `pulse` | `pulse/slot_utilisation/{min, p25, p50, p75, max, std}` | that of a slot's mean routing mass |
    /// | `pulse` | `pulse/slot_utilisation/evenness` | the entropy of a block's shares over its largest value, 0 to 1 |
    /// | `pulse` | `pulse/routing_entropy` | the mean entropy of a token's routing weights, in nats |
    /// | `transformer` | `attention/density` | if sparse: the share of visible pairs of blocks that is computed |
    ///
    /// Statistics that need a forward pass are measured on `batch`, and omitted without one.
    ///
    /// # Errors
    /// If the device fails, or the model cannot read the batch.
    pub fn telemetry(&self, batch: Option<&Batch>) -> Result<Vec<(String, f64)>, ModelError> {
        match self.network() {
            Network::Ten(network) => network.telemetry(),
            Network::Pulse(network) => network.telemetry(batch),
            Network::Transformer(_) => Ok(density(self.config(), batch)),
        }
    }
}

impl Model {
    /// The largest spectral radius of the recurrences, if eigenstates are coupled at every step (`resonance: recurrent`
    /// of `ten`): states grow with every step if it is above 1. NaN if a parameter is not finite.
    ///
    /// # Errors
    /// If the device fails.
    pub fn recurrent_radius(&self) -> Result<Option<f64>, ModelError> {
        match self.network() {
            Network::Ten(network) => network.recurrent_radius(),
            Network::Pulse(_) | Network::Transformer(_) => Ok(None),
        }
    }
}

/// The realised density of sparse attention.
fn density(config: &ModelConfig, batch: Option<&Batch>) -> Vec<(String, f64)> {
    match (config, batch) {
        (ModelConfig::Transformer(config), Some(batch)) if config.attention == AttentionKind::Sparse => {
            vec![("attention/density".into(), config.sparsity.realised(batch.lengths()))]
        }
        _ => Vec::new(),
    }
}

/// The minimum, quartiles and maximum of `values`, as `PREFIX/min` to `PREFIX/max`; nothing if there are no values.
/// Quantiles between two values are interpolated linearly.
pub(crate) fn distribution(prefix: &str, mut values: Vec<f64>) -> Vec<(String, f64)> {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return Vec::new() };
    let quantile = |share: f64| {
        let at = share * last as f64;
        let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
        if low == high { low } else { low + (high - low) * at.fract() }
    };
    [("min", 0.0), ("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("max", 1.0)]
        .map(|(name, share)| (format!("{prefix}/{name}"), quantile(share)))
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_the_values() {
        let found: Vec<f64> = distribution("x", vec![4.0, 1.0, 2.0, 3.0]).into_iter().map(|(_, v)| v).collect();
        assert_eq!(found, [1.0, 1.75, 2.5, 3.25, 4.0]);
        assert_eq!(distribution("x", vec![f64::INFINITY; 2])[1], ("x/p25".to_string(), f64::INFINITY));
        assert!(distribution("x", Vec::new()).is_empty());
    }
}
