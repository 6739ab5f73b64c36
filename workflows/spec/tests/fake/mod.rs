//! Step kinds as the tests need them: small, some with schemas that schemars derives, some written by hand.

use assay_spec::{Better, Finding, MetricKind, OutputKind, StepKind};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Which dataset to make.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "dataset", rename_all = "snake_case", deny_unknown_fields)]
enum Prepare {
    /// Nested operations on lists of digits.
    Listops(Listops),
    /// Bytes of a text.
    Text { file: String },
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Listops {
    /// Number of training sequences.
    train: u32,
    /// Longest sequence, in tokens.
    #[schemars(range(min = 4, max = 4096))]
    max_length: u32,
    #[serde(default)]
    seed: u64,
}

/// How to train.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Train {
    /// The dataset to learn.
    #[schemars(with = "Artifact")]
    data: Value,
    /// The model's family and sizes.
    model: Model,
    #[serde(default)]
    optimizer: Optimizer,
    /// Stages of growing length.
    #[schemars(length(min = 1))]
    curriculum: Option<Vec<Stage>>,
    #[serde(default)]
    truncate: bool,
    /// Mixed into everything random.
    #[serde(default)]
    seed: u64,
    note: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "family", rename_all = "snake_case", deny_unknown_fields)]
enum Model {
    /// Temporal eigenstates.
    Ten {
        /// Model width.
        #[schemars(range(min = 1))]
        dim: u32,
        /// Eigenstates per layer.
        states: u32,
        chunk: Option<u32>,
    },
    /// Attention.
    Transformer { dim: u32, heads: u32 },
}

#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
struct Optimizer {
    name: OptimizerName,
    /// Peak learning rate.
    lr: f64,
    schedule: Option<Schedule>,
}

#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
enum OptimizerName {
    /// Decoupled weight decay.
    #[default]
    Adamw,
    /// Plain descent.
    Sgd,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Schedule {
    Cosine,
    Constant,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Stage {
    until_step: u32,
    max_length: u32,
}

struct Artifact;

impl JsonSchema for Artifact {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Artifact".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "properties": {"$artifact": {"type": "string"}, "name": {"type": "string"}, "bytes": {"type": "integer"}},
            "required": ["$artifact", "name", "bytes"],
            "additionalProperties": false,
        })
    }
}

/// What the schema of `train` cannot say: stages must grow.
fn growing(config: &Value) -> Vec<Finding> {
    let stages = config["curriculum"].as_array().cloned().unwrap_or_default();
    let falls = stages.windows(2).position(|two| two[1]["until_step"].as_u64() <= two[0]["until_step"].as_u64());
    let finding = falls.map(|at| Finding {
        path: vec!["curriculum".into(), (at + 1).to_string(), "until_step".into()],
        message: format!("stage {} ends before it begins: `until_step: {}`", at + 2, stages[at + 1]["until_step"]),
        hint: Some("each stage ends later than the one before".into()),
    });
    finding.into_iter().collect()
}

fn nothing(_: &Value) -> Vec<Finding> {
    Vec::new()
}

fn schema_of<T: JsonSchema>() -> Value {
    SchemaGenerator::default().into_root_schema_for::<T>().to_value()
}

/// `prepare`, `train`, `quantize`, `report` and `program`.
pub fn kinds() -> Vec<StepKind> {
    let output = |name, about| OutputKind { name, about };
    let metric = |name, better| MetricKind { name, unit: "", better, headline: None, covers: "" };
    let scores: &'static [MetricKind] = vec![
        metric("valid/loss", Better::Lower),
        metric("valid/accuracy", Better::Higher),
        metric("train/stage", Better::Neither),
        metric("ten/*", Better::Neither),
    ]
    .leak();
    let kind = |name, about, schema: Value, outputs: &[OutputKind], check| StepKind {
        name,
        version: 1,
        measures: false,
        about,
        schema: schema.into(),
        outputs: outputs.to_vec().leak(),
        metrics: if name == "train" { scores } else { &[] },
        check,
    };
    let model = json!({"type": "object", "required": ["$artifact"]});
    let by_hand = json!({
        "type": "object",
        "properties": {"model": model, "bits": {"enum": [4, 8], "description": "Bits per weight."}},
        "required": ["model", "bits"],
        "additionalProperties": false,
    });
    let report = json!({
        "type": "object",
        "properties": {
            "models": {"type": "array", "items": {"type": "object"}, "minItems": 1},
            "title": {"type": "string", "minLength": 1, "maxLength": 20},
            "ratio": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            "values": {"type": "object", "description": "Whatever else."},
        },
    });
    let program = json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}, "note": {"type": "string"}, "metrics": {"type": "object", "x-declares": "metrics"}},
    });
    let outputs = &[output("model", "The weights."), output("tokenizer", "The vocabulary.")];
    vec![
        kind("prepare", "Makes a dataset.", schema_of::<Prepare>(), &[output("dataset", "The sequences.")], nothing),
        kind("train", "Trains a model.", schema_of::<Train>(), outputs, growing),
        kind("quantize", "Makes a model smaller.", by_hand, &[output("model", "The weights.")], nothing),
        kind("report", "Compares models.", report, &[], nothing),
        kind("program", "Runs a program.", program, &[output("model", "What it left.")], nothing),
    ]
}
