//! AdamW over all parameters of a model.

use std::collections::BTreeMap;

use assay_models::{Blueprint, Model, ModelError, Parameter, Weight};
use assay_tensor::{AdamW as Settings, Device, Tensor, Update, adamw_all, clip};

use super::config::AdamWConfig;
use crate::context::StepError;

/// The state of AdamW (Loshchilov and Hutter 2019, algorithm 2): two moments per parameter, in f32.
///
/// There are two groups of parameters: matrices and tables decay by `weight_decay`, and norms, biases and eigenvalues do
/// not. The model determines the group (`Role::decays`).
pub struct AdamW {
    config: AdamWConfig,
    updates: u64,
    moments: Moments,
}

/// By the parameter's name: the mean of its gradient, and of the square of its gradient.
pub type Moments = BTreeMap<String, (Tensor, Tensor)>;

impl AdamW {
    /// The initial state of the optimizer.
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

    /// The Euclidean norm of all gradients, and the factor that clips them: `[2]`, on their device. The norm is summed
    /// in f64 in a fixed order. This does not wait for the device.
    ///
    /// # Errors
    /// If there is no gradient, or the device fails.
    pub fn clip(&self, gradients: &BTreeMap<String, Tensor>) -> Result<Tensor, StepError> {
        let all: Vec<_> = gradients.values().collect();
        Ok(clip(&all, self.config.clip_norm).map_err(ModelError::from)?)
    }

    /// The settings of the next update, with learning rate `lr`.
    #[must_use]
    pub fn next(&self, lr: f64) -> Settings {
        let AdamWConfig { betas: [beta1, beta2], eps, weight_decay, .. } = self.config;
        Settings { step: self.updates + 1, lr, betas: (beta1, beta2), eps, weight_decay, grad_scale: 1.0 }
    }

    /// Updates a model with these settings, whose factors are also on the device; `clip` is the result of [`AdamW::clip`].
    /// A parameter without a gradient, since the loss does not depend on it, is not changed. The caller counts the update
    /// with [`AdamW::count`].
    ///
    /// # Errors
    /// If the device fails.
    pub fn update(
        &mut self,
        model: &mut Blueprint,
        gradients: &BTreeMap<String, Tensor>,
        (settings, factors): (Settings, &Tensor),
        clip: &Tensor,
    ) -> Result<(), StepError> {
        let mut moments: BTreeMap<&str, _> =
            self.moments.iter_mut().map(|(name, both)| (name.as_str(), both)).collect();
        let mut updates = Vec::with_capacity(gradients.len());
        for (name, parameter) in model.parameters_mut().iter_mut() {
            let Parameter { value: Weight::Dense(param), role } = parameter else { continue };
            let (Some(grad), Some((m, v))) = (gradients.get(name), moments.remove(name)) else { continue };
            updates.push(Update { param, grad, m, v, decays: role.decays() });
        }
        Ok(adamw_all(updates, settings, factors, clip).map_err(ModelError::from)?)
    }

    /// Counts an update.
    pub fn count(&mut self) {
        self.updates += 1;
    }

    /// The number of updates, and the moments.
    #[must_use]
    pub fn state(&self) -> (u64, &Moments) {
        (self.updates, &self.moments)
    }

    /// Restores a state. `moments` returns those of a parameter by its name, given its values; an invalid state is
    /// returned as an error message.
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
