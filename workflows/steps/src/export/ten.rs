//! TEN as ONNX operators: the recurrence is a `Scan` along the sequence.

use assay_models::layers::sinusoids;
use assay_models::ten::{Block, Cell, Positions, Ten};
use assay_models::{Field, ModelError, NormPlace, Task};
use assay_tensor::{DType, Device};
use tract_onnx::pb::tensor_proto::DataType;

use super::graph::{Dim, Graph, Value, integer, integers, subgraph, tensor};
use super::layers::{embedding, feed_forward, first_rows, layer_norm, linear, linear_of, matrix, parameter};

/// Tokens `[batch, length]` to hidden vectors `[batch, length, D]`.
pub fn ten(graph: &mut Graph, model: &Ten, task: &Task, tokens: &Value) -> Result<Value, ModelError> {
    let mut x = embedding(graph, "embedding", &model.embedding, tokens)?;
    if let Some(table) = positions(graph, model, task)? {
        let rows = first_rows(graph, &table, tokens);
        x = graph.op("Add", &[&x, &rows]);
    }
    for (index, layer) in model.blocks.iter().enumerate() {
        x = graph.within(&format!("blocks.{index}"), |graph| block(graph, layer, &x))?;
    }
    match &model.norm {
        Some(norm) => layer_norm(graph, "norm", norm, &x),
        None => Ok(x),
    }
}

/// The table of positions, if the model has one. Sinusoids are tabled as well, up to the longest sequence of the task:
/// computed in the graph, in f32, their angles would lose digits with the length.
fn positions(graph: &mut Graph, model: &Ten, task: &Task) -> Result<Option<Value>, ModelError> {
    let table = match &model.positions {
        Positions::None => return Ok(None),
        Positions::Learned(learned) => learned.table.clone(),
        Positions::Sinusoidal => {
            let device: &Device = model.embedding.table.device();
            let dim = model.embedding.table.dims().last().copied().unwrap_or(0);
            sinusoids(device, DType::F32, 0, task.max_length, dim)?
        }
    };
    Ok(Some(parameter(graph, "positions", &table)?))
}

fn block(graph: &mut Graph, layer: &Block, x: &Value) -> Result<Value, ModelError> {
    match layer.place {
        NormPlace::Pre => {
            let normed = layer_norm(graph, "norm1", &layer.norm1, x)?;
            let mixed = mix(graph, layer, &normed)?;
            let x = graph.op("Add", &[x, &mixed]);
            let normed = layer_norm(graph, "norm2", &layer.norm2, &x)?;
            let fed = feed_forward(graph, "ffn", &layer.ffn, &normed)?;
            Ok(graph.op("Add", &[&x, &fed]))
        }
        NormPlace::Post => {
            let mixed = mix(graph, layer, x)?;
            let sum = graph.op("Add", &[x, &mixed]);
            let x = layer_norm(graph, "norm1", &layer.norm1, &sum)?;
            let fed = feed_forward(graph, "ffn", &layer.ffn, &x)?;
            let sum = graph.op("Add", &[&x, &fed]);
            layer_norm(graph, "norm2", &layer.norm2, &sum)
        }
    }
}

/// The mean of the cells.
fn mix(graph: &mut Graph, layer: &Block, x: &Value) -> Result<Value, ModelError> {
    let mut sum: Option<Value> = None;
    for (index, one) in layer.cells.iter().enumerate() {
        let y = graph.within(&format!("cell.{index}"), |graph| cell(graph, one, x))?;
        sum = Some(match sum {
            None => y,
            Some(sum) => graph.op("Add", &[&sum, &y]),
        });
    }
    let sum = sum.ok_or_else(|| ModelError::Config("a block has no cell".into()))?;
    if layer.cells.len() == 1 {
        return Ok(sum);
    }
    let share = graph.float((1.0 / layer.cells.len() as f64) as f32);
    Ok(graph.op("Mul", &[&sum, &share]))
}

/// beta = gamma * (W_in x), the recurrence, then the readout. gamma is folded into W_in.
fn cell(graph: &mut Graph, cell: &Cell, x: &Value) -> Result<Value, ModelError> {
    let (mut weight, out, inp) = matrix(&cell.input)?;
    let (decay_re, decay_im) = cell.decay()?;
    let (decay_re, decay_im) = (decay_re.to_f32_vec()?, decay_im.to_f32_vec()?);
    let states = decay_re.len();
    if let Some(log_gamma) = &cell.log_gamma {
        let gamma = log_gamma.exp()?.to_f32_vec()?;
        for (row, values) in weight.chunks_exact_mut(inp.max(1)).enumerate() {
            values.iter_mut().for_each(|value| *value *= gamma[row % states]);
        }
    }
    let beta = linear_of(graph, "in", &weight, (out, inp), None, x)?;
    let betas = match cell.input_field {
        Field::Real => vec![beta],
        Field::Complex => {
            let k = states as i64;
            vec![graph.slice_fixed(&beta, 2, 0, k), graph.slice_fixed(&beta, 2, k, 2 * k)]
        }
    };
    let (re, im) = recurrence(graph, (&decay_re, &decay_im), &betas, x);
    let read = match cell.readout {
        Field::Real => re,
        Field::Complex => graph.op_with("Concat", &[&re, &im], vec![integer("axis", 2)]),
    };
    let y = linear(graph, "out", &cell.output, &read)?;
    match &cell.skip {
        None => Ok(y),
        Some(skip) => {
            let skip = parameter(graph, "skip", skip)?;
            let passed = graph.op("Mul", &[x, &skip]);
            Ok(graph.op("Add", &[&y, &passed]))
        }
    }
}

/// c_t = a c_{t-1} + beta_t from zero, over axis 1 of `betas` (`[batch, length, K]`, the real part and perhaps the
/// imaginary). Returns the real and the imaginary part of all states.
fn recurrence(graph: &mut Graph, decay: (&[f32], &[f32]), betas: &[Value], x: &Value) -> (Value, Value) {
    let states = decay.0.len();
    // The first state has the batch of the input, which is known only when the graph runs.
    let (batch, width) = (graph.size(x, 0), graph.integers(&[states as i64]));
    let shape = graph.op_with("Concat", &[&batch, &width], vec![integer("axis", 0)]);
    let zero = graph.op_with("ConstantOfShape", &[&shape], vec![tensor("value", 0.0)]);
    let attributes = vec![
        subgraph("body", body(decay, betas.len())),
        integer("num_scan_inputs", betas.len() as i64),
        integers("scan_input_axes", &vec![1; betas.len()]),
        integers("scan_output_axes", &[1, 1]),
    ];
    let inputs: Vec<&Value> = [&zero, &zero].into_iter().chain(betas).collect();
    let outputs = graph.op_many("Scan", &inputs, attributes, 4);
    (outputs[2].clone(), outputs[3].clone())
}

/// One step of the recurrence: the state and a slice of each input, to the next state twice, once to go on with and once
/// to be collected.
fn body((decay_re, decay_im): (&[f32], &[f32]), inputs: usize) -> Graph {
    // tract holds a symbol of a body apart from the one of the graph, and then cannot give it a value.
    let dims = [Dim::Free, Dim::Fixed(decay_re.len())];
    let mut body = Graph::new("step");
    let (re, im) = (body.input("re", DataType::Float, &dims), body.input("im", DataType::Float, &dims));
    let beta_re = body.input("beta_re", DataType::Float, &dims);
    let beta_im = (inputs > 1).then(|| body.input("beta_im", DataType::Float, &dims));
    let a_re = body.floats("decay_re", decay_re, &[decay_re.len()]);
    let a_im = body.floats("decay_im", decay_im, &[decay_im.len()]);
    let (re_re, im_im) = (body.op("Mul", &[&re, &a_re]), body.op("Mul", &[&im, &a_im]));
    let turned = body.op("Sub", &[&re_re, &im_im]);
    let next_re = body.op("Add", &[&turned, &beta_re]);
    let (re_im, im_re) = (body.op("Mul", &[&re, &a_im]), body.op("Mul", &[&im, &a_re]));
    let mut next_im = body.op("Add", &[&re_im, &im_re]);
    if let Some(beta_im) = beta_im {
        next_im = body.op("Add", &[&next_im, &beta_im]);
    }
    for (name, value) in [("next_re", &next_re), ("next_im", &next_im), ("state_re", &next_re), ("state_im", &next_im)]
    {
        body.output(name, value, DataType::Float, &dims);
    }
    body
}
