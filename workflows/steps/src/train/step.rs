//! The step kind `train`: its declaration, and the sequence from dataset to checkpoint.

use assay_models::{Model, ModelError, Precision, Weight, checkpoint};
use assay_spec::{Better, Finding, MetricKind, OutputKind, StepKind};
use assay_tensor::{DType, Device};
use serde_json::Value;

use super::config::Config;
use super::run::Trainer;
use crate::context::{Context, StepError};
use crate::dataset::Dataset;
use crate::planned::{CHOSEN_DIM, CHOSEN_PARAMETERS, resolve_model};
use crate::plugin::PLUGINS_OUTPUT;
use crate::random::seed_for;
use crate::scoring::scored;
use crate::step::{Step, parse, schema_of};

/// Fits a model to a dataset.
pub struct Train;

const OUTPUTS: &[OutputKind] = &[
    OutputKind {
        name: "model",
        about: "The trained model: that after the last step, or with `keep: best` that of the best evaluation.",
    },
    PLUGINS_OUTPUT,
    OutputKind { name: "profile", about: "With `profile: true`: a trace of the first 100 steps, in Chrome's format." },
];

const METRICS: &[MetricKind] = &[
    scored("test/accuracy", Better::Higher, Some("accuracy")),
    scored("test/loss", Better::Lower, Some("loss")),
    scored("test/perplexity", Better::Lower, Some("perplexity")),
    scored("test/perplexity_per_byte", Better::Lower, None),
    scored("test/bits_per_byte", Better::Lower, Some("bits per byte")),
    scored("test/perplexity_per_word", Better::Lower, None),
    metric("size/bytes", "B", Better::Lower, Some("size")),
    scored("valid/loss", Better::Lower, None),
    scored("valid/accuracy", Better::Higher, None),
    scored("valid/perplexity", Better::Lower, None),
    scored("valid/perplexity_per_byte", Better::Lower, None),
    scored("valid/bits_per_byte", Better::Lower, None),
    scored("valid/perplexity_per_word", Better::Lower, None),
    metric("train/loss", "", Better::Lower, None),
    metric("train/accuracy", "", Better::Higher, None),
    metric("train/gradient_norm", "", Better::Neither, None),
    metric("train/learning_rate", "", Better::Neither, None),
    metric("train/tokens_per_second", "/s", Better::Higher, None),
    metric("train/tokens", "", Better::Neither, None),
    metric("train/stage", "", Better::Neither, None),
    metric("memory/peak_bytes", "B", Better::Lower, None),
    metric("model/parameters", "", Better::Lower, None),
    CHOSEN_PARAMETERS,
    CHOSEN_DIM,
    metric("stopped/step", "", Better::Neither, None),
    metric("best/step", "", Better::Neither, None),
    metric("best/value", "", Better::Neither, None),
    metric("kept/step", "", Better::Neither, None),
    // Telemetry of the families.
    metric("ten/*", "", Better::Neither, None),
    metric("ten/*/*", "", Better::Neither, None),
    metric("pulse/*", "", Better::Neither, None),
    metric("pulse/*/*", "", Better::Neither, None),
    metric("attention/density", "", Better::Neither, None),
    scored("valid/plugin/*/*", Better::Neither, None),
    scored("test/plugin/*/*", Better::Neither, None),
];

const fn metric(name: &'static str, unit: &'static str, better: Better, headline: Option<&'static str>) -> MetricKind {
    MetricKind { name, unit, better, headline, covers: "" }
}

impl Step for Train {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "train",
            version: 4,
            measures: false,
            about: "Fits a model to a dataset, in stages of growing length.",
            schema: schema_of::<Config>(),
            outputs: OUTPUTS,
            metrics: METRICS,
            check,
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        let config: Config = parse(config)?;
        if let Some(finding) = config.findings().into_iter().next() {
            return Err(StepError::Failed { message: finding.message, hint: finding.hint });
        }
        check_precision(config.precision, context.device())?;
        let dataset = Dataset::read(&context.input(&config.data)?)?;
        let model = create_model(&config, &dataset, context)?;
        let mut trainer = Trainer::new(&config, &model, &dataset, context)?;
        let model = trainer.resume(model, context)?;
        let (model, kept) = trainer.run(model, context)?;
        if config.profile {
            let path = context.workdir().join("profile.json");
            trainer.profiler().write(&path)?;
            context.artifact("profile", &path)?;
        }
        write_model(&mut trainer, (&model, kept), context)
    }
}

fn check(config: &Value) -> Vec<Finding> {
    parse::<Config>(config.clone()).map(|config| config.findings()).unwrap_or_default()
}

/// Whether the device supports the type: checked before the data are read.
fn check_precision(precision: Precision, device: &Device) -> Result<(), StepError> {
    let info = device.info();
    if precision == Precision::F32 || info.dtypes.contains(&DType::Bf16) {
        return Ok(());
    }
    Err(StepError::Failed {
        message: format!("`precision: bf16` needs a device that supports bf16, and {} does not", info.name),
        hint: Some("leave `precision` out, or use another backend, such as `cpu`".into()),
    })
}

fn create_model(config: &Config, dataset: &Dataset, context: &mut dyn Context) -> Result<Model, StepError> {
    let seed = seed_for(config.seed, context.replicate(), "parameters");
    let task = dataset.task();
    let sized = resolve_model(&config.model, &task, context)?;
    let model = Model::fresh(context.device(), &sized.config, &task, seed, DType::F32)?;
    let count = sized.parameters;
    context.log(&format!(
        "{} with {count} parameters on {}; {} training sequences of `{}`",
        sized.config.family(),
        context.device().name(),
        dataset.train.len(),
        dataset.about.name
    ));
    Ok(model)
}

/// Writes the checkpoint of the model, whose parameters are those after the step `kept`, and scores the test split, which
/// no choice depends on. A model with non-finite parameters is refused, even if no batch was affected: after the last
/// update, or in parameters that no sequence uses.
fn write_model(
    trainer: &mut Trainer,
    (model, kept): (&Model, u64),
    context: &mut dyn Context,
) -> Result<(), StepError> {
    for (name, parameter) in model.parameters().iter() {
        if let Weight::Dense(tensor) = &parameter.value
            && let Some(value) = tensor.to_f32_vec().map_err(ModelError::from)?.iter().find(|value| !value.is_finite())
        {
            return Err(trainer.diverged(&format!("`{name}` contains {value} after step {kept}")));
        }
    }
    let path = context.workdir().join("model.safetensors");
    let bytes = checkpoint::save(model, &path)?;
    context.metric("size/bytes", kept, bytes as f64);
    let (test, of_plugins) = trainer.score_split(model, "test", context)?;
    context.metric("test/loss", kept, test.loss);
    context.metric("test/accuracy", kept, test.accuracy);
    for (measure, value) in test.perplexities(model.task().objective, trainer.text("test")) {
        context.metric(&format!("test/{measure}"), kept, value);
    }
    of_plugins.iter().for_each(|(name, value)| context.metric(name, kept, *value));
    context.log(&format!("test: loss {:.3}, accuracy {:.1} %", test.loss, 100.0 * test.accuracy));
    if !test.loss.is_finite() {
        return Err(trainer.diverged(&format!("the test loss is {}", test.loss)));
    }
    context.artifact("model", &path)
}

#[cfg(test)]
mod tests {
    use super::super::tests::context;
    use super::*;

    #[test]
    fn a_parameter_that_is_no_number_spoils_the_result() {
        let (mut context, config) = context(1);
        let config: Config = parse(config).unwrap();
        let dataset = Dataset::read(&context.input(&config.data).unwrap()).unwrap();
        let model = create_model(&config, &dataset, &mut context).unwrap();
        let spoiled = model.parameters().map(|name, tensor| match name {
            "embedding.table" => Ok(tensor.scale(f64::NAN)?),
            _ => Ok(tensor.clone()),
        });
        let model = model.with_parameters(&spoiled.unwrap()).unwrap();
        let mut trainer = Trainer::new(&config, &model, &dataset, &mut context).unwrap();
        let Err(StepError::Check { message, .. }) = write_model(&mut trainer, (&model, 80), &mut context) else {
            panic!("the model was accepted")
        };
        assert!(message.contains("`embedding.table` contains NaN after step 80"), "{message}");
        assert!(context.artifacts.is_empty());
    }
}
