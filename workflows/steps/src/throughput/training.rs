//! Training steps on random tokens: forward, backward, clipping, update.

use assay_models::{Batch, Blueprint, Model, ModelConfig, ModelError, Objective, Precision, Task};
use assay_statistics::Random;
use assay_tensor::{DType, Device};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::StepError;
use crate::profile::Profiler;
use crate::train::{AdamW, BatchOptions, OptimizerConfig, TrainBatch, Updater};

/// What to train, and on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// The model: a language model over the vocabulary.
    pub model: ModelConfig,
    /// The optimizer with its learning rate and schedule.
    pub optimizer: OptimizerConfig,
    /// Number of token ids.
    pub vocabulary: usize,
    /// Sequences a step.
    pub batch: usize,
    /// Tokens of each sequence.
    pub length: usize,
    /// What the forward pass multiplies and keeps.
    #[serde(default)]
    pub precision: Precision,
    /// Of the parameters and of the tokens.
    pub seed: u64,
    /// Compute threads. The device is made by the caller, who reads it here.
    pub threads: usize,
}

/// A language model that is trained on one batch of random tokens.
pub struct Training {
    model: Blueprint,
    updater: Updater,
    steps: u64,
    rate: f64,
    precision: Precision,
    sequences: Vec<Vec<u32>>,
    batch: Batch,
}

impl Training {
    /// A new model on `device`.
    ///
    /// # Errors
    /// [`StepError::Failed`] if the model's config is invalid, or the device is out of memory.
    pub fn new(device: &Device, setup: &Setup) -> Result<Self, StepError> {
        let mut random = Random::new(setup.seed);
        let mut sequence = || (0..setup.length).map(|_| random.below(setup.vocabulary) as u32).collect();
        let sequences: Vec<Vec<u32>> = (0..setup.batch).map(|_| sequence()).collect();
        let rows: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
        let batch = Batch::new(device, &rows)?;
        let task = Task { vocabulary: setup.vocabulary, max_length: setup.length, objective: Objective::Predict };
        let model = Model::fresh(device, &setup.model, &task, setup.seed, DType::F32)?;
        let OptimizerConfig::AdamW(config) = &setup.optimizer;
        let rate = config.lr;
        let updater = Updater::new(AdamW::new(config.clone(), &model)?, device);
        let precision = setup.precision;
        Ok(Training { model: model.into_blueprint(), updater, steps: 0, rate, precision, sequences, batch })
    }

    /// The current model.
    ///
    /// # Errors
    /// If the device fails.
    pub fn model(&self) -> Result<Model, StepError> {
        Ok(self.model.model()?)
    }

    /// The training sequences.
    #[must_use]
    pub fn sequences(&self) -> &[Vec<u32>] {
        &self.sequences
    }

    /// Tokens per step.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.batch.token_count()
    }

    /// The loss and its gradient norm before a step; nothing is changed.
    ///
    /// # Errors
    /// If the device fails.
    pub fn gradient_norm(&self) -> Result<(f64, f64), StepError> {
        let options = assay_models::Training { precision: self.precision, ..assay_models::Training::default() };
        let pass = self.model()?.learn(&self.batch, &[], &options)?;
        let clip = self.updater.optimizer().clip(&pass.gradients)?.to_f64_vec().map_err(ModelError::from)?;
        Ok((pass.loss, clip.first().copied().unwrap_or(f64::NAN)))
    }

    /// One step; returns the loss before it.
    ///
    /// # Errors
    /// If the device fails.
    pub fn step(&mut self) -> Result<f64, StepError> {
        self.steps += 1;
        let options =
            BatchOptions { micro_batches: 1, label_smoothing: 0.0, dropout: self.steps, precision: self.precision };
        let rows: Vec<&[u32]> = self.sequences.iter().map(Vec::as_slice).collect();
        let train_batch = TrainBatch::from_sequences(&self.model, &rows, &[], &options)?;
        let (rate, profiler) = (self.rate, &mut Profiler::off());
        Ok(self.updater.update(&mut self.model, train_batch, rate, profiler, || true)?.loss)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn random_tokens_are_learned_by_heart() {
        let setup: Setup = serde_json::from_value(json!({
            "model": {"family": "ten", "dim": 16, "layers": 1, "states": 8},
            "optimizer": {"name": "adamw", "lr": 1e-2, "clip_norm": 1.0},
            "vocabulary": 5, "batch": 2, "length": 6, "seed": 3, "threads": 1,
        }))
        .unwrap();
        let mut training = Training::new(&assay_cpu::device(1).unwrap(), &setup).unwrap();
        let (first, norm) = training.gradient_norm().unwrap();
        assert!(norm > 0.0 && (first - 5_f64.ln()).abs() < 1.0, "{first}");
        assert_eq!(training.step().unwrap(), first);
        let losses: Vec<f64> = (0..60).map(|_| training.step().unwrap()).collect();
        assert!(losses[59] < 0.5 * first, "{losses:?}");
    }
}
