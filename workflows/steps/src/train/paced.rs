//! A curriculum that a plugin decides while the training runs: at the end of each stage, the plugin receives the losses and
//! accuracies of that stage and returns the next one. It remembers only its state, which is saved with the training.

use assay_models::Array;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::stages::{PluginCurriculum, Stage};
use crate::context::{Context, StepError};
use crate::plugin::{Plugin, PluginObservation, PluginRef, forward_log, start_plugin};

/// A curriculum and its plugin.
pub struct PacedCurriculum {
    declared: PluginCurriculum,
    plugin: Box<dyn Plugin>,
    place: PacedPlace,
}

/// The progress of such a curriculum: everything that determines later stages, except plugin, config, seed and data.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PacedPlace {
    /// The stages so far.
    pub stages: Vec<Stage>,
    /// The last state returned by the plugin.
    pub state: Vec<u8>,
    /// The losses and accuracies since the last call of the plugin.
    pub seen: Vec<PluginObservation>,
}

/// [`PacedPlace`] without the plugin's state, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacedCounters {
    stages: Vec<Stage>,
    /// Step, name and the bits of the value: a loss may be infinite, which JSON cannot represent.
    seen: Vec<(u64, Vec<(String, u64)>)>,
}

impl PacedCurriculum {
    /// Starts the plugin and opens the curriculum. `lengths` are those of the training split.
    ///
    /// # Errors
    /// If the plugin cannot be started, or refuses the config.
    pub fn open(
        declared: &PluginCurriculum,
        lengths: impl Iterator<Item = usize>,
        seed: u64,
        context: &mut dyn Context,
    ) -> Result<Self, StepError> {
        let mut plugin = start_plugin(&declared.plugin, context)?;
        let mut lengths: Vec<u32> = lengths.map(|length| length as u32).collect();
        lengths.sort_unstable();
        let state = plugin.open_curriculum(&Value::Object(declared.config.clone()), seed, &lengths)?;
        forward_log(declared.plugin.name(), plugin.as_mut(), context);
        let place = PacedPlace { state, ..PacedPlace::default() };
        Ok(PacedCurriculum { declared: declared.clone(), plugin, place })
    }

    /// The plugin in the config, and the running one.
    #[must_use]
    pub fn used(&self) -> (&PluginRef, &dyn Plugin) {
        (&self.declared.plugin, self.plugin.as_ref())
    }

    /// Records losses and accuracies after a step, for the next call of the plugin.
    pub fn observe(&mut self, step: u64, values: &[(&str, f64)]) {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        self.place.seen.push(PluginObservation { step, values });
    }

    /// The next stage, if the stages so far do not reach `step`, which counts from 1.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn next_stage(&mut self, step: u64, context: &mut dyn Context) -> Result<Option<Stage>, StepError> {
        if self.place.stages.last().is_some_and(|stage| step <= stage.until_step) {
            return Ok(None);
        }
        let (state, seen) = (std::mem::take(&mut self.place.state), std::mem::take(&mut self.place.seen));
        let (answer, state) = self.plugin.next_stage(state, step - 1, &seen)?;
        self.place.state = state;
        let name = self.declared.plugin.name();
        forward_log(name, self.plugin.as_mut(), context);
        if !answer.note.is_empty() {
            context.log(&format!("plugin `{name}`: {}", answer.note));
        }
        let stage = Stage { until_step: answer.until_step, max_length: answer.max_length as usize };
        self.place.stages.push(stage);
        Ok(Some(stage))
    }

    /// Its progress.
    #[must_use]
    pub fn place(&self) -> &PacedPlace {
        &self.place
    }

    /// Restores the progress of another curriculum with the same plugin, config, seed and data.
    pub fn restore(&mut self, place: PacedPlace) {
        self.place = place;
    }
}

impl PacedPlace {
    /// The progress as numbers and as an array of bytes, for a state file.
    #[must_use]
    pub fn parts(&self) -> (PacedCounters, Array) {
        let bits =
            |values: &[(String, f64)]| values.iter().map(|(name, value)| (name.clone(), value.to_bits())).collect();
        let seen = self.seen.iter().map(|seen| (seen.step, bits(&seen.values))).collect();
        let bytes: Vec<u32> = self.state.iter().map(|byte| u32::from(*byte)).collect();
        (PacedCounters { stages: self.stages.clone(), seen }, Array::u32(&bytes, &[bytes.len()]))
    }

    /// The inverse of [`PacedPlace::parts`]; `None` if a number of the array is not a byte.
    #[must_use]
    pub fn from_parts(counters: PacedCounters, bytes: &[u32]) -> Option<Self> {
        let values =
            |values: Vec<(String, u64)>| values.into_iter().map(|(name, bits)| (name, f64::from_bits(bits))).collect();
        let seen = counters.seen.into_iter().map(|(step, bits)| PluginObservation { step, values: values(bits) });
        Some(PacedPlace {
            stages: counters.stages,
            state: bytes.iter().map(|byte| u8::try_from(*byte).ok()).collect::<Option<_>>()?,
            seen: seen.collect(),
        })
    }
}
