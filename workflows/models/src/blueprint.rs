//! A model without its network: [`Blueprint`].

use assay_tensor::{DType, Device, Tensor};

use crate::config::{ModelConfig, Task};
use crate::error::ModelError;
use crate::model::Model;
use crate::parameters::{Parameters, Weight};
use crate::precision::Precision;

/// Everything from which a model is built.
///
/// Training changes parameters from step to step, and each pass builds its network from them. So it works on a blueprint:
/// no value that a network computes from its parameters when it is built outlives a change of them.
#[derive(Clone)]
pub struct Blueprint {
    pub(crate) config: ModelConfig,
    pub(crate) task: Task,
    pub(crate) device: Device,
    pub(crate) parameters: Parameters,
}

impl Blueprint {
    /// The config from the workflow file.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The task from the data.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its parameters by name.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Its parameters, mutable: they are changed in place if they have no other reference.
    pub fn parameters_mut(&mut self) -> &mut Parameters {
        &mut self.parameters
    }

    /// The model.
    ///
    /// # Errors
    /// As [`Model::from_parameters`].
    pub fn model(&self) -> Result<Model, ModelError> {
        Model::from_parameters(&self.device, &self.config, &self.task, &self.parameters)
    }

    /// The model with every parameter as a leaf of the tape, in this precision. Weights are rounded here, once for a whole pass.
    pub(crate) fn leaves(&self, precision: Precision) -> Result<Model, ModelError> {
        let leaf = |_: &str, value: &Tensor| Ok(if value.is_tracked() { value.clone() } else { value.variable() });
        for (name, parameter) in self.parameters.iter() {
            match &parameter.value {
                Weight::Dense(tensor) if precision != Precision::F32 && tensor.dtype() != DType::F32 => {
                    return Err(ModelError::parameter(name, "is not f32, which a change of precision needs"));
                }
                Weight::Dense(_) => {}
                Weight::Int8 { .. } => return Err(ModelError::parameter(name, "is int8, which cannot be trained")),
            }
        }
        Model::in_precision(self, &self.parameters.map(leaf)?, precision)
    }

    /// The type of computations: f64 or f32.
    pub(crate) fn dtype(&self) -> DType {
        let dense = |weight: &Weight| match weight {
            Weight::Dense(tensor) => Some(tensor.dtype()),
            Weight::Int8 { .. } => None,
        };
        self.parameters.iter().find_map(|(_, parameter)| dense(&parameter.value)).unwrap_or(DType::F32)
    }
}
