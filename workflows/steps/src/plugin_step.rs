//! The step kind `plugin`: a whole step in a plugin, which reads the inputs and writes the outputs that its config names.

use std::collections::BTreeMap;
use std::path::Path;

use assay_spec::{ArtifactRef, Finding, OutputKind, StepKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::command::{DeclaredMetric, is_metric_name};
use crate::context::{Context, StepError};
use crate::plugin::{PLUGINS_OUTPUT, Plugin, PluginRef, PluginStep, forward_log, report_plugins, start_plugin};
use crate::step::{ArtifactSchema, Step, parse, schema_of};

/// Runs a plugin as a step.
pub struct RunPlugin;

/// A plugin and its files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// A name under `plugins:` of the workflow file.
    plugin: PluginRef,
    /// The plugin's config; `assay plugin run` shows what it accepts.
    #[serde(default)]
    config: Map<String, Value>,
    /// Artifacts of earlier jobs, by the names under which the plugin reads them.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ArtifactSchema>")]
    inputs: BTreeMap<String, ArtifactRef>,
    /// The metrics that the plugin reports, with their direction and unit. Metrics that are not named here are stored too, but only
    /// these have a column in the table of results.
    #[serde(default)]
    #[schemars(extend("x-declares" = "metrics"))]
    metrics: BTreeMap<String, DeclaredMetric>,
    /// The outputs that the plugin writes, and the names of their files. The plugin must write each of them.
    #[serde(default)]
    #[schemars(extend("x-declares" = "outputs"))]
    outputs: BTreeMap<String, String>,
}

/// The name of the output with the plugin's own result.
const RESULT: &str = "result";

impl Step for RunPlugin {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "plugin",
            version: 1,
            measures: false,
            about: "Runs a plugin as a whole step: a sandboxed program that reads inputs, and writes outputs and metrics.",
            schema: schema_of::<Config>(),
            outputs: &[OutputKind { name: RESULT, about: "What the plugin returns: any JSON value." }, PLUGINS_OUTPUT],
            metrics: &[],
            check,
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        let config: Config = parse(config)?;
        if let Some(finding) = find_problems(&config).into_iter().next() {
            return Err(StepError::Failed { message: finding.message, hint: finding.hint });
        }
        let folder = context.workdir().join("outputs");
        std::fs::create_dir_all(&folder)
            .map_err(|error| StepError::failed(format!("cannot create `{}`: {error}", folder.display())))?;
        let inputs = config.inputs.iter().map(|(name, artifact)| Ok((name.clone(), context.input(artifact)?)));
        let step = PluginStep {
            config: Value::Object(config.config.clone()),
            replicate: context.replicate(),
            inputs: inputs.collect::<Result<_, StepError>>()?,
            outputs: config.outputs.iter().map(|(name, file)| (name.clone(), folder.join(file))).collect(),
        };
        let name = config.plugin.name();
        let mut plugin = start_plugin(&config.plugin, context)?;
        let made = plugin.run_step(name, &step, context);
        forward_log(name, plugin.as_mut(), context);
        let made = made?;
        for (output, path) in &step.outputs {
            if !made.written.contains(output) {
                return Err(StepError::Failed {
                    message: format!("the plugin `{name}` did not write the output `{output}`"),
                    hint: Some("write it with `artifacts.write`, or remove it from `outputs`".into()),
                });
            }
            context.artifact(output, path)?;
        }
        context.value(RESULT, made.result);
        report_plugins([(&config.plugin, plugin.as_ref() as &dyn Plugin)], context);
        Ok(())
    }
}

/// Checks that the schema cannot express.
fn check(config: &Value) -> Vec<Finding> {
    parse::<Config>(config.clone()).map(|config| find_problems(&config)).unwrap_or_default()
}

fn find_problems(config: &Config) -> Vec<Finding> {
    let finding = |path: [&str; 2], message: String, hint: &str| Finding {
        path: path.map(str::to_owned).into(),
        message,
        hint: Some(hint.into()),
    };
    let mut findings = Vec::new();
    let mut files = BTreeMap::new();
    for (name, file) in &config.outputs {
        if !is_file_name(file) {
            let message = format!("`{file}` cannot be the name of a file");
            findings.push(finding(["outputs", name], message, "use a name without `/`"));
        }
        if matches!(name.as_str(), RESULT | "plugins") {
            let message = format!("`{name}` is set by the step itself");
            findings.push(finding(["outputs", name], message, "choose another name"));
        }
        if let Some(other) = files.insert(file, name) {
            let message = format!("the outputs `{other}` and `{name}` are written to the same file `{file}`");
            findings.push(finding(["outputs", name], message, "choose another file name"));
        }
    }
    for name in config.metrics.keys().filter(|name| !is_metric_name(name)) {
        let hint = "use letters, digits and `_ - . /`, at most 250 of them";
        findings.push(finding(["metrics", name], format!("`{name}` cannot be the name of a metric"), hint));
    }
    findings
}

/// Whether a text is a plain file name without separators.
fn is_file_name(name: &str) -> bool {
    !name.contains('\0') && Path::new(name).components().eq([std::path::Component::Normal(name.as_ref())])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::TestContext;

    fn context() -> TestContext {
        TestContext::new(assay_cpu::device(1).unwrap())
    }

    #[test]
    fn inputs_outputs_metrics_and_the_result_pass_through() {
        let mut context = context();
        let plugin = context.provide_plugin("copy");
        let file = context.workdir().join("source.txt");
        std::fs::write(&file, "abc").unwrap();
        let data = context.provide(&file);
        let config = json!({
            "plugin": plugin, "config": {"times": 2}, "inputs": {"data": data}, "outputs": {"data": "copy.txt"},
            "metrics": {"bytes": {"better": "lower"}},
        });
        context.run(&RunPlugin, config).unwrap();
        assert_eq!(std::fs::read_to_string(&context.artifacts["data"]).unwrap(), "abcabc");
        assert_eq!(context.last("bytes"), Some(6.0));
        assert_eq!(context.values["result"], json!({"replicate": 1}));
        assert_eq!(context.values["plugins"][0]["version"], "1.2.3");
    }

    #[test]
    fn an_output_that_is_not_written_fails_the_step() {
        let mut context = context();
        let plugin = context.provide_plugin("copy");
        let error = context.run(&RunPlugin, json!({"plugin": plugin, "outputs": {"other": "x"}})).unwrap_err();
        assert_eq!(error.to_string(), "the plugin `copy` did not write the output `other`");
    }

    #[test]
    fn a_config_that_makes_no_sense_is_refused() {
        let message = |config: Value| (RunPlugin.kind().check)(&config).first().map(|finding| finding.message.clone());
        let with = |outputs: Value| message(json!({"plugin": "copy", "outputs": outputs}));
        assert_eq!(with(json!({"a": "x/y"})).unwrap(), "`x/y` cannot be the name of a file");
        assert_eq!(
            with(json!({"a": "x", "b": "x"})).unwrap(),
            "the outputs `a` and `b` are written to the same file `x`"
        );
        assert_eq!(with(json!({"result": "x"})).unwrap(), "`result` is set by the step itself");
        assert_eq!(
            message(json!({"plugin": "copy", "metrics": {"a\n": {}}})).unwrap(),
            "`a\n` cannot be the name of a metric"
        );
        assert_eq!(with(json!({"a": "x"})), None);
    }
}
