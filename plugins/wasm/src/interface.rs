//! The types of `wit/plugin.wit`, as passed to plugins and returned by them.

use wasmtime::component::{ComponentType, Lift, Lower};

/// The text of the interface, for authors of plugins and for building components.
pub const WIT: &str = include_str!("../wit/plugin.wit");

/// The header for plugins in C, `assay_plugin.h`.
pub const C_HEADER: &str = include_str!("../guest/assay_plugin.h");

/// The name of the package, before its version.
pub(crate) const PACKAGE: &str = "assay:plugin";

/// The purpose of a plugin: the worlds of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginWorld {
    /// Makes sequences.
    Dataset,
    /// Chooses the sequences of a training.
    Curriculum,
    /// Computes values from predictions.
    Metric,
    /// Is a whole step of a workflow.
    Step,
    /// Proposes the parameters of trials.
    Searcher,
}

impl PluginWorld {
    /// All worlds.
    pub const ALL: [PluginWorld; 5] =
        [PluginWorld::Dataset, PluginWorld::Curriculum, PluginWorld::Metric, PluginWorld::Step, PluginWorld::Searcher];

    /// The name of the interface that a component of this world exports.
    #[must_use]
    pub fn interface(self) -> &'static str {
        match self {
            PluginWorld::Dataset => "dataset",
            PluginWorld::Curriculum => "curriculum",
            PluginWorld::Metric => "metric",
            PluginWorld::Step => "step",
            PluginWorld::Searcher => "searcher",
        }
    }

    /// The name of the world in the interface's text.
    #[must_use]
    pub fn name(self) -> String {
        format!("{}-plugin", self.interface())
    }
}

#[derive(Debug, Clone, PartialEq, ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct Value {
    pub name: String,
    pub value: f64,
}

#[derive(Debug, Clone, ComponentType, Lift)]
#[component(record)]
pub(crate) struct Problem {
    pub message: String,
    pub hint: Option<String>,
    pub at: Option<String>,
    pub trace: Option<String>,
}

#[derive(Debug, Clone, ComponentType, Lift)]
#[component(record)]
pub(crate) struct Sequences {
    pub tokens: Vec<u32>,
    pub offsets: Vec<u32>,
    pub labels: Vec<u32>,
}

#[derive(Debug, Clone, ComponentType, Lift)]
#[component(record)]
pub(crate) struct About {
    pub name: String,
    pub version: String,
    pub description: String,
    #[component(name = "config-schema")]
    pub config_schema: String,
}

#[derive(Debug, Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
pub(crate) enum Split {
    #[component(name = "train")]
    Train,
    #[component(name = "valid")]
    Valid,
    #[component(name = "test")]
    Test,
}

#[derive(Debug, Clone, ComponentType, Lift)]
#[component(record)]
pub(crate) struct Facts {
    pub vocabulary: Vec<String>,
    pub classes: u32,
    #[component(name = "max-length")]
    pub max_length: u32,
}

#[derive(Debug, Clone, ComponentType, Lift)]
#[component(record)]
pub(crate) struct Stage {
    #[component(name = "until-step")]
    pub until_step: u64,
    #[component(name = "max-length")]
    pub max_length: u32,
    pub note: String,
}

#[derive(Debug, Clone, ComponentType, Lower)]
#[component(record)]
pub(crate) struct Seen {
    pub step: u64,
    pub values: Vec<Value>,
}

#[derive(Debug, Clone, ComponentType, Lower)]
#[component(record)]
pub(crate) struct MetricBatch {
    pub inputs: Vec<u32>,
    pub offsets: Vec<u32>,
    pub targets: Vec<u32>,
    pub scores: Vec<f32>,
    pub classes: u32,
}

#[derive(Debug, Clone, ComponentType, Lower)]
#[component(record)]
pub(crate) struct Trial {
    pub params: String,
    pub value: Option<f64>,
}

#[derive(Debug, Clone, ComponentType, Lift)]
#[component(record)]
pub(crate) struct Proposal {
    pub state: Vec<u8>,
    pub params: Vec<String>,
    pub finished: bool,
}
