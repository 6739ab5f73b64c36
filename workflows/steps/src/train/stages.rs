//! The curriculum in the config of `train`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::plugin::PluginRef;

/// A curriculum: stages that are written out, or a plugin that decides them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)] // Written only: the own `Deserialize` below decides by the type, a list or a mapping.
pub enum CurriculumConfig {
    /// In order.
    Stages(Vec<Stage>),
    /// Decided while the training runs.
    Plugin(PluginCurriculum),
}

/// A curriculum that a plugin decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginCurriculum {
    /// A name under `plugins:` of the workflow file.
    pub plugin: PluginRef,
    /// The plugin's config; `assay plugin run` shows what it accepts.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// The total number of steps.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub steps: u64,
}

impl<'de> Deserialize<'de> for CurriculumConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        match Value::deserialize(deserializer)? {
            stages @ Value::Array(_) => serde_json::from_value(stages).map(CurriculumConfig::Stages),
            plugin => serde_json::from_value(plugin).map(CurriculumConfig::Plugin),
        }
        .map_err(D::Error::custom)
    }
}

impl JsonSchema for CurriculumConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Curriculum".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (stage, plugin) = (generator.subschema_for::<Stage>(), generator.subschema_for::<PluginCurriculum>());
        json_schema!({"anyOf": [{"type": "array", "minItems": 1, "maxItems": 1000, "items": stage}, plugin]})
    }
}

/// A stage of the curriculum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// The stage ends after this step, counted from the beginning of training.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub until_step: u64,
    /// Samples longer than this wait for a later stage.
    #[schemars(range(min = 1))]
    pub max_length: usize,
}
