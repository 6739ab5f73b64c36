//! The slots of one block: routing, writing, updating, mixing and reading. The equations are at the top of the module.

use std::sync::Arc;

use assay_tensor::{AttentionKind, AttentionOptions, HIDDEN, Tensor};

use super::folded::Folded;
use super::gate::{Gate, SlotState};
use super::routing::{RoutedToken, route_token};
use crate::carry::{Carry, State};
use crate::config::{GateKind, Mixing, PulseConfig, Routing};
use crate::error::ModelError;
use crate::heads::together;
use crate::layers::{LayerNorm, Linear};
use crate::parameters::{Init, Role, Scope};
use crate::pieces::Pieces;

/// Added to the routing mass of a slot, so that a slot without any mass receives zeros.
const MASS_EPSILON: f64 = 1e-6;

/// Scales the initial weights of the mixing of slots. They mix once per chunk: with 1, the content of a slot would be
/// lost among the others after a few chunks, before training could find it useful.
const MIX_GAIN: f64 = 0.2;

/// Receives the routing weights `[B, T', S]` of each piece, in order.
pub type Observer<'a> = dyn FnMut(&Tensor) -> Result<(), ModelError> + 'a;

/// The slots of a block.
#[derive(Clone)]
pub struct Slots {
    /// Its path in the tree of names, which prefixes its names in the carry.
    pub path: String,
    /// C.
    pub chunk: usize,
    /// The number of slots that a token keeps; `None` means all.
    pub top_k: Option<usize>,
    /// s at the start of a sequence, `[S, P]`.
    pub initial: Tensor,
    /// c at the start, `[S, P]`; only for LSTM.
    pub initial_cell: Option<Tensor>,
    /// D to 2P: W_q above W_v.
    pub input: Linear,
    /// P to 2P: W_k above W_c.
    pub sides: Linear,
    /// The update.
    pub gate: Gate,
    /// Attention among the slots, if enabled.
    pub mix: Option<Mix>,
    /// W_o: P to D.
    pub out: Linear,
    names: Names,
}

/// The names in the carry.
#[derive(Debug, Clone)]
struct Names {
    state: Arc<str>,
    cell: Arc<str>,
    sides: Arc<str>,
    sum: Arc<str>,
    mass: Arc<str>,
}

impl Names {
    fn below(path: &str) -> Names {
        let name = |last: &str| Arc::from(format!("{path}.{last}"));
        Names { state: name("state"), cell: name("cell"), sides: name("sides"), sum: name("sum"), mass: name("mass") }
    }
}

/// s'' = norm(s' + MHA(s', s', s')).
#[derive(Clone)]
pub struct Mix {
    /// A divisor of P.
    pub heads: usize,
    /// P to 3P: all queries, then all keys, then all values.
    pub qkv: Linear,
    /// P to P.
    pub out: Linear,
    /// Over P.
    pub norm: LayerNorm,
}

/// The pieces of the tokens, `[B, T', P]` each, or unprojected, `[B, T', D]`, if the projections are folded.
struct Tokens<'a> {
    queries: &'a [Tensor],
    values: &'a [Tensor],
    folded: Option<&'a Folded>,
}

/// The slots and the sums written by the current chunk.
struct Running {
    state: SlotState,
    /// W_k s above W_c s, `[B, S, 2P]`, after the first token of the chunk: they are constant until the chunk ends.
    sides: Option<Tensor>,
    /// sum p v `[B, S, P]` and sum p `[B, S, 1]`, after the first token of the chunk.
    written: Option<(Tensor, Tensor)>,
}

impl Slots {
    /// `base` `[B, T, D]`, if given, plus the values that the tokens `x` `[B, T, D]` read. `observe` receives their routing weights.
    ///
    /// # Errors
    /// If the carry does not fit, or a device fails.
    pub fn forward(
        &self,
        base: Option<&Tensor>,
        x: &Tensor,
        pieces: &Pieces,
        carry: &Carry,
        next_state: &mut State,
        observe: &mut Observer,
    ) -> Result<Tensor, ModelError> {
        match Folded::of(self, pieces)? {
            None => self.project(base, &self.input.forward(x)?, pieces, carry, next_state, observe),
            Some(folded) => {
                let x = x.split(1, &pieces.lengths())?;
                let tokens = Tokens { queries: &x, values: &x, folded: Some(&folded) };
                let read = self.read_pieces(tokens, pieces, carry, next_state, observe)?;
                Ok(base.map(|base| base.add(&read)).transpose()?.unwrap_or(read))
            }
        }
    }

    /// [`Slots::forward`] of tokens with given queries and values, `[B, T, 2P]`.
    ///
    /// # Errors
    /// As [`Slots::forward`].
    pub fn project(
        &self,
        base: Option<&Tensor>,
        projected: &Tensor,
        pieces: &Pieces,
        carry: &Carry,
        next_state: &mut State,
        observe: &mut Observer,
    ) -> Result<Tensor, ModelError> {
        if projected.dims()[1] == 1
            && let Some(read) = self.one_token(projected, pieces, carry, next_state, observe)?
        {
            return self.out.onto(base, &read);
        }
        let (lengths, width) = (pieces.lengths(), self.width());
        let projected = projected.split(2, &[width, width])?;
        let [queries, values] = [projected[0].split(1, &lengths)?, projected[1].split(1, &lengths)?];
        let tokens = Tokens { queries: &queries, values: &values, folded: None };
        self.out.onto(base, &self.read_pieces(tokens, pieces, carry, next_state, observe)?)
    }

    /// The values that the tokens read, piece after piece: `[B, T, P]`, or `[B, T, D]` after the output projection if it is folded.
    fn read_pieces(
        &self,
        tokens: Tokens<'_>,
        pieces: &Pieces,
        carry: &Carry,
        next_state: &mut State,
        observe: &mut Observer,
    ) -> Result<Tensor, ModelError> {
        let Tokens { queries, values, folded } = tokens;
        let (batch, slots, width) = (queries[0].dims()[0], self.initial.dims()[0], self.width());
        let scale = 1.0 / (width as f64).sqrt();
        let mut running = self.load_state(carry, pieces, batch)?;
        let mut reads = Vec::with_capacity(queries.len());
        for (index, (query, value)) in queries.iter().zip(values).enumerate() {
            let (query, value) = (self.input.precision.round(query)?, self.input.precision.round(value)?);
            let sides = running.sides(&self.sides)?.split(2, &[width, width])?;
            let (keys, contents) = match folded {
                None => (sides[0].clone(), sides[1].clone()),
                Some(folded) => (folded.query.forward(&sides[0])?, self.out.forward(&sides[1])?),
            };
            let weights = self.route_tokens(&query.matmul_with(&keys.scale(scale)?, false, true)?)?;
            observe(&weights)?;
            reads.push(weights.matmul(&contents)?);
            let mass = weights.sum(&[1], false)?.reshape([batch, slots, 1])?;
            let sum = weights.matmul_with(&value, true, false)?;
            running.write(folded.map(|folded| folded.value.forward(&sum)).transpose()?.unwrap_or(sum), mass)?;
            if pieces.closes(index) {
                running = self.update(running)?;
            }
        }
        self.save_state(running, next_state);
        Ok(Tensor::concat(&reads.iter().collect::<Vec<_>>(), 1)?)
    }

    /// P.
    fn width(&self) -> usize {
        self.initial.dims()[1]
    }

    /// The value that one token reads, `[B, 1, P]`, from its query and value `[B, 1, 2P]`; otherwise as [`Slots::forward`].
    /// `None` if gradients are needed.
    fn one_token(
        &self,
        projected: &Tensor,
        pieces: &Pieces,
        carry: &Carry,
        next_state: &mut State,
        observe: &mut Observer,
    ) -> Result<Option<Tensor>, ModelError> {
        let mut running = self.load_state(carry, pieces, projected.dims()[0])?;
        let sides = running.sides(&self.sides)?;
        let written = running.written.as_ref().map(|(sum, mass)| (sum, mass));
        let known = written.map_or([false; 2], |(sum, mass)| [sum.is_tracked(), mass.is_tracked()]);
        if projected.is_tracked() || sides.is_tracked() || known.contains(&true) {
            return Ok(None);
        }
        let RoutedToken { weights, read, sum, mass } = route_token(projected, &sides, written, self.top_k)?;
        observe(&weights)?;
        running.written = Some((sum, mass));
        if pieces.closes(0) {
            running = self.update(running)?;
        }
        self.save_state(running, next_state);
        Ok(Some(read))
    }

    /// Scores `[B, T', S]` to weights of the same shape, which sum to 1 over the kept slots of each token.
    fn route_tokens(&self, scores: &Tensor) -> Result<Tensor, ModelError> {
        let Some(kept) = self.top_k else { return Ok(scores.softmax()?) };
        let hidden = scores.detach().top_k_mask(kept)?.offset(-1.0)?.scale(HIDDEN)?;
        Ok(scores.add(&hidden)?.softmax()?)
    }

    /// The slots after the chunk: written, updated, mixed.
    fn update(&self, running: Running) -> Result<Running, ModelError> {
        let Some((sum, mass)) = running.written else { return Ok(running) };
        let update = sum.div(&mass.offset(MASS_EPSILON)?)?;
        let mut state = self.gate.forward(&running.state, &update)?;
        if let Some(mix) = &self.mix {
            state.slots = mix.forward(&state.slots)?;
        }
        Ok(Running { state, sides: None, written: None })
    }

    /// The state from the carry, or the learned initial state.
    fn load_state(&self, carry: &Carry, pieces: &Pieces, batch: usize) -> Result<Running, ModelError> {
        let (slots, width) = (self.initial.dims()[0], self.initial.dims()[1]);
        let (names, get) =
            (&self.names, |name: &str, last: usize| carry.get(name, &[Some(batch), Some(slots), Some(last)]));
        let begin = |initial: &Tensor| initial.reshape([1, slots, width])?.broadcast_to([batch, slots, width]);
        let from = |name: &str, initial: &Tensor| match get(name, width)? {
            Some(kept) => Ok::<_, ModelError>(kept.clone()),
            None => Ok(begin(initial)?),
        };
        let state = SlotState {
            slots: from(&names.state, &self.initial)?,
            cell: self.initial_cell.as_ref().map(|initial| from(&names.cell, initial)).transpose()?,
        };
        if pieces.before == 0 {
            return Ok(Running { state, sides: None, written: None });
        }
        let written = get(&names.sum, width)?.cloned().zip(get(&names.mass, 1)?.cloned());
        Ok(Running { state, sides: get(&names.sides, 2 * width)?.cloned(), written })
    }

    fn save_state(&self, running: Running, next_state: &mut State) {
        let (names, mut put) = (&self.names, |name: &Arc<str>, tensor: Tensor| next_state.insert(name.clone(), tensor));
        put(&names.state, running.state.slots);
        if let Some(cell) = running.state.cell {
            put(&names.cell, cell);
        }
        if let Some(sides) = running.sides {
            put(&names.sides, sides);
        }
        if let Some((sum, mass)) = running.written {
            put(&names.sum, sum);
            put(&names.mass, mass);
        }
    }

    /// Registers every parameter below `scope`, which has the path `path`.
    ///
    /// # Errors
    /// See [`Scope::linear`].
    pub fn build(scope: &mut Scope, path: String, config: &PulseConfig, gain: f64) -> Result<Self, ModelError> {
        let (dim, slots, width) = (config.dim, config.states, config.width());
        // Slots of unit size, as after a norm: then scores also initially have about unit size.
        let initial = scope.tensor("initial", &[slots, width], Init::Deviation(1.0), Role::Plain)?;
        let initial_cell = match config.gate {
            GateKind::Gru => None,
            GateKind::Lstm => Some(scope.tensor("initial_cell", &[slots, width], Init::Deviation(1.0), Role::Plain)?),
        };
        let input = Linear::without_bias(&mut scope.child("in"), 2 * width, dim, 1.0)?;
        let sides = Linear::without_bias(&mut scope.child("sides"), 2 * width, width, 1.0)?;
        let gate = Gate::build(scope, config.gate, width)?;
        let mix = match config.mixing {
            Mixing::On => Some(Mix::build(&mut scope.child("mix"), width, config.mixing_heads)?),
            Mixing::Off => None,
        };
        let out = Linear::without_bias(&mut scope.child("out"), dim, width, gain)?;
        let top_k = (config.routing == Routing::TopK && config.top_k < slots).then_some(config.top_k);
        let (names, chunk) = (Names::below(&path), config.chunk);
        Ok(Slots { path, chunk, top_k, initial, initial_cell, input, sides, gate, mix, out, names })
    }
}

impl Running {
    fn sides(&mut self, weights: &Linear) -> Result<Tensor, ModelError> {
        let sides = match self.sides.take() {
            Some(sides) => sides,
            None => weights.forward(&self.state.slots)?,
        };
        self.sides = Some(sides.clone());
        Ok(sides)
    }

    fn write(&mut self, sum: Tensor, mass: Tensor) -> Result<(), ModelError> {
        self.written = Some(match self.written.take() {
            None => (sum, mass),
            Some((earlier, earlier_mass)) => (earlier.add(&sum)?, earlier_mass.add(&mass)?),
        });
        Ok(())
    }
}

impl Mix {
    /// `[B, S, P]` to the same shape.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn forward(&self, slots: &Tensor) -> Result<Tensor, ModelError> {
        let width = slots.dims()[2];
        let [q, k, v] = self.qkv.forward(slots)?.heads(self.heads, None)?;
        let scale = 1.0 / ((width / self.heads) as f64).sqrt();
        let options = AttentionOptions { causal: false, scale, kind: AttentionKind::Flash };
        let mixed = self.out.forward(&together(&q.attention(&k, &v, options)?)?)?;
        self.norm.forward(&slots.add(&mixed)?)
    }

    fn build(scope: &mut Scope, width: usize, heads: usize) -> Result<Self, ModelError> {
        let qkv = Linear::build(&mut scope.child("qkv"), 3 * width, width, 1.0)?;
        let out = Linear::build(&mut scope.child("out"), width, width, MIX_GAIN)?;
        let norm = LayerNorm::exact(&mut scope.child("norm"), width)?;
        Ok(Mix { heads, qkv, out, norm })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::{Builder, constant};
    use assay_tensor::{DType, Device};
    use serde_json::{Value, json};

    /// Slots of a model of width 5 with chunks of 12.
    fn slots(device: &Device, extra: Value) -> Slots {
        let mut config = json!({"dim": 5, "layers": 1, "states": 2, "chunk": 12, "slot_width": 6, "mixing_heads": 2});
        config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let config: PulseConfig = serde_json::from_value(config).unwrap();
        let mut builder = Builder::fresh(device, 1, DType::F64);
        Slots::build(&mut builder.root(), "slots".into(), &config, 1.0).unwrap()
    }

    fn close(found: &Tensor, expected: &Tensor) {
        assert_eq!(found.dims(), expected.dims());
        for (found, expected) in found.to_f64_vec().unwrap().into_iter().zip(expected.to_f64_vec().unwrap()) {
            assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
        }
    }

    #[test]
    fn folded_projections_read_write_and_learn_the_same() {
        let device = assay_reference::device();
        for extra in [json!({}), json!({"gate": "lstm", "routing": "top_k", "top_k": 1}), json!({"mixing": "off"})] {
            let slots = slots(&device, extra);
            let number = |i: usize| ((i * 7919) % 2003) as f64 / 1001.0 - 1.0;
            let mut carries = [Carry::default(), Carry::default()];
            // A chunk and a half; the other half, a chunk and the start of another.
            for length in [18, 20] {
                let numbers = (0..3 * length * 5).map(number).collect();
                let x = constant(&device, DType::F64, numbers, &[3, length, 5]).unwrap().variable();
                let pieces = Pieces::new(carries[0].position, length, slots.chunk);
                assert!(Folded::of(&slots, &pieces).unwrap().is_some());
                let run = |folded: bool, carry: &mut Carry| {
                    let (mut next_state, mut routed) = (State::default(), Vec::new());
                    let mut observe = |weights: &Tensor| {
                        routed.push(weights.clone());
                        Ok(())
                    };
                    let read = match folded {
                        true => slots.forward(Some(&x), &x, &pieces, carry, &mut next_state, &mut observe),
                        false => {
                            let projected = slots.input.forward(&x).unwrap();
                            slots.project(Some(&x), &projected, &pieces, carry, &mut next_state, &mut observe)
                        }
                    };
                    *carry = Carry { position: carry.position + length, state: next_state };
                    let read = read.unwrap();
                    let learned = read.square().unwrap().sum_all().unwrap().backward().unwrap();
                    (read, routed, learned.get(&x).unwrap().clone())
                };
                let [folded, direct] = [true, false].map(|folded| run(folded, &mut carries[usize::from(folded)]));
                close(&folded.0, &direct.0);
                close(&folded.2, &direct.2);
                folded.1.iter().zip(&direct.1).for_each(|(folded, direct)| close(folded, direct));
                let names = |carry: &Carry| carry.state.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
                assert_eq!(names(&carries[0]), names(&carries[1]));
                for name in names(&carries[0]) {
                    let [direct, folded] = [0, 1].map(|i| carries[i].get(&name, &[None, None, None]).unwrap().unwrap());
                    close(folded, direct);
                }
            }
        }
    }

    /// The weights of one token with given scores for the slots, with `top_k` kept.
    fn routed(scores: &[f64], top_k: usize) -> Vec<f64> {
        let device = assay_reference::device();
        let slots = slots(&device, json!({"states": scores.len(), "routing": "top_k", "top_k": top_k}));
        let scores = constant(&device, DType::F64, scores.to_vec(), &[1, 1, scores.len()]).unwrap();
        slots.route_tokens(&scores).unwrap().to_f64_vec().unwrap()
    }

    fn softmax(scores: &[f64]) -> Vec<f64> {
        let total: f64 = scores.iter().map(|score| score.exp()).sum();
        scores.iter().map(|score| score.exp() / total).collect()
    }

    #[test]
    fn routing_is_a_softmax_over_the_highest_scores_alone() {
        let check = |scores: &[f64], top_k: usize, kept: &[usize]| {
            let found = routed(scores, top_k);
            let among = softmax(&kept.iter().map(|slot| scores[*slot]).collect::<Vec<_>>());
            for (slot, weight) in found.iter().enumerate() {
                let place = kept.iter().position(|kept| *kept == slot);
                let expected = place.map_or(0.0, |place| among[place]);
                assert!((weight - expected).abs() < 1e-12, "slot {slot} of {scores:?}: {weight}, not {expected}");
            }
        };
        check(&[0.1, 2.0, -1.0, 1.0], 2, &[1, 3]);
        check(&[0.1, 2.0, -1.0, 1.0], 4, &[0, 1, 2, 3]);
        check(&[1.0, 2.0, 2.0, 2.0], 2, &[1, 2]);
        check(&[0.0, 0.0, 0.0], 1, &[0]);
        check(&[-50.0, -60.0], 1, &[0]);
    }
}
