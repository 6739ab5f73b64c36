//! The step kind `command`: runs one attempt of a program and collects its outputs.

use std::collections::BTreeMap;
use std::path::Path;

use assay_spec::{Better, Finding, MetricKind, StepKind};
use serde_json::Value;

use super::config::{Commands, Config, OutputFile, SEVERAL_UNMEASURED};
use super::execution::{MetricSink, run_program};
use super::folders::Folders;
use super::measured::measure_programs;
use crate::context::{Context, StepError};
use crate::quiet::DISTURBED;
use crate::step::{Step, parse, schema_of};

/// The largest JSON file that becomes a plain value, in bytes.
const LARGEST_VALUE: u64 = 1 << 20;

/// Runs a program.
pub struct RunCommand;

/// What the interval of a time covers.
const RUNS: &str = "the interval of a single replicate covers the runs of the program that were measured, on this machine at that time.";

/// The metrics of a measured program. The other metrics of a config are its own.
const METRICS: &[MetricKind] = &[
    MetricKind { headline: Some("time"), covers: RUNS, ..metric("time/median", "s", Better::Lower) },
    metric("time/median_low", "s", Better::Neither),
    metric("time/median_high", "s", Better::Neither),
    metric("time/mean", "s", Better::Lower),
    metric("time/mean_low", "s", Better::Neither),
    metric("time/mean_high", "s", Better::Neither),
    metric("time/outliers", "", Better::Neither),
    metric("time/samples", "", Better::Neither),
    metric("time/run", "s", Better::Neither),
    MetricKind { headline: Some("time"), covers: RUNS, ..metric("time/*/median", "s", Better::Lower) },
    metric("time/*/median_low", "s", Better::Neither),
    metric("time/*/median_high", "s", Better::Neither),
    metric("time/*/mean", "s", Better::Lower),
    metric("time/*/mean_low", "s", Better::Neither),
    metric("time/*/mean_high", "s", Better::Neither),
    metric("time/*/outliers", "", Better::Neither),
    metric("time/*/samples", "", Better::Neither),
    metric("time/*/run", "s", Better::Neither),
    metric("speedup/*/ratio", "", Better::Higher),
    metric("speedup/*/low", "", Better::Neither),
    metric("speedup/*/high", "", Better::Neither),
    metric("speedup/*/p", "", Better::Neither),
    DISTURBED,
];

const fn metric(name: &'static str, unit: &'static str, better: Better) -> MetricKind {
    MetricKind { name, unit, better, headline: None, covers: "" }
}

impl Step for RunCommand {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "command",
            version: 1,
            measures: false, // Only if the config requests it.
            about: "Runs a program: a training script, a benchmark, anything that can be started.",
            schema: schema_of::<Config>(),
            outputs: &[],
            metrics: METRICS,
            check,
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        let config: Config = parse(config)?;
        if let Some(finding) = config.findings().into_iter().next() {
            return Err(StepError::Failed { message: finding.message, hint: finding.hint });
        }
        let environment = config.environment.as_ref().map(|environment| environment.prepare(context)).transpose()?;
        let environment = environment.as_ref();
        let folders = match (config.measurement(), &config.run) {
            (Some(measurement), _) => measure_programs(&config, &measurement, environment, context)?,
            (None, Commands::One(arguments)) => {
                let folders = Folders::prepare(&config, context.workdir(), context.resume_dir(), context)?;
                run_program(arguments, &config, &folders, environment, MetricSink::Attempt, context)?;
                folders
            }
            (None, Commands::Several(_)) => return Err(StepError::failed(SEVERAL_UNMEASURED)),
        };
        collect_outputs(&config.outputs, &folders.outputs, context)
    }
}

/// Checks that the schema cannot express.
fn check(config: &Value) -> Vec<Finding> {
    parse::<Config>(config.clone()).map(|config| config.findings()).unwrap_or_default()
}

fn collect_outputs(
    outputs: &BTreeMap<String, OutputFile>,
    folder: &Path,
    context: &mut dyn Context,
) -> Result<(), StepError> {
    for (name, output) in outputs {
        let path = folder.join(output.path());
        let missing = |what: &str, hint: &str| StepError::Failed {
            message: format!("the output `{name}` is missing: `$ASSAY_OUTPUTS/{}` {what}", output.path()),
            hint: Some(hint.into()),
        };
        let data = std::fs::metadata(&path);
        let data = data.map_err(|_| missing("is not there", "the program has to write it before it ends"))?;
        if !data.is_file() {
            return Err(missing("is not a file", "pack a folder into an archive"));
        }
        let inside = path.canonicalize().ok().zip(folder.canonicalize().ok());
        if inside.is_none_or(|(path, folder)| !path.starts_with(folder)) {
            return Err(missing("is a link to a file outside of it", "copy the file"));
        }
        match output {
            OutputFile::Artifact(_) => context.artifact(name, &path)?,
            OutputFile::Value { .. } if data.len() > LARGEST_VALUE => {
                return Err(missing("is larger than 1 MiB", "make it an artifact: give its path without `json:`"));
            }
            OutputFile::Value { .. } => {
                let text =
                    std::fs::read(&path).map_err(|error| missing(&format!("cannot be read: {error}"), "check it"))?;
                let value = serde_json::from_slice(&text)
                    .map_err(|error| missing(&format!("is not JSON: {error}"), "write one JSON value"))?;
                context.value(name, value);
            }
        }
    }
    Ok(())
}
