//! The step kind `search`: one round of a searcher plugin, which proposes the parameters of trials.
//!
//! A search is a chain of jobs: a round, a job with one cell for each proposed trial, the next round with their results. Each round
//! is a task with a cached result, so that a search resumes and replays without calling the plugin again.

use std::io::Read;

use assay_spec::{ArtifactRef, Finding, OutputKind, StepKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::context::{Context, StepError};
use crate::plugin::{PLUGINS_OUTPUT, Plugin, PluginRef, forward_log, report_plugins, start_plugin};
use crate::step::{ArtifactSchema, Step, parse, schema_of};

/// The size limit of a state, in bytes.
const MOST_STATE: u64 = 1 << 20;

/// Asks a searcher for trials.
pub struct Search;

/// A round of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// A name under `plugins:` of the workflow file.
    plugin: PluginRef,
    /// The plugin's config; `assay plugin run` shows what it accepts.
    #[serde(default)]
    config: Map<String, Value>,
    /// The parameters: a list of values for each, or another form that the plugin accepts.
    space: Map<String, Value>,
    /// The seed of the search.
    #[serde(default)]
    seed: u64,
    /// The largest number of trials of this round.
    #[schemars(range(min = 1, max = 1000))]
    count: u32,
    /// The output `state` of the previous round; absent in the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ArtifactSchema>")]
    state: Option<ArtifactRef>,
    /// The results of the trials of the previous round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    results: Option<Results>,
}

/// Finished trials. Replicates of a trial have equal parameters; the searcher gets the mean of their values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Results {
    /// The parameters of each trial: `${{ needs.JOB.cells | map(attribute='matrix') | list }}`.
    params: Vec<Map<String, Value>>,
    /// The objective of each trial, null for a trial that failed: `${{ needs.JOB.cells | map(attribute='metrics.NAME',
    /// default=none) | list }}`. Whether smaller or larger is better is up to the plugin.
    values: Vec<Option<f64>>,
}

impl Results {
    /// One result for each set of parameters, in the order of their first occurrence.
    fn mean_of_replicates(&self) -> Vec<(Value, Option<f64>)> {
        let mut groups: Vec<(&Map<String, Value>, Vec<f64>)> = Vec::new();
        for (params, value) in self.params.iter().zip(&self.values) {
            let index = groups.iter().position(|(known, _)| *known == params).unwrap_or_else(|| {
                groups.push((params, Vec::new()));
                groups.len() - 1
            });
            groups[index].1.extend(*value);
        }
        let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        groups.into_iter().map(|(params, values)| (Value::Object(params.clone()), mean(&values))).collect()
    }
}

impl Step for Search {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "search",
            version: 1,
            measures: false,
            about: "Asks a searcher plugin for the parameters of the next trials.",
            schema: schema_of::<Config>(),
            outputs: &[
                OutputKind {
                    name: "trials",
                    about: "The parameters of each trial: a list for `strategy: {matrix: {include: ..}}`.",
                },
                OutputKind { name: "finished", about: "Whether the search has ended after these trials." },
                OutputKind { name: "state", about: "The state of the searcher: a file for the next round." },
                PLUGINS_OUTPUT,
            ],
            metrics: &[],
            check,
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        let config: Config = parse(config)?;
        if let Some(finding) = find_problem(&config) {
            return Err(StepError::Failed { message: finding.message, hint: finding.hint });
        }
        let mut plugin = start_plugin(&config.plugin, context)?;
        // The plugin learns its config and the space in every round, since each round is a separate process.
        let first = plugin.open_searcher(
            &Value::Object(config.config.clone()),
            &Value::Object(config.space.clone()),
            config.seed,
        )?;
        let state = config.state.as_ref().map(|state| read_state(state, context)).transpose()?.unwrap_or(first);
        let results = config.results.as_ref().map(Results::mean_of_replicates).unwrap_or_default();
        let proposal = plugin.propose_trials(state, &results, config.count)?;
        forward_log(config.plugin.name(), plugin.as_mut(), context);
        let file = context.workdir().join("state");
        std::fs::write(&file, &proposal.state)
            .map_err(|error| StepError::failed(format!("cannot write `{}`: {error}", file.display())))?;
        context.artifact("state", &file)?;
        let (proposed, trials) = (proposal.trials.len(), remove_repeated(proposal.trials));
        let last = if proposal.finished { ", the last ones" } else { "" };
        context.log(&format!("{} trials{last}", trials.len()));
        if trials.len() < proposed {
            context.log(&format!("{} more were proposed twice", proposed - trials.len()));
        }
        context.value("trials", trials.into_iter().map(Value::Object).collect());
        context.value("finished", Value::Bool(proposal.finished));
        report_plugins([(&config.plugin, plugin.as_ref() as &dyn Plugin)], context);
        Ok(())
    }
}

/// Each trial once, in the order of their first occurrence: a matrix cannot have two equal cells.
fn remove_repeated(trials: Vec<Map<String, Value>>) -> Vec<Map<String, Value>> {
    let mut kept: Vec<Map<String, Value>> = Vec::with_capacity(trials.len());
    for trial in trials {
        if !kept.contains(&trial) {
            kept.push(trial);
        }
    }
    kept
}

fn read_state(state: &ArtifactRef, context: &mut dyn Context) -> Result<Vec<u8>, StepError> {
    let path = context.input(state)?;
    let unreadable = |error: std::io::Error| StepError::failed(format!("cannot read `{}`: {error}", path.display()));
    let mut bytes = Vec::new();
    std::fs::File::open(&path).map_err(unreadable)?.take(MOST_STATE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MOST_STATE {
        return Err(StepError::Failed {
            message: format!("`{}` is larger than the state of a searcher can be (1 MiB)", state.name),
            hint: Some("give the output `state` of a step `search`".into()),
        });
    }
    Ok(bytes)
}

/// Checks that the schema cannot express.
fn check(config: &Value) -> Vec<Finding> {
    parse::<Config>(config.clone()).ok().and_then(|config| find_problem(&config)).into_iter().collect()
}

fn find_problem(config: &Config) -> Option<Finding> {
    let finding = |key: &str, message: String, hint: &str| {
        Some(Finding { path: vec![key.to_owned()], message, hint: Some(hint.into()) })
    };
    if config.space.is_empty() {
        return finding("space", "the space has no parameters".into(), "write `space: {states: [8, 16, 32]}`");
    }
    if config.state.is_some() != config.results.is_some() {
        let message = "`state` and `results` of the previous round belong together".into();
        return finding("state", message, "give both, or neither in the first round");
    }
    match &config.results {
        Some(Results { params, values }) if params.len() != values.len() => {
            let message = format!("`results` has {} parameters and {} values", params.len(), values.len());
            finding("results", message, "both lists have one element for each trial")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::TestContext;

    #[test]
    fn a_round_proposes_trials_from_the_results_of_the_last_one() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let plugin = context.provide_plugin("count");
        let base = json!({"plugin": plugin, "space": {"states": [8, 16]}, "count": 2});
        context.run(&Search, base.clone()).unwrap();
        assert_eq!(context.values["trials"], json!([{"trial": 0, "seen": []}, {"trial": 1, "seen": []}]));
        assert_eq!(context.values["finished"], json!(false));
        let state = context.provide(&context.artifacts["state"].clone());
        let mut next = base;
        next["state"] = json!(state);
        // Two replicates of a trial, one that failed, and a trial that failed.
        next["results"] = json!({"params": [{"a": 1}, {"a": 2}, {"a": 1}, {"a": 3}, {"a": 1}], "values": [1.0, 5.0, 3.0, null, null]});
        context.artifacts.clear();
        context.run(&Search, next).unwrap();
        let seen = json!([[{"a": 1}, 2.0], [{"a": 2}, 5.0], [{"a": 3}, null]]);
        assert_eq!(context.values["trials"][1], json!({"trial": 3, "seen": seen}));
        assert_eq!(context.values["finished"], json!(true));
    }

    #[test]
    fn a_trial_that_is_proposed_twice_is_run_once() {
        let trial = |x: u32| json!({"x": x}).as_object().cloned().unwrap();
        assert_eq!(remove_repeated(vec![trial(1), trial(2), trial(1)]), [trial(1), trial(2)]);
    }

    #[test]
    fn a_config_that_makes_no_sense_is_refused() {
        let message = |config: Value| (Search.kind().check)(&config).first().map(|finding| finding.message.clone());
        let state = json!({"$artifact": "0".repeat(64), "name": "state", "bytes": 1});
        let full = json!({"plugin": "count", "space": {"a": [1]}, "count": 1, "state": state, "results": {"params": [], "values": []}});
        assert_eq!(message(full.clone()), None);
        let without = |key: &str| {
            let mut config = full.clone();
            config.as_object_mut().unwrap().remove(key);
            config
        };
        assert_eq!(message(without("state")).unwrap(), "`state` and `results` of the previous round belong together");
        let mut uneven = full.clone();
        uneven["results"]["values"] = json!([1.0]);
        assert_eq!(message(uneven).unwrap(), "`results` has 0 parameters and 1 values");
        let mut empty = full.clone();
        empty["space"] = json!({});
        assert_eq!(message(empty).unwrap(), "the space has no parameters");
    }
}
