//! [`PendingGradients`]: gradients that have arrived at a node of the tape, and weight gradients that are deferred and batched.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::array::Array;
use crate::device::Device;
use crate::error::Result;
use crate::tape::{Edge, Gradients, Node};
use crate::upstream::Upstream;

/// Rows from which on deferred products are computed: so many that reading and writing their sum hardly counts.
const ROWS: usize = 256;

/// The gradients of a node's values that have arrived so far.
pub(crate) struct PendingGradients {
    pub(crate) node: Arc<Node>,
    pub(crate) gradients: Vec<Option<Array>>,
    /// Deferred products by value: g^T x of the rows of both, which is yet to be added.
    products: BTreeMap<usize, DeferredProducts>,
}

/// Products that are batched into one: the rows of all of them.
#[derive(Default)]
struct DeferredProducts {
    g: Vec<Array>,
    x: Vec<Array>,
    rows: usize,
}

impl PendingGradients {
    /// The entry of the node of this value.
    pub(crate) fn pending_of<'a>(
        all: &'a mut BTreeMap<u64, PendingGradients>,
        edge: &Edge,
    ) -> &'a mut PendingGradients {
        let new = || PendingGradients { node: edge.node.clone(), gradients: Vec::new(), products: BTreeMap::new() };
        all.entry(edge.node.edge_id()).or_insert_with(new)
    }

    /// Takes what was added up for a value.
    pub(crate) fn take_sum(&mut self, output: usize) -> Option<Array> {
        self.gradients.get_mut(output)?.take()
    }

    /// Adds to the gradient of a value.
    pub(crate) fn add_gradient(&mut self, device: &Device, output: usize, gradient: Array) -> Result<()> {
        let sum = match self.take_sum(output) {
            Some(sum) => device.kernels().accumulate(sum, &gradient)?,
            None => gradient,
        };
        self.set_sum(output, sum);
        Ok(())
    }

    fn set_sum(&mut self, output: usize, gradient: Array) {
        if self.gradients.len() <= output {
            self.gradients.resize(output + 1, None);
        }
        self.gradients[output] = Some(gradient);
    }

    /// Defers g^T x until there are enough rows; false where its type differs from that of the deferred ones.
    pub(crate) fn defer_product(
        &mut self,
        device: &Device,
        output: usize,
        (g, x): (&Array, &Array),
        leaves: &mut Gradients,
    ) -> Result<bool> {
        let products = self.products.entry(output).or_default();
        if products.x.first().is_some_and(|first| first.dtype != x.dtype) {
            return Ok(false);
        }
        let rows = |a: &Array| a.viewed([a.shape.rows(), a.shape.last()]);
        products.g.push(rows(g));
        products.x.push(rows(x));
        products.rows += x.shape.rows();
        if products.rows >= ROWS {
            self.multiply_deferred(device, output, leaves)?;
        }
        Ok(true)
    }

    /// Computes and adds the deferred products.
    pub(crate) fn multiply_all(&mut self, device: &Device, leaves: &mut Gradients) -> Result<()> {
        let outputs: Vec<usize> = self.products.keys().copied().collect();
        outputs.into_iter().try_for_each(|output| self.multiply_deferred(device, output, leaves))
    }

    fn multiply_deferred(&mut self, device: &Device, output: usize, leaves: &mut Gradients) -> Result<()> {
        let Some(DeferredProducts { g, x, .. }) = self.products.remove(&output) else { return Ok(()) };
        let k = device.kernels();
        let joined = |mut parts: Vec<Array>| match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => k.concat(&parts.iter().collect::<Vec<_>>(), 0),
        };
        let (g, x) = (joined(g)?, joined(x)?);
        let sum = self.take_sum(output).or_else(|| leaves.take_at(&Edge { node: self.node.clone(), output }));
        let product = Upstream::new(k, &g).weight_product(&x, true, sum)?;
        self.set_sum(output, product);
        Ok(())
    }
}
