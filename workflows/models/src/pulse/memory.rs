//! A content-addressed memory of M rows, one for each sequence and block: [`Memory`].

use assay_tensor::Tensor;

use crate::carry::{Carry, State};
use crate::config::MemoryConfig;
use crate::error::ModelError;
use crate::layers::Linear;
use crate::parameters::{Init, Role, Scope};
use crate::pieces::Pieces;

/// The memory of a block; the equations are at the top of the module.
#[derive(Clone)]
pub struct Memory {
    /// Its path in the tree of names, which prefixes its names in the carry.
    pub path: String,
    /// m at the start of a sequence, `[M, W]`.
    pub initial: Tensor,
    /// W_a: D to W.
    pub query: Linear,
    /// W_r: W to D.
    pub out: Linear,
    /// W_w: D to 3W: key, erase, add.
    pub write: Linear,
}

impl Memory {
    /// `base` plus the values that the tokens `[B, T, D]` read, in the same shape.
    ///
    /// # Errors
    /// If the carry does not fit, or a device fails.
    pub fn forward(
        &self,
        base: &Tensor,
        x: &Tensor,
        pieces: &Pieces,
        carry: &Carry,
        next_state: &mut State,
    ) -> Result<Tensor, ModelError> {
        let (batch, dim) = (x.dims()[0], x.dims()[2]);
        let (rows, width) = (self.initial.dims()[0], self.initial.dims()[1]);
        let lengths = pieces.lengths();
        let queries = self.query.forward(x)?.scale(1.0 / (width as f64).sqrt())?.split(1, &lengths)?;
        let names = [format!("{}.state", self.path), format!("{}.sum", self.path)];
        let mut memory = match carry.get(&names[0], &[Some(batch), Some(rows), Some(width)])? {
            Some(kept) => kept.clone(),
            None => self.initial.reshape([1, rows, width])?.broadcast_to([batch, rows, width])?,
        };
        let mut sum = match pieces.before {
            0 => None,
            _ => carry.get(&names[1], &[Some(batch), Some(dim)])?.cloned(),
        };
        let mut reads = Vec::with_capacity(lengths.len());
        for (index, (query, x)) in queries.iter().zip(x.split(1, &lengths)?).enumerate() {
            let address = self.query.precision.round(query)?.matmul_with(&memory, false, true)?.softmax()?;
            reads.push(address.matmul(&memory)?);
            let seen = x.sum(&[1], false)?;
            let total = match sum.take() {
                None => seen,
                Some(earlier) => earlier.add(&seen)?,
            };
            if pieces.closes(index) {
                memory = self.update(&memory, &total.scale(1.0 / pieces.chunk as f64)?)?;
            } else {
                sum = Some(total);
            }
        }
        let [name, name_sum] = names;
        next_state.insert(name, memory);
        if let Some(sum) = sum {
            next_state.insert(name_sum, sum);
        }
        self.out.onto(Some(base), &Tensor::concat(&reads.iter().collect::<Vec<_>>(), 1)?)
    }

    /// The memory after a chunk whose tokens have the mean `mean`, `[B, D]`.
    fn update(&self, memory: &Tensor, mean: &Tensor) -> Result<Tensor, ModelError> {
        let (batch, rows, width) = (memory.dims()[0], memory.dims()[1], memory.dims()[2]);
        let write = self.write.forward(mean)?.reshape([batch, 1, 3 * width])?.split(2, &[width; 3])?;
        let scores = memory.matmul_with(&write[0].scale(1.0 / (width as f64).sqrt())?, false, true)?;
        let address = scores.reshape([batch, rows])?.softmax()?.reshape([batch, rows, 1])?;
        // m (1 - b e) + b v = m + b (v - m e), with one product fewer.
        let change = write[2].tanh()?.sub(&memory.mul(&write[1].sigmoid()?)?)?;
        Ok(memory.add(&address.mul(&change)?)?)
    }

    /// Registers every parameter below `scope`, which has the path `path`.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(
        scope: &mut Scope,
        path: String,
        config: &MemoryConfig,
        dim: usize,
        gain: f64,
    ) -> Result<Self, ModelError> {
        let (rows, width) = (config.slots, config.width);
        let initial = scope.tensor("initial", &[rows, width], Init::Deviation(1.0), Role::Plain)?;
        let query = Linear::without_bias(&mut scope.child("query"), width, dim, 1.0)?;
        let out = Linear::without_bias(&mut scope.child("out"), dim, width, gain)?;
        let write = Linear::build(&mut scope.child("write"), 3 * width, dim, 1.0)?;
        Ok(Memory { path, initial, query, out, write })
    }
}
