//! AdamW over all parameters of a model.

use std::collections::BTreeMap;

use assay_models::{Model, ModelError, Parameter, Parameters, Weight};
use assay_tensor::{AdamW as Update, Gradients, Tensor, adamw};

use super::config::AdamWConfig;
use crate::context::StepError;

/// The state of AdamW (Loshchilov and Hutter 2019, algorithm 2): two moments a parameter, in f32.
pub struct AdamW {
    config: AdamWConfig,
    updates: u64,
    moments: BTreeMap<String, (Tensor, Tensor)>,
}

impl AdamW {
    /// The optimizer at its beginning, and the model with every parameter a leaf of the tape.
    ///
    /// # Errors
    /// [`StepError::Failed`] if the model is quantized, which cannot be trained.
    pub fn new(config: AdamWConfig, model: &Model) -> Result<(Self, Model), StepError> {
        let mut moments = BTreeMap::new();
        for (name, parameter) in model.parameters().iter() {
            let value = dense(name, parameter)?;
            let zeros = || Tensor::zeros(value.device(), value.dims(), value.dtype());
            moments.insert(name.to_string(), (zeros().map_err(ModelError::from)?, zeros().map_err(ModelError::from)?));
        }
        let leaves = model.parameters().map(|_, value| Ok(value.variable()))?;
        Ok((AdamW { config, updates: 0, moments }, model.with_parameters(&leaves)?))
    }

    /// The Euclidean norm of all gradients together, summed in f64 in the order of the names.
    ///
    /// # Errors
    /// If the device fails.
    pub fn norm(&self, model: &Model, gradients: &Gradients) -> Result<f64, StepError> {
        let mut sum = 0.0;
        for (name, parameter) in model.parameters().iter() {
            if let Some(gradient) = gradients.get(dense(name, parameter)?) {
                let values = gradient.to_f32_vec().map_err(ModelError::from)?;
                sum += values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
            }
        }
        Ok(sum.sqrt())
    }

    /// The model after an update with learning rate `lr`. `norm` is that of the gradients, for clipping.
    ///
    /// # Errors
    /// If the device fails.
    pub fn step(&mut self, model: &Model, gradients: &Gradients, norm: f64, lr: f64) -> Result<Model, StepError> {
        self.updates += 1;
        let clip = self.config.clip_norm.filter(|limit| norm > *limit).map_or(1.0, |limit| limit / norm);
        let mut parameters = Parameters::default();
        for (name, parameter) in model.parameters().iter() {
            let value = dense(name, parameter)?;
            // A parameter that the loss does not reach gets no gradient, and stays.
            let moments = self.moments.get_mut(name).zip(gradients.get(value));
            let value = match moments {
                None => value.clone(),
                Some(((m, v), gradient)) => {
                    let update = Update {
                        step: self.updates,
                        lr,
                        betas: (self.config.betas[0], self.config.betas[1]),
                        eps: self.config.eps,
                        weight_decay: if parameter.role.decays() { self.config.weight_decay } else { 0.0 },
                        grad_scale: clip,
                    };
                    let mut value = value.clone();
                    adamw(&mut value, gradient, m, v, update).map_err(ModelError::from)?;
                    value
                }
            };
            parameters.insert(name, Parameter { value: Weight::Dense(value), role: parameter.role });
        }
        Ok(model.with_parameters(&parameters)?)
    }
}

fn dense<'a>(name: &str, parameter: &'a Parameter) -> Result<&'a Tensor, StepError> {
    match &parameter.value {
        Weight::Dense(tensor) => Ok(tensor),
        Weight::Int8 { .. } => Err(StepError::failed(format!("`{name}` is int8, which cannot be trained"))),
    }
}
