//! A whole model as an ONNX file.
//!
//! Inputs: `tokens`, int64 `[batch, length]`, padded on the right with any token; for a classifier also `lengths`, int64
//! `[batch]`, the number of valid tokens in each row. Output: `logits`, float32, `[batch, classes]` for a classifier or
//! `[batch, length, vocabulary]` for a language model. `batch` and `length` are free; with positions (learned,
//! sinusoidal, rope) `length` is at most the longest sequence of the data, which is in the metadata.

use assay_models::{Head, Model, ModelError, Network, Objective, Pool};
use prost::Message;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::{ModelProto, OperatorSetIdProto, StringStringEntryProto, Version};

use super::graph::{Dim, Graph, Value, integer, integers};
use super::layers::linear;
use super::ten::ten;
use super::transformer::{places, transformer};

/// The version of the operators. 17 is the first with LayerNormalization.
pub const OPSET: i64 = 17;

const BATCH: Dim = Dim::Symbol("batch");
const LENGTH: Dim = Dim::Symbol("length");

/// The file's bytes; the same model gives the same bytes.
///
/// # Errors
/// If the model is quantized: float operators cannot represent an int8 matrix multiplication exactly.
pub fn to_bytes(model: &Model) -> Result<Vec<u8>, ModelError> {
    let mut graph = Graph::new("assay");
    let tokens = graph.input("tokens", DataType::Int64, &[BATCH, LENGTH]);
    let hidden = match model.network() {
        Network::Ten(network) => ten(&mut graph, network, model.task(), &tokens)?,
        Network::Pulse(_) => return Err(ModelError::Input("the family `pulse` cannot be exported to ONNX yet".into())),
        Network::Transformer(network) => transformer(&mut graph, network, model.task(), &tokens)?,
    };
    let logits = graph.within("head", |graph| head(graph, model, &hidden, &tokens))?;
    let dims: &[Dim] = match model.task().objective {
        Objective::Classify(classes) | Objective::ClassifyPairs(classes) => &[BATCH, Dim::Fixed(classes)],
        Objective::Predict => &[BATCH, LENGTH, Dim::Fixed(model.task().vocabulary)],
    };
    graph.output("logits", &logits, DataType::Float, dims);
    let file = ModelProto {
        ir_version: Version::IrVersion as i64,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
        producer_name: "assay".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        metadata_props: metadata(model)?,
        graph: Some(graph.finish()),
        ..ModelProto::default()
    };
    Ok(file.encode_to_vec())
}

fn metadata(model: &Model) -> Result<Vec<StringStringEntryProto>, ModelError> {
    let text = |value: serde_json::Result<String>| value.map_err(|error| ModelError::Input(error.to_string()));
    let entry = |key: &str, value| StringStringEntryProto { key: key.into(), value };
    Ok(vec![
        entry("assay.model", text(serde_json::to_string(model.config()))?),
        entry("assay.task", text(serde_json::to_string(model.task()))?),
    ])
}

fn head(graph: &mut Graph, model: &Model, hidden: &Value, tokens: &Value) -> Result<Value, ModelError> {
    match model.head() {
        Head::Classifier { pool: kind, linear: layer, .. } => {
            let lengths = graph.input("lengths", DataType::Int64, &[BATCH]);
            let pooled = pool(graph, *kind, hidden, tokens, &lengths);
            linear(graph, "linear", layer, &pooled)
        }
        Head::Untied(layer) => linear(graph, "linear", layer, hidden),
        Head::Tied(layer) => linear(graph, "tied", layer, hidden),
    }
}

/// `[batch, length, D]` to `[batch, D]`, over the valid length of each sequence.
fn pool(graph: &mut Graph, kind: Pool, hidden: &Value, tokens: &Value, lengths: &Value) -> Value {
    // [1, length, 1] against [batch, 1, 1].
    let (places, outer) = (places(graph, tokens), graph.integers(&[0, 2]));
    let places = graph.op("Unsqueeze", &[&places, &outer]);
    let inner = graph.integers(&[1, 2]);
    let lengths = graph.op("Unsqueeze", &[lengths, &inner]);
    match kind {
        Pool::Max => {
            let inside = graph.op("Less", &[&places, &lengths]);
            let lowest = graph.float(-1e30);
            let kept = graph.op("Where", &[&inside, hidden, &lowest]);
            reduce(graph, "ReduceMax", &kept)
        }
        Pool::Mean => {
            let inside = graph.op("Less", &[&places, &lengths]);
            let sum = masked_sum(graph, &inside, hidden);
            let axes = graph.integers(&[2]);
            let counts = graph.op("Squeeze", &[&lengths, &axes]);
            let counts = graph.op_with("Cast", &[&counts], vec![integer("to", DataType::Float as i64)]);
            graph.op("Div", &[&sum, &counts])
        }
        Pool::Last => {
            let one = graph.integer(1);
            let last = graph.op("Sub", &[&lengths, &one]);
            let there = graph.op("Equal", &[&places, &last]);
            masked_sum(graph, &there, hidden)
        }
    }
}

fn masked_sum(graph: &mut Graph, mask: &Value, hidden: &Value) -> Value {
    let zero = graph.float(0.0);
    let kept = graph.op("Where", &[mask, hidden, &zero]);
    // From opset 13, ReduceSum has its axes as an input, ReduceMax only from 18.
    let axes = graph.integers(&[1]);
    graph.op_with("ReduceSum", &[&kept, &axes], vec![integer("keepdims", 0)])
}

fn reduce(graph: &mut Graph, op: &str, value: &Value) -> Value {
    graph.op_with(op, &[value], vec![integers("axes", &[1]), integer("keepdims", 0)])
}
