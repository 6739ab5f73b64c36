//! The transformer as ONNX operators: attention with a materialised matrix of weights, for every kind that the model
//! may use.

use assay_models::transformer::{Block, Transformer};
use assay_models::{Attention, ModelError, Task};

use super::graph::{Graph, Value, integer, integers};
use super::layers::{embedding, feed_forward, first_rows, layer_norm, linear, parameter};

/// Base of the geometric frequencies of rotary embedding, as in `assay_models`.
const ROPE_BASE: f64 = 10_000.0;
/// The score of a masked token: its weight is then exactly 0.
const UNSEEN: f32 = -1e30;

/// Tokens `[batch, length]` to hidden vectors `[batch, length, D]`.
pub fn transformer(graph: &mut Graph, model: &Transformer, task: &Task, tokens: &Value) -> Result<Value, ModelError> {
    let mut x = embedding(graph, "embedding", &model.embedding, tokens)?;
    if let Some(positions) = &model.positions {
        let table = parameter(graph, "positions", &positions.table)?;
        let rows = first_rows(graph, &table, tokens);
        x = graph.op("Add", &[&x, &rows]);
    }
    let dim = model.embedding.table.dims().last().copied().unwrap_or(0);
    let shared = Shared { mask: mask(graph, tokens), rotation: rotation(graph, model, task, dim, tokens), dim };
    for (index, layer) in model.blocks.iter().enumerate() {
        x = graph.within(&format!("blocks.{index}"), |graph| block(graph, layer, &x, &shared))?;
    }
    layer_norm(graph, "norm", &model.norm, &x)
}

/// Values that every block uses.
struct Shared {
    /// `[length, length]`: whether the row's token may attend to the column's.
    mask: Value,
    /// Cosines and sines, each `[length, P]`.
    rotation: Option<(Value, Value)>,
    /// D.
    dim: usize,
}

fn mask(graph: &mut Graph, tokens: &Value) -> Value {
    let places = places(graph, tokens);
    let (first, second) = (graph.integers(&[0]), graph.integers(&[1]));
    let columns = graph.op("Unsqueeze", &[&places, &first]);
    let rows = graph.op("Unsqueeze", &[&places, &second]);
    graph.op("LessOrEqual", &[&columns, &rows])
}

/// 0, 1, ... up to the length of `tokens` `[batch, length]`.
pub fn places(graph: &mut Graph, tokens: &Value) -> Value {
    let shape = graph.op("Shape", &[tokens]);
    let second = graph.integer(1);
    let length = graph.op_with("Gather", &[&shape, &second], vec![integer("axis", 0)]);
    let (zero, one) = (graph.integer(0), graph.integer(1));
    graph.op("Range", &[&zero, &length, &one])
}

/// The tables of rotary embedding, if the model uses it. They contain rows up to the longest sequence of the task: in
/// the graph, in f32, the angles would lose precision with the length.
fn rotation(graph: &mut Graph, model: &Transformer, task: &Task, dim: usize, tokens: &Value) -> Option<(Value, Value)> {
    let attention = &model.blocks.first()?.attention;
    attention.rotations.as_ref()?;
    let width = dim / attention.heads;
    let half = width / 2;
    let angle = |t: usize, channel: usize| t as f64 / ROPE_BASE.powf((channel % half) as f64 / half as f64);
    let mut table = |name: &str, f: fn(f64) -> f64| {
        let values: Vec<f32> =
            (0..task.max_length).flat_map(|t| (0..width).map(move |c| f(angle(t, c)) as f32)).collect();
        let table = graph.floats(name, &values, &[task.max_length, width]);
        first_rows(graph, &table, tokens)
    };
    Some((table("cos", f64::cos), table("sin", f64::sin)))
}

fn block(graph: &mut Graph, layer: &Block, x: &Value, shared: &Shared) -> Result<Value, ModelError> {
    let normed = layer_norm(graph, "norm1", &layer.norm1, x)?;
    let mixed = graph.within("attention", |graph| attention(graph, &layer.attention, &normed, shared))?;
    let x = graph.op("Add", &[x, &mixed]);
    let normed = layer_norm(graph, "norm2", &layer.norm2, &x)?;
    let fed = feed_forward(graph, "ffn", &layer.ffn, &normed)?;
    Ok(graph.op("Add", &[&x, &fed]))
}

fn attention(graph: &mut Graph, layer: &Attention, x: &Value, shared: &Shared) -> Result<Value, ModelError> {
    let (dim, width) = (shared.dim as i64, (shared.dim / layer.heads) as i64);
    let qkv = linear(graph, "qkv", &layer.qkv, x)?;
    // [B, T, 3D] is split into three of [B, H, T, P].
    let mut part = |index: i64| {
        let part = graph.slice_fixed(&qkv, 2, index * dim, (index + 1) * dim);
        let heads = graph.reshape(&part, &[0, 0, layer.heads as i64, width]);
        graph.op_with("Transpose", &[&heads], vec![integers("perm", &[0, 2, 1, 3])])
    };
    let (mut q, mut k, v) = (part(0), part(1), part(2));
    if let Some(rotation) = &shared.rotation {
        (q, k) = (turn(graph, &q, rotation, width), turn(graph, &k, rotation, width));
    }
    let scale = graph.float((1.0 / (width as f64).sqrt()) as f32);
    let q = graph.op("Mul", &[&q, &scale]);
    let k = graph.op_with("Transpose", &[&k], vec![integers("perm", &[0, 1, 3, 2])]);
    let scores = graph.op("MatMul", &[&q, &k]);
    let unseen = graph.float(UNSEEN);
    let seen = graph.op("Where", &[&shared.mask, &scores, &unseen]);
    let weights = graph.op_with("Softmax", &[&seen], vec![integer("axis", -1)]);
    let mixed = graph.op("MatMul", &[&weights, &v]);
    let mixed = graph.op_with("Transpose", &[&mixed], vec![integers("perm", &[0, 2, 1, 3])]);
    let joined = graph.reshape(&mixed, &[0, 0, dim]);
    linear(graph, "out", &layer.out, &joined)
}

/// x cos + (-x_high, x_low) sin over the last axis of `[B, H, T, P]`.
fn turn(graph: &mut Graph, x: &Value, (cos, sin): &(Value, Value), width: i64) -> Value {
    let half = width / 2;
    let (low, high) = (graph.slice_fixed(x, 3, 0, half), graph.slice_fixed(x, 3, half, width));
    let negated = graph.op("Neg", &[&high]);
    let turned = graph.op_with("Concat", &[&negated, &low], vec![integer("axis", 3)]);
    let (straight, across) = (graph.op("Mul", &[x, cos]), graph.op("Mul", &[&turned, sin]));
    graph.op("Add", &[&straight, &across])
}
