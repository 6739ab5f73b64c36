//! Fused operations of decoding one token: [`TokenAttention`] and [`TokenRouting`]. Between
//! the products that read the weights there is so little arithmetic that starting an operation takes longer. For
//! inference: neither has a gradient.

use crate::args::{AttentionKind, AttentionOptions, Reduce};
use crate::array::Array;
use crate::check;
use crate::error::{Result, TensorError};
use crate::heads::{Rotary, head_width};
use crate::kernels::Kernels;
use crate::math::Math;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Attention of one token to itself and to those before it.
///
/// `T` is [`Tensor`] for callers and [`Array`] for kernels, here and below.
#[derive(Debug)]
pub struct TokenAttention<'a, T> {
    /// Its query, key and value side by side, [B, 1, 3 H P].
    pub qkv: &'a T,
    /// H.
    pub heads: usize,
    /// The rotary position embedding of query and key, if any.
    pub rotary: Option<Rotary<'a, T>>,
    /// Keys, rotated already, and values of the tokens before, in segments one after the other, [B, H, t, P] each.
    pub past: &'a [(&'a T, &'a T)],
    /// How many of the last segments are joined with the token's own key and value: a segment that grows with every token is
    /// copied with every token.
    pub joined: usize,
    /// On scores.
    pub scale: f64,
}

/// How one token is routed to S slots, what it reads of them, and what is written to them; see PULSE in `assay-models`.
#[derive(Debug)]
pub struct TokenRouting<'a, T> {
    /// Its query q and value v side by side, [B, 1, 2 P].
    pub projected: &'a T,
    /// The slots' keys k_s, and beside them what is read of them, r_s: [B, S, 2 P].
    pub sides: &'a T,
    /// sum p v [B, S, P] and sum p [B, S, 1] over the tokens before.
    pub written: Option<(&'a T, &'a T)>,
    /// How many slots are kept, those with the highest scores, of equal ones the first; none: all.
    pub top_k: Option<usize>,
}

/// What came of a [`TokenRouting`].
#[derive(Debug, Clone)]
pub struct Routed<T> {
    /// p = softmax over the kept slots of q . k_s / sqrt(P), 0 for the others: [B, 1, S].
    pub weights: T,
    /// sum_s p_s r_s, [B, 1, P].
    pub read: T,
    /// What was written, with p_s v: [B, S, P].
    pub sum: T,
    /// The weights' sum, with p: [B, S, 1].
    pub mass: T,
}

/// Subtracted from a score that is to have no weight in a softmax: it is exactly 0 then.
pub const HIDDEN: f64 = 1e30;

/// All are constants in one type on one device, which is computed in.
fn check_constants<'a>(name: &'static str, first: &Tensor, others: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
    check::element_type(name, first, first.dtype().is_float() && first.dtype().wide() == first.dtype(), "f32 or f64")?;
    let mut tracked = first.is_tracked();
    for other in others {
        check::same_shape(name, first, other)?;
        tracked |= other.is_tracked();
    }
    match tracked {
        true => Err(TensorError::new(name, "the step of one token has no gradient").hint("detach() the operands")),
        false => Ok(()),
    }
}

impl Tensor {
    /// What the token sees, [B, 1, H P], and the last segment of keys and values: those that were joined, and its own behind
    /// them, [B, H, t + 1, P] each.
    ///
    /// For inference: it refuses tracked operands. Errors where types or shapes do not fit.
    pub fn attend_token(token: TokenAttention<'_, Tensor>) -> Result<[Tensor; 3]> {
        let name = "attend_token";
        let TokenAttention { qkv, heads, rotary, past, joined, scale } = token;
        check_constants(name, qkv, past.iter().flat_map(|&(keys, values)| [keys, values]))?;
        let [batch, length, _] = check::expected_rank(name, "vectors", qkv, "[B, 1, 3 H P]")?;
        if length != 1 {
            return Err(TensorError::new(name, format!("there are {length} tokens")).shapes([qkv.shape()]));
        }
        let width = head_width(name, qkv, heads)?;
        if let Some(rotary) = &rotary {
            rotary.check_tables(name, qkv, 1, width)?;
            check_constants(name, qkv, [rotary.cos, rotary.sin])?;
        }
        for (keys, values) in past {
            let [_, _, before, _] = check::expected_rank(name, "keys", keys, "[B, H, t, P]")?;
            let expected = Shape::from([batch, heads, before, width]);
            check::expected_shape(name, "keys", keys, &expected)?;
            check::expected_shape(name, "values", values, &expected)?;
        }
        if joined > past.len() {
            return Err(TensorError::new(name, format!("{joined} of {} segments cannot be joined", past.len())));
        }
        let segments: Vec<(&Array, &Array)> =
            past.iter().map(|(keys, values)| (keys.array(), values.array())).collect();
        let parts = qkv.kernels().attend_token(TokenAttention {
            qkv: qkv.array(),
            heads,
            rotary: rotary.map(|rotary| rotary.as_arrays()),
            past: &segments,
            joined,
            scale,
        })?;
        Ok(parts.map(|part| Tensor::from_array(qkv.device(), part)))
    }

    /// See [`TokenRouting`].
    ///
    /// For inference: it refuses tracked operands. Errors where types or shapes do not fit, or not 1 <= `top_k` <= S.
    pub fn route_token(token: TokenRouting<'_, Tensor>) -> Result<Routed<Tensor>> {
        let name = "route_token";
        let TokenRouting { projected, sides, written, top_k } = token;
        check_constants(name, projected, written.into_iter().flat_map(|(sum, mass)| [sum, mass]).chain([sides]))?;
        let [batch, slots, both] = check::expected_rank(name, "slots", sides, "[B, S, 2 P]")?;
        if slots == 0 || both == 0 || both % 2 != 0 {
            return Err(TensorError::new(name, "slots of two sides are needed").shapes([sides.shape()]));
        }
        check::expected_shape(name, "query and value", projected, &Shape::from([batch, 1, both]))?;
        if let Some((sum, mass)) = written {
            check::expected_shape(name, "sum", sum, &Shape::from([batch, slots, both / 2]))?;
            check::expected_shape(name, "mass", mass, &Shape::from([batch, slots, 1]))?;
        }
        if top_k.is_some_and(|k| k == 0 || k > slots) {
            let problem = format!("{} of {slots} slots cannot be kept", top_k.unwrap_or_default());
            return Err(TensorError::new(name, problem).shapes([sides.shape()]));
        }
        let routed = projected.kernels().route_token(TokenRouting {
            projected: projected.array(),
            sides: sides.array(),
            written: written.map(|(sum, mass)| (sum.array(), mass.array())),
            top_k,
        })?;
        let tensor = |array| Tensor::from_array(projected.device(), array);
        Ok(Routed {
            weights: tensor(routed.weights),
            read: tensor(routed.read),
            sum: tensor(routed.sum),
            mass: tensor(routed.mass),
        })
    }
}

/// [`Kernels::attend_token`] by its parts, which is what it means.
pub(crate) fn attend_token_composed<K: Kernels + ?Sized>(
    k: &K,
    token: TokenAttention<'_, Array>,
) -> Result<[Array; 3]> {
    let TokenAttention { qkv, heads, rotary, past, joined, scale } = token;
    let [q, key, value] = k.heads(qkv, heads, rotary)?;
    let all = |from: usize| {
        let (keys, values): (Vec<&Array>, Vec<&Array>) = past[from..].iter().copied().unzip();
        Ok::<_, TensorError>((append_last(k, keys, &key)?, append_last(k, values, &value)?))
    };
    let (keys, values) = all(0)?;
    let options = AttentionOptions { causal: false, scale, kind: AttentionKind::Flash };
    let (seen, _) = k.attention(&q, &keys, &values, options)?;
    let (keys, values) = if joined == past.len() { (keys, values) } else { all(past.len() - joined)? };
    Ok([seen.viewed([qkv.dims()[0], 1, qkv.shape.last() / 3]), keys, values])
}

/// `last` behind some segments.
fn append_last<'a, K: Kernels + ?Sized>(k: &K, mut segments: Vec<&'a Array>, last: &'a Array) -> Result<Array> {
    if segments.is_empty() {
        return Ok(last.clone());
    }
    segments.push(last);
    k.concat(&segments, 2)
}

/// [`Kernels::route_token`] by its parts, which is what it means.
pub(crate) fn route_token_composed<K: Kernels + ?Sized>(
    k: &K,
    token: TokenRouting<'_, Array>,
) -> Result<Routed<Array>> {
    let (m, TokenRouting { projected, sides, written, top_k }) = (Math(k), token);
    let width = projected.shape.last() / 2;
    let halves = |x: &Array| Ok((k.slice(x, 2, 0, width)?, k.slice(x, 2, width, width)?));
    let ((query, value), (keys, reads)) = (halves(projected)?, halves(sides)?);
    let mut scores = m.scale(&k.matmul(&query, &keys, false, true)?, 1.0 / (width as f64).sqrt())?;
    if let Some(kept) = top_k {
        let hidden = m.scale(&m.offset(&k.top_k_mask(&scores, kept)?, -1.0)?, HIDDEN)?;
        scores = m.add(&scores, &hidden)?;
    }
    let weights = k.softmax(&scores)?;
    let read = k.matmul(&weights, &reads, false, false)?;
    let mut sum = k.matmul(&weights, &value, true, false)?;
    let mut mass = k.reduce(Reduce::Sum, &weights, &[1])?.viewed([sides.dims()[0], sides.dims()[1], 1]);
    if let Some((sum_before, mass_before)) = written {
        sum = m.add(sum_before, &sum)?;
        mass = m.add(mass_before, &mass)?;
    }
    Ok(Routed { weights, read, sum, mass })
}
