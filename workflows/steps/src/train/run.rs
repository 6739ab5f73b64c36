//! The training loop: batch, loss, gradient, update, and what is reported on the way.

use std::time::Instant;

use assay_models::Model;

use super::config::{Config, OptimizerConfig};
use super::curriculum::Curriculum;
use super::optimizer::AdamW;
use super::schedule::learning_rate;
use crate::context::{Context, StepError};
use crate::dataset::{Dataset, Split};
use crate::random::seed_for;
use crate::scoring::{SplitScore, gather, score_split};

/// A training under way.
pub struct Trainer<'a> {
    config: &'a Config,
    dataset: &'a Dataset,
    model: Model,
    optimizer: AdamW,
    curriculum: Curriculum,
    window: Window,
}

/// Sums over the steps since the last report.
struct Window {
    since: Instant,
    steps: u64,
    loss: f64,
    norm: f64,
    correct: usize,
    count: usize,
    tokens: usize,
}

impl Window {
    fn new() -> Self {
        Window { since: Instant::now(), steps: 0, loss: 0.0, norm: 0.0, correct: 0, count: 0, tokens: 0 }
    }
}

impl<'a> Trainer<'a> {
    /// # Errors
    /// [`StepError::Failed`] if a stage of the curriculum has no sample.
    pub fn new(
        config: &'a Config,
        model: Model,
        dataset: &'a Dataset,
        context: &dyn Context,
    ) -> Result<Self, StepError> {
        let seed = seed_for(config.seed, context.replicate(), "samples");
        let curriculum = Curriculum::new(&config.curriculum, &dataset.train, config.batch_size, seed)?;
        let OptimizerConfig::AdamW(adamw) = &config.optimizer;
        let (optimizer, model) = AdamW::new(adamw.clone(), &model)?;
        Ok(Trainer { config, dataset, model, optimizer, curriculum, window: Window::new() })
    }

    /// Runs every step.
    ///
    /// # Errors
    /// [`StepError::Check`] if the loss or the gradient is no longer finite; [`StepError::Cancelled`] if asked to stop.
    pub fn run(&mut self, context: &mut dyn Context) -> Result<(), StepError> {
        let steps = self.config.steps();
        let mut stage = None;
        for step in 1..=steps {
            if context.cancelled() {
                return Err(StepError::Cancelled);
            }
            let indices = self.curriculum.batch(step);
            if stage.replace(self.curriculum.stage()) != Some(self.curriculum.stage()) {
                self.announce_stage(step, context);
            }
            let loss = self.step(step, &indices, context)?;
            context.progress(step, Some(steps), "steps", &format!("loss {loss:.2}"));
            if step % self.config.log_every == 0 || step == steps {
                self.report(step, context);
            }
            if step % self.config.eval_every == 0 || step == steps {
                self.validate(step, context)?;
            }
        }
        Ok(())
    }

    /// The model as it is now, off the tape.
    ///
    /// # Errors
    /// None in practice: it has the parameters that it had.
    pub fn into_model(self) -> Result<Model, StepError> {
        Ok(self.model.detached()?)
    }

    /// One update; returns the loss before it.
    fn step(&mut self, step: u64, indices: &[usize], context: &mut dyn Context) -> Result<f64, StepError> {
        let (batch, labels) = gather(&self.model, &self.dataset.train, indices)?;
        let score = self.model.score(&batch, &labels)?;
        let loss = score.loss.item().map_err(assay_models::ModelError::from)?;
        self.check_finite("loss", loss, step, context)?;
        let gradients = score.loss.backward().map_err(assay_models::ModelError::from)?;
        let norm = self.optimizer.norm(&self.model, &gradients)?;
        self.check_finite("gradient norm", norm, step, context)?;
        let OptimizerConfig::AdamW(adamw) = &self.config.optimizer;
        let rate = learning_rate(adamw, step, self.config.steps());
        self.model = self.optimizer.step(&self.model, &gradients, norm, rate)?;
        let window = &mut self.window;
        window.steps += 1;
        window.loss += loss;
        window.norm += norm;
        window.correct += score.correct;
        window.count += score.count;
        window.tokens += batch.token_count();
        Ok(loss)
    }

    /// A training that diverged never recovers: its numbers would look like a result.
    fn check_finite(&self, what: &str, value: f64, step: u64, context: &mut dyn Context) -> Result<(), StepError> {
        if value.is_finite() {
            return Ok(());
        }
        if what == "loss" {
            context.metric("train/loss", step, value);
        }
        Err(StepError::Check {
            message: format!("training diverged: the {what} is {value} at step {step} of {}", self.config.steps()),
            hint: Some("lower optimizer.lr, or give optimizer.clip_norm and optimizer.warmup_steps".into()),
        })
    }

    fn announce_stage(&self, step: u64, context: &mut dyn Context) {
        let stage = self.curriculum.stage();
        context.metric("train/stage", step, stage as f64);
        if let Some(limits) = self.config.curriculum.get(stage) {
            context.log(&format!(
                "stage {stage}, steps {step} to {}: {} sequences of up to {} tokens",
                limits.until_step,
                self.curriculum.eligible(),
                limits.max_length
            ));
        }
    }

    /// Reports the means since the last report.
    fn report(&mut self, step: u64, context: &mut dyn Context) {
        let window = std::mem::replace(&mut self.window, Window::new());
        let steps = window.steps.max(1) as f64;
        let OptimizerConfig::AdamW(adamw) = &self.config.optimizer;
        context.metric("train/loss", step, window.loss / steps);
        context.metric("train/accuracy", step, window.correct as f64 / window.count.max(1) as f64);
        context.metric("train/gradient_norm", step, window.norm / steps);
        context.metric("train/learning_rate", step, learning_rate(adamw, step, self.config.steps()));
        let seconds = window.since.elapsed().as_secs_f64().max(1e-9);
        context.metric("train/tokens_per_second", step, window.tokens as f64 / seconds);
    }

    fn validate(&mut self, step: u64, context: &mut dyn Context) -> Result<(), StepError> {
        let began = Instant::now();
        let valid = score(&self.model.detached()?, &self.dataset.valid, self.config, context)?;
        context.metric("valid/loss", step, valid.loss);
        context.metric("valid/accuracy", step, valid.accuracy);
        context.log(&format!("step {step}: valid loss {:.3}, accuracy {:.1} %", valid.loss, 100.0 * valid.accuracy));
        // The throughput is that of training alone.
        self.window.since += began.elapsed();
        Ok(())
    }
}

/// Scores a split with the model as it is.
///
/// # Errors
/// If the model cannot read the split, or [`StepError::Cancelled`].
pub fn score(model: &Model, split: &Split, config: &Config, context: &dyn Context) -> Result<SplitScore, StepError> {
    score_split(model, split, config.batch_size, || context.cancelled())
}
