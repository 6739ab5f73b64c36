//! Builds an ONNX graph: values, nodes, initializers, in the protobuf types of `tract-onnx`.
//!
//! The same calls give the same bytes: names are numbered, and no hash map is used.

use tract_onnx::pb::attribute_proto::AttributeType;
use tract_onnx::pb::tensor_proto::DataType;
use tract_onnx::pb::tensor_shape_proto::{Dimension, dimension};
use tract_onnx::pb::{
    AttributeProto, GraphProto, NodeProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};

/// The name of a tensor in the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value(String);

impl Value {
    /// The value with this name, which must be in the graph.
    pub fn named(name: &str) -> Self {
        Value(name.to_owned())
    }
}

/// A dimension of an input or an output.
#[derive(Debug, Clone, Copy)]
pub enum Dim {
    /// Determined when the file is used, with this name.
    Symbol(&'static str),
    /// Determined when the file is used, without a name.
    Free,
    /// A fixed size.
    Fixed(usize),
}

/// A graph under construction. Nodes are appended in topological order, as ONNX requires.
#[derive(Default)]
pub struct Graph {
    graph: GraphProto,
    path: Vec<String>,
    count: usize,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: &str) -> Self {
        Graph { graph: GraphProto { name: name.to_owned(), ..GraphProto::default() }, ..Graph::default() }
    }

    /// The finished graph.
    pub fn finish(self) -> GraphProto {
        self.graph
    }

    /// Builds a part with a separate name, such as `blocks.0`, which prefixes the names of its values.
    pub fn within<T, E>(&mut self, name: &str, part: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        self.path.push(name.to_owned());
        let made = part(self);
        self.path.pop();
        made
    }

    /// A new name.
    fn fresh(&mut self, name: &str) -> String {
        self.count += 1;
        let mut full = self.path.join("/");
        if !full.is_empty() {
            full.push('/');
        }
        format!("{full}{name}_{}", self.count)
    }

    /// Declares an input.
    pub fn input(&mut self, name: &str, dtype: DataType, dims: &[Dim]) -> Value {
        self.graph.input.push(value_info(name, dtype, dims));
        Value::named(name)
    }

    /// Declares `value` as the output `name`.
    pub fn output(&mut self, name: &str, value: &Value, dtype: DataType, dims: &[Dim]) {
        self.append("Identity", &[value], vec![], name.to_owned());
        self.graph.output.push(value_info(name, dtype, dims));
    }

    /// A constant of f32; `values` has as many elements as the product of `dims`, row by row.
    pub fn floats(&mut self, name: &str, values: &[f32], dims: &[usize]) -> Value {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name, DataType::Float, bytes, dims)
    }

    /// A constant of one f32, without dimensions.
    pub fn float(&mut self, value: f32) -> Value {
        self.floats("constant", &[value], &[])
    }

    /// A constant vector of i64.
    pub fn integers(&mut self, values: &[i64]) -> Value {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant("constant", DataType::Int64, bytes, &[values.len()])
    }

    /// A constant of one i64, without dimensions.
    pub fn integer(&mut self, value: i64) -> Value {
        self.constant("constant", DataType::Int64, value.to_le_bytes().to_vec(), &[])
    }

    fn constant(&mut self, name: &str, dtype: DataType, raw_data: Vec<u8>, dims: &[usize]) -> Value {
        let name = self.fresh(name);
        let dims = dims.iter().map(|&dim| dim as i64).collect();
        let tensor =
            TensorProto { name: name.clone(), data_type: dtype as i32, dims, raw_data, ..TensorProto::default() };
        self.graph.initializer.push(tensor);
        Value(name)
    }

    /// A node with one output.
    pub fn op(&mut self, op: &str, inputs: &[&Value]) -> Value {
        self.op_with(op, inputs, vec![])
    }

    /// A node with attributes and one output.
    pub fn op_with(&mut self, op: &str, inputs: &[&Value], attributes: Vec<AttributeProto>) -> Value {
        let output = self.fresh(op);
        self.append(op, inputs, attributes, output)
    }

    /// A node with attributes and `outputs` outputs.
    pub fn op_many(
        &mut self,
        op: &str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
        outputs: usize,
    ) -> Vec<Value> {
        let names: Vec<String> = (0..outputs).map(|_| self.fresh(op)).collect();
        let name = names.first().cloned().unwrap_or_default();
        self.graph.node.push(node(op, name, inputs, names.clone(), attributes));
        names.into_iter().map(Value).collect()
    }

    fn append(&mut self, op: &str, inputs: &[&Value], attributes: Vec<AttributeProto>, output: String) -> Value {
        self.graph.node.push(node(op, output.clone(), inputs, vec![output.clone()], attributes));
        Value(output)
    }

    /// One dimension of a value, as a vector of one i64.
    pub fn size(&mut self, value: &Value, axis: usize) -> Value {
        let shape = self.op("Shape", &[value]);
        let axis = self.integers(&[axis as i64]);
        self.op_with("Gather", &[&shape, &axis], vec![integer("axis", 0)])
    }

    /// A slice of an axis, from `start` to before `end`, both vectors of one i64.
    pub fn slice(&mut self, value: &Value, axis: i64, start: &Value, end: &Value) -> Value {
        let axis = self.integers(&[axis]);
        self.op("Slice", &[value, start, end, &axis])
    }

    /// A slice of an axis, from `start` to before `end`.
    pub fn slice_fixed(&mut self, value: &Value, axis: i64, start: i64, end: i64) -> Value {
        let (start, end) = (self.integers(&[start]), self.integers(&[end]));
        self.slice(value, axis, &start, &end)
    }

    /// Changes the dimensions; 0 keeps a dimension, and a single -1 is inferred.
    pub fn reshape(&mut self, value: &Value, dims: &[i64]) -> Value {
        let dims = self.integers(dims);
        self.op("Reshape", &[value, &dims])
    }
}

/// An integer attribute.
pub fn integer(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i, ..attribute(name, AttributeType::Int) }
}

/// An attribute that is a list of integers.
pub fn integers(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name, AttributeType::Ints) }
}

/// A float attribute.
pub fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { f, ..attribute(name, AttributeType::Float) }
}

/// An attribute that is a graph.
pub fn subgraph(name: &str, graph: Graph) -> AttributeProto {
    AttributeProto { g: Some(graph.finish()), ..attribute(name, AttributeType::Graph) }
}

/// An attribute that is a tensor of one f32.
pub fn tensor(name: &str, value: f32) -> AttributeProto {
    let t = TensorProto {
        data_type: DataType::Float as i32,
        dims: vec![1],
        raw_data: value.to_le_bytes().to_vec(),
        ..TensorProto::default()
    };
    AttributeProto { t: Some(t), ..attribute(name, AttributeType::Tensor) }
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: name.to_owned(), r#type: kind as i32, ..AttributeProto::default() }
}

fn node(op: &str, name: String, inputs: &[&Value], output: Vec<String>, attribute: Vec<AttributeProto>) -> NodeProto {
    let input = inputs.iter().map(|value| value.0.clone()).collect();
    NodeProto { name, op_type: op.to_owned(), input, output, attribute, ..NodeProto::default() }
}

fn value_info(name: &str, dtype: DataType, dims: &[Dim]) -> ValueInfoProto {
    let dim = dims
        .iter()
        .map(|dim| Dimension {
            value: match dim {
                Dim::Symbol(name) => Some(dimension::Value::DimParam((*name).to_owned())),
                Dim::Free => None,
                Dim::Fixed(size) => Some(dimension::Value::DimValue(*size as i64)),
            },
            ..Dimension::default()
        })
        .collect();
    let tensor = type_proto::Tensor { elem_type: dtype as i32, shape: Some(TensorShapeProto { dim }) };
    let kind = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(kind), ..ValueInfoProto::default() }
}
