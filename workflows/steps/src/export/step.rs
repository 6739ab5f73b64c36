//! The step kind `export`: its config, its metrics and its run.

use std::path::Path;

use assay_models::{AttentionKind, Model, ModelChoice, ModelConfig, Objective, Resonance, Weight, checkpoint};
use assay_spec::{ArtifactRef, Better, MetricKind, OutputKind, StepKind};
use safetensors::SafeTensors;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check::{TOLERANCE, cases, in_tract, write_reference};
use super::onnx;
use crate::context::{Context, StepError};
use crate::load::{failed, load};
use crate::step::{ArtifactSchema, Step, no_findings, parse, schema_of};

/// Writes a checkpoint as files that other programs read.
pub struct Export;

/// What to export, and as what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The checkpoint, as `${{ needs.JOB.outputs.model }}`.
    #[schemars(with = "ArtifactSchema")]
    model: ArtifactRef,
    /// The files to write.
    #[serde(default = "all_formats")]
    #[schemars(length(min = 1))]
    formats: Vec<Format>,
    /// Seed of the random inputs on which the ONNX file is checked.
    #[serde(default)]
    seed: u64,
}

/// A file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Format {
    /// Named arrays, with the model's config in the metadata.
    Safetensors,
    /// A graph of operators (opset 17) with free batch and length, float models only.
    Onnx,
}

fn all_formats() -> Vec<Format> {
    vec![Format::Safetensors, Format::Onnx]
}

const OUTPUTS: &[OutputKind] = &[
    OutputKind { name: "safetensors", about: "The parameters as named arrays." },
    OutputKind { name: "onnx", about: "The model as an ONNX graph: tokens (and lengths) to logits." },
    OutputKind { name: "reference", about: "Random inputs and the model's logits, to check another runtime with." },
];

const METRICS: &[MetricKind] = &[
    MetricKind { headline: Some("ONNX difference"), ..metric("export/max_difference", "", Better::Lower) },
    metric("size/onnx_bytes", "B", Better::Lower),
    metric("size/safetensors_bytes", "B", Better::Lower),
    metric("size/parameters", "", Better::Neither),
];

const fn metric(name: &'static str, unit: &'static str, better: Better) -> MetricKind {
    MetricKind { name, unit, better, headline: None, covers: "" }
}

impl Step for Export {
    fn kind(&self) -> StepKind {
        StepKind {
            name: "export",
            version: 1,
            measures: false,
            about: "Writes a model as safetensors and ONNX, and checks the ONNX file in a separate runtime.",
            schema: schema_of::<Config>(),
            outputs: OUTPUTS,
            metrics: METRICS,
            check: no_findings,
        }
    }

    fn run(&self, config: Value, context: &mut dyn Context) -> Result<(), StepError> {
        let config: Config = parse(config)?;
        let model = load(context, &config.model)?;
        context.metric("size/parameters", 0, model.parameters().count() as f64);
        if config.formats.contains(&Format::Onnx) {
            refuse_int8(&model)?;
            refuse_pairs(&model)?;
            refuse_formless(model.config())?;
        }
        if config.formats.contains(&Format::Safetensors) {
            write_safetensors(&model, context)?;
        }
        if config.formats.contains(&Format::Onnx) {
            write_onnx(&model, config.seed, context)?;
        }
        Ok(())
    }
}

/// An int8 model rounds its activations. If another runtime computes an activation with a different last bit, it may
/// round to the neighbouring value, so no two runtimes agree within the tolerance.
fn refuse_int8(model: &Model) -> Result<(), StepError> {
    let quantized = model.parameters().iter().find(|(_, one)| matches!(one.value, Weight::Int8 { .. }));
    quantized.map_or(Ok(()), |(name, _)| {
        Err(StepError::Failed {
            message: format!("`{name}` is int8, and only float models are exported to ONNX"),
            hint: Some("export the model that `train` made, or give `formats: [safetensors]`".into()),
        })
    })
}

/// The ONNX file reads one sequence for each prediction.
fn refuse_pairs(model: &Model) -> Result<(), StepError> {
    match model.task().objective {
        Objective::ClassifyPairs(_) => Err(StepError::Failed {
            message:
                "the model classifies pairs of sequences, and only models of single sequences are exported to ONNX"
                    .into(),
            hint: Some("give `formats: [safetensors]`".into()),
        }),
        Objective::Classify(_) | Objective::Predict => Ok(()),
    }
}

/// Why a model that another task will produce cannot be exported, as far as the configs determine it: the config of the export,
/// and kind and config of the task that produces the model. Errors in the configs themselves are reported elsewhere.
#[must_use]
pub fn refuse_planned(export: &Value, producer: &str, config: &Value) -> Option<String> {
    let formats = export.get("formats").map(|formats| Vec::<Format>::deserialize(formats).unwrap_or_default());
    if !formats.unwrap_or_else(all_formats).contains(&Format::Onnx) {
        return None;
    }
    let refusal = match producer {
        "quantize" => {
            let bits = "an int8 model cannot be exported to ONNX; export the model that `train` made";
            return Some(format!("{bits}, or give `formats: [safetensors]`"));
        }
        "train" => refuse_formless(ModelChoice::deserialize(config.get("model")?).ok()?.config()),
        _ => return None,
    };
    match refusal {
        Err(StepError::Failed { message, hint }) => {
            Some([Some(message), hint].into_iter().flatten().collect::<Vec<_>>().join("; "))
        }
        _ => None,
    }
}

/// Reports models without an ONNX form.
fn refuse_formless(model: &ModelConfig) -> Result<(), StepError> {
    let what = match model {
        ModelConfig::Pulse(_) => "a model of the family `pulse`",
        ModelConfig::Transformer(config) if config.attention == AttentionKind::Sparse => {
            "a transformer with `attention: sparse`"
        }
        ModelConfig::Transformer(config) if !config.causal => "a transformer with `causal: false`",
        ModelConfig::Ten(config) if config.scales.len() > 1 => "a `ten` with several `scales`",
        // It counts chunks, which a graph does not represent.
        ModelConfig::Ten(config) if config.resonance == Resonance::ChunkCarry => {
            "a `ten` with `resonance: chunk_carry`"
        }
        ModelConfig::Transformer(_) | ModelConfig::Ten(_) => return Ok(()),
    };
    Err(StepError::Failed {
        message: format!("{what} cannot be exported to ONNX yet"),
        hint: Some("give `formats: [safetensors]`".into()),
    })
}

fn write_safetensors(model: &Model, context: &mut dyn Context) -> Result<(), StepError> {
    let path = context.workdir().join("model.safetensors");
    let bytes = checkpoint::save(model, &path).map_err(|error| failed("the file cannot be written", error))?;
    check_safetensors(model, &path)?;
    context.metric("size/safetensors_bytes", 0, bytes as f64);
    context.artifact("safetensors", &path)
}

/// Reads the file again with the `safetensors` crate: every float parameter must be present, bit for bit.
fn check_safetensors(model: &Model, path: &Path) -> Result<(), StepError> {
    let wrong = |message: String| StepError::Check { message, hint: None };
    let bytes = std::fs::read(path).map_err(|error| StepError::failed(format!("{}: {error}", path.display())))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|error| wrong(format!("the safetensors file is broken: {error}")))?;
    for (name, parameter) in model.parameters().iter() {
        let Weight::Dense(tensor) = &parameter.value else { continue };
        let values = tensor.to_f32_vec().map_err(|error| failed("a parameter cannot be read", error.into()))?;
        let stored = file.tensor(name).map_err(|error| wrong(format!("`{name}` is not in the file: {error}")))?;
        let same = stored.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes).to_bits());
        if stored.shape() != tensor.dims() || !same.eq(values.iter().map(|value| value.to_bits())) {
            return Err(wrong(format!("`{name}` differs in the safetensors file")));
        }
    }
    Ok(())
}

fn write_onnx(model: &Model, seed: u64, context: &mut dyn Context) -> Result<(), StepError> {
    let bytes = onnx::to_bytes(model).map_err(|error| failed("the model cannot be written as ONNX", error))?;
    let cases = cases(model, seed)?;
    let worst = in_tract(&bytes, &cases, context)?;
    context.metric("export/max_difference", 0, worst.difference);
    context.log(&format!("tract and the model differ by at most {:.1e} ({})", worst.difference, worst.place));
    // With this form of the condition, NaN also fails.
    let agrees = worst.difference <= TOLERANCE;
    if !agrees {
        return Err(StepError::Check {
            message: format!(
                "the ONNX file does not agree with the model: the largest difference is {:.3e}, and {TOLERANCE:e} is \
                 allowed ({})",
                worst.difference, worst.place
            ),
            hint: Some("a model that diverged in training has logits too large for this: look at its loss".into()),
        });
    }
    let (path, reference) = (context.workdir().join("model.onnx"), context.workdir().join("reference.safetensors"));
    std::fs::write(&path, &bytes).map_err(|error| StepError::failed(format!("{}: {error}", path.display())))?;
    write_reference(&cases, model.task().objective, &reference)?;
    context.metric("size/onnx_bytes", 0, bytes.len() as f64);
    context.artifact("onnx", &path)?;
    context.artifact("reference", &reference)
}
