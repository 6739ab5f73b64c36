//! AdamW over all parameters of a model.

use std::collections::BTreeMap;

use assay_models::{Model, ModelError, Parameter, Weight};
use assay_tensor::{AdamW as Update, Device, Tensor, adamw};

use super::config::AdamWConfig;
use crate::context::StepError;

/// The state of AdamW (Loshchilov and Hutter 2019, algorithm 2): two moments a parameter, in f32.
///
/// There are two groups of parameters: matrices and tables decay by `weight_decay`, and norms, biases and eigenvalues do
/// not. Which is which, the model says (`Role::decays`).
pub struct AdamW {
    config: AdamWConfig,
    updates: u64,
    moments: Moments,
}

/// By the parameter's name: the mean of its gradient, and of the square of its gradient.
pub type Moments = BTreeMap<String, (Tensor, Tensor)>;

impl AdamW {
    /// The optimizer at its beginning.
    ///
    /// # Errors
    /// [`StepError::Failed`] if the model is quantized, which cannot be trained.
    pub fn new(config: AdamWConfig, model: &Model) -> Result<Self, StepError> {
        let mut moments = BTreeMap::new();
        for (name, parameter) in model.parameters().iter() {
            let value = dense(name, parameter)?;
            let zeros = || Tensor::zeros(value.device(), value.dims(), value.dtype());
            moments.insert(name.to_string(), (zeros().map_err(ModelError::from)?, zeros().map_err(ModelError::from)?));
        }
        Ok(AdamW { config, updates: 0, moments })
    }

    /// The Euclidean norm of all gradients together, summed in f64 in a fixed order.
    ///
    /// # Errors
    /// If the device fails.
    pub fn norm(&self, gradients: &BTreeMap<String, Tensor>) -> Result<f64, StepError> {
        let mut sum = 0.0;
        for gradient in gradients.values() {
            sum += sum_of_squares(&gradient.to_f32_vec().map_err(ModelError::from)?);
        }
        Ok(sum.sqrt())
    }

    /// The model after an update with learning rate `lr`. `norm` is that of the gradients, for clipping. A parameter
    /// without a gradient, since the loss does not depend on it, stays as it is.
    ///
    /// # Errors
    /// If the device fails.
    pub fn step(
        &mut self,
        model: Model,
        gradients: &BTreeMap<String, Tensor>,
        norm: f64,
        lr: f64,
    ) -> Result<Model, StepError> {
        self.updates += 1;
        let clip = self.config.clip_norm.filter(|limit| norm > *limit).map_or(1.0, |limit| limit / norm);
        model.updated(|parameters| {
            for (name, gradient) in gradients {
                let Some((m, v)) = self.moments.get_mut(name) else { continue };
                let Some(Parameter { value: Weight::Dense(value), role }) = parameters.get_mut(name) else { continue };
                let update = Update {
                    step: self.updates,
                    lr,
                    betas: (self.config.betas[0], self.config.betas[1]),
                    eps: self.config.eps,
                    weight_decay: if role.decays() { self.config.weight_decay } else { 0.0 },
                    grad_scale: clip,
                };
                adamw(value, gradient, m, v, update).map_err(ModelError::from)?;
            }
            Ok(())
        })
    }

    /// How many updates there were, and the moments.
    #[must_use]
    pub fn state(&self) -> (u64, &Moments) {
        (self.updates, &self.moments)
    }

    /// Goes to where another one was. `moments` yields those of a parameter as its values, by its name; what is wrong with
    /// them is the answer.
    pub fn restore(
        &mut self,
        device: &Device,
        updates: u64,
        mut moments: impl FnMut(&str, &[usize]) -> Result<[Vec<f32>; 2], String>,
    ) -> Result<(), String> {
        for (name, (m, v)) in &mut self.moments {
            let dims = m.dims().to_vec();
            let [first, second] = moments(name, &dims)?;
            let tensor = |values| Tensor::from_f32(device, values, dims.as_slice()).map_err(|error| error.to_string());
            (*m, *v) = (tensor(first)?, tensor(second)?);
        }
        self.updates = updates;
        Ok(())
    }
}

/// The parameter's values, which must be floats.
///
/// # Errors
/// [`StepError::Failed`] if it is int8.
pub fn dense<'a>(name: &str, parameter: &'a Parameter) -> Result<&'a Tensor, StepError> {
    match &parameter.value {
        Weight::Dense(tensor) => Ok(tensor),
        Weight::Int8 { .. } => Err(StepError::failed(format!("`{name}` is int8, which cannot be trained"))),
    }
}

/// The sum of the squares, in f64. One sum would wait for each addition; eight that are added in the end need not.
fn sum_of_squares(values: &[f32]) -> f64 {
    let square = |value: f32| f64::from(value) * f64::from(value);
    let (eights, rest) = values.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for eight in eights {
        for (sum, value) in sums.iter_mut().zip(eight) {
            *sum += square(*value);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|value| square(*value)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_counts_in_the_norm() {
        for length in [0, 1, 7, 8, 9, 40, 1003] {
            let values: Vec<f32> = (0..length).map(|at| at as f32 - 3.0).collect();
            let plain: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
            assert!((sum_of_squares(&values) - plain).abs() <= 1e-9 * plain, "{length}");
        }
    }
}
