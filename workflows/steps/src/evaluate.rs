//! `uses: evaluate`: scores a checkpoint on a split of a dataset.

use assay_spec::{ArtifactRef, Better, MetricKind, OutputKind, StepKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::batching::Batching;
use crate::context::{Context, StepError};
use crate::load::{dataset_for, load};
use crate::plugin::{ConfiguredPlugin, PLUGINS_OUTPUT, report_plugins};
use crate::plugin_metric::PluginMetric;
use crate::scoring::{GroupScore, score_groups, scored};
use crate::step::{ArtifactSchema, Step, no_findings, parse, schema_of};

impl GroupScore {
    /// Whether at least 95 % of the answers are correct: the threshold of Weston et al. (2015).
    fn is_solved(self) -> bool {
        100 * self.correct >= 95 * self.count
    }
}

/// Scores a checkpoint.
pub struct Evaluate;

/// What to score, on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The checkpoint, as `${{ needs.JOB.outputs.model }}`.
    #[schemars(with = "ArtifactSchema")]
    model: ArtifactRef,
    /// The dataset, as `${{ needs.JOB.outputs.dataset }}`.
    #[schemars(with = "ArtifactSchema")]
    data: ArtifactRef,
    /// The split to score.
    #[serde(default)]
    split: SplitName,
    /// Sequences per forward pass. It changes the memory needed, and the result only by rounding.
    #[serde(default = "default_batch")]
    #[schemars(range(min = 1, max = 65536))]
    batch_size: usize,
    /// Metrics that plugins compute from the predictions, reported as `SPLIT/plugin/NAME/VALUE`.
    #[serde(default)]
    metrics: Vec<ConfiguredPlugin>,
}

/// A split of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SplitName {
    /// The data that the model was trained on.
    Train,
    /// The data that choices were based on.
    Valid,
    /// The data that was not used before.
    #[default]
    Test,
}

fn default_batch() -> usize {
    64
}

const OUTPUTS: &[OutputKind] = &[
    OutputKind {
        name: "accuracy",
        about: "The accuracy, with Wilson's 95 % interval (none for a language model): {value, interval, n, method}.",
    },
    PLUGINS_OUTPUT,
];

const METRICS: &[MetricKind] = &[
    scored("*/accuracy", Better::Higher, Some("evaluated accuracy")),
    scored("*/loss", Better::Lower, Some("evaluated loss")),
    scored("*/perplexity", Better::Lower, Some("evaluated perplexity")),
    scored("*/perplexity_per_byte", Better::Lower, None),
    scored("*/bits_per_byte", Better::Lower, Some("evaluated bits per byte")),
    scored("*/perplexity_per_word", Better::Lower, None),
    scored("*/accuracy_low", Better::Neither, None),
    scored("*/accuracy_high", Better::Neither, None),
    scored("*/error/*", Better::Lower, None),
    scored("*/tasks_solved", Better::Higher, Some("tasks solved")),
    scored("*/plugin/*/*", Better::Neither, None),
];

impl Step for Evaluate {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "evaluate",
            version: 3,
            measures: false,
            about: "Scores a checkpoint on a split of a dataset.",
            schema: schema_of::<Config>(),
            outputs: OUTPUTS,
            metrics: METRICS,
            check: no_findings,
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        let config: Config = parse(config)?;
        let model = load(context, &config.model)?;
        let dataset = dataset_for(&model, context, &config.data)?;
        let (name, split) = match config.split {
            SplitName::Train => ("train", &dataset.train),
            SplitName::Valid => ("valid", &dataset.valid),
            SplitName::Test => ("test", &dataset.test),
        };
        let groups = &dataset.about.groups;
        let mut metrics = PluginMetric::start_all(&config.metrics, context)?;
        let batching = Batching::Sequences(config.batch_size);
        let (score, by_group) =
            score_groups(&model, split, groups.len(), batching, || context.cancelled(), &mut metrics)?;
        let objective = model.task().objective;
        let accuracy = score.estimate(objective)?;
        context.metric(&format!("{name}/loss"), 0, score.loss);
        let text = dataset.about.text.map(|text| text.of(name));
        for (measure, value) in score.perplexities(objective, text) {
            context.metric(&format!("{name}/{measure}"), 0, value);
        }
        context.metric(&format!("{name}/accuracy"), 0, score.accuracy);
        for (end, value) in [("low", accuracy.low()), ("high", accuracy.high())] {
            if let Some(value) = value {
                context.metric(&format!("{name}/accuracy_{end}"), 0, value);
            }
        }
        // A task without questions in the split has no error, and does not count as solved.
        let mut solved = 0;
        for (task, score) in groups.iter().zip(by_group).filter(|(_, score)| score.count > 0) {
            let wrong = score.count - score.correct;
            context.metric(&format!("{name}/error/{task}"), 0, wrong as f64 / score.count as f64);
            solved += u32::from(score.is_solved());
        }
        if !groups.is_empty() {
            context.metric(&format!("{name}/tasks_solved"), 0, f64::from(solved));
        }
        for metric in &mut metrics {
            for (name, value) in metric.finish(name, context)? {
                context.metric(&name, 0, value);
            }
        }
        report_plugins(metrics.iter().map(PluginMetric::used), context);
        let value = serde_json::to_value(accuracy).map_err(|error| StepError::failed(error.to_string()))?;
        context.value("accuracy", value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{TestContext, toy_dataset};

    #[test]
    fn the_asked_split_is_scored_with_its_interval() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let config = json!({"family": "transformer", "dim": 8, "layers": 1, "heads": 2});
        let (model, data) = (context.provide_model(config, 1), context.provide_dataset());
        for (split, count) in [("valid", toy_dataset().valid.len()), ("test", toy_dataset().test.len())] {
            context.run(&Evaluate, json!({"model": model, "data": data, "split": split})).unwrap();
            let accuracy = context.last(&format!("{split}/accuracy")).unwrap();
            let (low, high) = ("accuracy_low", "accuracy_high");
            let [low, high] = [low, high].map(|name| context.last(&format!("{split}/{name}")).unwrap());
            assert!(low <= accuracy && accuracy <= high && low < high);
            assert!(context.last(&format!("{split}/loss")).unwrap() > 0.0);
            assert_eq!(context.values["accuracy"]["n"], count);
        }
        assert!(context.last("train/loss").is_none());
    }

    #[test]
    fn metrics_of_plugins_see_each_prediction_once() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let config = json!({"family": "transformer", "dim": 8, "layers": 1, "heads": 2});
        let (model, data) = (context.provide_model(config, 1), context.provide_dataset());
        let metrics = json!([{"plugin": context.provide_plugin("targets")}]);
        let config = json!({"model": model, "data": data, "batch_size": 7, "metrics": metrics});
        context.run(&Evaluate, config.clone()).unwrap();
        let test = toy_dataset().test;
        let mean = test.labels().iter().sum::<u32>() as f64 / test.len() as f64;
        assert_eq!(context.last("test/plugin/targets/mean"), Some(mean));
        assert_eq!(context.last("test/plugin/targets/none"), None);
        assert!(context.logs.iter().any(|line| line.contains("`none` of the split `test` is NaN and is not recorded")));
        assert_eq!(context.values["plugins"][0]["name"], "targets");
        let mut twice = config;
        twice["metrics"] = json!([twice["metrics"][0], twice["metrics"][0]]);
        let error = context.run(&Evaluate, twice).unwrap_err().to_string();
        assert_eq!(error, "`metrics` lists the plugin `targets` twice");
    }

    #[test]
    fn a_language_model_has_a_perplexity_and_no_interval() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let config = json!({"family": "ten", "dim": 8, "layers": 1, "states": 4});
        let (model, data) = context.provide_language_model(config, 1);
        context.run(&Evaluate, json!({"model": model, "data": data, "batch_size": 3})).unwrap();
        let (loss, perplexity) = (context.last("test/loss").unwrap(), context.last("test/perplexity").unwrap());
        assert!((perplexity - loss.exp()).abs() < 1e-9 && perplexity > 1.0);
        assert!(context.last("test/accuracy_low").is_none());
        let tokens: usize = crate::testing::toy_text().test.lengths().map(|length| length - 1).sum();
        assert_eq!(context.values["accuracy"]["n"], tokens);
    }

    #[test]
    fn a_model_and_a_dataset_that_do_not_fit_are_refused() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let config = json!({"family": "ten", "dim": 8, "layers": 1, "states": 4});
        let (_, text) = context.provide_language_model(config.clone(), 1);
        let model = context.provide_model(config, 2);
        let error = context.run(&Evaluate, json!({"model": model, "data": text})).unwrap_err();
        assert!(error.to_string().contains("language model"), "{error}");
    }

    #[test]
    fn a_dataset_in_place_of_a_model_is_refused() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let data = context.provide_dataset();
        let error = context.run(&Evaluate, json!({"model": data, "data": data})).unwrap_err();
        assert!(error.to_string().contains("not a checkpoint"), "{error}");
    }

    #[test]
    fn a_task_is_solved_from_95_percent_on() {
        for (correct, count, solved) in [(19, 20, true), (950, 1000, true), (949, 1000, false), (18, 20, false)] {
            assert_eq!(GroupScore { correct, count }.is_solved(), solved, "{correct} of {count}");
        }
    }

    #[test]
    fn every_group_is_scored_by_itself() {
        let mut context = TestContext::new(assay_cpu::device(1).unwrap());
        let config = json!({"family": "transformer", "dim": 8, "layers": 1, "heads": 2});
        let model = context.provide_model(config, 1);
        let mut dataset = toy_dataset();
        dataset.about.groups = ["odd", "even", "none"].map(String::from).into();
        for split in [&mut dataset.train, &mut dataset.valid, &mut dataset.test] {
            let plain = std::mem::take(split);
            for index in 0..plain.len() {
                split.push_grouped(&plain.sequence(index), plain.labels()[index], (index % 2) as u32);
            }
        }
        let path = context.workdir().join("grouped.safetensors");
        dataset.write(&path).unwrap();
        let data = json!(context.provide(&path));
        context.run(&Evaluate, json!({"model": model, "data": data})).unwrap();
        let error = |name: &str| context.last(&format!("test/error/{name}"));
        // Each group has half of the sequences.
        let mean = (error("odd").unwrap() + error("even").unwrap()) / 2.0;
        assert!((mean - (1.0 - context.last("test/accuracy").unwrap())).abs() < 1e-9);
        assert_eq!((error("none"), context.last("test/tasks_solved")), (None, Some(0.0)));
    }
}
