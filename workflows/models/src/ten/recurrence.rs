//! The transition of the states of a block's cells: [`Recurrence`].

use assay_tensor::{ScanArgs, Tensor, diagonal_scan};

use super::cell::Cell;
use super::mixer::{Joined, concat, selectors};
use crate::config::Resonance;
use crate::error::ModelError;
use crate::pieces::Pieces;

/// The range in which a selective cell changes its eigenvalues: the factor of tanh(u) and tanh(v).
pub const SELECTION: f64 = 0.1;

/// The transition of the N = cells * K states of a block. Complex values are pairs of tensors.
#[derive(Clone)]
pub enum Recurrence {
    /// c_t = a c_{t-1} + beta_t.
    Diagonal {
        /// Re a and Im a, `[N]` each.
        decay: Pair,
    },
    /// The same with an a that depends on the token.
    Selective {
        /// W_sel: D to 2N, all u first.
        select: Joined,
        /// `[N]`
        alpha: Tensor,
        /// w, `[N]`
        phase: Tensor,
    },
    /// c_t = R (a c_{t-1}) + beta_t, written over real numbers: [Re c; Im c] times a matrix for each cell.
    Coupled {
        /// `[cells, 2K, 2K]`
        transition: Tensor,
    },
}

/// A real and an imaginary part.
pub type Pair = (Tensor, Tensor);

/// The inputs of a recurrence.
pub(super) struct States<'a> {
    /// The input of the block, `[B, T, D]`.
    pub x: &'a Tensor,
    /// `[B, T, N]`; the imaginary part only for a complex input.
    pub beta: (Tensor, Option<Tensor>),
    /// `[B, N]`
    pub carry: Pair,
    /// The position of the first step.
    pub position: usize,
    /// C.
    pub chunk: usize,
    /// Whether gradients end at multiples of C.
    pub truncate: bool,
}

impl Recurrence {
    pub(super) fn new(cells: &[Cell]) -> Result<Self, ModelError> {
        let all = |of: &dyn Fn(&Cell) -> Result<Tensor, ModelError>| {
            concat(&cells.iter().map(of).collect::<Result<Vec<_>, _>>()?, 0)
        };
        if let Some(select) = selectors(cells)? {
            let alpha = all(&|cell| Ok(cell.magnitude.parameter().clone()))?;
            return Ok(Recurrence::Selective { select, alpha, phase: all(&|cell| Ok(cell.phase.clone()))? });
        }
        if let Some(r) = stacked(cells, Resonance::Recurrent)? {
            return Ok(Recurrence::Coupled { transition: build_transition(cells, &r)? });
        }
        let (re, im): (Vec<_>, Vec<_>) = cells.iter().map(Cell::decay).collect::<Result<_, _>>()?;
        Ok(Recurrence::Diagonal { decay: (concat(&re, 0)?, concat(&im, 0)?) })
    }

    /// All states, `[B, T, N]` twice. `boundary` is applied to the states at the start of a chunk, `[cells, K, K]`.
    pub(super) fn run(&self, states: States<'_>, boundary: Option<&Tensor>) -> Result<Pair, ModelError> {
        let decay = match self {
            Recurrence::Coupled { transition } => return states.multiply_steps(transition),
            Recurrence::Diagonal { decay } => decay.clone(),
            Recurrence::Selective { select, alpha, phase } => select_decay(select, alpha, phase, states.x)?,
        };
        match boundary {
            // The scan counts segments from its first step, which may be inside a chunk.
            None if states.truncate && states.begins_inside() => states.scan_chunks(&decay, None),
            None => {
                let segment = states.truncate.then_some(states.chunk);
                run_scan(&decay, (&states.beta.0, states.beta.1.as_ref()), &states.carry, segment)
            }
            Some(boundary) => states.scan_chunks(&decay, Some(boundary)),
        }
    }
}

/// a_t = sigmoid(alpha + 0.1 tanh(u_t)) exp(i (w + 0.1 tanh(v_t))), `[B, T, N]`.
fn select_decay(select: &Joined, alpha: &Tensor, phase: &Tensor, x: &Tensor) -> Result<Pair, ModelError> {
    let parts = select.split_parts(x, 2)?;
    let magnitude = parts[0].tanh()?.scale(SELECTION)?.add(alpha)?.sigmoid()?;
    let phase = parts[1].tanh()?.scale(SELECTION)?.add(phase)?;
    Ok((magnitude.mul(&phase.cos()?)?, magnitude.mul(&phase.sin()?)?))
}

fn run_scan(
    decay: &Pair,
    input: (&Tensor, Option<&Tensor>),
    carry: &Pair,
    segment: Option<usize>,
) -> Result<Pair, ModelError> {
    Ok(diagonal_scan(ScanArgs {
        decay_re: &decay.0,
        decay_im: &decay.1,
        input_re: input.0,
        input_im: input.1,
        carry_re: &carry.0,
        carry_im: &carry.1,
        segment,
    })?)
}

impl States<'_> {
    /// Whether the first step is not the start of a chunk, but a later one is.
    fn begins_inside(&self) -> bool {
        let inside = self.position % self.chunk;
        inside > 0 && inside + self.x.dims()[1] > self.chunk
    }

    /// Chunk by chunk; `boundary`, if given, is applied to the states at the start of each chunk except the start of
    /// the sequence.
    fn scan_chunks(&self, decay: &Pair, boundary: Option<&Tensor>) -> Result<Pair, ModelError> {
        let lengths = Pieces::new(self.position, self.x.dims()[1], self.chunk).lengths();
        let (input_re, input_im) = (self.beta.0.split(1, &lengths)?, self.beta.1.as_ref());
        let input_im = input_im.map(|im| im.split(1, &lengths)).transpose()?;
        let varying = decay.0.rank() == 3;
        let decays = match varying {
            true => Some((decay.0.split(1, &lengths)?, decay.1.split(1, &lengths)?)),
            false => None,
        };
        let (mut re, mut im) = (Vec::new(), Vec::new());
        let (mut carry, mut at) = (self.carry.clone(), self.position);
        for (index, length) in lengths.iter().enumerate() {
            if self.truncate && index > 0 {
                carry = (carry.0.detach(), carry.1.detach());
            }
            if let Some(boundary) = boundary
                && at > 0
                && at.is_multiple_of(self.chunk)
            {
                carry = (coupled(boundary, &carry.0)?, coupled(boundary, &carry.1)?);
            }
            let here = decays.as_ref().map_or_else(|| decay.clone(), |d| (d.0[index].clone(), d.1[index].clone()));
            let states = run_scan(&here, (&input_re[index], input_im.as_ref().map(|im| &im[index])), &carry, None)?;
            carry = (take_last_step(&states.0)?, take_last_step(&states.1)?);
            re.push(states.0);
            im.push(states.1);
            at += length;
        }
        Ok((concat(&re, 1)?, concat(&im, 1)?))
    }

    /// Step by step, as products with `transition` `[cells, 2K, 2K]`.
    fn multiply_steps(&self, transition: &Tensor) -> Result<Pair, ModelError> {
        let (batch, length) = (self.x.dims()[0], self.x.dims()[1]);
        let (cells, states) = (transition.dims()[0], transition.dims()[1] / 2);
        // [B, T, N] twice becomes T times [cells, B, 2K].
        let by_cell = |part: &Tensor| part.reshape([batch, length, cells, states]);
        let re = by_cell(&self.beta.0)?;
        let im = self.beta.1.as_ref().map_or_else(|| re.scale(0.0), by_cell)?;
        let beta = Tensor::concat(&[&re, &im], 3)?.permute(&[1, 2, 0, 3])?;
        let carry = |part: &Tensor| part.reshape([batch, cells, states]);
        let mut state = Tensor::concat(&[&carry(&self.carry.0)?, &carry(&self.carry.1)?], 2)?.permute(&[1, 0, 2])?;
        let mut all = Vec::with_capacity(length);
        for (t, beta) in beta.split(0, &vec![1; length])?.into_iter().enumerate() {
            if self.truncate && t > 0 && (self.position + t).is_multiple_of(self.chunk) {
                state = state.detach();
            }
            state = state.matmul_with(transition, false, true)?.add(&beta.reshape([cells, batch, 2 * states])?)?;
            all.push(state.reshape([1, cells, batch, 2 * states])?);
        }
        let all = concat(&all, 0)?.permute(&[2, 0, 1, 3])?;
        let parts = all.split(3, &[states, states])?;
        let whole = |part: &Tensor| part.reshape([batch, length, cells * states]);
        Ok((whole(&parts[0])?, whole(&parts[1])?))
    }
}

/// The last step of `[B, T, N]`, `[B, N]`.
fn take_last_step(states: &Tensor) -> Result<Tensor, ModelError> {
    let &[batch, length, width] = states.dims() else {
        return Err(ModelError::Input(format!("states have shape {:?}, not [B, T, N]", states.dims())));
    };
    Ok(states.slice(1, length - 1, 1)?.reshape([batch, width])?)
}

/// R diag(a) of each cell over real numbers: [[P, -Q], [Q, P]] for P + i Q.
fn build_transition(cells: &[Cell], r: &Tensor) -> Result<Tensor, ModelError> {
    let (count, states) = (r.dims()[0], r.dims()[1]);
    let column = |of: &dyn Fn(&Cell) -> Result<Tensor, ModelError>| -> Result<Tensor, ModelError> {
        Ok(concat(&cells.iter().map(of).collect::<Result<Vec<_>, _>>()?, 0)?.reshape([count, 1, states])?)
    };
    let (p, q) = (r.mul(&column(&|cell| Ok(cell.decay()?.0))?)?, r.mul(&column(&|cell| Ok(cell.decay()?.1))?)?);
    let (above, below) = (Tensor::concat(&[&p, &q.neg()?], 2)?, Tensor::concat(&[&q, &p], 2)?);
    Ok(Tensor::concat(&[&above, &below], 1)?)
}

/// R of each cell, `[cells, K, K]`, if it is applied at `place`.
pub(super) fn stacked(cells: &[Cell], place: Resonance) -> Result<Option<Tensor>, ModelError> {
    let mut all = Vec::with_capacity(cells.len());
    for cell in cells {
        let Some(r) = cell.resonance(place)? else { return Ok(None) };
        all.push(r.reshape([1, r.dims()[0], r.dims()[1]])?);
    }
    Ok(if all.is_empty() { None } else { Some(concat(&all, 0)?) })
}

/// Each cell's R `[cells, K, K]` times its part of `x` `[.., cells K]`.
pub(super) fn coupled(r: &Tensor, x: &Tensor) -> Result<Tensor, ModelError> {
    let (cells, states) = (r.dims()[0], r.dims()[1]);
    if cells == 1 {
        return Ok(x.linear(&r.reshape([states, states])?, None)?);
    }
    let rows = x.numel() / (cells * states);
    let by_cell = x.reshape([rows, cells, states])?.permute(&[1, 0, 2])?;
    Ok(by_cell.matmul_with(r, false, true)?.permute(&[1, 0, 2])?.reshape(x.shape())?)
}
