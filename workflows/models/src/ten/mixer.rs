//! The cells of a block as one recurrence: [`Mixer`].

use std::sync::Arc;

use assay_tensor::{Skip, Tensor};

use super::cell::Cell;
use super::recurrence::{Pair, Recurrence, States, coupled, stacked};
use crate::carry::{Carry, State};
use crate::config::{Field, Resonance, TenConfig};
use crate::error::ModelError;
use crate::layers::{LayerNorm, Linear};
use crate::parameters::{Weight, constant};
use crate::precision::Precision;
use crate::quantized::readout;

/// The cells of a block as one recurrence over N = cells * K states, whose output is their mean.
#[derive(Clone)]
pub struct Mixer {
    /// gamma W_in: D to N, or to 2N, all real parts first.
    pub input: Joined,
    /// The transition of the states.
    pub recurrence: Recurrence,
    /// W_out divided by the number of cells: N or 2N to D.
    pub output: Joined,
    /// The mean of the skip factors, `[D]`.
    pub skip: Option<Tensor>,
    /// The parts that the readout uses.
    pub readout: Field,
    /// Whether beta is complex.
    pub input_field: Field,
    /// R of each cell, `[cells, K, K]`, if it could not be folded into an int8 `output`.
    turn: Option<Tensor>,
    /// R of each cell, `[cells, K, K]`, applied to the states at the start of a chunk; only for `chunk_carry`.
    pub boundary: Option<Tensor>,
    /// The names of the real and the imaginary parts of the states in the carry.
    names: [Arc<str>; 2],
    states: usize,
    chunk: usize,
    truncate: bool,
}

/// A projection of all cells: their matrices joined as one, or one per cell if their scales prevent this.
#[derive(Clone)]
pub struct Joined(pub Vec<Linear>);

impl Mixer {
    /// Joins the cells; their state has the name `name` in the carry.
    pub(super) fn new(name: String, cells: &[Cell], config: &TenConfig) -> Result<Self, ModelError> {
        let share = 1.0 / cells.len() as f64;
        let (output, turn) = join_outputs(cells, share)?;
        let mut skip: Option<Tensor> = None;
        for next in cells.iter().filter_map(|cell| cell.skip.as_ref()) {
            let next = if cells.len() == 1 { next.clone() } else { next.scale(share)? };
            skip = Some(skip.map_or(Ok(next.clone()), |sum| sum.add(&next))?);
        }
        Ok(Mixer {
            input: join_inputs(cells)?,
            recurrence: Recurrence::new(cells)?,
            output,
            skip,
            readout: config.readout,
            input_field: config.input,
            turn,
            boundary: stacked(cells, Resonance::ChunkCarry)?,
            names: ["re", "im"].map(|part| format!("{name}.{part}").into()),
            states: cells.len() * config.states,
            chunk: config.chunk,
            truncate: config.truncate,
        })
    }

    /// `base`, if given, plus the mean of the cells, `[B, T, D]` to the same shape.
    ///
    /// # Errors
    /// If the carry belongs to another model or batch size.
    pub fn forward(
        &self,
        base: Option<&Tensor>,
        x: &Tensor,
        carry: &Carry,
        next_state: &mut State,
    ) -> Result<Tensor, ModelError> {
        let (re, im) = self.run_recurrence(x, self.input.split_parts(x, self.fields())?, carry, next_state)?;
        if self.turn.is_none() {
            let im = (self.readout == Field::Complex).then_some(&im);
            let skip = self.skip.as_ref().map(|factor| Skip { factor, of: x, norm: None });
            if let Some(y) = readout(&self.output.0, (&re, im), skip, base)? {
                return Ok(y);
            }
        }
        match (base, &self.skip) {
            (base, None) => self.read(base, re, im),
            (None, Some(skip)) => self.read(Some(&x.mul(skip)?), re, im),
            (Some(base), Some(skip)) => self.read(Some(&base.add_scaled(x, skip)?), re, im),
        }
    }

    /// `base`, if given, plus `self(norm x)`.
    ///
    /// # Errors
    /// As [`Mixer::forward`].
    pub(super) fn forward_normed(
        &self,
        norm: &LayerNorm,
        base: Option<&Tensor>,
        x: &Tensor,
        carry: &Carry,
        next_state: &mut State,
    ) -> Result<Tensor, ModelError> {
        // Only these layers use the norm, and each computes it itself.
        if let ([input], Recurrence::Diagonal { .. }, None, Some(before)) =
            (self.input.0.as_slice(), &self.recurrence, &self.turn, norm.int8())
            && input.int8().is_some()
            && self.output.0.iter().all(|linear| linear.int8().is_some())
        {
            let (re, im) =
                self.run_recurrence(x, split_parts(norm.then(input, x)?, self.fields())?, carry, next_state)?;
            let im = (self.readout == Field::Complex).then_some(&im);
            let skip = self.skip.as_ref().map(|factor| Skip { factor, of: x, norm: Some(before) });
            if let Some(y) = readout(&self.output.0, (&re, im), skip, base)? {
                return Ok(y);
            }
        }
        self.forward(base, &norm.forward(x)?, carry, next_state)
    }

    /// The number of parts of beta.
    fn fields(&self) -> usize {
        if self.input_field == Field::Complex { 2 } else { 1 }
    }

    /// All states, `[B, T, N]` twice, for beta in parts `[B, T, N]`.
    fn run_recurrence(
        &self,
        x: &Tensor,
        beta: Vec<Tensor>,
        carry: &Carry,
        next_state: &mut State,
    ) -> Result<Pair, ModelError> {
        let mut beta = beta.into_iter();
        let re = beta.next().ok_or_else(|| ModelError::Config("a block has no cell".into()))?;
        let (batch, length) = (x.dims()[0], x.dims()[1]);
        let [name_re, name_im] = &self.names;
        let start = |name: &str| match carry.get(name, &[Some(batch), Some(self.states)])? {
            Some(state) => Ok(state.clone()),
            None => constant(x.device(), x.dtype(), vec![0.0; batch * self.states], &[batch, self.states]),
        };
        let states = States {
            x,
            beta: (re, beta.next()),
            carry: (start(name_re)?, start(name_im)?),
            position: carry.position,
            chunk: self.chunk,
            truncate: self.truncate,
        };
        let (re, im) = self.recurrence.run(states, self.boundary.as_ref())?;
        let last = |c: &Tensor| match length {
            1 => c.reshape([batch, self.states]),
            _ => c.slice(1, length - 1, 1)?.reshape([batch, self.states]),
        };
        next_state.insert(name_re.clone(), last(&re)?);
        next_state.insert(name_im.clone(), last(&im)?);
        Ok((re, im))
    }

    /// `base`, if given, plus the output for the states.
    fn read(&self, base: Option<&Tensor>, mut re: Tensor, mut im: Tensor) -> Result<Tensor, ModelError> {
        let complex = self.readout == Field::Complex;
        if let Some(turn) = &self.turn {
            re = coupled(turn, &re)?;
            im = if complex { coupled(turn, &im)? } else { im };
        }
        match self.output.0.as_slice() {
            [linear] if complex => linear.onto(base, &Tensor::concat(&[&re, &im], 2)?),
            [linear] => linear.onto(base, &re),
            linears => {
                let states = self.states / linears.len().max(1);
                let mut sum = base.cloned();
                for (index, linear) in linears.iter().enumerate() {
                    let mut read = re.slice(2, index * states, states)?;
                    if complex {
                        read = Tensor::concat(&[&read, &im.slice(2, index * states, states)?], 2)?;
                    }
                    sum = Some(linear.onto(sum.as_ref(), &read)?);
                }
                sum.ok_or_else(|| ModelError::Config("a block has no cell".into()))
            }
        }
    }
}

impl Joined {
    /// Joins matrices with `[parts, K]` outputs each, so that the joined one has `[parts, cells, K]`. `matrix` returns
    /// a cell's matrix as `[parts, K, D]` if it is floating point, `linear` its layer if it is int8.
    fn rows(
        cells: &[Cell],
        linear: impl Fn(&Cell) -> Result<Linear, ModelError>,
        matrix: impl Fn(&Cell) -> Result<Option<Tensor>, ModelError>,
    ) -> Result<Joined, ModelError> {
        let matrices = cells.iter().map(matrix).collect::<Result<Option<Vec<_>>, _>>()?;
        match matrices {
            Some(matrices) => {
                let joined = concat(&matrices, 1)?;
                let (rows, width) = (joined.dims()[0] * joined.dims()[1], joined.dims()[2]);
                Ok(Joined(vec![round_dense(joined.reshape([rows, width])?, cells)?]))
            }
            None => {
                let linears = cells.iter().map(linear).collect::<Result<Vec<_>, _>>()?;
                let states = cells.first().map_or(1, |cell| cell.phase.dims()[0]);
                let joined = if linears.len() > 1 { join_int8(&linears, states)? } else { None };
                Ok(Joined(joined.map_or(linears, |joined| vec![joined])))
            }
        }
    }

    /// The result for `x` `[B, T, D]`, split into `count` parts `[B, T, N]`.
    pub(super) fn split_parts(&self, x: &Tensor, count: usize) -> Result<Vec<Tensor>, ModelError> {
        match self.0.as_slice() {
            [linear] => split_parts(linear.forward(x)?, count),
            linears => {
                let mut all = vec![Vec::new(); count];
                for linear in linears {
                    for (part, y) in all.iter_mut().zip(split_parts(linear.forward(x)?, count)?) {
                        part.push(y);
                    }
                }
                all.iter().map(|part| concat(part, 2)).collect()
            }
        }
    }
}

/// `[B, T, count N]` in `count` parts.
fn split_parts(y: Tensor, count: usize) -> Result<Vec<Tensor>, ModelError> {
    match count {
        1 => Ok(vec![y]),
        _ => Ok(y.split(2, &vec![y.dims()[2] / count; count])?),
    }
}

/// gamma W_in of all cells.
fn join_inputs(cells: &[Cell]) -> Result<Joined, ModelError> {
    let matrix = |cell: &Cell| {
        let Some(matrix) = by_state(cell, &cell.input)? else { return Ok(None) };
        let states = matrix.dims()[1];
        Ok(Some(match cell.gamma()? {
            None => matrix,
            Some(gamma) => matrix.mul(&gamma.reshape([states, 1])?)?,
        }))
    };
    let linear = |cell: &Cell| match (&cell.input.weight, cell.gamma()?) {
        (Weight::Int8 { q, scale }, Some(gamma)) => {
            let tiled = concat(&vec![gamma.clone(); scale.dims()[0] / gamma.dims()[0].max(1)], 0)?;
            Linear::new(Weight::Int8 { q: q.clone(), scale: scale.mul(&tiled)? }, cell.precision)
        }
        _ => Ok(cell.input.clone()),
    };
    Joined::rows(cells, linear, matrix)
}

/// W_sel of all cells, if they are selective.
pub(super) fn selectors(cells: &[Cell]) -> Result<Option<Joined>, ModelError> {
    if cells.iter().any(|cell| cell.select.is_none()) {
        return Ok(None);
    }
    let missing = || ModelError::Config("a cell of a selective block is not selective".into());
    let linear = |cell: &Cell| cell.select.clone().ok_or_else(missing);
    Joined::rows(cells, linear, |cell| by_state(cell, &linear(cell)?)).map(Some)
}

/// A dense matrix `[parts K, D]` as `[parts, K, D]`.
fn by_state(cell: &Cell, linear: &Linear) -> Result<Option<Tensor>, ModelError> {
    let Weight::Dense(weight) = &linear.weight else { return Ok(None) };
    let states = cell.phase.dims()[0];
    Ok(Some(weight.reshape([weight.dims()[0] / states, states, weight.dims()[1]])?))
}

/// W_out of all cells times `share`, including the readout's resonance; and R itself if the matrices are int8.
fn join_outputs(cells: &[Cell], share: f64) -> Result<(Joined, Option<Tensor>), ModelError> {
    let matrix = |cell: &Cell| -> Result<Option<Tensor>, ModelError> {
        let Weight::Dense(weight) = &cell.output.weight else { return Ok(None) };
        let (dim, states) = (weight.dims()[0], cell.phase.dims()[0]);
        let mut matrix = weight.reshape([dim, weight.dims()[1] / states, states])?;
        if let Some(r) = cell.resonance(Resonance::Readout)? {
            matrix = matrix.matmul(&r)?;
        }
        Ok(Some(matrix))
    };
    let Some(matrices) = cells.iter().map(matrix).collect::<Result<Option<Vec<_>>, _>>()? else {
        let scaled = |cell: &Cell| match &cell.output.weight {
            Weight::Int8 { q, scale } => {
                Linear::new(Weight::Int8 { q: q.clone(), scale: scale.scale(share)? }, cell.precision)
            }
            Weight::Dense(weight) => round_dense(weight.scale(share)?, cells),
        };
        let linears = cells.iter().map(scaled).collect::<Result<_, ModelError>>()?;
        return Ok((Joined(linears), stacked(cells, Resonance::Readout)?));
    };
    let joined = concat(&matrices, 2)?;
    let (dim, width) = (joined.dims()[0], joined.dims()[1] * joined.dims()[2]);
    let joined = joined.reshape([dim, width])?;
    let joined = if cells.len() == 1 { joined } else { joined.scale(share)? };
    Ok((Joined(vec![round_dense(joined, cells)?]), None))
}

/// int8 matrices `[parts K, D]` as one `[parts cells K, D]`: each row keeps its scale, so the results do not change. `None` if
/// one is not int8, or has a bias.
fn join_int8(linears: &[Linear], states: usize) -> Result<Option<Linear>, ModelError> {
    let (mut matrices, mut scales, mut precision) = (Vec::new(), Vec::new(), Precision::default());
    for linear in linears {
        let (Weight::Int8 { q, scale }, None) = (&linear.weight, &linear.bias) else { return Ok(None) };
        let (rows, width) = (q.dims()[0], q.dims()[1]);
        matrices.push(q.reshape([rows / states, states, width])?);
        scales.push(scale.reshape([rows / states, states])?);
        precision = linear.precision;
    }
    let (q, scale) = (concat(&matrices, 1)?, concat(&scales, 1)?);
    let (rows, width) = (scale.numel(), q.dims()[2]);
    let weight = Weight::Int8 { q: q.reshape([rows, width])?, scale: scale.reshape([rows])? };
    Ok(Some(Linear::new(weight, precision)?))
}

/// A matrix computed from those of the cells, which are exact: it is rounded here, once.
fn round_dense(weight: Tensor, cells: &[Cell]) -> Result<Linear, ModelError> {
    Linear::new(Weight::Dense(weight), cells.first().map_or_else(Precision::default, |cell| cell.precision))
}

/// Concatenates tensors; a single tensor is returned unchanged.
pub(super) fn concat(tensors: &[Tensor], axis: usize) -> Result<Tensor, ModelError> {
    match tensors {
        [one] => Ok(one.clone()),
        _ => Ok(Tensor::concat(&tensors.iter().collect::<Vec<_>>(), axis)?),
    }
}
