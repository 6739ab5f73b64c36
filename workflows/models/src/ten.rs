//! TEN, the Temporal Eigenstate Network: attention's place is taken by a diagonal complex recurrence.
//!
//! ```text
//! B sequences    T tokens    D width    K eigenstates a cell    C chunk (length of a backpropagation segment)
//!
//! cell    beta_t = gamma * (W_in x_t)                 W_in: D -> K real, or D -> 2K read as complex
//!         c_t    = a * c_{t-1} + beta_t               a_k = m_k exp(i w_k); c_{-1} is the carry, or 0
//!         y_t    = W_out [Re c_t ; Im c_t] + d * x_t  `readout: real` takes Re c_t alone; `skip: false` has no d
//!
//! ring    m = exp(-exp(nu))                           gamma = exp(log_gamma), begins at sqrt(1 - m^2)
//! seed    m = 0.1 + 0.89 sigmoid(alpha)               gamma = 1
//!
//! block   pre:  x += mean over cells of cell(norm x);  x += FFN(norm x);  one norm after the last block
//!         post: x = norm(x + mean over cells of cell(x));  x = norm(x + FFN(x))
//! ```
//!
//! The forward result does not depend on C. With `truncate`, the gradient of the state is cut at every multiple of C.
//!
//! Parameters: `embedding.table`, `positions.table`, `blocks.L.norm1`, `blocks.L.cell.I.{nu | alpha, phase, log_gamma,
//! in, out, skip}`, `blocks.L.norm2`, `blocks.L.ffn.{up, gate, down}`, `norm`.

use assay_tensor::{ScanArgs, Tensor, diagonal_scan};

use crate::carry::{Carry, SequenceModel};
use crate::config::{Field, NormPlace, Task, TenConfig, TenInit, TenPositions};
use crate::error::ModelError;
use crate::layers::{Embedding, FeedForward, LayerNorm, Linear, sinusoids};
use crate::parameters::{Init, Role, Scope, constant};
use crate::positions::learned;

/// Magnitudes of `init: ring` are uniform in area between these.
const RING: (f64, f64) = (0.9, 0.999);
/// Magnitudes of `init: seed` stay between these.
const SEED_MAGNITUDE: (f64, f64) = (0.1, 0.99);

/// The network below the head.
#[derive(Clone)]
pub struct Ten {
    /// A vector for each token.
    pub embedding: Embedding,
    /// What is added to it for its position.
    pub positions: Positions,
    /// The blocks, first to last.
    pub blocks: Vec<Block>,
    /// The last norm; `norm: pre` only.
    pub norm: Option<LayerNorm>,
}

/// What is added to an embedding for its position.
#[derive(Clone)]
pub enum Positions {
    /// Nothing.
    None,
    /// A row of a learned table.
    Learned(Embedding),
    /// Sines and cosines.
    Sinusoidal,
}

impl SequenceModel for Ten {
    fn forward(&self, tokens: &Tensor, carry: &Carry) -> Result<(Tensor, Carry), ModelError> {
        let mut x = self.embedding.forward(tokens)?;
        let &[_, length, dim] = x.dims() else {
            return Err(ModelError::Input(format!("tokens have shape {:?}, not [B, T]", tokens.dims())));
        };
        x = match &self.positions {
            Positions::None => x,
            Positions::Learned(table) => x.add(&learned(table, carry.position, length)?)?,
            Positions::Sinusoidal => x.add(&sinusoids(x.device(), x.dtype(), carry.position, length, dim)?)?,
        };
        let mut after = Carry { position: carry.position + length, ..Carry::default() };
        for block in &self.blocks {
            x = block.forward(&x, carry, &mut after)?;
        }
        if let Some(norm) = &self.norm {
            x = norm.forward(&x)?;
        }
        Ok((x, after))
    }
}

/// One block: mix over time, then over channels.
#[derive(Clone)]
pub struct Block {
    /// Where it normalises.
    pub place: NormPlace,
    /// Of the cells' branch.
    pub norm1: LayerNorm,
    /// Side by side; their outputs are averaged.
    pub cells: Vec<Cell>,
    /// Of the feed-forward branch.
    pub norm2: LayerNorm,
    /// The feed-forward network.
    pub ffn: FeedForward,
}

impl Block {
    fn forward(&self, x: &Tensor, carry: &Carry, after: &mut Carry) -> Result<Tensor, ModelError> {
        match self.place {
            NormPlace::Pre => {
                let x = x.add(&self.mix(&self.norm1.forward(x)?, carry, after)?)?;
                Ok(x.add(&self.ffn.forward(&self.norm2.forward(&x)?)?)?)
            }
            NormPlace::Post => {
                let x = self.norm1.forward(&x.add(&self.mix(x, carry, after)?)?)?;
                self.norm2.forward(&x.add(&self.ffn.forward(&x)?)?)
            }
        }
    }

    /// The mean of the cells, `[B, T, D]` to the same shape.
    fn mix(&self, x: &Tensor, carry: &Carry, after: &mut Carry) -> Result<Tensor, ModelError> {
        let mut sum: Option<Tensor> = None;
        for cell in &self.cells {
            let y = cell.forward(x, carry, after)?;
            sum = Some(match sum {
                None => y,
                Some(sum) => sum.add(&y)?,
            });
        }
        let sum = sum.ok_or_else(|| ModelError::Config("a block has no cell".into()))?;
        if self.cells.len() == 1 { Ok(sum) } else { Ok(sum.scale(1.0 / self.cells.len() as f64)?) }
    }
}

/// A diagonal complex recurrence between two projections.
#[derive(Clone)]
pub struct Cell {
    /// Its place in the tree of names, and so in the carry.
    pub path: String,
    /// `[K]`, see [`Magnitude`].
    pub magnitude: Magnitude,
    /// w, `[K]`, radians a step.
    pub phase: Tensor,
    /// ln gamma, `[K]`; none where gamma is 1.
    pub log_gamma: Option<Tensor>,
    /// W_in: D to K, or to 2K with all real parts before all imaginary parts.
    pub input: Linear,
    /// W_out: from `[Re c ; Im c]`, or from `Re c` alone.
    pub output: Linear,
    /// d, `[D]`.
    pub skip: Option<Tensor>,
    /// Whether beta is complex.
    pub input_field: Field,
    /// Whether the readout sees both parts of the state.
    pub readout: Field,
    /// Where the gradient of the state is cut, if it is.
    pub segment: Option<usize>,
}

/// How the magnitude m of the eigenvalues is written down, so that it stays within the unit circle.
#[derive(Clone)]
pub enum Magnitude {
    /// m = exp(-exp(nu)).
    Ring(Tensor),
    /// m = 0.1 + 0.89 sigmoid(alpha).
    Seed(Tensor),
}

impl Magnitude {
    /// m, `[K]`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn value(&self) -> Result<Tensor, ModelError> {
        Ok(match self {
            Magnitude::Ring(nu) => nu.exp()?.neg()?.exp()?,
            Magnitude::Seed(alpha) => {
                let (low, high) = SEED_MAGNITUDE;
                alpha.sigmoid()?.scale(high - low)?.offset(low)?
            }
        })
    }
}

impl Cell {
    fn forward(&self, x: &Tensor, carry: &Carry, after: &mut Carry) -> Result<Tensor, ModelError> {
        let (decay_re, decay_im) = self.decay()?;
        let (input_re, input_im) = self.beta(x)?;
        let (batch, length, states) = (x.dims()[0], x.dims()[1], decay_re.dims()[0]);
        let (name_re, name_im) = (format!("{}.re", self.path), format!("{}.im", self.path));
        let zero = || constant(x.device(), x.dtype(), vec![0.0; batch * states], &[batch, states]);
        let start = |name: &str| match carry.get(name, &[Some(batch), Some(states)])? {
            Some(state) => Ok(state.clone()),
            None => zero(),
        };
        let (carry_re, carry_im) = (start(&name_re)?, start(&name_im)?);
        let (re, im) = diagonal_scan(ScanArgs {
            decay_re: &decay_re,
            decay_im: &decay_im,
            input_re: &input_re,
            input_im: input_im.as_ref(),
            carry_re: &carry_re,
            carry_im: &carry_im,
            segment: self.segment,
        })?;
        let last = |c: &Tensor| c.slice(1, length - 1, 1)?.reshape([batch, states]);
        after.state.insert(name_re, last(&re)?);
        after.state.insert(name_im, last(&im)?);
        let y = match self.readout {
            Field::Real => self.output.forward(&re)?,
            Field::Complex => self.output.forward(&Tensor::concat(&[&re, &im], 2)?)?,
        };
        Ok(match &self.skip {
            None => y,
            Some(skip) => y.add(&x.mul(skip)?)?,
        })
    }

    /// a = m exp(i w) as real and imaginary part, `[K]` each.
    ///
    /// # Errors
    /// If the device fails.
    pub fn decay(&self) -> Result<(Tensor, Tensor), ModelError> {
        let magnitude = self.magnitude.value()?;
        Ok((magnitude.mul(&self.phase.cos()?)?, magnitude.mul(&self.phase.sin()?)?))
    }

    /// beta as real part `[B, T, K]` and, for a complex input, imaginary part.
    fn beta(&self, x: &Tensor) -> Result<(Tensor, Option<Tensor>), ModelError> {
        let projected = self.input.forward(x)?;
        let gamma = self.log_gamma.as_ref().map(Tensor::exp).transpose()?;
        let scaled = |part: Tensor| gamma.as_ref().map_or(Ok(part.clone()), |gamma| part.mul(gamma));
        match self.input_field {
            Field::Real => Ok((scaled(projected)?, None)),
            Field::Complex => {
                let states = projected.dims()[2] / 2;
                let (re, im) = (projected.slice(2, 0, states)?, projected.slice(2, states, states)?);
                Ok((scaled(re)?, Some(scaled(im)?)))
            }
        }
    }
}

impl Ten {
    /// Registers every parameter below `scope`. The embedding deviates by `embedding_deviation`.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(
        scope: &mut Scope,
        config: &TenConfig,
        task: &Task,
        embedding_deviation: f64,
    ) -> Result<Self, ModelError> {
        let dim = config.dim;
        let embedding = Embedding::build(&mut scope.child("embedding"), task.vocabulary, dim, embedding_deviation)?;
        let positions = match config.positions {
            TenPositions::None => Positions::None,
            TenPositions::Sinusoidal => Positions::Sinusoidal,
            TenPositions::Learned => {
                let mut scope = scope.child("positions");
                Positions::Learned(Embedding::build(&mut scope, task.max_length, dim, embedding_deviation)?)
            }
        };
        let blocks = (0..config.layers)
            .map(|layer| Block::build(&mut scope.child(&format!("blocks.{layer}")), layer, config))
            .collect::<Result<_, _>>()?;
        let norm = match config.norm {
            NormPlace::Pre => Some(LayerNorm::build(&mut scope.child("norm"), dim)?),
            NormPlace::Post => None,
        };
        Ok(Ten { embedding, positions, blocks, norm })
    }
}

impl Block {
    fn build(scope: &mut Scope, layer: usize, config: &TenConfig) -> Result<Self, ModelError> {
        let dim = config.dim;
        // Two branches a layer write to the residual stream; scaled so, its variance does not grow with depth.
        let gain = 1.0 / (2.0 * config.layers as f64).sqrt();
        let norm1 = LayerNorm::build(&mut scope.child("norm1"), dim)?;
        let cells = (0..config.cells)
            .map(|index| {
                let path = format!("blocks.{layer}.cell.{index}");
                Cell::build(&mut scope.child(&format!("cell.{index}")), path, config, gain)
            })
            .collect::<Result<_, _>>()?;
        let norm2 = LayerNorm::build(&mut scope.child("norm2"), dim)?;
        let hidden = dim * config.ffn_multiplier;
        let ffn = FeedForward::build(&mut scope.child("ffn"), config.ffn, dim, hidden, gain)?;
        Ok(Block { place: config.norm, norm1, cells, norm2, ffn })
    }
}

impl Cell {
    fn build(scope: &mut Scope, path: String, config: &TenConfig, gain: f64) -> Result<Self, ModelError> {
        let (dim, states) = (config.dim, config.states);
        let magnitude = match config.init {
            TenInit::Ring => {
                Magnitude::Ring(scope.tensor("nu", &[states], Init::RingNu(RING.0, RING.1), Role::Plain)?)
            }
            TenInit::Seed => {
                Magnitude::Seed(scope.tensor("alpha", &[states], Init::Uniform(-3.0, 0.0), Role::Plain)?)
            }
        };
        let phase = match config.init {
            TenInit::Ring => Init::Uniform(0.0, config.max_phase),
            TenInit::Seed => Init::Ramp(std::f64::consts::TAU / states as f64),
        };
        let phase = scope.tensor("phase", &[states], phase, Role::Plain)?;
        let log_gamma = match &magnitude {
            Magnitude::Ring(nu) => Some(scope.derived("log_gamma", &[states], || log_gamma(nu))?),
            Magnitude::Seed(_) => None,
        };
        let parts = |field| if field == Field::Complex { 2 * states } else { states };
        let input = Linear::without_bias(&mut scope.child("in"), parts(config.input), dim, 1.0)?;
        let output = Linear::without_bias(&mut scope.child("out"), dim, parts(config.readout), gain)?;
        let skip = match config.skip {
            true => Some(scope.tensor("skip", &[dim], Init::Constant(gain), Role::Plain)?),
            false => None,
        };
        let segment = config.truncate.then_some(config.chunk);
        let (input_field, readout) = (config.input, config.readout);
        Ok(Cell { path, magnitude, phase, log_gamma, input, output, skip, input_field, readout, segment })
    }
}

/// ln sqrt(1 - m^2), with which a unit input gives states of unit variance.
fn log_gamma(nu: &Tensor) -> Result<Vec<f64>, ModelError> {
    let ln = |nu: f64| 0.5 * (-(-2.0 * nu.exp()).exp_m1()).ln();
    Ok(nu.to_f64_vec()?.into_iter().map(ln).collect())
}
