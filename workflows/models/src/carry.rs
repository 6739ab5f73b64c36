//! [`SequenceModel`]: the trait of models over sequences, and their [`Carry`] from one piece of a sequence to the next.

use std::sync::Arc;

use assay_tensor::{DType, Device, Tensor};

use crate::error::ModelError;
use crate::file::{Array, ArrayFile, FileError};
use crate::kv_cache::later_blocks;
use crate::mode::Mode;
pub use crate::state::State;

/// A causal model over sequences of tokens.
///
/// Shapes: B sequences, T tokens each, width D. Dividing a sequence into pieces, down to single tokens, and passing the
/// carry from piece to piece gives the same outputs as a single call, up to rounding; and no output depends on a later
/// token. The tests of this crate check both for every option of every family.
pub trait SequenceModel {
    /// Processes `tokens` (U32, `[B, T]`) after the tokens in `carry`; returns the hidden vectors `[B, T, D]` and the
    /// new carry.
    ///
    /// # Errors
    /// If an id is outside the vocabulary, a sequence is longer than the positions allow, or the carry belongs to
    /// another model or batch size.
    fn run(&self, tokens: &Tensor, carry: &Carry, mode: &Mode) -> Result<(Tensor, Carry), ModelError>;

    /// [`SequenceModel::run`] in evaluation mode.
    ///
    /// # Errors
    /// See [`SequenceModel::run`].
    fn forward(&self, tokens: &Tensor, carry: &Carry) -> Result<(Tensor, Carry), ModelError> {
        self.run(tokens, carry, &Mode::Evaluate)
    }

    /// Processes one token per sequence (U32, `[B]`); returns the hidden vectors `[B, D]`.
    ///
    /// # Errors
    /// See [`SequenceModel::run`].
    fn step(&self, token: &Tensor, carry: &Carry) -> Result<(Tensor, Carry), ModelError> {
        let batch = token.dims().first().copied().unwrap_or(1);
        let (hidden, carry) = self.forward(&token.reshape([batch, 1])?, carry)?;
        let width = hidden.dims().last().copied().unwrap_or(1);
        Ok((hidden.reshape([batch, width])?, carry))
    }
}

/// T of tokens `[B, T]`.
///
/// # Errors
/// [`ModelError::Input`] if the shape is different, or there is no token.
pub(crate) fn token_count(tokens: &Tensor) -> Result<usize, ModelError> {
    match tokens.dims() {
        &[batch, length] if batch * length > 0 => Ok(length),
        other => Err(ModelError::Input(format!("tokens have shape {other:?}, not [B, T] with at least one token"))),
    }
}

/// The axis of time in state that grows with the sequence.
pub(crate) const GROWING: usize = 2;

/// The name of the piece of growing state that starts with the token at `position`: names are ordered like pieces.
pub(crate) fn piece(name: &str, position: usize) -> String {
    format!("{name}+{position:020}")
}

/// Whether a name is that of a piece.
pub(crate) fn is_piece(name: &str) -> bool {
    name.contains('+')
}

/// The state of a model between two pieces of a sequence. The default is the start of a sequence.
#[derive(Clone, Default)]
pub struct Carry {
    /// The number of tokens processed.
    pub position: usize,
    /// The state by name, such as `blocks.0.cells.re`; empty at the start.
    pub state: State,
}

impl Carry {
    /// A part of the state, if it exists.
    ///
    /// # Errors
    /// [`ModelError::Input`] if its shape is not `dims`, where `None` matches any size.
    pub(crate) fn get(&self, name: &str, dims: &[Option<usize>]) -> Result<Option<&Tensor>, ModelError> {
        let Some(tensor) = self.state.get(name) else {
            if self.position == 0 {
                return Ok(None);
            }
            return Err(ModelError::Input(format!("the carry has no `{name}`: it belongs to another model")));
        };
        let found = tensor.dims();
        if found.len() != dims.len() || found.iter().zip(dims).any(|(have, want)| want.is_some_and(|w| w != *have)) {
            return Err(ModelError::Input(format!("`{name}` in the carry has shape {found:?}, which does not fit")));
        }
        Ok(Some(tensor))
    }

    /// State that grows with the sequence, such as keys `[B, H, T, P]`: `name` for the tokens processed so far, followed
    /// by `new`. It is added to `next_state`; if the state is in pieces, only the new piece is added.
    ///
    /// # Errors
    /// As [`Carry::get`].
    pub(crate) fn extend(&self, name: &Arc<str>, new: Tensor, next_state: &mut State) -> Result<Tensor, ModelError> {
        let (first, last) = (piece(name, 0), piece(name, usize::MAX));
        let pieces = || self.state.between(&first, &last);
        if pieces().next().is_some() {
            let all = Tensor::concat(&pieces().chain([&new]).collect::<Vec<_>>(), GROWING)?;
            let length = |x: &Tensor| x.dims().get(GROWING).copied();
            if length(&all) != length(&new).map(|more| self.position + more) {
                return Err(ModelError::Input(format!("the pieces of `{name}` in the carry have another length")));
            }
            next_state.insert(piece(name, self.position), new);
            return Ok(all);
        }
        if self.position == 0 && self.state.get(name).is_some() {
            return Err(ModelError::Input(format!("`{name}` in the carry has tokens, but none were read")));
        }
        let all = self.behind(name, new, self.position)?;
        next_state.insert(name.clone(), all.clone());
        Ok(all)
    }

    /// `new` `[B, H, T, P]` after the state `name` of the `before` tokens processed, which is in one or more pieces.
    ///
    /// # Errors
    /// As [`Carry::get`].
    pub(crate) fn behind(&self, name: &str, new: Tensor, before: usize) -> Result<Tensor, ModelError> {
        let &[batch, heads, _, width] = new.dims() else {
            return Err(ModelError::Input(format!("`{name}` grows by the shape {:?}, not [B, H, T, P]", new.dims())));
        };
        if before == 0 {
            return Ok(new);
        }
        let Some(first) = self.get(name, &[Some(batch), Some(heads), None, Some(width)])? else { return Ok(new) };
        let parts: Vec<&Tensor> =
            [first].into_iter().chain(later_blocks(&self.state, name).map(|(_, part)| part)).collect();
        let length: usize = parts.iter().map(|part| part.dims().get(GROWING).copied().unwrap_or(0)).sum();
        if length != before {
            return Err(ModelError::Input(format!(
                "`{name}` in the carry has {length} tokens, although {before} were read"
            )));
        }
        Ok(Tensor::concat(&parts.into_iter().chain([&new]).collect::<Vec<_>>(), GROWING)?)
    }

    /// The parts whose names start with `prefix`.
    pub(crate) fn below(&self, prefix: &str) -> Carry {
        let wanted = |(name, _): &(&Arc<str>, &Tensor)| name.starts_with(prefix);
        let state = self.state.iter().filter(wanted).map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
        Carry { position: self.position, state }
    }

    /// The same state, detached from the gradient tape.
    #[must_use]
    pub fn detach(&self) -> Carry {
        let state = self.state.iter().map(|(name, tensor)| (name.clone(), tensor.detach())).collect();
        Carry { position: self.position, state }
    }

    /// A safetensors file, from which [`Carry::from_bytes`] restores exactly the same carry.
    ///
    /// # Errors
    /// If the state cannot be read from the device, or is not f32.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ModelError> {
        let mut file = ArrayFile::default();
        file.metadata.insert("assay.position".into(), self.position.to_string());
        for (name, tensor) in self.state.iter() {
            if tensor.dtype() != DType::F32 {
                return Err(ModelError::Input(format!("`{name}` in the carry is {:?}, not f32", tensor.dtype())));
            }
            file.arrays.insert(name.to_string(), Array::f32(&tensor.to_f32_vec()?, tensor.dims()));
        }
        Ok(file.to_bytes())
    }

    /// Reads the output of [`Carry::to_bytes`].
    ///
    /// # Errors
    /// If the bytes are not a carry.
    pub fn from_bytes(device: &Device, bytes: &[u8]) -> Result<Self, ModelError> {
        let file = ArrayFile::from_bytes(bytes)?;
        let position = file.json("assay.position")?;
        let mut state = State::default();
        for (name, array) in &file.arrays {
            let wrong = || FileError::Content(format!("the array `{name}` of a carry is not f32"));
            let values = array.to_f32().ok_or_else(wrong)?;
            state.insert(name.as_str(), Tensor::from_f32(device, values, array.shape.as_slice())?);
        }
        Ok(Carry { position, state })
    }
}
