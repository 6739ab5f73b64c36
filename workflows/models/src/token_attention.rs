//! The fused operation `attend_token`: attention of one token to itself and to those before it, whose keys and values are cached in
//! segments.
//!
//! | | |
//! |---|---|
//! | inputs | the token's query, key and value side by side [B, 1, 3 H P]; if rotated, tables of cosines and sines [N, P / 2]; then keys and values of each segment, [B, H, t, P] each |
//! | settings | `heads` (H), `scale` (the factor on scores), `joined`: how many of the last segments are joined with the token's own key and value (none without it); if rotated, `first`: the row of the tables |
//! | values | what the token sees [B, 1, H P]; keys and values of the joined segments and the token, [B, H, t + 1, P] each |
//!
//! Queries and keys are rotated as in [`Rotary`]; the cached keys are rotated already. It is for inference, where so little is
//! computed for one token that starting an operation takes longer.

use assay_tensor::{
    Arguments, Array, Attention, AttentionKind, AttentionOptions, Bf16Operands, Example, ExampleInput, ExampleSize,
    FusedOp, HEADS, Kernels, Result, Rotary, Setting, Shape, Tensor, TensorError, check, head_width,
};

/// See the module.
pub static ATTEND_TOKEN: FusedOp =
    FusedOp { name: "attend_token", compose, gradient: None, bf16: Bf16Operands::Converted, examples };

/// Attention of one token to itself and to those before it.
#[derive(Debug)]
pub(crate) struct TokenAttention<'a> {
    /// Its query, key and value side by side, [B, 1, 3 H P].
    pub(crate) qkv: &'a Tensor,
    /// H.
    pub(crate) heads: usize,
    /// The rotary position embedding of query and key, if any.
    pub(crate) rotary: Option<Rotary<'a, Tensor>>,
    /// Keys, rotated already, and values of the tokens before, in segments one after the other, [B, H, t, P] each.
    pub(crate) past: &'a [(&'a Tensor, &'a Tensor)],
    /// How many of the last segments are joined with the token's own key and value: a segment that grows with every token is
    /// copied with every token.
    pub(crate) joined: usize,
    /// The factor on scores.
    pub(crate) scale: f64,
}

/// What the token sees, [B, 1, H P], and the last segment of keys and values: those that were joined, and its own behind them,
/// [B, H, t + 1, P] each.
///
/// # Errors
/// If types or shapes do not fit, or an operand is tracked.
pub(crate) fn attend_token(token: TokenAttention<'_>) -> Result<[Tensor; 3]> {
    let name = ATTEND_TOKEN.name;
    let TokenAttention { qkv, heads, rotary, past, joined, scale } = token;
    check::float_types(name, &[qkv])?;
    let [batch, length, _] = check::expected_rank(name, "vectors", qkv, "[B, 1, 3 H P]")?;
    if length != 1 {
        return Err(TensorError::new(name, format!("there are {length} tokens")).shapes([qkv.shape()]));
    }
    let width = head_width(name, qkv, heads)?;
    let mut inputs = Vec::with_capacity(3 + 2 * past.len());
    let mut settings = vec![("heads", heads as f64), ("scale", scale), ("joined", joined as f64)];
    inputs.push(qkv);
    if let Some(rotary) = &rotary {
        rotary.check_tables(name, qkv, 1, width)?;
        inputs.extend([rotary.cos, rotary.sin]);
        settings.push(("first", rotary.first as f64));
    }
    for &(keys, values) in past {
        let [_, _, before, _] = check::expected_rank(name, "keys", keys, "[B, H, t, P]")?;
        let expected = Shape::from([batch, heads, before, width]);
        check::expected_shape(name, "keys", keys, &expected)?;
        check::expected_shape(name, "values", values, &expected)?;
        inputs.extend([keys, values]);
    }
    if joined > past.len() {
        return Err(TensorError::new(name, format!("{joined} of {} segments cannot be joined", past.len())));
    }
    Tensor::fused_values(&ATTEND_TOKEN, &inputs, &settings)
}

/// The definition.
fn compose(k: &dyn Kernels, call: Arguments<'_>) -> Result<Vec<Array>> {
    let (qkv, rotary) = (call.input(0)?, Rotary::of_call(call, 1)?);
    let (vectors, past) = call.inputs.split_at(if rotary.is_some() { 3 } else { 1 });
    let ((past, _), joined) = (past.as_chunks::<2>(), call.count("joined").unwrap_or(0));
    let [q, key, value] = &HEADS.values(k, Arguments { inputs: vectors, ..call })?;
    let all = |from: usize| {
        let (keys, values) = past[from..].iter().map(|[keys, values]| (*keys, *values)).unzip();
        Ok::<_, TensorError>((append_last(k, keys, key)?, append_last(k, values, value)?))
    };
    let (keys, values) = all(0)?;
    let options = AttentionOptions { causal: false, scale: call.required("scale")?, kind: AttentionKind::Flash };
    let (seen, _) = Attention { q, k: &keys, v: &values, options }.run(k)?;
    let (keys, values) = if joined == past.len() { (keys, values) } else { all(past.len() - joined)? };
    Ok(vec![seen.viewed([qkv.dims()[0], 1, qkv.shape.last() / 3]), keys, values])
}

/// `last` behind some segments.
fn append_last<'a>(k: &dyn Kernels, mut segments: Vec<&'a Array>, last: &'a Array) -> Result<Array> {
    if segments.is_empty() {
        return Ok(last.clone());
    }
    segments.push(last);
    k.concat(&segments, 2)
}

/// After segments of these lengths, of which the last `joined` are joined; rotated if a first row is given.
fn example([b, h, p]: [usize; 3], lengths: &[usize], joined: usize, first: Option<usize>) -> Example {
    let mut inputs = vec![ExampleInput::floats([b, 1, 3 * h * p])];
    let mut settings: Vec<Setting> = vec![("heads", h as f64), ("scale", 0.6), ("joined", joined as f64)];
    if let Some(first) = first {
        inputs.extend([0, 1].map(|_| ExampleInput::between(-1.0, 1.0, [first + 2, p / 2])));
        settings.push(("first", first as f64));
    }
    for length in lengths {
        inputs.extend([0, 1].map(|_| ExampleInput::floats([b, h, *length, p])));
    }
    Example { inputs, settings }
}

/// One token after none, after `t` others, and after segments of `t`, `t` and 3, of which some are joined.
fn examples_after(sizes: [usize; 3], t: usize, first: Option<usize>) -> Vec<Example> {
    let lengths = [t, t, 3];
    let segments = [(0, 0), (1, 0), (1, 1), (3, 1), (3, 2), (3, 3)];
    segments.map(|(count, joined)| example(sizes, &lengths[..count], joined, first)).into()
}

fn examples(size: ExampleSize) -> Vec<Example> {
    match size {
        ExampleSize::Small => {
            let sizes = [([1, 1, 2], 0), ([2, 3, 4], 1), ([1, 2, 34], 5), ([2, 1, 66], 9), ([0, 2, 2], 3)];
            let both = |(sizes, t)| [None, Some(4)].map(|first| examples_after(sizes, t, first));
            sizes.into_iter().flat_map(both).flatten().collect()
        }
        ExampleSize::Medium => examples_after([2, 3, 64], 130, Some(1)),
        ExampleSize::Large => examples_after([3, 4, 64], 700, Some(2)),
    }
}

#[cfg(test)]
mod tests {
    use assay_tensor::DType;

    use super::*;

    #[test]
    fn bad_operands_are_refused() {
        let device = assay_reference::device();
        let floats = |shape: &[usize]| Tensor::full(&device, shape, DType::F32, 0.5).unwrap();
        let after = |qkv: &Tensor, past: &[(&Tensor, &Tensor)], joined: usize| {
            let token = TokenAttention { qkv, heads: 2, rotary: None, past, joined, scale: 1.0 };
            attend_token(token).unwrap_err().to_string()
        };
        for (qkv, past, words) in [
            ([2, 2, 12], vec![2, 2, 5, 2], "there are 2 tokens"),
            ([2, 1, 12], vec![2, 3, 5, 2], "the keys should have the second shape"),
            ([2, 1, 12], vec![2, 5], "the keys should be [B, H, t, P]"),
            ([2, 1, 10], vec![2, 2, 5, 2], "10 channels are not three times 2 heads"),
        ] {
            let past = floats(&past);
            let error = after(&floats(&qkv), &[(&past, &past)], 1);
            assert!(error.starts_with("attend_token: ") && error.contains(words), "{error}");
        }
        let qkv = floats(&[2, 1, 12]);
        assert!(after(&qkv, &[], 1).contains("1 of 0 segments cannot be joined"));
        assert!(after(&qkv.variable(), &[], 0).contains("no gradient"));
    }
}
