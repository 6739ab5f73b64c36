//! The training loop: batch, loss, gradient, update, reports and checkpoints.

use std::time::{Duration, Instant};

use assay_models::{Batch, Blueprint, Model};
use serde_json::json;

use super::config::{Config, Keep, OptimizerConfig};
use super::curriculum::Curriculum;
use super::divergence::Stability;
use super::gradient::{BatchOptions, TrainBatch};
use super::keeper::{Keeper, refuse};
use super::monitor::Monitor;
use super::optimizer::AdamW;
use super::paced::PacedCurriculum;
use super::reports::Reports;
use super::schedule::learning_rate;
use super::stages::CurriculumConfig;
use super::state::{self, Place, Window};
use super::update::{Outcome, Updater};
use crate::context::{Context, StepError};
use crate::dataset::{Dataset, Units};
use crate::memory::peak_bytes;
use crate::plugin::report_plugins;
use crate::plugin_metric::PluginMetric;
use crate::profile::Profiler;
use crate::random::{mix, seed_for};
use crate::scoring::{SplitScore, gather, score_groups};

/// The number of profiled steps of an attempt; further steps would add no information.
const PROFILED_STEPS: u64 = 100;
/// The metric that counts the tokens trained on; curves can be drawn by it.
const TOKENS: &str = "train/tokens";
/// A larger state, in values, is not saved when a training is stopped, since stopping must be fast.
const QUICKLY_SAVED: usize = 1 << 25;

/// A training in progress, without the model: an update changes its parameters in place, unless they have other
/// references.
pub struct Trainer<'a> {
    config: &'a Config,
    dataset: &'a Dataset,
    updater: Updater,
    curriculum: Curriculum,
    /// The plugin of the curriculum, if it has one.
    paced: Option<PacedCurriculum>,
    metrics: Vec<PluginMetric>,
    /// Steps done.
    step: u64,
    /// Whether the validation after that step is still to be done.
    unvalidated: bool,
    /// The results of evaluations.
    monitor: Monitor,
    stability: Stability,
    window: Window,
    /// When the steps of the window started, as if only steps had run since.
    since: Instant,
    reports: Reports,
    keeper: Keeper,
    identity: String,
    /// The seed of all dropout masks.
    dropout: u64,
    profiler: Profiler,
}

impl<'a> Trainer<'a> {
    /// A training at its start.
    ///
    /// # Errors
    /// [`StepError::Failed`] if a stage of the curriculum has no sample, or one that exceeds a batch; if a plugin fails.
    pub fn new(
        config: &'a Config,
        model: &Model,
        dataset: &'a Dataset,
        context: &mut dyn Context,
    ) -> Result<Self, StepError> {
        let replicate = context.replicate();
        let seed = |purpose| seed_for(config.seed, replicate, purpose);
        let curriculum = Curriculum::new(
            config.stages(),
            &dataset.train,
            (config.batching(), config.shuffle_window),
            seed("samples"),
        )?;
        let paced = match &config.curriculum {
            CurriculumConfig::Stages(_) => None,
            CurriculumConfig::Plugin(plugin) => {
                Some(PacedCurriculum::open(plugin, dataset.train.lengths(), seed("curriculum"), context)?)
            }
        };
        let metrics = PluginMetric::start_all(&config.metrics, context)?;
        let used = metrics.iter().map(PluginMetric::used).chain(paced.as_ref().map(PacedCurriculum::used));
        report_plugins(used, context);
        let OptimizerConfig::AdamW(adamw) = &config.optimizer;
        Ok(Trainer {
            config,
            dataset,
            updater: Updater::new(AdamW::new(adamw.clone(), model)?, context.device()),
            curriculum,
            paced,
            metrics,
            step: 0,
            unvalidated: false,
            monitor: Monitor::new(config),
            stability: Stability::default(),
            window: Window::default(),
            since: Instant::now(),
            reports: Reports::default(),
            keeper: Keeper::new(config.checkpoints, context),
            identity: identify_training(config, context),
            dropout: seed("dropout"),
            profiler: if config.profile { Profiler::on() } else { Profiler::off() },
        })
    }

    /// Restores the last state that an earlier attempt at this training saved, if it exists, and reports again what that attempt had
    /// reported. A state that cannot be used is ignored, with a line in the log. Returns the model to continue with.
    ///
    /// # Errors
    /// If the device fails.
    pub fn resume(&mut self, model: Model, context: &mut dyn Context) -> Result<Model, StepError> {
        let Some(file) = self.keeper.find(context) else { return Ok(model) };
        let OptimizerConfig::AdamW(adamw) = &self.config.optimizer;
        let mut optimizer = AdamW::new(adamw.clone(), &model)?;
        let found = state::read(&file, &self.identity, &model, &mut optimizer);
        let found = found.and_then(|(there, place)| {
            match (&mut self.paced, place.paced) {
                (Some(paced), Some(there)) => {
                    self.curriculum.restore_stages(place.sampler, there.stages.clone())?;
                    paced.restore(there);
                }
                (None, None) => self.curriculum.restore(place.sampler)?,
                (Some(_), None) | (None, Some(_)) => return Err("its curriculum is of a different kind".into()),
            }
            self.monitor.restore(place.evaluations);
            Ok((there, (place.step, place.unvalidated), place.window, place.reports))
        });
        match found {
            Err(why) => {
                refuse(&why, context);
                Ok(model)
            }
            Ok((there, (step, unvalidated), window, reports)) => {
                reports.replay(context);
                context.log(&format!("resuming from the checkpoint at step {step}"));
                self.updater = Updater::new(optimizer, context.device());
                (self.step, self.unvalidated) = (step, unvalidated);
                (self.window, self.reports) = (window, reports);
                self.keeper.went_on_from(step);
                Ok(there)
            }
        }
    }

    /// Runs the remaining steps; returns the final model and the step of its parameters.
    ///
    /// # Errors
    /// [`StepError::Check`] if the loss or the gradient is no longer finite; [`StepError::Cancelled`] if the step must stop.
    pub fn run(&mut self, model: Model, context: &mut dyn Context) -> Result<(Model, u64), StepError> {
        self.stability.observe(self.step, &model, context)?;
        let mut model = model.into_blueprint();
        let steps = self.config.steps();
        let last = self.step.saturating_add(PROFILED_STEPS);
        let mut stage = (self.step > 0).then(|| self.curriculum.stage());
        let before = Duration::try_from_secs_f64(self.window.seconds).unwrap_or_default();
        self.since = Instant::now().checked_sub(before).unwrap_or(self.since);
        loop {
            if let Err(error) = self.between_steps(&model, context) {
                if error == StepError::Cancelled {
                    self.save_before_the_end(&model, context)?;
                }
                return Err(error);
            }
            if self.is_finished() {
                return self.monitor.finish(model.model()?, (self.step, steps), context);
            }
            let step = self.step + 1;
            if step > last {
                self.profiler.stop();
            }
            if let Some(paced) = &mut self.paced
                && let Some(stage) = paced.next_stage(step, context)?
            {
                self.curriculum.add_stage(stage)?;
            }
            let indices = self.curriculum.batch(step);
            if stage.replace(self.curriculum.stage()) != Some(self.curriculum.stage()) {
                self.announce_stage(step, context);
            }
            let loss = self.run_step(step, &mut model, &indices, context)?;
            self.step = step;
            context.progress(step, Some(steps), "steps", &format!("loss {loss:.2}"));
            if step.is_multiple_of(self.config.log_every) || step == steps {
                self.report_window(context);
            }
            self.unvalidated = step.is_multiple_of(self.config.eval_every) || step == steps;
        }
    }

    /// The work between two steps; if it is cancelled, the state is that between the steps.
    fn between_steps(&mut self, model: &Blueprint, context: &mut dyn Context) -> Result<(), StepError> {
        if self.unvalidated {
            self.evaluate_model(&model.model()?, context)?;
            self.unvalidated = false;
        }
        if self.is_finished() {
            return Ok(());
        }
        if self.keeper.is_due(self.step) {
            self.save_checkpoint(model, context)?;
        }
        if context.cancelled() { Err(StepError::Cancelled) } else { Ok(()) }
    }

    /// Whether no step remains: the curriculum has ended, or early stopping has ended the training.
    fn is_finished(&self) -> bool {
        self.step >= self.config.steps() || self.monitor.has_stopped()
    }

    /// The failure of this training if it diverged.
    #[must_use]
    pub fn diverged(&self, seen: &str) -> StepError {
        self.stability.diverged(self.config, seen)
    }

    /// The timers of the training.
    #[must_use]
    pub fn profiler(&self) -> &Profiler {
        &self.profiler
    }

    /// One update; returns the loss before it.
    fn run_step(
        &mut self,
        step: u64,
        model: &mut Blueprint,
        indices: &[usize],
        context: &mut dyn Context,
    ) -> Result<f64, StepError> {
        let whole = self.profiler.begin();
        let options = BatchOptions {
            micro_batches: self.config.accumulate,
            label_smoothing: self.config.label_smoothing,
            dropout: mix(self.dropout ^ step),
            precision: self.config.precision,
        };
        let span = self.profiler.begin();
        let train_batch = TrainBatch::new(model, &self.dataset.train, indices, &options)?;
        self.profiler.end(span, "batch");
        let (count, tokens) = (train_batch.count, train_batch.tokens);
        let OptimizerConfig::AdamW(adamw) = &self.config.optimizer;
        let rate = learning_rate(adamw, step, self.config.steps());
        let going_on = || !context.cancelled();
        let Outcome { loss, correct, norm } =
            self.updater.update(model, train_batch, rate, &mut self.profiler, going_on)?;
        while let Some(remark) = self.updater.remark() {
            context.log(&remark);
        }
        self.check_finite("loss", loss, step, context)?;
        self.check_finite("gradient norm", norm, step, context)?;
        self.profiler.end_numbered(whole, "step", step);
        let window = &mut self.window;
        window.steps += 1;
        window.loss += loss;
        window.norm += norm;
        window.correct += correct;
        window.count += count;
        window.tokens += tokens;
        Ok(loss)
    }

    /// A diverged training never recovers, and its figures would look like a result.
    fn check_finite(&self, what: &str, value: f64, step: u64, context: &mut dyn Context) -> Result<(), StepError> {
        if value.is_finite() {
            return Ok(());
        }
        if what == "loss" {
            context.metric("train/loss", step, value);
        }
        let seen = format!("the {what} is {value} at step {step} of {}", self.config.steps());
        Err(self.stability.diverged(self.config, &seen))
    }

    fn announce_stage(&mut self, step: u64, context: &mut dyn Context) {
        let stage = self.curriculum.stage();
        self.reports.metric(context, "train/stage", step, stage as f64);
        if let Some(limits) = self.curriculum.limits() {
            context.log(&format!(
                "stage {stage}, steps {step} to {}: {} sequences of up to {} tokens",
                limits.until_step,
                self.curriculum.eligible(),
                limits.max_length
            ));
        }
    }

    /// Reports the means since the last report.
    fn report_window(&mut self, context: &mut dyn Context) {
        let (window, seconds) = (std::mem::take(&mut self.window), self.since.elapsed().as_secs_f64().max(1e-9));
        self.since = Instant::now();
        let steps = window.steps.max(1) as f64;
        let accuracy = window.correct as f64 / window.count.max(1) as f64;
        if let Some(paced) = &mut self.paced {
            paced.observe(self.step, &[("train/loss", window.loss / steps), ("train/accuracy", accuracy)]);
        }
        // A state of an earlier version has no count of what it trained on.
        let before = match self.reports.last(TOKENS) {
            Some(tokens) => Some(tokens),
            None => (self.step == window.steps).then_some(0.0),
        };
        if let Some(before) = before {
            self.reports.metric(context, TOKENS, self.step, before + window.tokens as f64);
        }
        let OptimizerConfig::AdamW(adamw) = &self.config.optimizer;
        for (name, value) in [
            ("train/loss", window.loss / steps),
            ("train/accuracy", accuracy),
            ("train/gradient_norm", window.norm / steps),
            ("train/learning_rate", learning_rate(adamw, self.step, self.config.steps())),
            ("train/tokens_per_second", window.tokens as f64 / seconds),
        ] {
            self.reports.metric(context, name, self.step, value);
        }
    }

    fn evaluate_model(&mut self, model: &Model, context: &mut dyn Context) -> Result<(), StepError> {
        let (began, span, step) = (Instant::now(), self.profiler.begin(), self.step);
        let (valid, of_plugins) = self.score_split(model, "valid", context)?;
        self.reports.metric(context, "valid/loss", step, valid.loss);
        self.reports.metric(context, "valid/accuracy", step, valid.accuracy);
        for (measure, value) in valid.perplexities(model.task().objective, self.text("valid")) {
            self.reports.metric(context, &format!("valid/{measure}"), step, value);
        }
        for (name, value) in of_plugins {
            self.reports.metric(context, &name, step, value);
        }
        if let Some(paced) = &mut self.paced {
            paced.observe(step, &[("valid/loss", valid.loss), ("valid/accuracy", valid.accuracy)]);
        }
        for (name, value) in model.telemetry(Some(&self.sample_batch(model)?))? {
            self.reports.metric(context, &name, step, value);
        }
        if let Some(bytes) = peak_bytes() {
            self.reports.metric(context, "memory/peak_bytes", step, bytes as f64);
        }
        context.log(&format!("step {step}: valid loss {:.3}, accuracy {:.1} %", valid.loss, 100.0 * valid.accuracy));
        self.stability.observe(step, model, context)?;
        self.check_finite("validation loss", valid.loss, step, context)?;
        self.monitor.observe(step, &valid, model)?;
        // The throughput only counts training.
        self.since += began.elapsed();
        self.profiler.end_numbered(span, "validate", step);
        Ok(())
    }

    /// The text of the predicted tokens of a split; `None` if the data are not text.
    #[must_use]
    pub fn text(&self, split: &str) -> Option<Units> {
        self.dataset.about.text.map(|text| text.of(split))
    }

    /// Scores the split `valid` or `test` with the current model; also returns the metrics of plugins, by name.
    ///
    /// # Errors
    /// If the model cannot read the split, a plugin fails, or [`StepError::Cancelled`].
    pub fn score_split(
        &mut self,
        model: &Model,
        name: &str,
        context: &mut dyn Context,
    ) -> Result<(SplitScore, Vec<(String, f64)>), StepError> {
        let split = if name == "valid" { &self.dataset.valid } else { &self.dataset.test };
        let cancelled = || context.cancelled();
        let (score, _) = score_groups(model, split, 0, self.config.batching(), cancelled, &mut self.metrics)?;
        let mut values = Vec::new();
        for metric in &mut self.metrics {
            values.extend(metric.finish(name, context)?);
        }
        Ok((score, values))
    }

    /// A fixed batch of the validation split, of median length, for telemetry.
    fn sample_batch(&self, model: &Model) -> Result<Batch, StepError> {
        let batches = self.config.batching().sorted(&self.dataset.valid);
        let middle = batches.get(batches.len() / 2).map_or(&[][..], Vec::as_slice);
        Ok(gather(model, &self.dataset.valid, middle)?.0)
    }

    fn save_checkpoint(&mut self, model: &Blueprint, context: &mut dyn Context) -> Result<(), StepError> {
        let span = self.profiler.begin();
        let place = Place {
            step: self.step,
            unvalidated: self.unvalidated,
            sampler: self.curriculum.state(),
            paced: self.paced.as_ref().map(|paced| paced.place().clone()),
            evaluations: self.monitor.evaluations().cloned(),
            window: Window { seconds: self.since.elapsed().as_secs_f64(), ..self.window },
            reports: self.reports.clone(),
        };
        let state = || state::write(&self.identity, model.parameters(), self.updater.optimizer(), &place);
        self.since += self.keeper.save(self.step, state, context)?;
        self.profiler.end_numbered(span, "checkpoint", self.step);
        Ok(())
    }

    /// Saves the state when a training is stopped, if that is fast enough for an interactive stop.
    fn save_before_the_end(&mut self, model: &Blueprint, context: &mut dyn Context) -> Result<(), StepError> {
        let copies = if self.config.keep == Keep::Best { 4 } else { 3 };
        let values = copies * model.parameters().count();
        if values <= QUICKLY_SAVED && self.keeper.is_news(self.step) {
            self.save_checkpoint(model, context)?;
        }
        // The last checkpoint may be of the same step.
        if self.keeper.has_saved(self.step) {
            context.log(&format!("stopped after step {}; the next attempt resumes from its checkpoint", self.step));
        }
        Ok(())
    }
}

/// Everything that determines the results of a training, as JSON: a training must not resume from the state of a different one.
fn identify_training(config: &Config, context: &dyn Context) -> String {
    json!({
        "assay": env!("CARGO_PKG_VERSION"),
        "config": config,
        "device": context.device().name(),
        "replicate": context.replicate(),
    })
    .to_string()
}
