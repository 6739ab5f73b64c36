//! The config of a program: the block `with:` of `uses: command`.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use assay_spec::{ArtifactRef, Finding, LOCAL_FILES};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::container::is_pinned;
use super::environment::Environment;
use super::variables::{self, VARIABLES};
use crate::quiet::Quiet;
use crate::step::ArtifactSchema;

/// A program, its inputs and its outputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The program and its arguments. They are not passed to a shell; use `["sh", "-c", "..."]` for that. `$ASSAY_OUTPUTS`
    /// and the other variables of a step are replaced in each argument. With `measures`, several programs can be given by
    /// name.
    pub run: Commands,
    /// Measures the program like a benchmark: runs it repeatedly, and reports the median of its wall-clock time and of each of its
    /// metrics with intervals. Several programs run alternately, in random order. Nothing else runs on the machine during the
    /// measurement, and the cache key contains the machine.
    #[serde(default)]
    #[schemars(extend("x-declares" = "measurement"))]
    pub measures: Measures,
    /// Files and folders of the workflow file's folder that the program needs, such as the script. They are copied into the
    /// folder in which the program starts. Their content is part of the cache key.
    #[serde(default)]
    #[schemars(with = "LocalFilesSchema")]
    pub files: Files,
    /// The environment in which the program finds `python` and its packages: `{python: .venv/bin/python}`, `{uv: uv.lock}` or
    /// `{container: IMAGE@sha256:..}`. Without it, the program sees the environment of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
    /// Artifacts of earlier jobs: the program finds `NAME` at `$ASSAY_INPUTS/NAME`. They are read-only.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ArtifactSchema>")]
    pub inputs: BTreeMap<String, ArtifactRef>,
    /// Values for the program, of any shape: it finds them as JSON in the file `$ASSAY_PARAMS`.
    #[serde(default)]
    pub params: serde_json::Map<String, serde_json::Value>,
    /// Further environment variables of the program. Names that begin with `ASSAY_` are reserved.
    #[serde(default)]
    pub env: BTreeMap<String, Argument>,
    /// The metrics that the program reports, with their direction and unit. Metrics that are not named here are kept too, but
    /// only these are read from standard output and have a column in the table of results. Event files of TensorBoard below
    /// `$ASSAY_OUTPUTS` are read too.
    #[serde(default)]
    #[schemars(extend("x-declares" = "metrics"))]
    pub metrics: BTreeMap<String, DeclaredMetric>,
    /// The files that the program writes, by output: paths relative to `$ASSAY_OUTPUTS`. Each must exist when the program
    /// ends.
    #[serde(default)]
    #[schemars(extend("x-declares" = "outputs"))]
    pub outputs: BTreeMap<String, OutputFile>,
}

/// One program, or several that are measured alternately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)] // The schema is what checks what a person wrote, and its messages are ours.
pub(super) enum Commands {
    /// A program and its arguments.
    One(#[schemars(length(min = 1, max = 4096))] Vec<Argument>),
    /// Programs and their arguments, by name.
    Several(BTreeMap<String, Vec<Argument>>),
}

impl Commands {
    /// Each program with its name; one alone has none.
    pub fn named(&self) -> Vec<(Option<&str>, &[Argument])> {
        match self {
            Commands::One(arguments) => vec![(None, arguments)],
            Commands::Several(programs) => {
                programs.iter().map(|(name, arguments)| (Some(name.as_str()), arguments.as_slice())).collect()
            }
        }
    }
}

/// Whether and how a program is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)] // The schema is what checks what a person wrote, and its messages are ours.
pub(super) enum Measures {
    /// `true` measures with the defaults.
    Switch(bool),
    /// Measures with these options.
    Options(Measurement),
}

impl Default for Measures {
    fn default() -> Self {
        Measures::Switch(false)
    }
}

/// The fewest samples whose range covers the median with a probability of 95 %: 1 - 2 (1/2)^6 = 0.97.
const FEWEST_SAMPLES: u32 = 6;

/// How a program is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Measurement {
    /// Measured runs of each program.
    #[schemars(range(min = 6, max = 100_000))]
    pub samples: u32,
    /// Runs of each program before the measured ones.
    #[schemars(range(max = 1000))]
    pub warmup: u32,
    /// With several programs: the one that the others are compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compare: Option<String>,
    /// What happens to the result if other programs keep processors busy before, during or after the measurement.
    pub quiet: Quiet,
    /// Seed of the order within the rounds and of the bootstrap.
    pub seed: u64,
}

impl Default for Measurement {
    fn default() -> Self {
        Measurement { samples: 20, warmup: 1, compare: None, quiet: Quiet::default(), seed: 0 }
    }
}

/// The files that a program needs: paths as a workflow file lists them, or their content once they are in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)] // Lists are written by people, and checked by the schema; maps are ours.
pub(super) enum Files {
    /// By path.
    Content(BTreeMap<String, ArtifactRef>),
    /// As they are listed.
    Listed(Vec<String>),
}

impl Default for Files {
    fn default() -> Self {
        Files::Listed(Vec::new())
    }
}

/// One argument or value: a text, or a number or truth value, which is written as text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Value", into = "String")]
pub(super) struct Argument(pub String);

/// What a metric means.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeclaredMetric {
    /// Which direction is better: `lower`, `higher` or `neither`.
    #[serde(default)]
    pub better: Direction,
    /// The unit, as it is printed behind a number.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub unit: String,
}

/// Which direction of a metric is better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Direction {
    /// Losses, sizes, durations.
    Lower,
    /// Accuracies, rates.
    Higher,
    /// The metric only describes.
    #[default]
    Neither,
}

/// A file that becomes an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)] // The schema is what checks what a person wrote, and its messages are ours.
pub(super) enum OutputFile {
    /// The file becomes an artifact.
    Artifact(String),
    /// The file holds JSON, which becomes a plain value that expressions can compute with.
    Value {
        /// The path, relative to `$ASSAY_OUTPUTS`.
        json: String,
    },
}

impl OutputFile {
    /// The path as it was written, relative to the folder of outputs.
    pub fn path(&self) -> &str {
        match self {
            OutputFile::Artifact(path) | OutputFile::Value { json: path } => path,
        }
    }
}

impl TryFrom<serde_json::Value> for Argument {
    type Error = String;

    fn try_from(value: serde_json::Value) -> Result<Self, String> {
        match value {
            serde_json::Value::String(text) => Ok(Argument(text)),
            serde_json::Value::Number(number) => Ok(Argument(number.to_string())),
            serde_json::Value::Bool(truth) => Ok(Argument(truth.to_string())),
            other => Err(format!("an argument is a text, a number or a truth value, not `{other}`")),
        }
    }
}

impl From<Argument> for String {
    fn from(argument: Argument) -> String {
        argument.0
    }
}

impl JsonSchema for Argument {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Argument".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "number", "boolean"], "description": "A text, a number or a truth value."})
    }
}

/// The schema of local files before they are pinned to their content.
struct LocalFilesSchema;

impl JsonSchema for LocalFilesSchema {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "LocalFiles".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "array",
            "format": LOCAL_FILES,
            "items": {"type": "string", "description": "A file or folder, relative to the folder of the workflow file."},
        })
    }
}

impl Config {
    /// Checks that the schema cannot express.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut report = |path: &[&str], message: String, hint: &str| {
            let path = path.iter().map(|&key| key.to_owned()).collect();
            findings.push(Finding { path, message, hint: Some(hint.into()) });
        };
        let known = VARIABLES.map(|variable| format!("${variable}")).join(", ");
        for (name, arguments) in self.run.named() {
            let place =
                |index: &str| ["run"].into_iter().chain(name).chain([index]).map(str::to_owned).collect::<Vec<_>>();
            for (index, Argument(text)) in arguments.iter().enumerate() {
                let place = place(&index.to_string());
                let place: Vec<&str> = place.iter().map(String::as_str).collect();
                if text.contains('\0') {
                    report(&place, "an argument cannot contain a zero byte".into(), "remove it");
                }
                for unknown in variables::unknown_names(text) {
                    report(&place, format!("there is no variable `${unknown}`"), &format!("a step has {known}"));
                }
            }
            if arguments.first().is_none_or(|program| program.0.is_empty()) {
                let place = place("0");
                let place: Vec<&str> = place.iter().map(String::as_str).collect();
                report(&place, "the name of the program is empty".into(), "write `[\"python\", \"train.py\"]`");
            }
        }
        if let Some(Environment::Container(image)) = &self.environment
            && !is_pinned(image)
        {
            let message = format!("the image `{image}` has no digest, so that its content may change");
            let hint = "write IMAGE@sha256:..: `podman image inspect --format '{{.Digest}}' IMAGE` prints the digest";
            report(&["environment", "container"], message, hint);
        }
        self.report_measurement(&mut report);
        for (name, Argument(value)) in &self.env {
            if name.starts_with("ASSAY_") {
                report(
                    &["env", name],
                    format!("`{name}` is reserved"),
                    "choose a name that does not start with `ASSAY_`",
                );
            } else if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                report(&["env", name], format!("`{name}` cannot be a variable"), "use letters, digits and `_`");
            }
        }
        for name in self.inputs.keys().filter(|name| !is_plain_name(name)) {
            report(&["inputs", name], format!("`{name}` cannot be a file's name"), "use a name without `/`");
        }
        for (name, output) in &self.outputs {
            if !is_inside(Path::new(output.path())) {
                let message = format!("`{}` is not a path inside `$ASSAY_OUTPUTS`", output.path());
                report(&["outputs", name], message, "write a relative path without `..`");
            }
        }
        for name in self.metrics.keys().filter(|name| !is_metric_name(name)) {
            let hint = "use letters, digits and `_ - . /`, at most 250 of them";
            report(&["metrics", name], format!("`{name}` cannot be the name of a metric"), hint);
        }
        findings
    }
}

/// Checks of several programs that the schema cannot express.
pub(super) const SEVERAL_UNMEASURED: &str = "`run` has several programs, which only `measures: true` runs";

impl Config {
    /// How the program is measured, if it is.
    pub fn measurement(&self) -> Option<Measurement> {
        match &self.measures {
            Measures::Switch(false) => None,
            Measures::Switch(true) => Some(Measurement::default()),
            Measures::Options(measurement) => Some(measurement.clone()),
        }
    }

    /// What is wrong with a measurement, or with several programs without one.
    fn report_measurement(&self, report: &mut dyn FnMut(&[&str], String, &str)) {
        let measurement = self.measurement();
        if let Commands::Several(programs) = &self.run {
            if programs.is_empty() {
                report(&["run"], "`run` has no program".into(), "name at least one");
            }
            if measurement.is_none() {
                report(&["run"], SEVERAL_UNMEASURED.into(), "add `measures: true`, or make a job for each program");
            }
            for name in programs.keys().filter(|name| name.contains('/') || !is_metric_name(name)) {
                let hint = "the name is part of the names of metrics: use letters, digits and `_ - .`";
                report(&["run", name], format!("`{name}` cannot name a program"), hint);
            }
            if !self.outputs.is_empty() {
                let hint = "leave the outputs out, or make a job for each program";
                report(&["outputs"], "several programs would write the same outputs".into(), hint);
            }
        }
        let Some(measurement) = measurement else { return };
        if measurement.samples < FEWEST_SAMPLES {
            let message = format!("{} samples are fewer than {FEWEST_SAMPLES}", measurement.samples);
            report(&["measures", "samples"], message, "give 6 or more: fewer have no interval of their median");
        }
        if let Some(base) = &measurement.compare {
            let named = self.run.named();
            let names: Vec<&str> = named.iter().filter_map(|(name, _)| *name).collect();
            if !names.contains(&base.as_str()) {
                let hint = match names.as_slice() {
                    [] => "give several programs by name: `run: {a: [..], b: [..]}`".to_owned(),
                    names => format!("give one of {}", names.join(", ")),
                };
                report(&["measures", "compare"], format!("`{base}` is not one of the programs of `run`"), &hint);
            }
        }
    }
}

/// Whether a text is a plain file name without separators.
fn is_plain_name(name: &str) -> bool {
    !name.contains('\0') && Path::new(name).components().eq([Component::Normal(name.as_ref())])
}

/// Whether a path stays inside the folder that it is relative to.
pub(super) fn is_inside(path: &Path) -> bool {
    let mut parts = path.components().filter(|part| *part != Component::CurDir).peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// Converts a text into a metric name: invalid characters become `_`, and a text that is not a valid name is truncated to 80 characters.
pub(super) fn to_metric_name(text: &str) -> String {
    if is_metric_name(text) {
        return text.to_owned();
    }
    let plain = |c: char| if is_metric_name(&c.to_string()) { c } else { '_' };
    let name: String = text.chars().map(plain).take(80).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// Whether a text is a valid metric name.
pub(crate) fn is_metric_name(name: &str) -> bool {
    let fits = (1..=250).contains(&name.len());
    fits && name
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ' ' | '%' | '@' | ':' | '(' | ')'))
}
