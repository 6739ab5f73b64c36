//! The layers that models share, as ONNX operators of opset 17. Each function mirrors one of `assay_models`.

use assay_models::layers::{Embedding, FeedForward, LayerNorm, Linear, NORM_EPSILON};
use assay_models::{ModelError, Weight};
use assay_tensor::Tensor;

use super::graph::{Graph, Value, float, integer};

/// An unchanged parameter: f32, with its own dimensions.
pub fn parameter(graph: &mut Graph, name: &str, tensor: &Tensor) -> Result<Value, ModelError> {
    Ok(graph.floats(name, &tensor.to_f32_vec()?, tensor.dims()))
}

/// The matrix `[N, K]` of a linear layer, in f32.
pub fn matrix(layer: &Linear) -> Result<(Vec<f32>, usize, usize), ModelError> {
    match &layer.weight {
        Weight::Dense(weight) => match *weight.dims() {
            [out, inp] => Ok((weight.to_f32_vec()?, out, inp)),
            _ => Err(ModelError::Input(format!("a matrix has shape {:?}", weight.dims()))),
        },
        Weight::Int8 { .. } => Err(ModelError::Input("a float graph cannot represent int8 weights exactly".into())),
    }
}

/// `[.., K]` to `[.., N]`: x W^T + b.
pub fn linear(graph: &mut Graph, name: &str, layer: &Linear, x: &Value) -> Result<Value, ModelError> {
    let (weight, out, inp) = matrix(layer)?;
    linear_of(graph, name, &weight, (out, inp), layer.bias.as_ref(), x)
}

/// The same with a modified matrix. MatMul expects it as `[K, N]`.
pub fn linear_of(
    graph: &mut Graph,
    name: &str,
    weight: &[f32],
    (out, inp): (usize, usize),
    bias: Option<&Tensor>,
    x: &Value,
) -> Result<Value, ModelError> {
    let transposed: Vec<f32> = (0..inp).flat_map(|k| (0..out).map(move |n| weight[n * inp + k])).collect();
    graph.within(name, |graph| {
        let weight = graph.floats("weight", &transposed, &[inp, out]);
        let product = graph.op("MatMul", &[x, &weight]);
        match bias {
            None => Ok(product),
            Some(bias) => {
                let bias = parameter(graph, "bias", bias)?;
                Ok(graph.op("Add", &[&product, &bias]))
            }
        }
    })
}

/// Layer norm over the last axis.
pub fn layer_norm(graph: &mut Graph, name: &str, norm: &LayerNorm, x: &Value) -> Result<Value, ModelError> {
    graph.within(name, |graph| {
        let (gain, bias) = (parameter(graph, "gain", &norm.gain)?, parameter(graph, "bias", &norm.bias)?);
        let attributes = vec![integer("axis", -1), float("epsilon", NORM_EPSILON as f32)];
        Ok(graph.op_with("LayerNormalization", &[x, &gain, &bias], attributes))
    })
}

/// The rows of a table for ids `[batch, length]`.
pub fn embedding(graph: &mut Graph, name: &str, layer: &Embedding, ids: &Value) -> Result<Value, ModelError> {
    graph.within(name, |graph| {
        let table = parameter(graph, "table", &layer.table)?;
        Ok(graph.op_with("Gather", &[&table, ids], vec![integer("axis", 0)]))
    })
}

/// The first rows of a table, as many as the length of `tokens` `[batch, length]`; `[length, D]`.
pub fn first_rows(graph: &mut Graph, table: &Value, tokens: &Value) -> Value {
    let (zero, length) = (graph.integers(&[0]), graph.size(tokens, 1));
    graph.slice(table, 0, &zero, &length)
}

/// down(gelu(up x)), or down(silu(gate x) * up x).
pub fn feed_forward(graph: &mut Graph, name: &str, layer: &FeedForward, x: &Value) -> Result<Value, ModelError> {
    graph.within(name, |graph| {
        let up = linear(graph, "up", &layer.up, x)?;
        let hidden = match &layer.gate {
            None => gelu(graph, &up),
            Some(gate) => {
                let gate = linear(graph, "gate", gate, x)?;
                let sigmoid = graph.op("Sigmoid", &[&gate]);
                let silu = graph.op("Mul", &[&gate, &sigmoid]);
                graph.op("Mul", &[&silu, &up])
            }
        };
        linear(graph, "down", &layer.down, &hidden)
    })
}

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). The operator Gelu exists only from opset 20.
fn gelu(graph: &mut Graph, x: &Value) -> Value {
    let square = graph.op("Mul", &[x, x]);
    let cube = graph.op("Mul", &[&square, x]);
    let factor = graph.float(0.044_715);
    let cubic = graph.op("Mul", &[&cube, &factor]);
    let sum = graph.op("Add", &[x, &cubic]);
    let factor = graph.float((2.0 / std::f64::consts::PI).sqrt() as f32);
    let scaled = graph.op("Mul", &[&sum, &factor]);
    let tanh = graph.op("Tanh", &[&scaled]);
    let one = graph.float(1.0);
    let raised = graph.op("Add", &[&tanh, &one]);
    let half = graph.float(0.5);
    let halved = graph.op("Mul", &[x, &half]);
    graph.op("Mul", &[&halved, &raised])
}
