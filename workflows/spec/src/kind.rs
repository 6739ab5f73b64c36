//! The interface of a step kind to the spec. The kinds themselves are in a higher layer (`workflows/steps`), and register here.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

/// The properties of a step kind that are needed to check a workflow file.
#[derive(Debug, Clone)]
pub struct StepKind {
    /// The name in `uses:`.
    pub name: &'static str,
    /// Incremented whenever the same config and inputs would give other results; part of the cache key.
    pub version: u32,
    /// Whether all its steps measure the machine. See [`StepKind::measures_machine`].
    pub measures: bool,
    /// One sentence, for help and for the JSON Schema.
    pub about: &'static str,
    /// JSON Schema (draft 2020-12, as schemars 1 writes it) of the `with:` block.
    pub schema: ConfigSchema,
    /// The outputs of a finished task of this kind.
    pub outputs: &'static [OutputKind],
    /// The metrics that it reports.
    pub metrics: &'static [MetricKind],
    /// Checks that the schema cannot express, for a resolved config that satisfies the schema.
    pub check: fn(&Value) -> Vec<Finding>,
}

/// What the property of a config declares with which a step measures the machine.
pub(crate) const MEASUREMENT: &str = "measurement";

/// Whether the value of a declaring property declares something.
pub(crate) fn is_declared(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

impl StepKind {
    /// Whether a step with this config measures the machine, so that its result only holds for the same device, backend and threads.
    #[must_use]
    pub fn measures_machine(&self, config: &Value) -> bool {
        let declared = || self.declaring_property(MEASUREMENT).and_then(|property| config.get(property));
        self.measures || declared().is_some_and(is_declared)
    }

    /// Whether a config names results beyond those of the kind: its schema has a property with `"x-declares"` and this text
    /// (`outputs`, `metrics`), whose keys are their names.
    #[must_use]
    pub fn declares(&self, what: &str) -> bool {
        self.declaring_property(what).is_some()
    }

    /// The property of the config that declares such results.
    pub(crate) fn declaring_property(&self, what: &str) -> Option<&str> {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        let declares = |property: &Value| property.get("x-declares") == Some(&Value::from(what));
        properties.into_iter().flatten().find(|(_, property)| declares(property)).map(|(name, _)| name.as_str())
    }
}

/// The JSON Schema of a config. It is built when it is first read, which an executor never does: building the schemas
/// of all kinds takes a third of an executor's startup time.
#[derive(Clone)]
pub struct ConfigSchema(Arc<LazyLock<Value, BuildSchema>>);

type BuildSchema = Box<dyn FnOnce() -> Value + Send + Sync>;

impl ConfigSchema {
    /// The schema returned by this function.
    pub fn from_fn(build: impl FnOnce() -> Value + Send + Sync + 'static) -> ConfigSchema {
        ConfigSchema(Arc::new(LazyLock::new(Box::new(build))))
    }
}

impl From<Value> for ConfigSchema {
    fn from(schema: Value) -> ConfigSchema {
        ConfigSchema::from_fn(|| schema)
    }
}

impl Deref for ConfigSchema {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl fmt::Debug for ConfigSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Value::fmt(self, f)
    }
}

/// One output of a step kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputKind {
    /// The name, as in `needs.JOB.outputs.NAME`.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
}

/// One metric of a step kind, or a family of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricKind {
    /// The name; a `*` stands for one path segment, as in `latency/*/*/median`.
    pub name: &'static str,
    /// The unit as printed after a number; empty for a ratio or a pure number.
    pub unit: &'static str,
    /// Which direction is better.
    pub better: Better,
    /// The column in the terminal's table and first on the pages; most metrics have none.
    pub headline: Option<&'static str>,
    /// What an interval over replicates covers, and what it does not: a sentence below the table. Empty if no explanation
    /// is needed.
    pub covers: &'static str,
}

/// Which direction of a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Losses, sizes, latencies.
    Lower,
    /// Accuracies, rates.
    Higher,
    /// It only describes.
    Neither,
}

/// A problem of a config beyond its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The position in the config, as keys and indices.
    pub path: Vec<String>,
    /// What is wrong, in a lower-case fragment that quotes the offending value.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
}
