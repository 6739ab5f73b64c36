//! A plugin of a step: `assay plugin-host` as a child process, behind the trait `assay_steps::Plugin`.

use std::ops::ControlFlow;
use std::path::Path;

use assay_host::{PluginCommand, PluginProcess, StepEnd, StepFiles, StepReport};
use assay_protocol::{PluginFailure, PluginLimit, PluginLimits, PluginTrial, PluginValue};
use assay_steps::{
    Context, LimitKind, Plugin, PluginAbout, PluginContent, PluginDataset, PluginLimitChoices, PluginObservation,
    PluginPredictions, PluginProposal, PluginResult, PluginSequences, PluginSplit, PluginStage, PluginStep, StepError,
    forward_lines,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The instance that a step uses.
const INSTANCE: u32 = 0;

/// A plugin in a separate process, which ends when this is dropped.
pub(crate) struct HostedPlugin(PluginProcess);

impl HostedPlugin {
    /// Starts the process and loads the component.
    pub(crate) fn start(plugin: &PluginContent, file: &Path) -> Result<Self, StepError> {
        let command = PluginCommand::find().map_err(StepError::failed)?;
        let process = PluginProcess::start(&command, &plugin.name, file, limits_of(plugin.limits));
        Ok(HostedPlugin(process.map_err(explain_failure)?))
    }
}

fn limits_of(chosen: PluginLimitChoices) -> PluginLimits {
    let default = PluginLimits::default();
    PluginLimits {
        memory: chosen.memory.unwrap_or(default.memory),
        fuel_per_call: chosen.fuel_per_call.unwrap_or(default.fuel_per_call),
        fuel_per_sample: chosen.fuel_per_sample.unwrap_or(default.fuel_per_sample),
        call_seconds: chosen.call_seconds.unwrap_or(default.call_seconds),
        fuel_per_step: chosen.fuel_per_step.unwrap_or(default.fuel_per_step),
        step_seconds: chosen.step_seconds.unwrap_or(default.step_seconds),
        ..default
    }
}

fn explain_failure(failure: PluginFailure) -> StepError {
    let message = failure.to_string();
    let kind = match failure.limit {
        Some(PluginLimit::Memory) => Some(LimitKind::Memory),
        Some(PluginLimit::Time | PluginLimit::CompileTime) => Some(LimitKind::Time),
        Some(
            PluginLimit::Fuel
            | PluginLimit::Stack
            | PluginLimit::Table
            | PluginLimit::Transfer
            | PluginLimit::State
            | PluginLimit::File
            | PluginLimit::Output
            | PluginLimit::Points,
        )
        | None => None,
    };
    match kind {
        Some(kind) => StepError::PluginLimit { kind, message, hint: failure.hint },
        None => StepError::Failed { message, hint: failure.hint },
    }
}

impl Plugin for HostedPlugin {
    fn about(&self) -> PluginAbout {
        let about = self.0.about();
        PluginAbout { name: about.name.clone(), version: about.version.clone() }
    }

    fn drain_log(&mut self) -> Vec<(String, String)> {
        self.0.drain_log()
    }

    fn open_dataset(&mut self, config: &Value) -> Result<PluginDataset, StepError> {
        let facts = self.0.open_dataset(INSTANCE, &config.to_string()).map_err(explain_failure)?;
        Ok(PluginDataset { vocabulary: facts.vocabulary, classes: facts.classes, max_length: facts.max_length })
    }

    fn make_sequences(
        &mut self,
        seed: u64,
        split: PluginSplit,
        first: u64,
        count: u32,
    ) -> Result<PluginSequences, StepError> {
        let split = match split {
            PluginSplit::Train => assay_protocol::PluginSplit::Train,
            PluginSplit::Valid => assay_protocol::PluginSplit::Valid,
            PluginSplit::Test => assay_protocol::PluginSplit::Test,
        };
        let made = self.0.batch(INSTANCE, seed, split, first, count).map_err(explain_failure)?;
        Ok(PluginSequences { tokens: made.tokens, offsets: made.offsets, labels: made.labels })
    }

    fn open_metric(&mut self, config: &Value) -> Result<(), StepError> {
        self.0.open_metric(INSTANCE, &config.to_string()).map_err(explain_failure)
    }

    fn add_predictions(&mut self, predictions: &PluginPredictions) -> Result<(), StepError> {
        let PluginPredictions { inputs, offsets, targets, scores, classes } = predictions;
        self.0.add(INSTANCE, (inputs, offsets), targets, scores, *classes).map_err(explain_failure)
    }

    fn metric_values(&mut self) -> Result<Vec<(String, f64)>, StepError> {
        let values = self.0.values(INSTANCE).map_err(explain_failure)?;
        Ok(values.into_iter().map(|value| (value.name.clone(), value.value())).collect())
    }

    fn open_curriculum(&mut self, config: &Value, seed: u64, lengths: &[u32]) -> Result<Vec<u8>, StepError> {
        self.0.open_curriculum(INSTANCE, &config.to_string(), seed, lengths).map_err(explain_failure)
    }

    fn next_stage(
        &mut self,
        state: Vec<u8>,
        step: u64,
        seen: &[PluginObservation],
    ) -> Result<(PluginStage, Vec<u8>), StepError> {
        let values = |values: &[(String, f64)]| {
            values.iter().map(|(name, value)| PluginValue::new(name.as_str(), *value)).collect()
        };
        let seen =
            seen.iter().map(|seen| assay_protocol::PluginObservation { step: seen.step, values: values(&seen.values) });
        let (stage, state) = self.0.next(INSTANCE, state, step, seen.collect()).map_err(explain_failure)?;
        let assay_protocol::PluginStage { until_step, max_length, note } = stage;
        Ok((PluginStage { until_step, max_length, note }, state))
    }

    fn run_step(
        &mut self,
        name: &str,
        step: &PluginStep,
        context: &mut dyn Context,
    ) -> Result<PluginResult, StepError> {
        let files = StepFiles { inputs: step.inputs.clone(), outputs: step.outputs.clone() };
        let mut listener = |report| {
            match report {
                StepReport::Metrics { step, values } => {
                    values.iter().for_each(|value| context.metric(&value.name, step, value.value()));
                }
                StepReport::Progress { done, total, unit } => context.progress(done, total, &unit, ""),
                StepReport::Log(lines) => forward_lines(name, lines, context),
                StepReport::Waiting if context.cancelled() => return ControlFlow::Break(()),
                StepReport::Waiting => {}
            }
            ControlFlow::Continue(())
        };
        let end = self.0.run_step(INSTANCE, &step.config.to_string(), step.replicate, files, &mut listener);
        match end.map_err(explain_failure)? {
            StepEnd::Done { result, written } => {
                Ok(PluginResult { result: read_json(&result)?, written: written.into_iter().collect() })
            }
            StepEnd::Cancelled => Err(StepError::Cancelled),
        }
    }

    fn open_searcher(&mut self, config: &Value, space: &Value, seed: u64) -> Result<Vec<u8>, StepError> {
        self.0.open_searcher(INSTANCE, &config.to_string(), &space.to_string(), seed).map_err(explain_failure)
    }

    fn propose_trials(
        &mut self,
        state: Vec<u8>,
        results: &[(Value, Option<f64>)],
        count: u32,
    ) -> Result<PluginProposal, StepError> {
        let trial = |(params, value): &(Value, Option<f64>)| PluginTrial {
            params: params.to_string(),
            bits: value.map(f64::to_bits),
        };
        let made = self.0.propose(INSTANCE, state, results.iter().map(trial).collect(), count);
        let made = made.map_err(explain_failure)?;
        let trials = made.params.iter().map(|params| read_json(params)).collect::<Result<_, _>>()?;
        Ok(PluginProposal { trials, finished: made.finished, state: made.state })
    }
}

/// Reads JSON that the plugin's process has checked.
fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, StepError> {
    serde_json::from_str(text)
        .map_err(|error| StepError::failed(format!("the answer of a plugin is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_key_has_the_interface_of_the_protocol() {
        assert_eq!(assay_spec::PLUGIN_INTERFACE, assay_protocol::PLUGIN_INTERFACE);
        assert_eq!(assay_spec::PLUGIN_SEMANTICS, assay_protocol::PLUGIN_SEMANTICS);
    }

    #[test]
    fn limits_of_memory_and_time_have_their_own_classes() {
        let failure = |limit| PluginFailure {
            plugin: "bomb".into(),
            function: "dataset.batch".into(),
            message: "stopped".into(),
            limit,
            hint: None,
            at: None,
            trace: None,
            log: Vec::new(),
        };
        let kind = |limit| match explain_failure(failure(limit)) {
            StepError::PluginLimit { kind, message, .. } => Some((kind, message)),
            _ => None,
        };
        let message = "plugin `bomb`: `dataset.batch` stopped".to_owned();
        assert_eq!(kind(Some(PluginLimit::Memory)), Some((LimitKind::Memory, message.clone())));
        assert_eq!(kind(Some(PluginLimit::CompileTime)), Some((LimitKind::Time, message)));
        assert_eq!(kind(Some(PluginLimit::Fuel)), None);
        assert_eq!(kind(None), None);
    }
}
