//! The tape: which operation made a value from what, and the walk back along it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::array::Array;
use crate::checkpoint;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Result, TensorError};
use crate::gradient::{self, Sums};
pub(crate) use crate::op::Op;
use crate::pending::PendingGradients;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Nodes are numbered as they are made, so that a node's inputs always have smaller numbers than itself.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// One operation that was carried out. It keeps what its gradient rule needs and no more.
pub(crate) struct Node {
    id: u64,
    pub(crate) op: Op,
    pub(crate) inputs: Vec<Input>,
}

/// What a node remembers of each input.
pub(crate) struct Input {
    /// Where its gradient goes; none for a constant.
    edge: Option<Edge>,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
}

impl Input {
    /// Whether a gradient is wanted.
    pub(crate) fn is_tracked(&self) -> bool {
        self.edge.is_some()
    }
}

/// One of a node's values.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) node: Arc<Node>,
    pub(crate) output: usize,
}

impl Edge {
    /// A new leaf.
    pub(crate) fn new_leaf() -> Edge {
        Edge { node: Node::new(Op::Leaf, Vec::new()), output: 0 }
    }
}

impl Node {
    pub(crate) fn edge_id(&self) -> u64 {
        self.id
    }

    fn new(op: Op, inputs: Vec<Input>) -> Arc<Node> {
        Arc::new(Node { id: NEXT.fetch_add(1, Ordering::Relaxed), op, inputs })
    }
}

impl Drop for Node {
    /// Without this a long chain would be dropped by recursion and overflow the stack.
    fn drop(&mut self) {
        let mut pending: Vec<Input> = std::mem::take(&mut self.inputs);
        while let Some(input) = pending.pop() {
            if let Some(mut node) = input.edge.and_then(|edge| Arc::into_inner(edge.node)) {
                pending.append(&mut node.inputs);
            }
        }
    }
}

/// A node for an operation on `inputs`, or none where no input is tracked.
pub(crate) fn record_node(inputs: &[&Tensor], op: impl FnOnce() -> Op) -> Option<Arc<Node>> {
    if !inputs.iter().any(|t| t.is_tracked()) || checkpoint::is_recording_paused() {
        return None;
    }
    Some(record_always(inputs, op))
}

/// A node for an operation on `inputs`, whether any of them is tracked or not.
pub(crate) fn record_always(inputs: &[&Tensor], op: impl FnOnce() -> Op) -> Arc<Node> {
    let input = |t: &&Tensor| Input { edge: t.tape_edge().cloned(), shape: t.shape().clone(), dtype: t.dtype() };
    Node::new(op(), inputs.iter().map(input).collect())
}

/// The gradients of a scalar with respect to the variables that it depends on.
#[derive(Debug, Clone, Default)]
pub struct Gradients(BTreeMap<u64, Tensor>);

impl Gradients {
    /// The gradient with respect to `leaf`, in its shape. None if the scalar does not depend on it, or it is not a
    /// [`variable`](Tensor::variable).
    pub fn get(&self, leaf: &Tensor) -> Option<&Tensor> {
        self.0.get(&leaf.tape_edge()?.node.id)
    }

    /// Takes the gradient with respect to `leaf` out.
    pub fn take(&mut self, leaf: &Tensor) -> Option<Tensor> {
        self.0.remove(&leaf.tape_edge()?.node.id)
    }

    /// The sums of the gradients of several scalars, variable by variable, in their order; in place where nothing else holds
    /// on to the first.
    pub fn sum(all: impl IntoIterator<Item = Gradients>) -> Result<Gradients> {
        let mut by_variable: BTreeMap<u64, Vec<Tensor>> = BTreeMap::new();
        for (id, gradient) in all.into_iter().flat_map(|gradients| gradients.0) {
            by_variable.entry(id).or_default().push(gradient);
        }
        let mut sums = BTreeMap::new();
        for (id, mut gradients) in by_variable {
            let first = gradients.remove(0);
            let device = first.device().clone();
            let others: Vec<&Array> = gradients.iter().map(Tensor::array).collect();
            let sum = device.kernels().accumulate_all(first.into_array(), &others)?;
            sums.insert(id, Tensor::from_array(&device, sum));
        }
        Ok(Gradients(sums))
    }

    /// The number of variables that got a gradient.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no variable got a gradient.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out what has been added up for the value at `edge`, if that is a leaf.
    pub(crate) fn take_at(&mut self, edge: &Edge) -> Option<Array> {
        matches!(edge.node.op, Op::Leaf).then(|| self.0.remove(&edge.node.id)).flatten().map(Tensor::into_array)
    }

    /// Adds to the gradient of the leaf of this number.
    fn add_leaf(&mut self, device: &Device, id: u64, gradient: Array) -> Result<()> {
        let sum = match self.0.remove(&id) {
            Some(sum) => device.kernels().accumulate(sum.into_array(), &gradient)?,
            None => gradient,
        };
        self.0.insert(id, Tensor::from_array(device, sum));
        Ok(())
    }
}

impl Tensor {
    /// The gradients of this scalar with respect to the variables it depends on.
    ///
    /// Errors if it is not a scalar (or of one element), or depends on no variable. Where a value is used several
    /// times its gradients are added in the reverse order of use, so that the bits do not depend on anything else.
    pub fn backward(&self) -> Result<Gradients> {
        self.backward_onto(Gradients::default())
    }

    /// [`Tensor::backward`], with the gradients added to `sums`: those of products and of tables as they are computed,
    /// which saves a pass over each. What was added up is lost with an error.
    pub fn backward_onto(&self, sums: Gradients) -> Result<Gradients> {
        if self.numel() != 1 {
            return Err(TensorError::new("backward", "only a scalar has a gradient")
                .shapes([self.shape()])
                .hint("reduce the loss with mean() or sum() first"));
        }
        let Some(edge) = self.tape_edge() else {
            return Err(TensorError::new("backward", "the value depends on no variable")
                .hint("make the parameters leaves with variable() and do not detach() the loss"));
        };
        let one = self.device().kernels().full(self.shape(), self.dtype().wide(), 1.0)?;
        walk_backward(self.device(), vec![(edge.clone(), one)], sums)
    }
}

/// Visits nodes in descending order of number: each after everything that uses it. `roots` are values and their
/// gradients; those of leaves are added to `leaves`.
pub(crate) fn walk_backward(device: &Device, roots: Vec<(Edge, Array)>, mut leaves: Gradients) -> Result<Gradients> {
    let mut pending: BTreeMap<u64, PendingGradients> = BTreeMap::new();
    for (root, gradient) in roots {
        PendingGradients::pending_of(&mut pending, &root).add_gradient(device, root.output, gradient)?;
    }
    while let Some((id, mut waiting)) = pending.pop_last() {
        waiting.multiply_all(device, &mut leaves)?;
        let PendingGradients { node, gradients, .. } = waiting;
        let inputs = match &node.op {
            Op::Leaf => {
                if let Some(gradient) = gradients.into_iter().flatten().next() {
                    leaves.add_leaf(device, id, gradient)?;
                }
                continue;
            }
            Op::Checkpoint { again } => {
                let (inputs, all) = again.segment_gradients(device, &node.inputs, gradients, leaves)?;
                leaves = all;
                inputs
            }
            _ => {
                let mut arrived = ArrivedGradients { device, node: &node, pending: &mut pending, leaves: &mut leaves };
                gradient::of_inputs(device.kernels(), &node, gradients, &mut arrived)?
            }
        };
        for (input, gradient) in node.inputs.iter().zip(inputs) {
            if let (Some(edge), Some(gradient)) = (&input.edge, gradient) {
                debug_assert_eq!(gradient.shape, input.shape, "gradient of {}", node.op.name());
                PendingGradients::pending_of(&mut pending, edge).add_gradient(device, edge.output, gradient)?;
            }
        }
    }
    Ok(leaves)
}

/// What has arrived at the inputs of a node.
struct ArrivedGradients<'a> {
    device: &'a Device,
    node: &'a Node,
    pending: &'a mut BTreeMap<u64, PendingGradients>,
    leaves: &'a mut Gradients,
}

impl Sums for ArrivedGradients<'_> {
    fn take_sum(&mut self, input: usize) -> Option<Array> {
        let edge = self.node.inputs[input].edge.as_ref()?;
        let waiting = self.pending.get_mut(&edge.node.id).and_then(|pending| pending.take_sum(edge.output));
        waiting.or_else(|| self.leaves.take_at(edge))
    }

    fn defer_product(&mut self, input: usize, g: &Array, x: &Array) -> Result<bool> {
        let Some(edge) = &self.node.inputs[input].edge else { return Ok(false) };
        if x.shape.rows() >= self.device.kernels().capabilities().few_rows {
            return Ok(false);
        }
        PendingGradients::pending_of(self.pending, edge).defer_product(self.device, edge.output, (g, x), self.leaves)
    }
}
