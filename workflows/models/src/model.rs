//! [`Model`]: a network with its head, its parameters, and the config and task that it was built for.

use assay_tensor::{DType, Device, Tensor};

use crate::batch::Batch;
use crate::carry::{Carry, SequenceModel};
use crate::config::{ModelConfig, Objective, Task};
use crate::error::ModelError;
use crate::head::Head;
use crate::layers::Embedding;
use crate::parameters::{Builder, Parameters, Scope};
use crate::ten::Ten;
use crate::transformer::Transformer;

/// The network below the head, by family.
#[derive(Clone)]
pub enum Network {
    /// See [`Ten`].
    Ten(Ten),
    /// See [`Transformer`].
    Transformer(Transformer),
}

impl Network {
    fn build(scope: &mut Scope, config: &ModelConfig, task: &Task) -> Result<Self, ModelError> {
        let deviation = embedding_deviation(config, task);
        Ok(match config {
            ModelConfig::Ten(config) => Network::Ten(Ten::build(scope, config, task, deviation)?),
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
            Network::Transformer(network) => &network.embedding,
        }
    }
}

impl SequenceModel for Network {
    fn forward(&self, tokens: &Tensor, carry: &Carry) -> Result<(Tensor, Carry), ModelError> {
        match self {
            Network::Ten(network) => network.forward(tokens, carry),
            Network::Transformer(network) => network.forward(tokens, carry),
        }
    }
}

/// The deviation of a fresh embedding. A table that also reads out must give logits of about unit size.
fn embedding_deviation(config: &ModelConfig, task: &Task) -> f64 {
    let dim = match config {
        ModelConfig::Ten(config) => config.dim,
        ModelConfig::Transformer(config) => config.dim,
    };
    if config.tied() && task.objective == Objective::Predict { 1.0 / (dim as f64).sqrt() } else { 1.0 }
}

/// A model, ready to run.
#[derive(Clone)]
pub struct Model {
    config: ModelConfig,
    task: Task,
    device: Device,
    parameters: Parameters,
    network: Network,
    head: Head,
}

/// How well a batch was predicted.
pub struct Score {
    /// The mean cross entropy in nats, a scalar on the tape.
    pub loss: Tensor,
    /// How many predictions were right.
    pub correct: usize,
    /// How many predictions were made: sequences of a classifier, tokens of a language model.
    pub count: usize,
}

impl Model {
    /// A fresh model; the same seed gives the same bits.
    ///
    /// # Errors
    /// [`ModelError::Config`] if [`ModelConfig::validate`] finds anything.
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
    /// [`ModelError::Parameter`] if one is missing, superfluous or of another shape.
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
        Self::from_parameters(&self.device, &self.config, &self.task, parameters)
    }

    /// The same model off the tape: running it records nothing.
    ///
    /// # Errors
    /// As [`Model::from_parameters`].
    pub fn detached(&self) -> Result<Self, ModelError> {
        self.with_parameters(&self.parameters.map(|_, value| Ok(value.detach()))?)
    }

    fn build(device: &Device, config: &ModelConfig, task: &Task, mut builder: Builder) -> Result<Self, ModelError> {
        if let Some(finding) = config.validate().into_iter().next() {
            return Err(ModelError::Config(format!("{}: {}", finding.message, finding.hint)));
        }
        let mut scope = builder.root();
        let network = Network::build(&mut scope, config, task)?;
        let head = Head::build(&mut scope.child("head"), task, config.pool(), config.tied(), network.embedding())?;
        let parameters = builder.finish()?;
        Ok(Model { config: config.clone(), task: task.clone(), device: device.clone(), parameters, network, head })
    }

    /// What a workflow file said of it.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// What the data said of it.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// Where it computes.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its parameters by name.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The network below the head; carries go through here.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The head.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Logits of a batch from the beginning of each sequence: `[B, classes]` of a classifier, `[B, T, V]` of a
    /// language model (those at padded places mean nothing).
    ///
    /// # Errors
    /// See [`SequenceModel::forward`].
    pub fn outputs(&self, batch: &Batch) -> Result<Tensor, ModelError> {
        let (hidden, _) = self.network.forward(batch.tokens(), &Carry::default())?;
        self.head.forward(&hidden, batch)
    }

    /// Scores a batch. `labels` has one class a sequence for a classifier and is empty for a language model, whose
    /// targets are the batch's own tokens, one ahead.
    ///
    /// # Errors
    /// [`ModelError::Input`] if the labels do not fit, or no token has a next one.
    pub fn score(&self, batch: &Batch, labels: &[u32]) -> Result<Score, ModelError> {
        let logits = self.outputs(batch)?;
        let targets = match self.task.objective {
            Objective::Classify(classes) => class_targets(batch, labels, classes)?,
            Objective::Predict => next_tokens(batch)?,
        };
        let width = *logits.dims().last().unwrap_or(&1);
        let rows = logits.reshape([targets.len(), width])?;
        let count = targets.iter().flatten().count();
        if count == 0 {
            return Err(ModelError::Input("nothing to predict: no sequence has a second token".into()));
        }
        let ids: Vec<u32> = targets.iter().map(|target| target.unwrap_or(0)).collect();
        let losses = rows.cross_entropy(&Tensor::from_u32(&self.device, ids, [targets.len()])?, 0.0)?;
        let weight = |target: &Option<u32>| if target.is_some() { 1.0 / count as f64 } else { 0.0 };
        let weights = targets.iter().map(weight).collect();
        let weights = crate::parameters::constant(&self.device, rows.dtype(), weights, &[targets.len()])?;
        let loss = losses.mul(&weights)?.sum(&[0], false)?;
        Ok(Score { loss, correct: correct(&rows, &targets)?, count })
    }
}

fn class_targets(batch: &Batch, labels: &[u32], classes: usize) -> Result<Vec<Option<u32>>, ModelError> {
    if labels.len() != batch.lengths().len() {
        let message = format!("{} labels for {} sequences", labels.len(), batch.lengths().len());
        return Err(ModelError::Input(message));
    }
    if let Some(label) = labels.iter().find(|label| **label as usize >= classes) {
        return Err(ModelError::Input(format!("label {label} is outside the {classes} classes")));
    }
    Ok(labels.iter().copied().map(Some).collect())
}

/// For each place of `[B, T]` the token that comes next; none at the last place and in the padding.
fn next_tokens(batch: &Batch) -> Result<Vec<Option<u32>>, ModelError> {
    let tokens = batch.tokens().to_u32_vec()?;
    let padded = batch.tokens().dims()[1];
    let next = |(place, _): (usize, &u32)| {
        let (row, t) = (place / padded, place % padded);
        (t + 1 < batch.lengths()[row]).then(|| tokens[place + 1])
    };
    Ok(tokens.iter().enumerate().map(next).collect())
}

/// How many rows of logits are largest at their target; a tie goes to the lower index.
fn correct(rows: &Tensor, targets: &[Option<u32>]) -> Result<usize, ModelError> {
    let width = *rows.dims().last().unwrap_or(&1);
    let values = rows.to_f64_vec()?;
    let right = |(row, target): (&[f64], &Option<u32>)| {
        let mut best = 0;
        for (index, value) in row.iter().enumerate() {
            if *value > row[best] {
                best = index;
            }
        }
        *target == Some(best as u32)
    };
    Ok(values.chunks_exact(width).zip(targets).filter(|pair| right(*pair)).count())
}
