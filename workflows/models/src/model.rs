//! [`Model`]: a network with its head, its parameters, and the config and task that it was built for.

use assay_tensor::{DType, Device, Tensor};

use crate::batch::Batch;
use crate::blueprint::Blueprint;
use crate::carry::{Carry, SequenceModel};
use crate::config::{ModelConfig, Objective, Task};
use crate::error::ModelError;
use crate::head::Head;
use crate::layers::Embedding;
use crate::mode::Mode;
use crate::parameters::{Builder, Parameters, Scope};
use crate::precision::Precision;
use crate::pulse::Pulse;
use crate::ten::Ten;
use crate::transformer::Transformer;

/// The network below the head, by family.
#[derive(Clone)]
pub enum Network {
    /// See [`Ten`].
    Ten(Ten),
    /// See [`Pulse`].
    Pulse(Pulse),
    /// See [`Transformer`].
    Transformer(Transformer),
}

impl Network {
    fn build(scope: &mut Scope, config: &ModelConfig, task: &Task) -> Result<Self, ModelError> {
        let deviation = embedding_deviation(config, task);
        Ok(match config {
            ModelConfig::Ten(config) => Network::Ten(Ten::build(scope, config, task, deviation)?),
            ModelConfig::Pulse(config) => Network::Pulse(Pulse::build(scope, config, task, deviation)?),
            ModelConfig::Transformer(config) => {
                Network::Transformer(Transformer::build(scope, config, task, deviation)?)
            }
        })
    }

    /// The token embedding.
    #[must_use]
    pub fn embedding(&self) -> &Embedding {
        match self {
            Network::Ten(network) => &network.embedding,
            Network::Pulse(network) => &network.embedding,
            Network::Transformer(network) => &network.embedding,
        }
    }
}

impl SequenceModel for Network {
    fn run(&self, tokens: &Tensor, carry: &Carry, mode: &Mode) -> Result<(Tensor, Carry), ModelError> {
        match self {
            Network::Ten(network) => network.run(tokens, carry, mode),
            Network::Pulse(network) => network.run(tokens, carry, mode),
            Network::Transformer(network) => network.run(tokens, carry, mode),
        }
    }
}

/// The deviation of an initial embedding. A table that also serves as the output must give logits of about unit size.
fn embedding_deviation(config: &ModelConfig, task: &Task) -> f64 {
    let common = config.common();
    if common.tied && task.objective == Objective::Predict { 1.0 / (common.dim as f64).sqrt() } else { 1.0 }
}

/// A model, ready to run.
#[derive(Clone)]
pub struct Model {
    blueprint: Blueprint,
    network: Network,
    head: Head,
}

impl Model {
    /// A new model; the same seed gives the same bits.
    ///
    /// # Errors
    /// [`ModelError::Config`] if [`ModelConfig::validate`] finds a problem.
    pub fn fresh(
        device: &Device,
        config: &ModelConfig,
        task: &Task,
        seed: u64,
        dtype: DType,
    ) -> Result<Self, ModelError> {
        Self::build(device, config, task, Builder::fresh(device, seed, dtype))
    }

    /// The model with these parameters.
    ///
    /// # Errors
    /// [`ModelError::Parameter`] if one is missing, superfluous or has another shape.
    pub fn from_parameters(
        device: &Device,
        config: &ModelConfig,
        task: &Task,
        parameters: &Parameters,
    ) -> Result<Self, ModelError> {
        Self::build(device, config, task, Builder::stored(device, parameters))
    }

    /// The same model with other parameters, such as those after an optimizer step, or quantized ones.
    ///
    /// # Errors
    /// As [`Model::from_parameters`].
    pub fn with_parameters(&self, parameters: &Parameters) -> Result<Self, ModelError> {
        let Blueprint { config, task, device, .. } = &self.blueprint;
        Self::from_parameters(device, config, task, parameters)
    }

    /// The model of a blueprint with these parameters, in a precision. The stored parameters are not changed; those used in
    /// computations are rounded.
    ///
    /// # Errors
    /// As [`Model::from_parameters`].
    pub(crate) fn in_precision(
        blueprint: &Blueprint,
        parameters: &Parameters,
        precision: Precision,
    ) -> Result<Self, ModelError> {
        let Blueprint { config, task, device, .. } = blueprint;
        Self::build(device, config, task, Builder::stored(device, parameters).precision(precision))
    }

    /// Everything from which the model is built.
    #[must_use]
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// Everything from which the model is built, without its network.
    #[must_use]
    pub fn into_blueprint(self) -> Blueprint {
        self.blueprint
    }

    /// The same model detached from the tape: running it records nothing.
    ///
    /// # Errors
    /// As [`Model::from_parameters`].
    pub fn detached(&self) -> Result<Self, ModelError> {
        self.with_parameters(&self.parameters().map(|_, value| Ok(value.detach()))?)
    }

    fn build(device: &Device, config: &ModelConfig, task: &Task, mut builder: Builder) -> Result<Self, ModelError> {
        if let Some(finding) = config.validate().into_iter().next() {
            return Err(ModelError::Config(format!("{}: {}", finding.message, finding.hint)));
        }
        if task.objective == Objective::Predict && !config.causal() {
            return Err(ModelError::Config(
                "with `causal: false` a language model would see the tokens that it is to predict: leave it out".into(),
            ));
        }
        let mut scope = builder.root();
        let network = Network::build(&mut scope, config, task)?;
        let head = Head::build(&mut scope.child("head"), task, &config.common(), network.embedding())?;
        let parameters = builder.finish()?;
        let blueprint = Blueprint { config: config.clone(), task: task.clone(), device: device.clone(), parameters };
        Ok(Model { blueprint, network, head })
    }

    /// The config from the workflow file.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.blueprint.config
    }

    /// The task from the data.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.blueprint.task
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.blueprint.device
    }

    /// Its parameters by name.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.blueprint.parameters
    }

    /// The network below the head; it processes carries.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The head.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Logits of a batch from the start of each sequence: `[B, classes]` for a classifier, `[B / 2, classes]` for a classifier of pairs, `[B, T, V]` for a language
    /// model (those at padded positions are meaningless).
    ///
    /// # Errors
    /// See [`SequenceModel::run`].
    pub fn outputs(&self, batch: &Batch) -> Result<Tensor, ModelError> {
        self.head.forward(&self.hidden(batch, &Mode::Evaluate)?, batch)
    }
}
