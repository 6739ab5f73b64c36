//! Decisions based on evaluations of the validation split: early stopping, and whose parameters the model has.

use std::collections::BTreeMap;
use std::sync::Arc;

use assay_models::{Array, Model, ModelError};
use assay_tensor::Tensor;

use super::config::{Config, EarlyStopping, Keep, ValidationMetric};
use super::optimizer::dense;
use crate::context::{Context, StepError};
use crate::scoring::SplitScore;

/// Parameters on the host, by name: the optimizer changes the device's copies in place.
pub type SavedParameters = Arc<BTreeMap<String, Array>>;

/// The results of the evaluations so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluations {
    /// The step of the best evaluation; the first of equally good ones.
    pub best_step: u64,
    /// The metric's value there.
    pub best_value: f64,
    /// The value that an evaluation must exceed by more than `min_delta` to count as an improvement.
    pub reference: f64,
    /// Evaluations of the last stage since the last improvement.
    pub unimproved: u64,
    /// The parameters after `best_step`; only with `keep: best`.
    pub parameters: Option<SavedParameters>,
}

/// Observes one metric of the validation split.
pub struct Monitor {
    metric: ValidationMetric,
    early_stopping: Option<EarlyStopping>,
    keep: Keep,
    /// The last step of the second-to-last stage: patience is counted after it.
    counted_after: u64,
    evaluations: Option<Evaluations>,
}

impl Monitor {
    /// A monitor before the first evaluation. It does nothing without `early_stopping` or `keep: best`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let stages = config.stages();
        Monitor {
            metric: config.early_stopping.map_or(ValidationMetric::Loss, |stopping| stopping.metric),
            early_stopping: config.early_stopping,
            keep: config.keep,
            counted_after: stages.len().checked_sub(2).map_or(0, |index| stages[index].until_step),
            evaluations: None,
        }
    }

    fn is_active(&self) -> bool {
        self.early_stopping.is_some() || self.keep == Keep::Best
    }

    /// The evaluations so far, for the state of the training.
    #[must_use]
    pub fn evaluations(&self) -> Option<&Evaluations> {
        self.evaluations.as_ref()
    }

    /// Restores the evaluations of an earlier attempt.
    pub fn restore(&mut self, evaluations: Option<Evaluations>) {
        self.evaluations = evaluations;
    }

    /// Records an evaluation after `step`. Copies the parameters of `model` to the host if they must be kept.
    ///
    /// # Errors
    /// [`StepError::Failed`] if the metric is the perplexity of a classifier; or if the device fails.
    pub fn observe(&mut self, step: u64, score: &SplitScore, model: &Model) -> Result<(), StepError> {
        if !self.is_active() {
            return Ok(());
        }
        let value = self.metric.value_of(score, model)?;
        let min_delta = self.early_stopping.map_or(0.0, |stopping| stopping.min_delta);
        let last = self.evaluations.take();
        let is_best = last.as_ref().is_none_or(|last| self.metric.gain(last.best_value, value) > 0.0);
        let improves = last.as_ref().is_none_or(|last| self.metric.gain(last.reference, value) > min_delta);
        let unimproved = match &last {
            Some(last) if !improves && step > self.counted_after => last.unimproved + 1,
            _ => 0,
        };
        let reference = last.as_ref().filter(|_| !improves).map_or(value, |last| last.reference);
        let best = match last {
            Some(last) if !is_best => (last.best_step, last.best_value, last.parameters),
            _ => (step, value, if self.keep == Keep::Best { Some(save_parameters(model)?) } else { None }),
        };
        let (best_step, best_value, parameters) = best;
        self.evaluations = Some(Evaluations { best_step, best_value, reference, unimproved, parameters });
        Ok(())
    }

    /// Whether patience is exhausted.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        let unimproved = self.evaluations.as_ref().map_or(0, |evaluations| evaluations.unimproved);
        self.early_stopping.is_some_and(|stopping| unimproved >= stopping.patience)
    }

    /// The final model, and the step of its parameters. `model` is that after `step`, the last one; `steps` is the length
    /// of the whole curriculum. Reports the decisions.
    ///
    /// # Errors
    /// If the device fails.
    pub fn finish(
        &self,
        model: Model,
        (step, steps): (u64, u64),
        context: &mut dyn Context,
    ) -> Result<(Model, u64), StepError> {
        let Some(evaluations) = &self.evaluations else { return Ok((model, step)) };
        let Evaluations { best_step, best_value, .. } = *evaluations;
        let metric = self.metric.name();
        context.metric("best/step", step, best_step as f64);
        context.metric("best/value", step, best_value);
        if let Some(EarlyStopping { patience, min_delta, .. }) = self.early_stopping
            && self.has_stopped()
            && step < steps
        {
            context.metric("stopped/step", step, step as f64);
            context.progress(step, Some(step), "steps", "stopped early");
            let by = if min_delta > 0.0 { format!(" by more than {min_delta}") } else { String::new() };
            context.log(&format!(
                "stopped early after step {step} of {steps}: {metric} has not improved{by} in {patience} evaluations; its best \
                 value is {best_value:.4}, after step {best_step}"
            ));
        }
        let (model, kept) = match &evaluations.parameters {
            Some(parameters) if best_step != step => (load_parameters(&model, parameters)?, best_step),
            _ => (model, step),
        };
        context.metric("kept/step", step, kept as f64);
        if self.keep == Keep::Best {
            context.log(&format!(
                "the model holds the parameters after step {kept}, where {metric} has its best value, {best_value:.4}"
            ));
        }
        Ok((model, kept))
    }
}

impl ValidationMetric {
    /// How much better `value` is than `reference`; negative if it is worse.
    fn gain(self, reference: f64, value: f64) -> f64 {
        match self {
            ValidationMetric::Loss | ValidationMetric::Perplexity => reference - value,
            ValidationMetric::Accuracy => value - reference,
        }
    }

    fn value_of(self, score: &SplitScore, model: &Model) -> Result<f64, StepError> {
        match self {
            ValidationMetric::Loss => Ok(score.loss),
            ValidationMetric::Accuracy => Ok(score.accuracy),
            ValidationMetric::Perplexity => score.perplexity(model.task().objective).ok_or_else(|| StepError::Failed {
                message: "early_stopping.metric is valid/perplexity, which a classifier does not have".into(),
                hint: Some("use valid/loss or valid/accuracy".into()),
            }),
        }
    }
}

fn save_parameters(model: &Model) -> Result<SavedParameters, StepError> {
    let mut saved = BTreeMap::new();
    for (name, parameter) in model.parameters().iter() {
        let tensor = dense(name, parameter)?;
        saved.insert(name.to_owned(), Array::f32(&tensor.to_f32_vec().map_err(ModelError::from)?, tensor.dims()));
    }
    Ok(Arc::new(saved))
}

fn load_parameters(model: &Model, saved: &SavedParameters) -> Result<Model, StepError> {
    let parameters = model.parameters().map(|name, value| {
        let values = saved.get(name).and_then(Array::to_f32);
        let values =
            values.ok_or_else(|| ModelError::Input(format!("`{name}` is missing among the kept parameters")))?;
        Ok(Tensor::from_f32(model.device(), values, value.dims())?)
    });
    Ok(model.with_parameters(&parameters?)?)
}

#[cfg(test)]
mod tests {
    use assay_models::{ModelConfig, Objective, Task};
    use assay_tensor::DType;
    use serde_json::{Value, json};

    use super::super::config::tests::sample;
    use super::*;

    fn model() -> Model {
        let config = json!({"family": "ten", "dim": 4, "layers": 1, "states": 2});
        let config: ModelConfig = serde_json::from_value(config).unwrap();
        let task = Task { vocabulary: 3, max_length: 8, objective: Objective::Classify(2) };
        Model::fresh(&assay_cpu::device(1).unwrap(), &config, &task, 1, DType::F32).unwrap()
    }

    /// The evaluations after which training stops, given the values of the metric after each step.
    fn stop_after(change: Value, values: &[f64]) -> (Option<u64>, Evaluations) {
        let mut config = sample();
        config["curriculum"] = json!([{"until_step": 3, "max_length": 8}, {"until_step": 100, "max_length": 16}]);
        config["early_stopping"] = change;
        let mut monitor = Monitor::new(&serde_json::from_value(config).unwrap());
        let (model, mut stopped) = (model(), None);
        for (step, value) in (1..).zip(values) {
            monitor.observe(step, &SplitScore { loss: *value, accuracy: *value, count: 1 }, &model).unwrap();
            if monitor.has_stopped() {
                stopped = stopped.or(Some(step));
            }
        }
        (stopped, monitor.evaluations.unwrap())
    }

    #[test]
    fn patience_counts_evaluations_of_the_last_stage_without_improvement() {
        let patience = |patience: u64| json!({"patience": patience});
        // Steps 1 to 3 belong to the first stage, whose evaluations only count for the best value.
        let (stopped, evaluations) = stop_after(patience(2), &[1.0, 2.0, 2.0, 2.0, 2.0]);
        assert_eq!((stopped, evaluations.best_step, evaluations.best_value), (Some(5), 1, 1.0));
        assert_eq!(stop_after(patience(2), &[1.0, 2.0, 2.0, 2.0, 0.5, 2.0]).0, None);
        assert_eq!(stop_after(patience(2), &[1.0, 2.0, 2.0, 2.0, 0.5, 2.0, 0.5]).0, Some(7));
        assert_eq!(stop_after(patience(3), &[5.0, 4.0, 3.0, 2.0, 1.0, 0.5, 0.25]).0, None);
        assert_eq!(stop_after(patience(1), &[5.0, 4.0, 3.0, f64::INFINITY]).0, Some(4));
    }

    #[test]
    fn the_direction_follows_from_the_metric() {
        let accuracy = json!({"metric": "valid/accuracy", "patience": 2});
        assert_eq!(stop_after(accuracy.clone(), &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).0, None);
        let (stopped, evaluations) = stop_after(accuracy, &[0.9, 0.2, 0.3, 0.4, 0.5, 0.6]);
        assert_eq!((stopped, evaluations.best_step), (Some(5), 1));
    }

    #[test]
    fn small_gains_make_a_new_best_and_no_improvement() {
        let rule = json!({"patience": 2, "min_delta": 0.5});
        let (stopped, evaluations) = stop_after(rule, &[3.0, 3.0, 3.0, 2.9, 2.8]);
        assert_eq!((stopped, evaluations.best_step, evaluations.reference), (Some(5), 5, 3.0));
    }

    #[test]
    fn a_classifier_has_no_perplexity() {
        let mut config = sample();
        config["early_stopping"] = json!({"metric": "valid/perplexity"});
        let mut monitor = Monitor::new(&serde_json::from_value(config).unwrap());
        let error = monitor.observe(1, &SplitScore { loss: 1.0, accuracy: 0.5, count: 1 }, &model()).unwrap_err();
        assert!(error.to_string().contains("valid/perplexity, which a classifier does not have"), "{error}");
    }
}
