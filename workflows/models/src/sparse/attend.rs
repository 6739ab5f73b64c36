//! Attention to only the kept blocks: they are gathered, and then attended to densely.

use assay_tensor::{AttentionKind, AttentionOptions, Tensor};

use super::choice::Choice;
use super::summary::Scores;
use crate::error::ModelError;
use crate::parameters::constant;
use crate::pieces::Pieces;
use crate::precision::Precision;

/// Query blocks that are computed together, since they keep equally many blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    /// The first block.
    block: usize,
    /// The number of blocks.
    count: usize,
    /// Queries in each.
    length: usize,
    /// Whether all keys of the block exist; otherwise the group is one block, whose keys end with its last query.
    ended: bool,
}

/// The results for the queries, `[B, H, T, P]`, in a precision. `gates` are the factors of the values of past blocks.
pub(super) fn attend(
    (q, k, v): (&Tensor, &Tensor, &Tensor),
    precision: Precision,
    (position, block): (usize, usize),
    choice: &Choice,
    gates: Option<&Scores>,
) -> Result<Tensor, ModelError> {
    let &[batch, heads, length, width] = q.dims() else {
        return Err(ModelError::Input(format!("queries have shape {:?}, not [B, H, T, P]", q.dims())));
    };
    let groups = groups(&Pieces::new(position, length, block), position / block, choice);
    let blocks = Blocks { block, keys: (k, table(k, block)?), values: (v, table(v, block)?), choice, gates };
    let lengths: Vec<usize> = groups.iter().map(|group| group.count * group.length).collect();
    let mut seen = Vec::with_capacity(groups.len());
    for (group, queries) in groups.iter().zip(q.split(2, &lengths)?) {
        let rows = batch * heads * group.count;
        let queries = queries.reshape([rows, 1, group.length, width])?;
        let (keys, values) = (blocks.keys(group)?, blocks.values(group)?);
        let options = AttentionOptions { causal: true, scale: 1.0 / (width as f64).sqrt(), kind: AttentionKind::Flash };
        let kept = |x: &Tensor| precision.round(x);
        let mixed = kept(&queries)?.attention(&kept(&keys)?, &kept(&values)?, options)?;
        seen.push(mixed.reshape([batch, heads, group.count * group.length, width])?);
    }
    Ok(Tensor::concat(&seen.iter().collect::<Vec<_>>(), 2)?)
}

/// The query blocks of a call in order, grouped if they are whole and keep equally many blocks.
fn groups(pieces: &Pieces, first: usize, choice: &Choice) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, length) in pieces.lengths().into_iter().enumerate() {
        let (block, ended) = (first + index, pieces.closes(index));
        match groups.last_mut() {
            Some(group)
                if ended
                    && group.ended
                    && group.length == length
                    && choice.count(group.block) == choice.count(block) =>
            {
                group.count += 1;
            }
            _ => groups.push(Group { block, count: 1, length, ended }),
        }
    }
    groups
}

/// The whole blocks of `[B, H, T, P]` as rows `[B H (T / b), b P]`; `None` if there is no whole block.
fn table(x: &Tensor, block: usize) -> Result<Option<Tensor>, ModelError> {
    let (rows, length, width) = (x.dims()[0] * x.dims()[1], x.dims()[2], x.dims()[3]);
    let whole = length / block;
    if whole == 0 {
        return Ok(None);
    }
    Ok(Some(x.slice(2, 0, whole * block)?.reshape([rows * whole, block * width])?))
}

/// All keys and values, and the selected blocks.
struct Blocks<'a> {
    block: usize,
    keys: (&'a Tensor, Option<Tensor>),
    values: (&'a Tensor, Option<Tensor>),
    choice: &'a Choice,
    gates: Option<&'a Scores>,
}

impl Blocks<'_> {
    /// The keys for a group, `[B H count, 1, ., P]`.
    fn keys(&self, group: &Group) -> Result<Tensor, ModelError> {
        let past = self.gathered(&self.keys, group)?;
        self.with_open(past, self.keys.0, group)
    }

    /// The values, scaled by their gates if given.
    fn values(&self, group: &Group) -> Result<Tensor, ModelError> {
        let mut past = self.gathered(&self.values, group)?;
        if let (Some(gates), Some(values)) = (self.gates, &past)
            && self.choice.count(group.block) > 0
        {
            past = Some(self.gated(gates, values, group)?);
        }
        self.with_open(past, self.values.0, group)
    }

    /// The whole blocks for a group, `[B H count, blocks, b, P]`: past blocks and, if it has ended, its own.
    fn gathered(&self, from: &(&Tensor, Option<Tensor>), group: &Group) -> Result<Option<Tensor>, ModelError> {
        let per_block = self.choice.count(group.block) + usize::from(group.ended);
        let Some(table) = from.1.as_ref().filter(|_| per_block > 0) else { return Ok(None) };
        let whole = table.dims()[0] / self.choice.rows;
        let mut ids = Vec::with_capacity(self.choice.rows * group.count * per_block);
        for row in 0..self.choice.rows {
            for block in group.block..group.block + group.count {
                let own = group.ended.then_some(block);
                ids.extend(self.choice.past(row, block).iter().copied().chain(own).map(|at| row * whole + at));
            }
        }
        let rows = self.choice.rows * group.count;
        let gathered = table.rows(&indices(table, ids)?)?;
        Ok(Some(gathered.reshape([rows, per_block, self.block, from.0.dims()[3]])?))
    }

    /// Past values times their factors; the values of the block itself are not changed.
    fn gated(&self, gates: &Scores, values: &Tensor, group: &Group) -> Result<Tensor, ModelError> {
        let past = self.choice.count(group.block);
        let mut ids = Vec::with_capacity(self.choice.rows * group.count * past);
        for row in 0..self.choice.rows {
            for block in group.block..group.block + group.count {
                ids.extend(self.choice.past(row, block).iter().map(|key| gates.place(row, block, *key)));
            }
        }
        let all = &gates.values;
        let factors = all.reshape([all.numel(), 1])?.rows(&indices(all, ids)?)?;
        let rows = self.choice.rows * group.count;
        let mut factors = factors.reshape([rows, past, 1, 1])?;
        if group.ended {
            let own = constant(all.device(), all.dtype(), vec![1.0; rows], &[rows, 1, 1, 1])?;
            factors = Tensor::concat(&[&factors, &own], 1)?;
        }
        Ok(values.mul(&factors)?)
    }

    /// Appends the tokens of an incomplete block, the last of `all`, to the gathered blocks.
    fn with_open(&self, gathered: Option<Tensor>, all: &Tensor, group: &Group) -> Result<Tensor, ModelError> {
        let (rows, width) = (self.choice.rows * group.count, all.dims()[3]);
        let gathered = match gathered {
            None => None,
            Some(blocks) => Some(blocks.reshape([rows, 1, blocks.dims()[1] * self.block, width])?),
        };
        if group.ended {
            return gathered.ok_or_else(|| ModelError::Input("a block of queries has no keys".into()));
        }
        let (start, end) = (group.block * self.block, all.dims()[2]);
        let open = all.slice(2, start, end - start)?.reshape([rows, 1, end - start, width])?;
        match gathered {
            None => Ok(open),
            Some(blocks) => Ok(Tensor::concat(&[&blocks, &open], 2)?),
        }
    }
}

/// Rows of a table, by number.
fn indices(like: &Tensor, ids: Vec<usize>) -> Result<Tensor, ModelError> {
    let count = ids.len();
    let narrow = |id| u32::try_from(id).map_err(|_| ModelError::Input("too many blocks of keys: give fewer".into()));
    let ids = ids.into_iter().map(narrow).collect::<Result<Vec<u32>, _>>()?;
    Ok(Tensor::from_u32(like.device(), ids, [count])?)
}
