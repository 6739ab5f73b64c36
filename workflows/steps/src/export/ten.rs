//! TEN as ONNX operators: the recurrence is a `Scan` along the sequence.

use assay_models::layers::{Linear, sinusoids};
use assay_models::ten::{Block, Joined, Level, Mixer, Positions, Recurrence, SELECTION, Ten};
use assay_models::{Field, ModelError, NormPlace, Task};
use assay_tensor::{DType, Device, Tensor};
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
        let Level::One(layer) = layer else {
            return Err(ModelError::Input("a model with several scales cannot be written as an ONNX graph yet".into()));
        };
        x = graph.within(&format!("blocks.{index}"), |graph| block(graph, layer, &x))?;
    }
    match &model.norm {
        Some(norm) => layer_norm(graph, "norm", norm, &x),
        None => Ok(x),
    }
}

/// The table of positions, if the model has one. Sinusoids are also stored in a table, up to the longest sequence of
/// the task: computed in the graph in f32, their angles would lose precision with the length.
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
            let mixed = mix(graph, &layer.mixer, &normed)?;
            let x = graph.op("Add", &[x, &mixed]);
            let normed = layer_norm(graph, "norm2", &layer.norm2, &x)?;
            let fed = feed_forward(graph, "ffn", &layer.ffn, &normed)?;
            Ok(graph.op("Add", &[&x, &fed]))
        }
        NormPlace::Post => {
            let mixed = mix(graph, &layer.mixer, x)?;
            let sum = graph.op("Add", &[x, &mixed]);
            let x = layer_norm(graph, "norm1", &layer.norm1, &sum)?;
            let fed = feed_forward(graph, "ffn", &layer.ffn, &x)?;
            let sum = graph.op("Add", &[&x, &fed]);
            layer_norm(graph, "norm2", &layer.norm2, &sum)
        }
    }
}

/// The cells of a block as one recurrence: projection in, all states, projection out, skip.
fn mix(graph: &mut Graph, mixer: &Mixer, x: &Value) -> Result<Value, ModelError> {
    if mixer.boundary.is_some() {
        return Err(ModelError::Input("ONNX cannot express resonance `chunk_carry`: it counts chunks".into()));
    }
    let (weight, out, inp) = matrix(one(&mixer.input)?)?;
    let beta = linear_of(graph, "in", &weight, (out, inp), None, x)?;
    let parts = if mixer.input_field == Field::Complex { 2 } else { 1 };
    let (states, width) = (out / parts, (out / parts) as i64);
    let betas = match mixer.input_field {
        Field::Real => vec![beta],
        Field::Complex => {
            vec![graph.slice_fixed(&beta, 2, 0, width), graph.slice_fixed(&beta, 2, width, 2 * width)]
        }
    };
    let (re, im) = match &mixer.recurrence {
        Recurrence::Diagonal { decay: (re, im) } => {
            let decay = Decay::Constant(re.to_f32_vec()?, im.to_f32_vec()?);
            recurrence(graph, states, &decay, &betas, x)
        }
        Recurrence::Selective { select, alpha, phase } => {
            let decay = selected(graph, one(select)?, alpha, phase, states, x)?;
            recurrence(graph, states, &decay, &betas, x)
        }
        Recurrence::Coupled { transition } => coupled(graph, transition, &betas, x)?,
    };
    let read = match mixer.readout {
        Field::Real => re,
        Field::Complex => graph.op_with("Concat", &[&re, &im], vec![integer("axis", 2)]),
    };
    let y = linear(graph, "out", one(&mixer.output)?, &read)?;
    match &mixer.skip {
        None => Ok(y),
        Some(skip) => {
            let skip = parameter(graph, "skip", skip)?;
            let passed = graph.op("Mul", &[x, &skip]);
            Ok(graph.op("Add", &[&y, &passed]))
        }
    }
}

/// A joined matrix; int8 matrices are not joined, and have no exact form in a float graph.
fn one(joined: &Joined) -> Result<&Linear, ModelError> {
    match joined.0.as_slice() {
        [linear] => Ok(linear),
        _ => Err(ModelError::Input("a float graph cannot represent int8 weights exactly".into())),
    }
}

/// The factor of the states at each step.
enum Decay {
    /// Re a and Im a, `[N]`.
    Constant(Vec<f32>, Vec<f32>),
    /// Re a_t and Im a_t, `[batch, length, N]`.
    Varying(Value, Value),
}

/// a_t = sigmoid(alpha + 0.1 tanh(u_t)) exp(i (w + 0.1 tanh(v_t))).
fn selected(
    graph: &mut Graph,
    select: &Linear,
    alpha: &Tensor,
    phase: &Tensor,
    states: usize,
    x: &Value,
) -> Result<Decay, ModelError> {
    let both = linear(graph, "select", select, x)?;
    let (both, width) = (graph.op("Tanh", &[&both]), states as i64);
    let factor = graph.float(SELECTION as f32);
    let both = graph.op("Mul", &[&both, &factor]);
    let (u, v) = (graph.slice_fixed(&both, 2, 0, width), graph.slice_fixed(&both, 2, width, 2 * width));
    let (alpha, phase) = (parameter(graph, "alpha", alpha)?, parameter(graph, "phase", phase)?);
    let (u, v) = (graph.op("Add", &[&u, &alpha]), graph.op("Add", &[&v, &phase]));
    let magnitude = graph.op("Sigmoid", &[&u]);
    let (cos, sin) = (graph.op("Cos", &[&v]), graph.op("Sin", &[&v]));
    Ok(Decay::Varying(graph.op("Mul", &[&magnitude, &cos]), graph.op("Mul", &[&magnitude, &sin])))
}

/// A state of zeros, `[batch, width]`; the batch is that of the input, which is known only at run time.
fn zeros(graph: &mut Graph, width: usize, x: &Value) -> Value {
    let (batch, width) = (graph.size(x, 0), graph.integers(&[width as i64]));
    let shape = graph.op_with("Concat", &[&batch, &width], vec![integer("axis", 0)]);
    graph.op_with("ConstantOfShape", &[&shape], vec![tensor("value", 0.0)])
}

/// The recurrence with resonance: [Re c ; Im c] times one matrix at each step, without coupling between cells.
fn coupled(graph: &mut Graph, transition: &Tensor, betas: &[Value], x: &Value) -> Result<(Value, Value), ModelError> {
    let &[cells, both, _] = transition.dims() else {
        return Err(ModelError::Input(format!("a transition has shape {:?}", transition.dims())));
    };
    let (own, states) = (both / 2, cells * both / 2);
    let values = transition.to_f32_vec()?;
    // Index (part, cell, k) of the state, from index (cell, part, k) of the cells; transposed for MatMul.
    let place = |cell: usize, index: usize| index / own * states + cell * own + index % own;
    let mut matrix = vec![0.0; 4 * states * states];
    for cell in 0..cells {
        for (row, column) in (0..both).flat_map(|row| (0..both).map(move |column| (row, column))) {
            matrix[place(cell, column) * 2 * states + place(cell, row)] = values[(cell * both + row) * both + column];
        }
    }
    let beta = match betas {
        [re, im] => graph.op_with("Concat", &[re, im], vec![integer("axis", 2)]),
        [re, ..] => {
            let nothing = graph.float(0.0);
            let nothing = graph.op("Mul", &[re, &nothing]);
            graph.op_with("Concat", &[re, &nothing], vec![integer("axis", 2)])
        }
        [] => return Err(ModelError::Config("a block has no input".into())),
    };
    let dims = [Dim::Free, Dim::Fixed(2 * states)];
    let mut body = Graph::new("step");
    let state = body.input("state", DataType::Float, &dims);
    let input = body.input("beta", DataType::Float, &dims);
    let matrix = body.floats("transition", &matrix, &[2 * states, 2 * states]);
    let product = body.op("MatMul", &[&state, &matrix]);
    let next = body.op("Add", &[&product, &input]);
    body.output("next", &next, DataType::Float, &dims);
    body.output("kept", &next, DataType::Float, &dims);
    let zero = zeros(graph, 2 * states, x);
    let attributes = vec![
        subgraph("body", body),
        integer("num_scan_inputs", 1),
        integers("scan_input_axes", &[1]),
        integers("scan_output_axes", &[1]),
    ];
    let outputs = graph.op_many("Scan", &[&zero, &beta], attributes, 2);
    let width = states as i64;
    Ok((graph.slice_fixed(&outputs[1], 2, 0, width), graph.slice_fixed(&outputs[1], 2, width, 2 * width)))
}

/// c_t = a c_{t-1} + beta_t from zero, over axis 1 of `betas` (`[batch, length, N]`, the real part and optionally the
/// imaginary). Returns the real and the imaginary part of all states.
fn recurrence(graph: &mut Graph, states: usize, decay: &Decay, betas: &[Value], x: &Value) -> (Value, Value) {
    let zero = zeros(graph, states, x);
    let mut inputs: Vec<&Value> = betas.iter().collect();
    if let Decay::Varying(re, im) = decay {
        inputs.extend([re, im]);
    }
    let attributes = vec![
        subgraph("body", body(states, decay, betas.len())),
        integer("num_scan_inputs", inputs.len() as i64),
        integers("scan_input_axes", &vec![1; inputs.len()]),
        integers("scan_output_axes", &[1, 1]),
    ];
    let inputs: Vec<&Value> = [&zero, &zero].into_iter().chain(inputs).collect();
    let outputs = graph.op_many("Scan", &inputs, attributes, 4);
    (outputs[2].clone(), outputs[3].clone())
}

/// One step of the recurrence: from the state and a slice of each input to the next state, which is returned twice, as
/// the next state and as the output.
fn body(states: usize, decay: &Decay, betas: usize) -> Graph {
    // tract distinguishes a symbol of a body from that of the graph, and then cannot determine its value.
    let dims = [Dim::Free, Dim::Fixed(states)];
    let mut body = Graph::new("step");
    let (re, im) = (body.input("re", DataType::Float, &dims), body.input("im", DataType::Float, &dims));
    let beta_re = body.input("beta_re", DataType::Float, &dims);
    let beta_im = (betas > 1).then(|| body.input("beta_im", DataType::Float, &dims));
    let (a_re, a_im) = match decay {
        Decay::Constant(re, im) => (body.floats("decay_re", re, &[states]), body.floats("decay_im", im, &[states])),
        Decay::Varying(..) => {
            (body.input("decay_re", DataType::Float, &dims), body.input("decay_im", DataType::Float, &dims))
        }
    };
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
