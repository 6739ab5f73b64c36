//! The keys and values for decoding a single token: [`KvCache`].
//!
//! They grow with every token, and growing an array copies it. So they are stored in blocks: the last block grows until it
//! has [`BLOCK`] tokens, and two blocks of similar size are merged. A token then costs about as much as copying a dozen
//! others, and t tokens are in about log t blocks.

use std::sync::Arc;

use assay_tensor::{Rotary, Tensor};

use crate::carry::{Carry, State};
use crate::error::ModelError;
use crate::token_attention::{TokenAttention, attend_token};

/// The size in tokens at which a block stops growing.
const BLOCK: usize = 16;

/// The names of keys and values in a carry. The first block has the plain name, which is also the name of a single block;
/// the name of a later block also contains the position of its first token.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub(crate) keys: Arc<str>,
    pub(crate) values: Arc<str>,
}

impl Names {
    /// The names below `path`.
    pub(crate) fn below(path: &str) -> Names {
        Names { keys: format!("{path}.keys").into(), values: format!("{path}.values").into() }
    }
}

/// The name of the block of `name` that starts with the token at `place`.
fn block_name(name: &str, place: usize) -> Arc<str> {
    format!("{name}/{place:020}").into()
}

/// The blocks of `name` after the first.
pub(crate) fn later_blocks<'a>(
    state: &'a State,
    name: &'a str,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Tensor)> + Clone {
    state.behind(name, '/')
}

/// One block: the name and the content of its keys, and of its values.
type Block<'a> = [(&'a Arc<str>, &'a Tensor); 2];

/// The keys and values in the form of an operation for one token.
pub(crate) struct KvCache<'a> {
    blocks: Vec<Block<'a>>,
    names: &'a Names,
}

impl<'a> KvCache<'a> {
    /// The keys and values of the `before` tokens processed, `[B, H, t, P]` in each block. `None` if the carry has another
    /// form, or gradients are needed.
    pub(crate) fn new(carry: &'a Carry, names: &'a Names, before: usize, [b, h, p]: [usize; 3]) -> Option<KvCache<'a>> {
        let mut blocks = Vec::new();
        if before == 0 && carry.state.get(&names.keys).is_some() {
            return None;
        }
        if before > 0 {
            let first =
                [(&names.keys, carry.state.get(&names.keys)?), (&names.values, carry.state.get(&names.values)?)];
            blocks.push(first);
            let mut values = later_blocks(&carry.state, &names.values);
            for keys in later_blocks(&carry.state, &names.keys) {
                blocks.push([keys, values.next()?]);
            }
        }
        let mut length = 0;
        for [(_, keys), (_, values)] in &blocks {
            let &[batch, heads, more, width] = keys.dims() else { return None };
            if [batch, heads, width] != [b, h, p]
                || values.dims() != keys.dims()
                || keys.is_tracked()
                || values.is_tracked()
            {
                return None;
            }
            length += more;
        }
        (length == before).then_some(KvCache { blocks, names })
    }

    /// How many of the last blocks are merged with another token.
    fn count_joined(&self) -> usize {
        let (mut joined, mut size) = (0, 1);
        for [(_, keys), _] in self.blocks.iter().rev() {
            let length = keys.dims()[2];
            if length >= BLOCK && length > size {
                break;
            }
            (joined, size) = (joined + 1, size + length);
        }
        joined
    }

    /// The result for the token whose query, key and value `[B, 1, 3D]` are given: `[B, 1, D]`. All keys and values are
    /// added to `next_state`, if given.
    ///
    /// # Errors
    /// If the shapes do not fit, or a device fails.
    pub(crate) fn attend(
        &self,
        qkv: &Tensor,
        heads: usize,
        rotary: Option<Rotary<'_, Tensor>>,
        next_state: Option<&mut State>,
    ) -> Result<Tensor, ModelError> {
        let past: Vec<(&Tensor, &Tensor)> =
            self.blocks.iter().map(|[(_, keys), (_, values)]| (*keys, *values)).collect();
        let (joined, width) = (self.count_joined(), qkv.shape().last() / (3 * heads).max(1));
        let scale = 1.0 / (width as f64).sqrt();
        let [seen, keys, values] = attend_token(TokenAttention { qkv, heads, rotary, past: &past, joined, scale })?;
        let Some(next_state) = next_state else { return Ok(seen) };
        let (kept, joined) = self.blocks.split_at(self.blocks.len() - joined);
        for (name, part) in kept.iter().flatten() {
            next_state.insert(Arc::clone(name), Tensor::clone(part));
        }
        let [name_keys, name_values] = match (joined.first(), kept.is_empty()) {
            // A merged block is named by its first token, and therefore by its first old block.
            (Some(first), _) => first.map(|(name, _)| name.clone()),
            (None, true) => [self.names.keys.clone(), self.names.values.clone()],
            (None, false) => {
                let place = kept.iter().map(|[(_, keys), _]| keys.dims()[2]).sum();
                [block_name(&self.names.keys, place), block_name(&self.names.values, place)]
            }
        };
        next_state.insert(name_keys, keys);
        next_state.insert(name_values, values);
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use assay_tensor::DType;
    use serde_json::json;

    use super::*;
    use crate::{Batch, Model, ModelConfig, Objective, SequenceModel, Task};

    #[test]
    fn tokens_one_by_one_make_few_pieces_and_give_what_all_give_at_once() {
        let device = assay_reference::device();
        let config = json!({"family": "transformer", "dim": 4, "layers": 1, "heads": 2, "positions": "rope"});
        let config: ModelConfig = serde_json::from_value(config).unwrap();
        let task = Task { vocabulary: 5, max_length: 400, objective: Objective::Predict };
        let model = Model::fresh(&device, &config, &task, 3, DType::F64).unwrap();
        let ids: Vec<u32> = (0..400).map(|t| t * t % 5).collect();
        let run = |carry: &Carry, ids: &[u32]| {
            let (hidden, carry) =
                model.network().forward(Batch::new(&device, &[ids]).unwrap().tokens(), carry).unwrap();
            (hidden.to_f64_vec().unwrap(), carry)
        };
        let (whole, _) = run(&Carry::default(), &ids);
        // Several tokens at once, then one by one for more than a few blocks, then several at once, which merges all blocks.
        let (mut found, mut carry) = run(&Carry::default(), &ids[..3]);
        let mut most = 0;
        for at in (3..340).chain([345]).chain(350..400) {
            let next = match at {
                345 => 340..350,
                at => at..at + 1,
            };
            let (hidden, next_carry) = run(&carry, &ids[next]);
            found.extend(hidden);
            carry = next_carry;
            most = most.max(carry.state.names().count());
        }
        assert!(most > 2 && most <= 2 * 5, "there were {most} blocks");
        assert_eq!(carry.position, 400);
        let difference = whole.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(whole.len() == found.len() && difference < 1e-10, "they differ by {difference}");
        // A carry with inconsistent blocks is refused.
        let name = carry.state.names().last().unwrap().clone();
        let cut = carry.state.get(&name).unwrap().slice(2, 0, 1).unwrap();
        carry.state.insert(name, cut);
        let tokens = Batch::new(&device, &[&[1]]).unwrap();
        assert!(model.network().forward(tokens.tokens(), &carry).is_err());
        // So is a carry with keys and values but a position of 0.
        let (_, read) = run(&Carry::default(), &ids[..3]);
        for count in [1, 2] {
            let tokens = Batch::new(&device, &[&ids[..count]]).unwrap();
            let carry = Carry { position: 0, state: read.state.clone() };
            let error = model.network().forward(tokens.tokens(), &carry).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains("but none were read")), "{count}");
        }
    }
}
