//! `uses: quantize`: converts the matrices of a model to int8, and measures the loss of quality.
//!
//! Scheme `int8`: each matrix `[N, K]` of a linear layer, including the head's, has one scale for each output channel, `scale_n = max_k
//! |w_nk| / 127`, and `q = round(w / scale)` within -127 to 127, symmetric about zero, ties away from zero. Activations are quantized at
//! run time, with one scale per row. Embeddings, norms, biases and the recurrence stay f32.

use assay_models::{Model, ModelError, Parameter, Parameters, Role, Weight, checkpoint};
use assay_spec::{ArtifactRef, Better, MetricKind, OutputKind, StepKind};
use assay_tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::{Context, StepError};
use crate::dataset::Dataset;
use crate::load::{dataset_for, load};
use crate::scoring::{SplitScore, score_split, scored};
use crate::step::{ArtifactSchema, Step, no_findings, parse, schema_of};

/// Makes an int8 model of a float one.
pub struct Quantize;

/// What to quantize.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The checkpoint, as `${{ needs.JOB.outputs.model }}`.
    #[schemars(with = "ArtifactSchema")]
    model: ArtifactRef,
    /// A dataset on whose split `test` both models are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ArtifactSchema>")]
    data: Option<ArtifactRef>,
    /// How numbers are stored.
    #[serde(default)]
    scheme: Scheme,
    /// Sequences per forward pass when the models are compared. It changes the memory needed, and results only by
    /// rounding.
    #[serde(default = "default_batch")]
    #[schemars(range(min = 1, max = 65536))]
    batch_size: usize,
}

/// How numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Scheme {
    /// Weights symmetric int8 with a scale for each output channel; activations int8 with a scale for each row,
    /// computed at run time.
    #[default]
    Int8,
}

fn default_batch() -> usize {
    64
}

const OUTPUTS: &[OutputKind] = &[OutputKind { name: "model", about: "The quantized checkpoint." }];

const METRICS: &[MetricKind] = &[
    scored("quantized/accuracy", Better::Higher, Some("int8 accuracy")),
    metric("quantized/accuracy_low", "", Better::Neither, None),
    metric("quantized/accuracy_high", "", Better::Neither, None),
    metric("quantized/loss", "", Better::Lower, None),
    metric("quantized/accuracy_change", "", Better::Higher, None),
    metric("quantized/loss_change", "", Better::Lower, None),
    metric("quantized/perplexity", "", Better::Lower, None),
    metric("quantize/max_error", "", Better::Lower, None),
    metric("quantize/sqnr_db", "dB", Better::Higher, None),
    metric("size/bytes", "B", Better::Lower, None),
    metric("size/ratio", "", Better::Lower, None),
];

const fn metric(name: &'static str, unit: &'static str, better: Better, headline: Option<&'static str>) -> MetricKind {
    MetricKind { name, unit, better, headline, covers: "" }
}

impl Step for Quantize {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "quantize",
            version: 1,
            measures: false,
            about: "Stores the matrices of a model in int8, and reports the change in accuracy.",
            schema: schema_of::<Config>(),
            outputs: OUTPUTS,
            metrics: METRICS,
            check: no_findings,
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        let config: Config = parse(config)?;
        let model = load(context, &config.model)?;
        let (parameters, error) = quantize(model.parameters())?;
        let quantized = model.with_parameters(&parameters)?;
        let path = context.workdir().join("model.safetensors");
        let bytes = checkpoint::save(&quantized, &path)?;
        context.metric("size/bytes", 0, bytes as f64);
        context.metric("size/ratio", 0, bytes as f64 / checkpoint::to_file(&model)?.to_bytes().len() as f64);
        context.metric("quantize/max_error", 0, error.largest);
        context.metric("quantize/sqnr_db", 0, error.to_decibels());
        context.log(&format!(
            "{} matrices in int8: {bytes} bytes, error at most {:.2e}, signal to noise {:.1} dB",
            error.matrices,
            error.largest,
            error.to_decibels()
        ));
        if let Some(data) = &config.data {
            let dataset = dataset_for(&model, context, data)?;
            compare(&model, &quantized, &dataset, config.batch_size, context)?;
        }
        context.artifact("model", &path)
    }
}

/// The quantization error of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct WeightError {
    matrices: usize,
    /// The largest difference of a weight.
    largest: f64,
    /// The sum of the squares of the weights.
    signal: f64,
    /// The sum of the squares of the differences.
    noise: f64,
}

impl WeightError {
    /// The ratio of signal to quantization noise, 10 log10(sum w^2 / sum (w - q scale)^2), at most 300 dB.
    fn to_decibels(&self) -> f64 {
        (10.0 * (self.signal / self.noise).log10()).clamp(-300.0, 300.0)
    }
}

/// The same parameters with every matrix of a linear layer in int8.
pub(crate) fn quantize(parameters: &Parameters) -> Result<(Parameters, WeightError), StepError> {
    let mut error = WeightError::default();
    let mut quantized = Parameters::default();
    for (name, parameter) in parameters.iter() {
        let value = match (&parameter.value, parameter.role) {
            (Weight::Int8 { .. }, _) => {
                return Err(StepError::Failed {
                    message: format!("`{name}` is int8 already"),
                    hint: Some("quantize the model that `train` made".into()),
                });
            }
            (Weight::Dense(tensor), Role::Linear) => int8(name, tensor, &mut error)?,
            (Weight::Dense(tensor), _) => Weight::Dense(tensor.clone()),
        };
        quantized.insert(name, Parameter { value, role: parameter.role });
    }
    Ok((quantized, error))
}

/// One matrix, row by row.
fn int8(name: &str, tensor: &Tensor, error: &mut WeightError) -> Result<Weight, StepError> {
    let values = tensor.to_f32_vec().map_err(ModelError::from)?;
    let &[rows, columns] = tensor.dims() else {
        return Err(StepError::failed(format!("`{name}` has shape {:?}, and is not a matrix", tensor.dims())));
    };
    if let Some(value) = values.iter().find(|value| !value.is_finite()) {
        return Err(StepError::Failed {
            message: format!("`{name}` contains {value}, which int8 cannot represent"),
            hint: Some("the training diverged: look at its loss".into()),
        });
    }
    let (mut q, mut scales) = (Vec::with_capacity(values.len()), Vec::with_capacity(rows));
    for row in values.chunks_exact(columns.max(1)) {
        let largest = row.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        // A row of zeros can have any scale; so can a row whose scale would be subnormal.
        let scale = if largest / 127.0 >= f32::MIN_POSITIVE { largest / 127.0 } else { 1.0 };
        for &value in row {
            let rounded = (value / scale).round().clamp(-127.0, 127.0);
            let difference = f64::from(value) - f64::from(rounded) * f64::from(scale);
            error.largest = error.largest.max(difference.abs());
            error.signal += f64::from(value).powi(2);
            error.noise += difference.powi(2);
            q.push(rounded as i8);
        }
        scales.push(scale);
    }
    error.matrices += 1;
    let device = tensor.device();
    let q = Tensor::from_i8(device, q, [rows, columns]).map_err(ModelError::from)?;
    let scale = Tensor::from_f32(device, scales, [rows]).map_err(ModelError::from)?;
    Ok(Weight::Int8 { q, scale })
}

/// Scores both models on the split `test`.
fn compare(
    float: &Model,
    quantized: &Model,
    dataset: &Dataset,
    batch: usize,
    context: &mut dyn Context,
) -> Result<(), StepError> {
    let objective = float.task().objective;
    let mut scored = Vec::new();
    for (done, model) in [float, quantized].into_iter().enumerate() {
        context.progress(done as u64, Some(2), "models", "");
        scored.push(score_split(model, &dataset.test, batch, || context.cancelled())?);
    }
    context.progress(2, Some(2), "models", "");
    let (float, quantized): (SplitScore, SplitScore) = (scored[0], scored[1]);
    let accuracy = quantized.estimate(objective)?;
    context.metric("quantized/accuracy", 0, quantized.accuracy);
    for (name, end) in [("low", accuracy.low()), ("high", accuracy.high())] {
        if let Some(end) = end {
            context.metric(&format!("quantized/accuracy_{name}"), 0, end);
        }
    }
    context.metric("quantized/loss", 0, quantized.loss);
    context.metric("quantized/accuracy_change", 0, quantized.accuracy - float.accuracy);
    context.metric("quantized/loss_change", 0, quantized.loss - float.loss);
    if let Some(perplexity) = quantized.perplexity(objective) {
        context.metric("quantized/perplexity", 0, perplexity);
    }
    context.log(&format!(
        "test accuracy {:.1} % in f32, {:.1} % in int8",
        100.0 * float.accuracy,
        100.0 * quantized.accuracy
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use assay_models::ModelConfig;
    use serde_json::json;

    use super::*;
    use crate::testing::TestContext;

    fn ten() -> Value {
        json!({"family": "ten", "dim": 16, "layers": 2, "states": 8, "pool": "last"})
    }

    fn context() -> TestContext {
        TestContext::new(assay_cpu::device(1).unwrap())
    }

    #[test]
    fn every_matrix_and_nothing_else_becomes_int8() {
        let mut context = context();
        let model = context.provide_model(ten(), 1);
        context.run(&Quantize, json!({"model": model})).unwrap();
        let quantized = checkpoint::load(&assay_cpu::device(1).unwrap(), &context.artifacts["model"]).unwrap();
        for (name, parameter) in quantized.parameters().iter() {
            let matrix = name.ends_with("in.weight")
                || name.ends_with("out.weight")
                || name == "head.weight"
                || name.contains("ffn") && name.ends_with("weight");
            assert_eq!(matches!(parameter.value, Weight::Int8 { .. }), matrix, "{name}");
        }
        assert!(matches!(quantized.config(), ModelConfig::Ten(_)));
        assert!(context.last("size/ratio").unwrap() < 0.6);
        assert!(context.last("quantized/accuracy").is_none());
    }

    #[test]
    fn no_weight_moves_by_more_than_half_a_step() {
        let mut error = WeightError::default();
        let values = vec![0.507, -1.27, 0.004, 0.0, 0.0, 0.0];
        let tensor = Tensor::from_f32(&assay_cpu::device(1).unwrap(), values, [2, 3]).unwrap();
        let Weight::Int8 { q, scale } = int8("w", &tensor, &mut error).unwrap() else { panic!("int8") };
        assert_eq!(q.to_i8_vec().unwrap(), [51, -127, 0, 0, 0, 0]);
        let scales = scale.to_f32_vec().unwrap();
        assert!((scales[0] - 0.01).abs() < 1e-8 && scales[1] == 1.0);
        assert!((error.largest - 0.004).abs() < 1e-6, "{error:?}");
        let (signal, noise) = (0.507_f64.powi(2) + 1.27_f64.powi(2), 0.003_f64.powi(2) + 0.004_f64.powi(2));
        let expected = 10.0 * (signal / noise).log10();
        assert!((error.to_decibels() - expected).abs() < 0.01, "{} is not {expected}", error.to_decibels());
    }

    #[test]
    fn both_models_are_scored_on_the_test_split() {
        let mut context = context();
        let (model, data) = (context.provide_model(ten(), 1), context.provide_dataset());
        context.run(&Quantize, json!({"model": model, "data": data})).unwrap();
        let value = |name: &str| context.last(name).unwrap();
        assert!((0.0..=1.0).contains(&value("quantized/accuracy")));
        assert!(value("quantized/accuracy_low") < value("quantized/accuracy_high"));
        assert!(value("quantized/loss_change").abs() < 0.2, "{}", value("quantized/loss_change"));
        assert!(value("quantize/sqnr_db") > 30.0);
    }

    #[test]
    fn a_language_model_is_quantized_too() {
        let mut context = context();
        let (model, data) = context.provide_language_model(ten(), 1);
        context.run(&Quantize, json!({"model": model, "data": data})).unwrap();
        assert!(context.last("quantized/perplexity").unwrap() > 1.0);
        assert!(context.last("quantized/accuracy_low").is_none());
    }

    #[test]
    fn an_int8_model_and_one_that_diverged_are_refused() {
        let mut context = context();
        let model = context.provide_model(ten(), 1);
        context.run(&Quantize, json!({"model": model})).unwrap();
        let again = json!(context.pass_on("model"));
        let error = context.run(&Quantize, json!({"model": again})).unwrap_err();
        assert!(error.to_string().contains("int8 already"), "{error}");
        let tensor = Tensor::from_f32(&assay_cpu::device(1).unwrap(), vec![1.0, f32::NAN], [1, 2]).unwrap();
        let error = int8("w", &tensor, &mut WeightError::default()).err().unwrap();
        assert!(error.to_string().contains("contains NaN"), "{error}");
    }

    #[test]
    fn a_step_that_shall_stop_stops() {
        let mut context = context();
        let (model, data) = (context.provide_model(ten(), 1), context.provide_dataset());
        context.patience.set(Some(1));
        let config = json!({"model": model, "data": data, "batch_size": 4});
        assert_eq!(context.run(&Quantize, config).unwrap_err(), StepError::Cancelled);
    }
}
